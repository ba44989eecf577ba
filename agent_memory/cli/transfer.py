"""The commands import, export and copy: they transfer many files, rename none, and report each omitted file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import click

from agent_memory.cli.folder import BLOCK, Blocks, Folder, FolderContents, link_refused
from agent_memory.cli.inspection import agents_of
from agent_memory.cli.leaving_out import Sieve, ignored_by_git, note_exported
from agent_memory.cli.moving import Target, TransferResult, Untransferred, failure, line_of, move_all
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.presence import local_root, require_store
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
from agent_memory.errors import (
    FileAlreadyExistsError,
    FileOperationError,
    InvalidAgentIdError,
    InvalidPathError,
    OperationDenied,
)
from agent_memory.key import RESERVED, RULES
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step
from agent_memory.service import AgentMemoryService

F = TypeVar("F", bound=Callable[..., Any])
_MOST_LINES = 100


def _overwriting(command: F) -> F:
    return click.option("--overwrite", is_flag=True, help="Replace files that have other content.")(command)


@click.command("import", cls=Command)
@click.argument("directory")
@_overwriting
@click.option("--all", "everything", is_flag=True, help="Import .git, .env and .env.* too.")
@click.option(
    "--exclude",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help='Leave out files and directories with this name, or with this path if it has a "/"; may be repeated.',
)
@click.option("--gitignore", is_flag=True, help="Leave out files that the .gitignore files in DIRECTORY ignore.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print the files that would be written.")
@pass_settings
def import_(
    settings: Settings,
    directory: str,
    overwrite: bool,
    everything: bool,
    patterns: tuple[str, ...],
    gitignore: bool,
    dry_run: bool,
) -> None:
    """Copy a folder of this host into the memory.

    Files that exist with the same content are not written again. A file with an invalid name is left out and reported
    with a suggestion. Symbolic links are not followed. A repository (.git) and credentials (.env, .env.*) are left out
    and printed, unless export wrote them to this folder.
    """
    settings.no_audit |= dry_run
    with settings.store(Access.MAKE) as store, _folder(directory, make=False) as folder:
        found = folder.find()
        ignored = ignored_by_git(directory, found.paths()) if gitignore else frozenset()
        sieve = Sieve(folder, everything=everything, patterns=patterns, ignored=ignored)
        found = found.where(sieve.takes)
        memory = store.service.agent(settings.agent)
        target = Target(memory.read_only() if dry_run else memory, overwrite=overwrite)

        def put(path: str) -> bool:
            with folder.reading(path) as (size, blocks):
                return target.put(path, size, blocks)

        would_write: list[str] = []
        moved = move_all("Importing", found.files, _dry(put, would_write) if dry_run else put, lambda path: path)
    moved.left += _not_imported(found)
    moved.notes += _notes(found, sieve)
    moved.left_out = sieve.left_out
    if dry_run and not settings.json:
        for path in sorted(would_write):
            click.echo(printable(f"would write {path}"))
    _finish(settings, "would import" if dry_run else "imported", moved)


def _dry(put: Callable[[str], bool], would_write: list[str]) -> Callable[[str], bool]:
    """``put`` for a read-only memory, where a refusal means that the file would be written."""

    def would_put(path: str) -> bool:
        try:
            return put(path)
        except OperationDenied:
            would_write.append(path)
            return True

    return would_put


@click.command(cls=Command)
@click.argument("directory")
@_overwriting
@pass_settings
def export(settings: Settings, directory: str, overwrite: bool) -> None:
    """Copy the memory into a folder of this host.

    DIRECTORY is created if it is missing. Files that exist with the same content are not written again. Nothing is
    written outside DIRECTORY or through a symbolic link.
    """
    with settings.memory(Access.READ) as memory, _folder(directory, make=True) as folder:
        paths = [entry.path for entry in memory.list()]

        def put(path: str) -> bool:
            return _copied_file(memory, path, lambda size, blocks: folder.put(path, size, blocks, overwrite=overwrite))

        moved = move_all("Exporting", paths, put, lambda path: path)
        left = {each.path for each in moved.left}
        if not moved.untried:
            note_exported(folder, [path for path in paths if path not in left])
    moved.left += _unnameable(settings)
    _finish(settings, "exported", moved)


@click.command(cls=Command)
@click.argument("source")
@click.argument("target")
@_overwriting
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
@pass_settings
def copy(
    settings: Settings,
    source: str,
    target: str,
    overwrite: bool,
    from_option: tuple[tuple[str, object], ...],
    to_option: tuple[tuple[str, object], ...],
) -> None:
    """Copy all agents of one store to another, or only --agent.

    SOURCE and TARGET are paths or URLs. Files that exist with the same content are not written again. -o and its
    environment variable apply to a SOURCE or TARGET that is neither on the local disk nor in memory.
    """
    target_options = _options_for(target, settings, to_option)
    with (
        settings.configured() as reading,
        settings.recorded(target, target_options, Access.MAKE) as writing,
        open_store(source, _options_for(source, settings, from_option), settings, reading) as here,
        open_store(target, target_options, _uncounted(settings), writing) as there,
    ):
        require_store(here.backend, source, settings.chosen_agent)
        moved = _copied(here.service, there.service, overwrite, settings.chosen_agent)
        if settings.chosen_agent is None:
            moved.left += _no_agents(here)
            if moved == TransferResult() and not settings.skipped.count:
                hint = "; 'import' copies a tree without agents" if local_root(source) else ""
                raise click.ClickException(f"no agent has files in {source!r}{hint}")
    moved.left += _unnameable(settings)
    _finish(settings, "copied", moved)


def _copied_file(memory: AgentMemory, path: str, put: Callable[[int, Blocks], bool]) -> bool:
    """Copy a file of a memory with ``put``, in blocks of one version of the file."""

    async def copy(reader: Reader) -> bool:
        first = await reader.read(0, BLOCK)
        return put(reader.size, lambda: _blocks(reader, first))

    return memory.scan(path, copy)


def _blocks(reader: Reader, first: bytes) -> Iterator[bytes]:
    yield first
    for start in range(len(first), reader.size, BLOCK):
        yield step(reader.read(start, start + BLOCK))


def _copied(
    source: AgentMemoryService, target: AgentMemoryService, overwrite: bool, agent: str | None
) -> TransferResult:
    agents = source.agent_ids() if agent is None else (agent,)
    targets = {agent: Target(target.agent(agent), overwrite=overwrite) for agent in agents}
    files = [(agent, entry.path) for agent in agents for entry in source.agent(agent).list()]

    def put(file: tuple[str, str]) -> bool:
        agent, path = file
        return _copied_file(source.agent(agent), path, partial(targets[agent].put, path))

    return move_all("Copying", files, put, "/".join)


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


@contextmanager
def _folder(path: str, *, make: bool) -> Iterator[Folder]:
    try:
        folder = Folder(path, make=make)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"the folder {path!r} cannot be opened: {reason}") from error
    with folder:
        yield folder


def _not_imported(found: FolderContents) -> list[Untransferred]:
    return [
        *(Untransferred(path, link_refused(path)) for path in found.links),
        *(Untransferred(path, InvalidPathError(RULES["too-deep"], "too-deep", path=path)) for path in found.too_deep),
        *(failure(path, "not a regular file") for path in found.special),
        *(failure(path, reason) for path, reason in found.unreadable),
    ]


def _notes(found: FolderContents, sieve: Sieve) -> list[str]:
    notes = []
    if found.empty:
        notes.append(f"{counted(found.empty, 'empty directory', 'empty directories')} left out: a memory has none")
    notes += [f"--exclude {pattern!r} matches nothing" for pattern in sieve.unmatched]
    if found.own and not sieve.is_of_export:
        notes.append(f"{RESERVED}/ is a store's own directory and is left out")
    return notes


def _unnameable(settings: Settings) -> list[Untransferred]:
    if not (count := settings.skipped.count):
        return []
    text = f"{counted(count, 'name')} in storage left out: not a valid path, or no access; doctor counts them"
    return [Untransferred("", InvalidPathError(text, "unnameable"))]


def _finish(settings: Settings, done: str, moved: TransferResult) -> None:
    if settings.json:
        show_json(_document(moved))
    else:
        _print(done, moved)
    click.get_current_context().exit(moved.code)


def _document(moved: TransferResult) -> dict[str, Any]:
    return {
        "written": moved.written,
        "equal": moved.equal,
        "left": [left.document() for left in moved.left],
        "left_out": moved.left_out,
        "untried": moved.untried,
        "notes": moved.notes,
        "exit_code": int(moved.code),
    }


def _print(done: str, moved: TransferResult) -> None:
    for left in moved.left[:_MOST_LINES]:
        click.echo(f"{_verdict(left)}: {line_of(left)}", err=True)
    if (more := len(moved.left) - _MOST_LINES) > 0:
        click.echo(f"... and {more:,} more; --json lists all", err=True)
    for path, by in islice(moved.left_out.items(), _MOST_LINES):
        click.echo(printable(f"Left out ({by}): {path!r}"), err=True)
    if (more := len(moved.left_out) - _MOST_LINES) > 0:
        click.echo(f"... and {more:,} more; --json lists all", err=True)
    for text in moved.notes:
        note(text)
    untried = f", {moved.untried:,} not tried after too many failures" if moved.untried else ""
    out = len(moved.left) + len(moved.left_out)
    left_out = f", {out:,} left out" if out else ""
    click.echo(f"{done} {counted(moved.written, 'file')}, {moved.equal:,} were there already{left_out}{untried}")


def _verdict(left: Untransferred) -> str:
    if isinstance(left.error, FileAlreadyExistsError):
        return "Different"
    return "Failed" if isinstance(left.error, FileOperationError) or left.code is Exit.FAILED else "Refused"
