"""`Names`: look-up of names, also on a filesystem that ignores case.

`BlockingDirectories` keep a directory as long as a file is below it, on filesystems with real directories.
"""

from __future__ import annotations

import errno
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import fsspec
import fsspec.asyn

from agent_memory.backend.helpers import taken_name
from agent_memory.key import Key

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)
_OTHER_CASE = str.maketrans(ascii_lowercase + ascii_uppercase, ascii_uppercase + ascii_lowercase)
"""The letters whose case every case-insensitive filesystem ignores; both cases have the same number of bytes."""
_MOST_KNOWN = 1024


class Names:
    """The files and directories below ``root``; see `agent_memory_fsspec.FsspecBackend` for the arguments.

    Attributes:
        folds_case: whether the filesystem ignores case; None until that is known.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self.folds_case: bool | None = None

    def path(self, storage: str) -> str:
        return f"{self._root}/{storage}" if storage else self._root

    def info(self, storage: str) -> dict[str, Any] | None:
        """The filesystem's information on a name, which may belong to a name in another case; None if there is none."""
        try:
            found: dict[str, Any] = self._fs.info(self.path(storage))
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return found

    def is_exact(self, storage: str) -> bool:
        """Whether the entry found by a name has exactly that name, not one that differs by case."""
        return not self.folds_case or all(name in self._listed(directory) for directory, name in _levels(storage))

    def learn(self, storage: str) -> None:
        """Find out by an existing name whether the filesystem ignores case; after an error that stays unknown."""
        with suppress(Exception):
            for directory, name in _levels(storage):
                if self.folds_case is not None:
                    return
                if (other := name.translate(_OTHER_CASE)) != name:
                    self.folds_case = self._is_one(directory, name, other)

    def _is_one(self, directory: str, name: str, other: str) -> bool | None:
        if self.info(f"{directory}/{other}".lstrip("/")) is None:
            return False
        spelled = {each for each in self._listed(directory) if each.casefold() == name.casefold()}
        return not {name, other} <= spelled if spelled else None  # empty if the listing is outdated

    def _listed(self, directory: str) -> set[str]:
        """The names in a directory, in NFC as in keys: some filesystems decompose them."""
        listed = self._fs.ls(self.path(directory), detail=False)
        return {unicodedata.normalize("NFC", name.rstrip("/").rpartition("/")[2]) for name in listed}


def _levels(storage: str) -> Iterator[tuple[str, str]]:
    """The directory and the name of each segment, deepest first."""
    while storage:
        directory, _, name = storage.rpartition("/")
        yield directory, name
        storage = directory


def is_missing(error: BaseException) -> bool:
    """Whether an error of any class means that a name does not exist."""
    if isinstance(cause := error.__cause__, OSError) and not is_missing(cause):
        return False  # for example, the HTTP client reports a missing file if it cannot reach the server
    its_own = isinstance(error, OSError) and error.errno in _NOTHING_THERE
    return its_own or isinstance(error, FileNotFoundError | NotADirectoryError)


class BlockingDirectories:
    """The directories around a write or a delete; see `agent_memory_fsspec.FsspecBackend` for the arguments."""

    def __init__(self, filesystem: Any, names: Names) -> None:
        self._fs = filesystem
        self._names = names
        self._known: set[str] = set()  # existing directories, which a write need not look up again
        self._seen = "", ""  # a directory, and a file in it

    def claim(self, key: Key) -> bool:
        """Check that a name can be a file; returns whether it is one already.

        Raises:
            FileAlreadyExistsError: there are files below the name, or it differs from an existing name only by case.
        """
        found = self._found(key, key.storage)
        if found == "directory":
            if self._file_in(self._names.path(key.storage)):
                raise taken_name(key, "directory")
            self._remove_empty(key.storage)
        return found not in (None, "directory")

    def put(self, key: Key, data: bytes) -> None:
        """Create the directories above a file, and write the file.

        Raises:
            FileAlreadyExistsError: a directory of the path is a file.
        """
        directory, path = key.storage.rpartition("/")[0], self._names.path(key.storage)
        if directory in self._known and not self._names.folds_case:  # else another program may have changed its case
            try:
                self._fs.pipe_file(path, data)
            except Exception:  # noqa: BLE001 - any error can mean that the directory is gone
                self._known.discard(directory)
            else:
                return
        self._make(key)
        self._fs.pipe_file(path, data)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(directory)

    def tidy(self, key: Key) -> None:
        """Remove the directories that a deleted file left empty."""
        self._known.difference_update(_above(key))
        for directory in _above(key):
            if self._holds_files(self._names.path(directory)):
                return
            self._remove_empty(directory)

    def _found(self, key: Key, storage: str) -> str | None:
        """The type of the entry at a key's path or a directory above it; None if there is none of exactly that name.

        Raises:
            FileAlreadyExistsError: a name that differs only by case is taken.
        """
        if (info := self._names.info(storage)) is None:
            return None
        kind: str = info["type"]
        self._names.learn(storage)
        if self._names.is_exact(storage):
            return kind
        if kind != "directory" or self._file_in(self._names.path(storage)):
            raise taken_name(key, "other_case")
        self._remove_empty(storage)
        return None

    def _make(self, key: Key) -> None:
        missing = False
        for directory in _above(key):
            if found := self._found(key, directory):
                if found != "directory":
                    raise taken_name(key, "file_above")
                break  # the directories above an existing one exist too
            missing = True
        top = self._names.path(key.storage).rpartition("/")[0]
        if top and (missing or "/" not in key.storage):
            self._fs.makedirs(top, exist_ok=True)

    def _holds_files(self, directory: str) -> bool:
        """Whether there is a file below; nothing is listed as long as the file found last time exists."""
        seen_in, file = self._seen
        if seen_in != directory or not file or not self._fs.isfile(file):
            file = self._file_in(directory)
            self._seen = directory, file
        return bool(file)

    def _file_in(self, directory: str) -> str:
        """The last listed file below, or ""; the last, because the deletion of a tree starts with the first."""
        try:
            listed = self._fs.ls(directory, detail=True)
        except Exception as error:
            if is_missing(error):
                return ""
            raise
        for each in reversed(listed):
            name = each["name"].rstrip("/")
            is_directory = each.get("type") == "directory"
            if name != directory.rstrip("/") and (file := self._file_in(name) if is_directory else name):
                return file
        return ""

    def _remove_empty(self, storage: str) -> None:
        for below, _, _ in list(self._fs.walk(self._names.path(storage), topdown=False)):
            with suppress(Exception):  # clients raise OSError or errors of their protocol
                _remove(self._fs, below)


def _above(key: Key) -> Iterator[str]:
    """The directories above a key, deepest first, including those above its tree."""
    return (directory for directory, _ in _levels(key.storage) if directory)


def _remove(filesystem: Any, path: str) -> None:
    """Remove an empty directory; some asynchronous filesystems implement only ``_rmdir``, and not ``rmdir``."""
    if type(filesystem).rmdir is fsspec.AbstractFileSystem.rmdir and hasattr(filesystem, "_rmdir"):
        fsspec.asyn.sync(filesystem.loop, filesystem._rmdir, path)
    else:
        filesystem.rmdir(path)
