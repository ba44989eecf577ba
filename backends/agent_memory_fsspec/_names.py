"""`Names`: look-up of names, also on a filesystem that ignores case."""

from __future__ import annotations

import errno
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from string import ascii_lowercase, ascii_uppercase
from typing import Any

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR)
_OTHER_CASE = str.maketrans(ascii_lowercase + ascii_uppercase, ascii_uppercase + ascii_lowercase)
"""The letters whose case every case-insensitive filesystem ignores; both cases have the same number of bytes."""


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
