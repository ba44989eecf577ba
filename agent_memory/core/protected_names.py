"""Names of a tree that a view never changes, and hides unless it may read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from agent_memory.errors import OperationDenied
from agent_memory.key import Key

_JOINERS: Final = str.maketrans("", "", "\u200c\u200d")  # HFS+ ignores them in names


class ProtectedNames:
    """Names that a view does not change, in any directory, and all that lies below them.

    A name is compared without regard to case and to Unicode's compatible forms, whatever the backend, because some
    filesystems take such names for one file. A short name that Windows may give to the same file (``HISTOR~1.JSO``)
    counts too.

    Args:
        names: what is protected, as files or as directories. Their last segments count at any depth.
        readable: whether the view may read them; otherwise no listing shows them.
    """

    def __init__(self, names: Iterable[Key], readable: bool) -> None:
        self._names = {_folded(key): key.path for key in names}
        self._inside = re.compile(rf"(?:\A|/)(?:{'|'.join(map(_spellings, self._names))})(?:/|\Z)")
        self._readable = readable

    def hides(self, key: Key) -> bool:
        """Whether listings leave this name out."""
        return not self._readable and self.holds(key)

    def holds(self, key: Key) -> bool:
        """Whether a key is a protected name, or lies below one."""
        return bool(self._inside.search(_folded(key)))

    def permit(self, key: Key, *, changes: bool) -> None:
        """Let an operation on a file, or on all files below a directory, pass.

        Raises:
            OperationDenied: it would read what is hidden, or change a protected name or a directory above one.
        """
        path = _folded(key)
        if self._inside.search(path):
            if changes or not self._readable:
                raise OperationDenied(f"it is kept by the conversation: tools do not {self._denied} it", path=key.path)
        elif changes and (name := self._below(path)):
            raise OperationDenied("it is kept by the conversation: what lies above it is not changed", path=name)

    @property
    def _denied(self) -> str:
        return "change" if self._readable else "reach"

    def _below(self, path: str) -> str | None:
        directory = f"{path}/" if path else ""
        return next((name for folded, name in self._names.items() if folded.startswith(directory)), None)


def _folded(key: Key) -> str:
    path = key.storage
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFKC", path.translate(_JOINERS)).upper().casefold()  # upper: a dotless i is an i


def _spellings(path: str) -> str:
    """A pattern of a folded path's last segment, and of every short name that Windows or Samba can make of it."""
    name = path.rpartition("/")[2]
    ending = name.partition(".")[2]
    short = rf"{re.escape(name[0])}[^/.]*~[^/.]*\.{re.escape(ending[:3])}"
    return rf"{re.escape(name)}|{short}"
