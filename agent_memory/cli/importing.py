"""The commands import and export: copy a folder of this host into a memory, and back; each omitted file is reported."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Final

import click

from agent_memory.cli.bringing import bring
from agent_memory.cli.folder import Blocks, Folder, FolderContents
from agent_memory.cli.leaving_out import Sieve, in_form_c, note_exported
from agent_memory.cli.output import counted
from agent_memory.cli.presence import local_root, require_agent
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.sources import source_of
from agent_memory.cli.target import Target
from agent_memory.cli.transfer import (
    Put,
    Untransferred,
    dry_run_option,
    finish,
    overwrite_option,
    read_file,
    transfer_all,
    unnameable,
)
from agent_memory.errors import FileAlreadyExistsError
from agent_memory.key import RESERVED, Key
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory
from agent_memory.plugins._host_files import read_host_file

_GIT_SECONDS: Final = 60


@click.command("import", cls=Command)
@click.argument("directory", required=False)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    help="Show the memories and conversations of claude-code, codex, memory-bank (folders here or one level below), "
    "or of a file or folder; --yes imports them.",
)
@click.option("-y", "--yes", is_flag=True, help="Import the files of --from, which are else only shown.")
@overwrite_option
@click.option("--all", "everything", is_flag=True, help="Import .git, .env, .env.*, .DS_Store and the like too.")
@click.option(
    "--exclude",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help='Leave out files and directories with this name, or with this path if it has a "/"; may be repeated.',
)
@click.option("--gitignore", is_flag=True, help="Leave out files that the .gitignore files in DIRECTORY ignore.")
@dry_run_option
@pass_settings
def import_(
    settings: Settings,
    directory: str | None,
    source: str | None,
    yes: bool,
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

    With --from instead of DIRECTORY, the memories and conversations of other programs are shown, with their names in
    the memory, sizes and likely secrets, and imported only with --yes. An invalid name becomes its suggestion. A
    file of messages becomes the history of a directory, for 'conversation show --directory'.
    """
    if source is not None:
        _require_without_folder(directory, everything or gitignore, yes and dry_run)
        bring(settings, source_of(source), patterns=patterns, overwrite=overwrite, yes=yes)
        return
    if directory is None:
        raise click.UsageError("give a DIRECTORY, or a source with --from")
    if yes:
        raise click.UsageError("--yes needs --from; the import of a DIRECTORY does not ask")
    settings.no_audit |= dry_run
    with settings.store(Access.MAKE) as store, _folder(directory, make=False) as folder:
        found = folder.find()
        ignored = _ignored_by_git(directory, [*found.files, *found.others]) if gitignore else frozenset()
        sieve = Sieve(folder, everything=everything, patterns=patterns, ignored=ignored)
        found = found.where(sieve.takes)
        memory = store.service.agent(settings.agent)
        target = Target(memory, overwrite=overwrite, dry_run=dry_run)
        files, twins = _named_once(found.files)

        def read(path: str, put: Put) -> bool:
            with folder.reading(path) as (size, blocks):
                return put(size, blocks)

        def write(path: str, size: int, blocks: Blocks) -> bool:
            return target.put(in_form_c(path), size, blocks)

        result = transfer_all("Importing", files, read, write)
    composed = sum(path != in_form_c(path) for path in result.written)
    result.written = [in_form_c(path) for path in result.written]
    result.left += [*twins, *(Untransferred(path, error) for path, error in found.others.items())]
    if composed:
        result.notes.append(f"{counted(composed, 'name')} in Unicode form D, as macOS writes it, stored in form C")
    result.notes += _notes_of(found, sieve)
    result.left_out = sieve.left_out
    finish(settings, "would import" if dry_run else "imported", result, dry_run=dry_run)


def _require_without_folder(directory: str | None, of_folder: bool, is_dry: bool) -> None:
    if directory is not None:
        raise click.UsageError("DIRECTORY and --from exclude each other; --from PATH takes the files of a folder")
    if of_folder:
        raise click.UsageError("--all and --gitignore need a DIRECTORY, not --from")
    if is_dry:
        raise click.UsageError("--yes and --dry-run exclude each other")


@click.command(cls=Command)
@click.argument("directory")
@overwrite_option
@click.option("--html", is_flag=True, help="Write the pages of the command web instead, of all agents or of --agent.")
@click.option("--versions", is_flag=True, help="With --html: earlier versions too.")
@pass_settings
def export(settings: Settings, directory: str, overwrite: bool, html: bool, versions: bool) -> None:
    """Copy the memory into a folder of this host.

    DIRECTORY is created if it is missing. Files that exist with the same content are not written again. Nothing is
    written outside DIRECTORY or through a symbolic link. With --html, DIRECTORY must be empty.
    """
    if versions and not html:
        raise click.UsageError("--versions goes with --html")
    if overwrite and html:
        raise click.UsageError("--html writes into an empty directory only, so --overwrite does not go with it")
    _refuse_own_store(settings.url, directory)
    if html:
        from agent_memory.cli.web import export_html  # its packages are those of the extra web

        export_html(settings, Path(directory), versions)
        return
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


def _ignored_by_git(directory: str, paths: Iterable[str]) -> frozenset[str]:
    """The paths that the ``.gitignore`` files in a folder ignore.

    Git uses an empty repository elsewhere, because the configuration of a repository in the folder could run programs.

    Raises:
        click.ClickException: git cannot be run, or one of these files is no regular file of a usual size.
    """
    paths = list(paths)
    _require_readable(Path(directory), paths)
    data = b"".join(os.fsencode(path) + b"\0" for path in paths)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    with TemporaryDirectory() as elsewhere:
        begin = ["git", "init", "--quiet", "--template=", elsewhere]
        top = Path(directory).absolute()
        repository = [f"--git-dir={elsewhere}/.git", f"--work-tree={top}"]
        ask = ["git", *repository, "check-ignore", "--no-index", "--stdin", "-z"]
        try:
            subprocess.run(begin, env=environment, capture_output=True, check=True, timeout=_GIT_SECONDS)  # noqa: S603
            done = subprocess.run(  # noqa: S603 - git as the user has it
                ask, cwd=top, env=environment, input=data, capture_output=True, check=False, timeout=_GIT_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise click.ClickException(f"--gitignore needs git, which cannot be run: {type(error).__name__}") from error
    if done.returncode not in (0, 1):
        raise click.ClickException(f"--gitignore: git ended with {done.returncode}")
    return frozenset(os.fsdecode(path) for path in done.stdout.split(b"\0") if path)


def _require_readable(top: Path, paths: Iterable[str]) -> None:
    """Refuse a ``.gitignore`` that git would wait for, or read without an end."""
    for directory in sorted({above.as_posix() for path in paths for above in PurePath(path).parents}):
        name = top / directory / ".gitignore"
        if os.path.lexists(name):
            try:
                read_host_file(name)
            except OSError as error:
                shown = field((PurePath(directory) / ".gitignore").as_posix())
                advice = "mend or remove it, or import without --gitignore"
                raise click.ClickException(f"{shown}: {error.strerror}; {advice}; nothing was imported") from error


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


def _notes_of(found: FolderContents, sieve: Sieve) -> list[str]:
    notes = []
    if found.empty:
        notes.append(f"{counted(found.empty, 'empty directory', 'empty directories')} left out: a memory has none")
    notes += [f"--exclude {pattern!r} matches nothing" for pattern in sieve.unmatched]
    if found.own and not sieve.is_of_export:
        notes.append(f"{RESERVED}/ is a store's own directory and is left out")
    return notes
