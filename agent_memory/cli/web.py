"""The command web: pages for people in a browser of this host."""

from __future__ import annotations

import asyncio
from contextlib import closing

import click

from agent_memory.cli.log_options import location_of, log_option
from agent_memory.cli.output import Exit, printable, show_json
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Access, Command, Settings, login_name, open_store, pass_settings
from agent_memory.service import AsyncAgentMemoryService


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port; 0 is any free port.")
@click.option("--as", "person", metavar="NAME", help="The actor of changes.  [default: --actor]")
@click.option("--allow-write", is_flag=True, help="Let the pages restore, undo and redact.")
@log_option
@pass_settings
def web(settings: Settings, port: int, person: str | None, allow_write: bool, target: str | None) -> None:
    """Show the store in a browser: agents, files, versions and the audit log; with --agent only this agent.

    Serves this host only, until a signal ends it. The link that is printed on stderr opens the pages in one browser,
    once, within 60 seconds.
    """
    from agent_memory.web import LeftOutNames, serve_web

    access = Access.MAKE if allow_write else Access.READ
    options = settings.storage_options()
    location = location_of(settings, target)
    with (
        closing(location.store),
        settings.recorded(settings.url, options, access) as plugins,
        open_store(settings.url, options, settings) as store,
    ):
        require_store(store.backend, settings.url, settings.chosen_agent)
        if target is not None and not location.parts():
            raise click.ClickException("there is no audit log")
        actor = person or settings.actor or login_name()
        service = AsyncAgentMemoryService(store.backend, plugins=[*plugins, LeftOutNames()], actor=actor)

        def announce(link: str) -> None:
            if settings.json:
                show_json({"link": link, "seconds": 60}, err=True)
            else:
                click.echo(printable(f"Open within 60 seconds, in one browser: {link}"), err=True)

        async def until_ended() -> None:
            async with service:
                await serve_web(
                    service, agent=settings.chosen_agent, log=location, allow_write=allow_write, port=port,
                    listening=announce,
                )  # fmt: skip

        try:
            asyncio.run(until_ended())
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
