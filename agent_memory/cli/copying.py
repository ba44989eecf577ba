"""The command copy: from one store to another, all agents or one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import click

from agent_memory.cli.inspection import agents_of
from agent_memory.cli.moving import Target, TransferResult, Untransferred, failure, move_all
from agent_memory.cli.presence import local_root, require_agent, require_store
from agent_memory.cli.settings import (
    Access,
    Command,
    OpenStore,
    Settings,
    SkippedNames,
    key_value,
    open_store,
    pass_settings,
)
from agent_memory.cli.transfer import copied_file, finish, unnameable, with_dry_run, with_overwrite
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, InvalidAgentIdError
from agent_memory.service import AgentMemoryService


@click.command(cls=Command)
@click.argument("source")
@click.argument("target")
@with_overwrite
@click.option(
    "--from-option",
    multiple=True,
    type=key_value,
    metavar="KEY=VALUE",
    help="An option for SOURCE only; may be repeated.",
)
@click.option(
    "--to-option",
    multiple=True,
    type=key_value,
    metavar="KEY=VALUE",
    help="An option for TARGET only; may be repeated.",
)
@with_dry_run
@pass_settings
def copy(
    settings: Settings,
    source: str,
    target: str,
    overwrite: bool,
    from_option: tuple[tuple[str, object], ...],
    to_option: tuple[tuple[str, object], ...],
    dry_run: bool,
) -> None:
    """Copy all agents of one store to another, or only --agent.

    SOURCE and TARGET are paths or URLs. Files that exist with the same content are not written again. -o and its
    environment variable apply to a SOURCE or TARGET that is neither on the local disk nor in memory. With --dry-run,
    the files of both stores are compared, and nothing is written.
    """
    settings.no_audit |= dry_run
    target_options = _options_for(target, settings, to_option)
    with (
        settings.configured() as reading,
        settings.recorded(target, target_options, Access.MAKE) as writing,
        open_store(source, _options_for(source, settings, from_option), settings, reading) as here,
        open_store(target, target_options, _uncounted(settings), writing) as there,
    ):
        if settings.chosen_agent is None:
            require_store(here.backend, source)
        else:
            require_agent(here.service, here.backend, source, settings.chosen_agent)
        agents = here.service.agent_ids() if settings.chosen_agent is None else (settings.chosen_agent,)
        moved = _copied(
            here.service, agents, lambda agent: Target(there.service.agent(agent), overwrite=overwrite, dry_run=dry_run)
        )
        if settings.chosen_agent is None:
            moved.left += _no_agents(here)
            if moved == TransferResult() and not settings.skipped.count:
                hint = "; 'import' copies a tree without agents" if local_root(source) else ""
                raise click.ClickException(f"no agent has files in {source!r}{hint}")
    moved.left += unnameable(settings)
    finish(settings, "would copy" if dry_run else "copied", moved, dry_run=dry_run)


def _copied(source: AgentMemoryService, agents: Iterable[str], target_of: Callable[[str], Target]) -> TransferResult:
    """Copy all files of these agents; an agent whose files cannot be listed is left out."""
    files: list[tuple[str, str]] = []
    targets: dict[str, Target] = {}
    left: list[Untransferred] = []
    for agent in agents:
        try:
            targets[agent] = target_of(agent)
            files += [(agent, entry.path) for entry in source.agent(agent).list()]
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            left.append(Untransferred(agent, error))

    def put(file: tuple[str, str]) -> bool:
        agent, path = file
        return copied_file(source.agent(agent), path, partial(targets[agent].put, path))

    moved = move_all("Copying", files, put, "/".join)
    moved.left += left
    return moved


def _no_agents(store: OpenStore) -> list[Untransferred]:
    left = []
    for name in agents_of(store.backend).strays:
        try:
            store.service.agent(name)
        except InvalidAgentIdError as error:
            left.append(Untransferred(name, error))
        else:
            left.append(failure(name, "a file, not the directory of an agent"))
    return left


def _uncounted(settings: Settings) -> Settings:
    return replace(settings, skipped=SkippedNames())


def _options_for(url: str, settings: Settings, own: tuple[tuple[str, object], ...]) -> dict[str, object]:
    scheme, remote, _ = url.partition("://")
    is_remote = bool(remote) and scheme.lower() not in ("file", "local", "memory")
    return {**(settings.given_options() if is_remote else {}), **dict(own)}
