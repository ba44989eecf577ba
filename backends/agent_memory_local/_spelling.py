"""Whether a volume keeps a name as it was given, found out for each directory, because each may be another volume.

Filesystems differ in the names that they take as equal: by case, by Unicode's forms, by short names. Each rule may hold
for one directory only (a mount point, or ext4's ``+F``), so this module contains no rule. A directory that finds a name
under another case is listed at each use of a name, and only a name in that listing exists.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from string import ascii_lowercase, ascii_uppercase

_OTHER_CASE = str.maketrans(ascii_lowercase + ascii_uppercase, ascii_uppercase + ascii_lowercase)
_MOST_KNOWN = 4096
UTF8_LOCALE = sys.getfilesystemencoding() == "utf-8"


def on_disk(name: str) -> str:
    """The name to pass to the system for a key's segment, so that its bytes are UTF-8 in any locale."""
    return name if UTF8_LOCALE else os.fsdecode(name.encode())


def from_disk(name: str) -> str:
    """The segment for a name from the system; bytes that are not UTF-8 become lone surrogates."""
    return name if UTF8_LOCALE else os.fsencode(name).decode("utf-8", "surrogateescape")


class Spelling:
    """The directories below one root that distinguish names by case, each found out once.

    Attributes:
        folds_case: whether a directory was found that ignores case.
    """

    def __init__(self) -> None:
        self.folds_case = False
        self._exact: set[str] = set()

    def is_known_exact(self, path: str) -> bool:
        """Whether the directory at a path below the root is known to distinguish names by case."""
        return path in self._exact

    def forget(self, path: str | None = None) -> None:
        """Forget a directory that was created anew; without a path, all directories."""
        if path is None:
            self._exact.clear()
        else:
            self._exact.discard(path)

    def is_exact(self, directory: int, path: str, name: str, found: os.stat_result | int) -> bool:
        """Whether a name that was found in an open directory is spelled so there.

        ``path`` is the path of the directory below the root, ``name`` a name for the system. ``found`` is the open
        file or directory, or the status of one that other writers of this package cannot delete meanwhile.

        Raises:
            FileNotFoundError: the directory has no such name any more.
        """
        if path in self._exact or ((other := name.translate(_OTHER_CASE)) == name and name.isascii()):
            return True
        there = None if other == name else _status(directory, other)
        if there is None and other != name:
            if isinstance(found, int) and not os.fstat(found).st_nlink:
                raise FileNotFoundError(name)  # it may have been deleted before the other case was looked up
            self._learn(path)
            return True
        listed = {unicodedata.normalize("NFC", from_disk(each)) for each in os.listdir(directory)}
        if there is not None:
            self._compare(path, {from_disk(name), from_disk(other)} <= listed, there, found)
        if from_disk(name) in listed:
            return True
        os.stat(name, dir_fd=directory, follow_symlinks=False)  # raises if another writer deleted it
        return False

    def _compare(self, path: str, are_listed: bool, other: os.stat_result, found: os.stat_result | int) -> None:
        """Learn from a file that was found by the other case of a name; both may be hard links of one file."""
        if are_listed:
            self._learn(path)
        elif os.path.samestat(other, os.fstat(found) if isinstance(found, int) else found):
            self.folds_case = True

    def _learn(self, path: str) -> None:
        if len(self._exact) >= _MOST_KNOWN:
            self._exact.clear()
        self._exact.add(path)


def _status(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
