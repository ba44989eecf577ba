"""`Names`: what there is by a name, also on a filesystem that takes names of another case for the same."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)
_MOST_EXACT = 4096


class Names:
    """The files and directories below ``root``; see `agent_memory_fsspec.FsspecBackend` for the arguments.

    Attributes:
        folds_case: whether names that differ by case are one file here; None before anything was found.
    """

    def __init__(self, filesystem: Any, root: str) -> None:
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._exact: set[str] = set()
        self.folds_case: bool | None = None

    def path(self, storage: str) -> str:
        return f"{self._root}/{storage}" if storage else self._root

    def info(self, storage: str) -> dict[str, Any] | None:
        """What the filesystem tells of a name; None if there is nothing by it, or by it in another case."""
        try:
            found: dict[str, Any] = self._fs.info(self.path(storage))
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return found

    def is_exact(self, storage: str) -> bool:
        """Whether what was found by a name has that name, and not one that differs by case."""
        if not self.folds_case or storage in self._exact:
            return True
        for directory, name in _levels(storage):
            names = self._names(directory)
            if name not in names and name.casefold() in map(str.casefold, names):
                return False
        if len(self._exact) >= _MOST_EXACT:
            self._exact.clear()
        self._exact.add(storage)
        return True

    def learn(self, storage: str) -> None:
        """Find out whether case is folded, by a name there is."""
        directory, _, name = storage.rpartition("/")
        if self.folds_case is None and (other := name.swapcase()) != name:
            found = self.info(f"{directory}/{other}".lstrip("/"))
            self.folds_case = found is not None and other not in self._names(directory)

    def forget(self, storage: str) -> None:
        """It is deleted, and may come back in another case."""
        self._exact.discard(storage)

    def _names(self, directory: str) -> set[str]:
        listed = self._fs.ls(self.path(directory), detail=False)
        return {name.rstrip("/").rpartition("/")[2] for name in listed}


def _levels(storage: str) -> Iterator[tuple[str, str]]:
    """The directory and the name of each segment, the deepest first."""
    while storage:
        directory, _, name = storage.rpartition("/")
        yield directory, name
        storage = directory


def is_missing(error: Exception) -> bool:
    """Whether an error says that there is nothing by a name, of whatever class it is."""
    its_own = isinstance(error, OSError) and error.errno in _NOTHING_THERE
    return its_own or isinstance(error, FileNotFoundError | NotADirectoryError)
