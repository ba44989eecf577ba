"""The command web: pages for people in a browser of this host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import click

from agent_memory.audit import LogLocation
from agent_memory.cli.log_options import location_of, log_option
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Access, Command, Settings, login_name, open_store, pass_settings
from agent_memory.cli.signals import run
from agent_memory.key.quoting import field
from agent_memory.service import AsyncAgentMemoryService


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port; 0 is any free port.")
@click.option("--as", "person", metavar="NAME", help="The actor of changes.  [default: --actor]")
@click.option("--allow-write", is_flag=True, help="Let the pages restore, take back, undo and redact.")
@log_option
@pass_settings
def web(settings: Settings, port: int, person: str | None, allow_write: bool, target: str | None) -> None:
    """Show the store in a browser: agents, files, versions and the audit log; with --agent only this agent.

    Serves this host only, until a signal ends it. The link that is printed on stderr opens the pages in one browser,
    once, within 60 seconds.
    """
    from agent_memory.web import serve_web

    with _opened(settings, target, person, Access.MAKE if allow_write else Access.READ) as (service, location):

        def announce(link: str) -> None:
            if settings.json:
                show_json({"link": link, "seconds": 60}, err=True)
            else:
                click.echo(printable(f"Open within 60 seconds, in one browser: {link}"), err=True)

        serve = partial(serve_web, agent=settings.chosen_agent, log=location, allow_write=allow_write, port=port)
        try:
            run(service, partial(serve, service, listening=announce))
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None


@contextmanager
def _opened(
    settings: Settings, target: str | None, person: str | None, access: Access
) -> Iterator[tuple[AsyncAgentMemoryService, LogLocation]]:
    """The service of an existing store, and its log."""
    from agent_memory.web import LeftOutNames

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
        yield AsyncAgentMemoryService(store.backend, plugins=[*plugins, LeftOutNames()], actor=actor), location


def export_html(settings: Settings, directory: Path, versions: bool) -> None:
    """Write the pages into a directory; exits with 1 if a page could not be made."""
    from agent_memory.web import export_pages

    with _opened(settings, None, None, Access.READ) as (service, location):
        agent = settings.chosen_agent
        result = run(service, lambda: export_pages(service, directory, agent=agent, log=location, versions=versions))
    for address, reason in result.failed:
        note(f"left out {field(address)}: {reason}")
    text = f"exported {counted(result.pages, 'page')}: open {directory / 'index.html'}"
    settings.show({"pages": result.pages, "failed": [list(each) for each in result.failed]}, text)
    if result.failed:
        raise click.exceptions.Exit(Exit.FAILED)
