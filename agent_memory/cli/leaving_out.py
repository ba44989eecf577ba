"""Select the files that `import` leaves out: a repository, credentials, files of desktops; not what `export` wrote."""

from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Final

import click

from agent_memory._json import parse_json
from agent_memory.cli.folder import Folder, FolderContents, link_refused
from agent_memory.cli.output import counted
from agent_memory.cli.transferring import Untransferred, failure
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, InvalidPathError
from agent_memory.key import RESERVED, RULES
from agent_memory.key.quoting import field
from agent_memory.plugins._host_files import read_host_file

_NAMES: Final = (".git", ".env", ".env.*", ".ds_store", "._*", "icon\r", "thumbs.db", "desktop.ini")
"""Patterns of names in lower case: a repository, credentials, and what macOS and Windows put into folders."""
_SAMPLES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")
"""Files without credentials, by convention."""
_MANIFEST: Final = f"{RESERVED}/exported.json"
_MOST_BYTES: Final = 50_000_000
_GIT_SECONDS: Final = 60


class Sieve:
    """Decides for each path whether it is imported, and records the paths that are left out.

    Args:
        folder: the folder; its manifest of `export` is read.
        everything: whether a repository, credentials and files of desktops are imported too.
        patterns: more to leave out, with everything below. Without a ``/`` a pattern matches names at any depth, else
            whole paths.
        ignored: paths to leave out because git ignores them.

    Attributes:
        left_out: the paths that are left out, each with the option that is the reason. A directory is listed once.
    """

    def __init__(
        self, folder: Folder, *, everything: bool, patterns: Iterable[str], ignored: frozenset[str] = frozenset()
    ) -> None:
        self._folder = folder
        self._names = () if everything else _NAMES
        self._patterns = {pattern: in_form_c(pattern.strip("/")) for pattern in patterns}
        self._ignored = ignored
        self._exported = exported(folder)
        self._unmatched = set(self._patterns)
        self.left_out: dict[str, str] = {}

    @property
    def unmatched(self) -> list[str]:
        """The patterns that matched no path."""
        return sorted(self._unmatched)

    @property
    def is_of_export(self) -> bool:
        """Whether the folder has a manifest of `export`."""
        return bool(self._exported)

    def takes(self, path: str) -> bool:
        """Whether to import a path."""
        segments = path.split("/")
        for depth in range(1, len(segments) + 1):
            if by := self._left_out_by("/".join(segments[:depth]), segments[depth - 1], path):
                self.left_out["/".join(segments[:depth]) + "/" * (depth < len(segments))] = by
                return False
        if path in self._ignored:
            self.left_out[path] = "--gitignore"
            return False
        return True

    def _left_out_by(self, above: str, name: str, path: str) -> str | None:
        for pattern, plain in self._patterns.items():
            if fnmatchcase(in_form_c(above if "/" in plain else name), plain):
                self._unmatched.discard(pattern)
                return "--exclude"
        if _is_special(name, self._names) and not self._is_exported(path):
            return "no --all"
        return None

    def _is_exported(self, path: str) -> bool:
        try:
            digest = self._exported.get(in_form_c(path))  # macOS may have stored the name in form D
            return digest is not None and self._folder.sha256(path) == digest
        except (AgentMemoryError, OSError):
            return False


def _is_special(name: str, names: Iterable[str] = _NAMES) -> bool:
    low = name.lower()
    return low not in _SAMPLES and any(fnmatchcase(low, pattern) for pattern in names)


def in_form_c(path: str) -> str:
    """A path of the host in Unicode's normal form C, as names of a memory are; macOS can store names in form D."""
    return unicodedata.normalize("NFC", path)


def exported(folder: Folder) -> Mapping[str, str]:
    """The SHA-256 of files that `export` wrote and `import` would leave out, by path.

    The folder may be untrusted. An entry applies only to a file with this content, so a manifest admits no other file.
    """
    try:
        with folder.reading(_MANIFEST) as (size, blocks):
            found = parse_json(b"".join(blocks()))["files"] if size <= _MOST_BYTES else {}
    except (AgentMemoryError, OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def note_exported(folder: Folder, paths: Iterable[str]) -> None:
    """Record in the folder which of these files `import` would otherwise leave out; write nothing if there are none."""
    special = [path for path in paths if any(map(_is_special, path.split("/")))]
    if special:
        digests: dict[str, str] = {}
        for path in special:
            with suppress(AgentMemoryError, OSError):  # another program removed it
                digests[path] = folder.sha256(path)
        files = {**exported(folder), **digests}
        data = json.dumps({"files": files}).encode("ascii")
        folder.put(_MANIFEST, len(data), lambda: [data], overwrite=True)


def ignored_by_git(directory: str, paths: Iterable[str]) -> frozenset[str]:
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
        ask = [
            "git",
            f"--git-dir={elsewhere}/.git",
            f"--work-tree={top}",
            "check-ignore",
            "--no-index",
            "--stdin",
            "-z",
        ]
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


def named_once(paths: Sequence[str]) -> tuple[list[str], list[Untransferred]]:
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


def not_imported(found: FolderContents) -> list[Untransferred]:
    return [
        *(Untransferred(path, link_refused(path)) for path in found.links),
        *(Untransferred(path, InvalidPathError(RULES["too-deep"], "too-deep", path=path)) for path in found.too_deep),
        *(failure(path, "not a regular file") for path in found.special),
        *(failure(path, reason) for path, reason in found.unreadable),
    ]


def notes_of(found: FolderContents, sieve: Sieve) -> list[str]:
    notes = []
    if found.empty:
        notes.append(f"{counted(found.empty, 'empty directory', 'empty directories')} left out: a memory has none")
    notes += [f"--exclude {pattern!r} matches nothing" for pattern in sieve.unmatched]
    if found.own and not sieve.is_of_export:
        notes.append(f"{RESERVED}/ is a store's own directory and is left out")
    return notes
