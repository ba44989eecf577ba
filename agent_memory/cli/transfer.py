"""The commands import, export and transfer: they transfer many files, rename none, and report each omitted file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from agent_memory.cli.folder import Blocks, Folder
from agent_memory.cli.inspection import agents_of
from agent_memory.cli.leaving_out import (
    Sieve,
    ignored_by_git,
    in_form_c,
    named_once,
    not_imported,
    note_exported,
    notes_of,
)
from agent_memory.cli.output import counted
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
from agent_memory.cli.transferring import (
    Put,
    Target,
    TransferResult,
    Untransferred,
    failure,
    finish,
    read_file,
    transfer_all,
    unnameable,
)
from agent_memory.core.one_file import fails_alone
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, InvalidAgentIdError
from agent_memory.key import RESERVED, Key
from agent_memory.memory import AgentMemory
from agent_memory.service import AgentMemoryService

F = TypeVar("F", bound=Callable[..., Any])


def with_overwrite(command: F) -> F:
    return click.option("--overwrite", is_flag=True, help="Replace files that have other content.")(command)


def with_dry_run(command: F) -> F:
    help_ = "Write nothing, and ask no plugin whether it may be written; print the files that would be written."
    return click.option("--dry-run", is_flag=True, help=help_)(command)


@click.command("import", cls=Command)
@click.argument("directory")
@with_overwrite
@click.option("--all", "everything", is_flag=True, help="Import .git, .env, .env.*, .DS_Store and the like too.")
@click.option(
    "--exclude",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help='Leave out files and directories with this name, or with this path if it has a "/"; may be repeated.',
)
@click.option("--gitignore", is_flag=True, help="Leave out files that the .gitignore files in DIRECTORY ignore.")
@with_dry_run
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
    with a suggestion; a name in Unicode form D, as macOS writes it, is stored in form C. Symbolic links are not
    followed. A repository (.git), credentials (.env, .env.*, but not .env.example) and the files of desktops
    (.DS_Store, ._*, Thumbs.db, desktop.ini) are left out and printed, unless export wrote them to this folder.
    """
    settings.no_audit |= dry_run
    with settings.store(Access.MAKE) as store, _folder(directory, make=False) as folder:
        found = folder.find()
        ignored = ignored_by_git(directory, found.paths()) if gitignore else frozenset()
        sieve = Sieve(folder, everything=everything, patterns=patterns, ignored=ignored)
        found = found.where(sieve.takes)
        memory = store.service.agent(settings.agent)
        target = Target(memory, overwrite=overwrite, dry_run=dry_run)
        files, twins = named_once(found.files)

        def read(path: str, put: Put) -> bool:
            with folder.reading(path) as (size, blocks):
                return put(size, blocks)

        def write(path: str, size: int, blocks: Blocks) -> bool:
            return target.put(in_form_c(path), size, blocks)

        result = transfer_all("Importing", files, read, write)
    composed = sum(path != in_form_c(path) for path in result.written)
    result.written = [in_form_c(path) for path in result.written]
    result.left += [*twins, *not_imported(found)]
    if composed:
        result.notes.append(f"{counted(composed, 'name')} in Unicode form D, as macOS writes it, stored in form C")
    result.notes += notes_of(found, sieve)
    result.left_out = sieve.left_out
    finish(settings, "would import" if dry_run else "imported", result, dry_run=dry_run)


@click.command(cls=Command)
@click.argument("directory")
@with_overwrite
@pass_settings
def export(settings: Settings, directory: str, overwrite: bool) -> None:
    """Copy the memory into a folder of this host.

    DIRECTORY is created if it is missing. Files that exist with the same content are not written again. Nothing is
    written outside DIRECTORY or through a symbolic link.
    """
    _refuse_own_store(settings.url, directory)
    with _existing_agent(settings) as memory, _folder(directory, make=True) as folder:
        paths, doubled = _apart(folder, [entry.path for entry in memory.list()])
        write = partial(folder.put, overwrite=overwrite)
        result = transfer_all("Exporting", paths, partial(read_file, memory), write)
        result.left += doubled
        left = {each.path for each in result.left}
        if not result.untried:
            note_exported(folder, [path for path in paths if path not in left])
    result.left += unnameable(settings)
    finish(settings, "exported", result)


@contextmanager
def _existing_agent(settings: Settings) -> Iterator[AgentMemory]:
    """The memory to read; raises as `require_agent`, so that a mistyped agent makes no folder."""
    with settings.store(Access.READ) as store:
        require_agent(store.service, store.backend, settings.url, settings.agent)
        yield store.service.agent(settings.agent)


def _refuse_own_store(url: str, directory: str) -> None:
    """Refuse to write past the store into its own files: of another agent, or of the package."""
    if (root := local_root(url)) is None:
        return
    folder = Path(directory).resolve()
    agents = Key.agent("any").storage.partition("/")[0]
    if any(folder.is_relative_to(root.resolve() / name) for name in (agents, RESERVED)):
        raise click.ClickException("the folder is inside the store itself; choose another one")


def _apart(folder: Folder, paths: list[str]) -> tuple[list[str], list[Untransferred]]:
    """The files that the folder keeps apart, and those with a name that an earlier one has in another case."""
    spelled = dict[str, str]()

    def taken_by(path: str) -> str | None:
        names = [*(path[: match.start()] for match in re.finditer("/", path)), path]
        return next((found for name in names if (found := spelled.setdefault(name.casefold(), name)) != name), None)

    doubled = {path: other for path in paths if (other := taken_by(path)) is not None}
    if not doubled or not folder.folds_case():
        return paths, []
    left = [Untransferred(path, _other_case(path, other)) for path, other in sorted(doubled.items())]
    return [path for path in paths if path not in doubled], left


def _other_case(path: str, other: str) -> FileAlreadyExistsError:
    message = (
        f"the folder ignores case, so this name and {other!r} are one there; rename one of the two in the memory, or "
        "export to a folder that does not ignore case"
    )
    return FileAlreadyExistsError(message, "other_case", path=path)


@contextmanager
def _folder(path: str, *, make: bool) -> Iterator[Folder]:
    try:
        folder = Folder(path, make=make)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"the folder {path!r} cannot be opened: {reason}") from error
    with folder:
        yield folder


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
def transfer(
    settings: Settings,
    source: str,
    target: str,
    overwrite: bool,
    from_option: tuple[tuple[str, object], ...],
    to_option: tuple[tuple[str, object], ...],
    dry_run: bool,
) -> None:
    """Transfer the files of all agents of one store to another, or only those of --agent.

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
        result = _transferred(
            here.service, agents, lambda agent: Target(there.service.agent(agent), overwrite=overwrite, dry_run=dry_run)
        )
        if settings.chosen_agent is None:
            result.left += _no_agents(here)
            if result == TransferResult() and not settings.skipped.count:
                hint = "; 'import' copies a tree without agents" if local_root(source) else ""
                raise click.ClickException(f"no agent has files in {source!r}{hint}")
    result.left += unnameable(settings)
    finish(settings, "would transfer" if dry_run else "transferred", result, dry_run=dry_run)


def _transferred(
    source: AgentMemoryService, agents: Iterable[str], target_of: Callable[[str], Target]
) -> TransferResult:
    """Transfer all files of these agents; an agent whose files cannot be listed is left out."""
    files: list[str] = []
    targets: dict[str, Target] = {}
    left: list[Untransferred] = []
    for agent in agents:
        try:
            targets[agent] = target_of(agent)
            files += [f"{agent}/{entry.path}" for entry in source.agent(agent).list()]
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            left.append(Untransferred(agent, error))

    def read(name: str, put: Put) -> bool:
        agent, _, path = name.partition("/")
        return read_file(source.agent(agent), path, put)

    def write(name: str, size: int, blocks: Blocks) -> bool:
        agent, _, path = name.partition("/")
        return targets[agent].put(path, size, blocks)

    result = transfer_all("Transferring", files, read, write)
    result.left += left
    return result


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
