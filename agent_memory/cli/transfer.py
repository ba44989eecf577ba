"""The commands import and export: they transfer many files, rename none, and report each omitted file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from agent_memory.cli.folder import BLOCK, Blocks, Folder, FolderContents, link_refused
from agent_memory.cli.leaving_out import Sieve, ignored_by_git, in_form_c, note_exported
from agent_memory.cli.moving import Target, TransferResult, Untransferred, failure, line_of, move_all
from agent_memory.cli.output import Exit, counted, note, printable, show_json
from agent_memory.cli.presence import local_root, require_agent
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.errors import FileAlreadyExistsError, FileOperationError, InvalidPathError
from agent_memory.key import RESERVED, RULES, Key
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step

F = TypeVar("F", bound=Callable[..., Any])
_MOST_LINES = 100


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
        files, twins = _named_once(found.files)

        def put(path: str) -> bool:
            with folder.reading(path) as (size, blocks):
                return target.put(in_form_c(path), size, blocks)

        moved = move_all("Importing", files, put, str)
    composed = sum(path != in_form_c(path) for path in moved.written)
    moved.written = [in_form_c(path) for path in moved.written]
    moved.left += [*twins, *_not_imported(found)]
    if composed:
        moved.notes.append(f"{counted(composed, 'name')} in Unicode form D, as macOS writes it, stored in form C")
    moved.notes += _notes(found, sieve)
    moved.left_out = sieve.left_out
    finish(settings, "would import" if dry_run else "imported", moved, dry_run=dry_run)


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

        def put(path: str) -> bool:
            return copied_file(memory, path, lambda size, blocks: folder.put(path, size, blocks, overwrite=overwrite))

        moved = move_all("Exporting", paths, put, str)
        moved.left += doubled
        left = {each.path for each in moved.left}
        if not moved.untried:
            note_exported(folder, [path for path in paths if path not in left])
    moved.left += unnameable(settings)
    finish(settings, "exported", moved)


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


def copied_file(memory: AgentMemory, path: str, put: Callable[[int, Blocks], bool]) -> bool:
    """Copy a file of a memory with ``put``, in blocks of one version of the file."""

    async def copy(reader: Reader) -> bool:
        first = await reader.read(0, BLOCK)
        return put(reader.size, lambda: _blocks(reader, first))

    return memory.scan(path, copy)


def _blocks(reader: Reader, first: bytes) -> Iterator[bytes]:
    yield first
    for start in range(len(first), reader.size, BLOCK):
        yield step(reader.read(start, start + BLOCK))


@contextmanager
def _folder(path: str, *, make: bool) -> Iterator[Folder]:
    try:
        folder = Folder(path, make=make)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"the folder {path!r} cannot be opened: {reason}") from error
    with folder:
        yield folder


def _named_once(paths: Sequence[str]) -> tuple[list[str], list[Untransferred]]:
    """The paths with different names in form C; of paths with the same name, that in form C or else the first."""
    files: dict[str, str] = {}
    twins = []
    for path in sorted(paths, key=lambda each: each != in_form_c(each)):
        name = in_form_c(path)
        if name in files:
            text = f"the folder has another file with this name in Unicode form C, {files[name]!a}"
            twins.append(Untransferred(path, FileAlreadyExistsError(text, path=ascii(path))))
        else:
            files[name] = path
    return sorted(files.values()), twins


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


def unnameable(settings: Settings) -> list[Untransferred]:
    if not (count := settings.skipped.count):
        return []
    text = f"{counted(count, 'name')} in storage left out: not a valid path, or no access; doctor counts them"
    return [Untransferred("", InvalidPathError(text, "unnameable"))]


def finish(settings: Settings, done: str, moved: TransferResult, *, dry_run: bool = False) -> None:
    if settings.json:
        show_json({**_document(moved), **({"would_write": sorted(moved.written)} if dry_run else {})})
    else:
        for name in sorted(moved.written) if dry_run else ():
            click.echo(printable(f"would write {name}"))
        _print(done, moved)
    click.get_current_context().exit(moved.code)


def _document(moved: TransferResult) -> dict[str, Any]:
    return {
        "written": len(moved.written),
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
    click.echo(f"{done} {counted(len(moved.written), 'file')}, {moved.equal:,} were there already{left_out}{untried}")


def _verdict(left: Untransferred) -> str:
    if isinstance(left.error, FileAlreadyExistsError):
        return "Different"
    return "Failed" if isinstance(left.error, FileOperationError) or left.code is Exit.FAILED else "Refused"
