"""`Root`: the open directory of a store; only the same store may be opened again by its path.

A volume can be unmounted or replaced while its store is open, and the directory below its mount point stays. So a root
that is lost is opened again by its path only if the record of the store there has the id of the store that was open. A
store without a record has no id, and equals no other store.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Any, Final

from agent_memory.backend.helpers import STORE_RECORD, Uncopied, store_id
from agent_memory_local._descriptor import Descriptor
from agent_memory_local._locks import close

Open = Callable[[], Descriptor]
"""Opens the root by its path; raises `FileNotFoundError` if there is none."""
_NO_LINK: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN_FILES: Final = "/proc/self/fd"
_MOST_BYTES: Final = 64 * 1024


def lost_root() -> OSError:
    """The error for a root whose path does not lead to the store any more."""
    return OSError(
        errno.ESTALE,
        "the store that was open is no longer in its directory, which was unmounted, replaced or deleted; nothing was "
        "read or written there; open the store again",
    )


class Root(Uncopied):
    """The descriptor of a root, and the facts that identify its store.

    Attributes:
        now: the open directory; None before it is opened, and after `close`.
    """

    def __init__(self, path: str) -> None:
        self.now: Descriptor | None = None
        self._path = path
        self._was_open = False
        self._id: str | None = None

    def close(self) -> None:
        """Drop the descriptor; a store with an id must be the same when it is opened again."""
        self.now = None
        self._was_open = False

    def opened(self, open_: Open) -> Descriptor:
        """Open the root again by its path after it was lost, or for the first time.

        Raises:
            FileNotFoundError: no root was open, and there is none.
            OSError: the root that was open is lost, and its path does not lead to the same store.
        """
        if not self._was_open and self._id is None:
            return self._kept(open_())
        try:
            new = open_()
        except (FileNotFoundError, NotADirectoryError):
            raise lost_root() from None
        if not (self._is_same_directory(new) or self._is_same_store(new)):
            new.close()  # a traceback would keep it open, and its volume could not be unmounted
            raise lost_root()
        return self._kept(new)

    def confirm(self, open_: Open) -> bool:
        """Check before a change that the path still leads to the open root; return whether another one was opened.

        Operations continue in a root that was moved, unless another directory has its path.

        Raises:
            OSError: the path leads to another store, or the root's filesystem is not mounted any more.
        """
        root = self.now
        if root is None or not root.is_open():
            return False  # the next use opens it by its path
        try:
            found = os.stat(self._path)
        except PermissionError:
            return False  # the process has fewer rights than when it opened the root
        except OSError:
            found = None
        if found and (found.st_dev, found.st_ino) == root.identity:
            self._learn(root)
            return False
        if found is None and _has_a_path(root):
            return False
        self._learn(root)
        try:
            new = open_()
        except (FileNotFoundError, NotADirectoryError):
            raise lost_root() from None
        if not self._is_same_store(new):
            new.close()
            raise lost_root()
        self._kept(new)
        return True

    def _kept(self, root: Descriptor) -> Descriptor:
        self.now, self._was_open = root, True
        self._learn(root)
        return root

    def _is_same_directory(self, new: Descriptor) -> bool:
        """Whether a newly opened directory is the root of this object, by device and inode.

        They identify a directory while it is open. After another part of the program closed the root's number, they may
        repeat on another volume, but never on the directory below the mount point; so then only a store without an id
        relies on them.
        """
        root = self.now
        if root is None or new.identity != root.identity:
            return False
        return root.is_open() or (root.number < 0 and self._id is None)

    def _is_same_store(self, root: Descriptor) -> bool:
        return self._id is not None and _id_in(root.number) == self._id

    def _learn(self, root: Descriptor) -> None:
        if self._id is None and os.access(STORE_RECORD.storage, os.F_OK, dir_fd=root.number):
            self._id = _id_in(root.number)


def _id_in(root: int) -> str | None:
    """The id in the record of the store in an open directory; None without a record, or with a damaged one."""
    opened: list[int] = [root]
    try:
        for segment in STORE_RECORD.segments:
            opened.append(os.open(segment, _NO_LINK, dir_fd=opened[-1]))
        return store_id(os.read(opened[-1], _MOST_BYTES))
    except OSError:
        return None
    finally:
        for descriptor in opened[1:]:
            close(descriptor)


def _has_a_path(directory: Descriptor) -> bool:
    """Whether a path leads to an open directory; none leads there if its filesystem was unmounted."""
    system: Any = fcntl
    try:
        if hasattr(fcntl, "F_GETPATH"):
            path = system.fcntl(directory.number, system.F_GETPATH, bytes(1024)).rstrip(b"\0")
        else:
            path = os.readlink(f"{_OWN_FILES}/{directory.number}")
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == directory.identity
