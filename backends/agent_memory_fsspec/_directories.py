"""`Directories`: they exist exactly while a file is below them, also where they are things of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import fsspec
import fsspec.asyn

from agent_memory.backend import Uncopied, taken_name
from agent_memory.errors import FileAlreadyExistsError
from agent_memory.key import Key
from agent_memory_fsspec._names import Names, is_missing

_MOST_KNOWN = 1024
_OTHER_CASE = "a name is taken that differs from it by case alone, and this filesystem takes both for one"


class Directories(Uncopied):
    """What a write and a delete do beside the file; see `agent_memory_fsspec.FsspecBackend` for the arguments."""

    def __init__(self, filesystem: Any, names: Names) -> None:
        self._fs = filesystem
        self._names = names
        self._known: set[str] = set()  # that were there, so that a write need not ask for them again
        self._seen = "", ""  # a directory, and a file in it

    def claim(self, key: Key) -> bool:
        """Make sure that a name can be a file; whether it is one.

        Raises:
            FileAlreadyExistsError: there are files below it, or it differs from a name there is by case alone.
        """
        found = self._found(key, key.storage)
        if found == "directory":
            if self._file_in(self._names.path(key.storage)):
                raise taken_name(key)
            self._remove_empty(key.storage)
        return found not in (None, "directory")

    def put(self, key: Key, data: bytes) -> None:
        """Write a file, and the directories above it first.

        Raises:
            FileAlreadyExistsError: it lies below a file.
        """
        directory, path = key.storage.rpartition("/")[0], self._names.path(key.storage)
        if directory in self._known and not self._names.folds_case:  # else others may have changed its case
            try:
                self._fs.pipe_file(path, data)
            except Exception:  # noqa: BLE001 - of whatever class: it may be gone by now
                self._known.discard(directory)
            else:
                return
        self._make(key)
        self._fs.pipe_file(path, data)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(directory)

    def tidy(self, key: Key) -> None:
        """Remove those that a deleted file has left empty."""
        self._known.difference_update(_above(key))
        for directory in _above(key):
            if self._holds_files(self._names.path(directory)):
                return
            self._remove_empty(directory)

    def _found(self, key: Key, storage: str) -> str | None:
        """What there is by the name of a key, or of a directory above it, if it is not of another case."""
        if (info := self._names.info(storage)) is None:
            return None
        kind: str = info["type"]
        self._names.learn(storage)
        if self._names.is_exact(storage):
            return kind
        if kind != "directory" or self._file_in(self._names.path(storage)):
            raise FileAlreadyExistsError(f"{_OTHER_CASE}", path=key.path)
        self._remove_empty(storage)
        return None

    def _make(self, key: Key) -> None:
        missing = False
        for directory in _above(key):
            if found := self._found(key, directory):
                if found != "directory":
                    raise taken_name(key)
                break  # a directory lies in directories
            missing = True
        top = self._names.path(key.storage).rpartition("/")[0]
        if top and (missing or "/" not in key.storage):
            self._fs.makedirs(top, exist_ok=True)

    def _holds_files(self, directory: str) -> bool:
        """Whether a file is anywhere below; while the one seen last is still there, nothing is listed again."""
        seen_in, file = self._seen
        if seen_in != directory or not file or not self._fs.isfile(file):
            file = self._file_in(directory)
            self._seen = directory, file
        return bool(file)

    def _file_in(self, directory: str) -> str:
        """A file anywhere below, or nothing; of those listed the last, as a whole tree is deleted from the first on."""
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
            with suppress(Exception):  # as clients have it: OSError, or an error of their protocol
                _remove(self._fs, below)


def _above(key: Key) -> Iterator[str]:
    """The directories a key lies in, the deepest first, those above its tree too."""
    directory = key.storage.rpartition("/")[0]
    while directory:
        yield directory
        directory = directory.rpartition("/")[0]


def _remove(filesystem: Any, path: str) -> None:
    """Remove an empty directory; of some asynchronous filesystems ``rmdir`` does nothing, and ``_rmdir`` does it."""
    if type(filesystem).rmdir is fsspec.AbstractFileSystem.rmdir and hasattr(filesystem, "_rmdir"):
        fsspec.asyn.sync(filesystem.loop, filesystem._rmdir, path)
    else:
        filesystem.rmdir(path)
