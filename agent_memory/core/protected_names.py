"""`ProtectedNames`: names of a tree that a view never changes, and hides unless it may read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from agent_memory.errors import OperationDenied
from agent_memory.key import Key

_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")  # HFS+ ignores them in names


class ProtectedNames:
    """Names, in any directory, that a view never changes, and all names below them.

    The comparison ignores case and Unicode compatibility forms on every backend, because some filesystems treat such
    names as one file. A short name that Windows may give to the same file (``HISTOR~1.JSO``) is protected too.

    Args:
        names: the protected files or directories. Their last segments are protected at any depth.
        readable: whether the view may read them; otherwise listings hide them.
    """

    def __init__(self, names: Iterable[Key], readable: bool) -> None:
        self._names = {_folded(key): key.path for key in names}
        self._inside = re.compile(rf"(?:\A|/)(?:{'|'.join(map(_spellings, self._names))})(?:/|\Z)")
        self._readable = readable

    def hides(self, key: Key) -> bool:
        """Whether listings omit this name."""
        return not self._readable and self.holds(key)

    def holds(self, key: Key) -> bool:
        """Whether a key is a protected name, or lies below one."""
        return bool(self._inside.search(_folded(key)))

    def permit(self, key: Key, *, changes: bool) -> None:
        """Check an operation on a file, or on all files below a directory.

        Raises:
            OperationDenied: it would read a hidden name, or change a protected name or a directory above one.
        """
        path = _folded(key)
        if self._inside.search(path):
            if changes or not self._readable:
                denied = "change" if self._readable else "access"
                raise OperationDenied(f"it belongs to the conversation: tools cannot {denied} it", path=key.path)
        elif changes and (name := self._below(path)):
            raise OperationDenied("it belongs to the conversation: tools cannot change a directory above it", path=name)

    def _below(self, path: str) -> str | None:
        directory = f"{path}/" if path else ""
        return next((name for folded, name in self._names.items() if folded.startswith(directory)), None)


def _folded(key: Key) -> str:
    path = key.storage
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFKC", path.translate(_JOINERS)).upper().casefold()  # upper() maps a dotless i to I


def _spellings(path: str) -> str:
    """Return a pattern for a folded path's last segment, and for each short name that Windows or Samba can give it."""
    name = path.rpartition("/")[2]
    ending = name.partition(".")[2]
    short = rf"{re.escape(name[0])}[^/.]*~[^/.]*\.{re.escape(ending[:3])}"
    return rf"{re.escape(name)}|{short}"
