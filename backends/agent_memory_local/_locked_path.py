"""`LockedPath`: a key's open directory, in a tree that is locked against moves of directories (`TreeLocks`).

A tree is locked by its own directory. One open directory of each tree is kept for the next change, because opening
costs more than locking. It serves only as a lock, and only while the tree's name leads to it. A change walks to its own
directory from the root.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fcntl import LOCK_SH
from typing import Self
from weakref import WeakSet

from agent_memory.backend import ETag
from agent_memory.backend._host_files import with_reason
from agent_memory.backend.helpers import Uncopied, content_etag, not_found, taken_name
from agent_memory.errors import FileAlreadyExistsError
from agent_memory.key import Key
from agent_memory_local._descriptor import Descriptor, LockedDescriptor
from agent_memory_local._files import is_temporary, read_range
from agent_memory_local._locks import (
    Busy,
    Failed,
    StalePath,
    is_exclusive_announced,
    lock_file,
    lock_tree,
    unlock_file,
    unlock_tree,
)
from agent_memory_local._scan import remove_if_empty
from agent_memory_local._spelling import on_disk
from agent_memory_local._staged import StagedFile
from agent_memory_local._walk import OPEN_FILE_TO_CHANGE, Walker, require_regular, segments_of

STATE = "stat:"
_MOST_IDLE = 32


class TreeLocks:
    """Shared locks of the trees of one root; at most 32 directories are kept open."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._idle: dict[str, LockedDescriptor] = {}
        _all.add(self)

    def share(self, key: Key, make: bool, sync: bool) -> LockedDescriptor:
        """Lock the tree of a key for a change of a file in it; with ``make``, create a missing tree.

        Raises:
            AgentMemoryFileNotFoundError: there is no such tree, and ``make`` is false.
            Busy: another writer moves or deletes directories of the tree, or has announced that it will.
            StalePath: the directory was removed or replaced while it was locked.
        """
        held = self._idle.pop(key.base, None)
        if held is None or not held.is_open():
            held = LockedDescriptor(self._walker.found_or_made(segments_of(key.base), key, make, sync))
        if is_exclusive_announced(held.number):
            self._idle[key.base] = held
            raise Busy("the directory tree")
        try:
            lock_tree(held.number, LOCK_SH)
            if self._walker.identity(key.base) != held.identity:
                raise StalePath
        except BaseException:
            unlock_tree(held.number)  # at once, because a traceback may keep the descriptor open
            raise
        return held

    def keep(self, key: Key, held: LockedDescriptor) -> None:
        """Keep a tree's directory, whose lock is released, for the next change."""
        self._idle[key.base] = held
        for base in list(self._idle)[:-_MOST_IDLE]:  # a copy, because other threads change the dictionary
            self._idle.pop(base, None)

    def forget(self) -> None:
        """Close the kept directories."""
        self._idle = {}


_all: WeakSet[TreeLocks] = WeakSet()


def _forget_all() -> None:
    for locks in _all:
        locks.forget()


os.register_at_fork(after_in_child=_forget_all)  # a child shares its parent's open directories and their locks


def state_etag(found: os.stat_result, size: int) -> ETag:
    """The etag for partial reads of one state; it equals no etag of a content, so no write can depend on it."""
    return ETag(f"{STATE}{found.st_dev}:{found.st_ino}:{size}:{found.st_mtime_ns}:{found.st_ctime_ns}")


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class LockedPath(Uncopied):
    """The directory and file of a key; the tree is locked before the walk, so nothing on the path can be moved.

    Raises:
        AgentMemoryFileNotFoundError: there is no such tree, and ``make`` is false.
        Busy: another writer is moving or deleting directories of the tree.
        StalePath: a directory was removed during the walk.
    """

    __slots__ = ("_directory", "_file", "_locks", "_make", "_sync", "_tree", "found", "key", "walker")

    def __init__(self, walker: Walker, locks: TreeLocks, key: Key, *, make: bool, sync: bool) -> None:
        self.walker = walker
        self.key = key
        self.found: os.stat_result | None = None
        self._locks = locks
        self._make = make
        self._sync = sync
        self._directory: Descriptor | None = None
        self._file: LockedDescriptor | None = None
        self._tree: LockedDescriptor | None = locks.share(key, make, sync)

    @property
    def name(self) -> str:
        """The file's name in its directory."""
        return on_disk(self.key.name)

    @property
    def directory(self) -> int:
        """The descriptor of the directory; the first access walks to it, and creates it with ``make``."""
        return self.open_directory.number

    @property
    def open_directory(self) -> Descriptor:
        """The `Descriptor` of the directory, for a holder that outlives this object."""
        if self._directory is None:
            above = self.key.segments[:-1]
            self._directory = Descriptor(self.walker.found_or_made(above, self.key, self._make, self._sync))
        return self._directory

    def open_file(self, *, must_exist: bool = False) -> os.stat_result | None:
        """Open and lock the key's file and return its status; None if it does not exist. `close` closes the file.

        Raises:
            AgentMemoryFileNotFoundError: ``must_exist`` is set, and the file does not exist.
            FileAlreadyExistsError: the name is a directory, or differs from an existing name only by case.
            PathTraversalError: the name is a symbolic link.
            Failed: not a regular file.
            Busy: another writer is changing the file.
            StalePath: the file was replaced or deleted after it was opened.
        """
        file = self.walker.open(self.key.storage, OPEN_FILE_TO_CHANGE)
        opened = file if file >= 0 else self._walk_to_file(must_exist)
        if opened is not None:
            self._file = LockedDescriptor(opened)
            self.found = lock_file(opened)
            require_regular(self.key, self.found)
        elif must_exist:
            raise not_found(self.key)
        return self.found

    def _walk_to_file(self, must_exist: bool) -> int | None:
        try:
            return self.walker.file_to_change(self.directory, self.key)
        except FileAlreadyExistsError as taken:
            if must_exist:
                raise not_found(self.key) from None
            if taken.taken_by == "directory" and remove_if_empty(self.directory, self.name):
                raise StalePath from None  # the name was a directory without files, now removed
            raise

    @property
    def file(self) -> int:
        """The descriptor of the file that `open_file` found."""
        assert self._file is not None  # noqa: S101 - only called after a file was found
        return self._file.number

    def prepared(self, data: bytes, sync: bool, origin: str | None) -> StagedFile:
        """A new file for this directory, with its whole content written."""
        new = self.staged(len(data), origin, nameless=self.found is None)
        try:
            new.write(data)
            if sync:
                new.sync()
        except BaseException:
            new.close()
            raise
        return new

    def staged(self, size: int, origin: str | None, *, nameless: bool) -> StagedFile:
        """A new, empty file for this directory."""
        try:
            return StagedFile(self.open_directory, size, origin, nameless=nameless)
        except FileNotFoundError:
            raise StalePath from None

    def give_name(self, new: StagedFile) -> None:
        """Give a staged file the key's name, replacing the file that is open, if any.

        Raises:
            FileAlreadyExistsError: the volume stores the name otherwise than it was given; the file is removed.
            StalePath: the directory is gone, or another writer took the name first.
        """
        directory, state = self.directory, new.state
        try:
            if self.found is None:
                new.create(self.name, directory, self.walker.new_modes.file)
            else:
                with with_reason(self.name, directory):
                    new.replace(self.name, directory, self.file)
        except (FileNotFoundError, FileExistsError, IsADirectoryError):
            raise StalePath from None
        if self.found is None:
            self._require_exact(directory, state)

    def _require_exact(self, directory: int, new: os.stat_result) -> None:
        try:
            is_exact = self.walker.has_exactly(directory, self.key, new)
        except OSError:
            return  # the file was created; another program deleted it, or the next use of the name checks again
        if not is_exact:
            with suppress(FileNotFoundError):
                os.unlink(self.name, dir_fd=directory)
            raise taken_name(self.key, "other_case")

    def content(self, allow_hard_links: bool) -> bytes:
        """The content of the open file.

        Raises:
            Failed: the file has another hard link, and that is not allowed.
        """
        assert self.found is not None  # noqa: S101
        if self.found.st_nlink > 1 and not allow_hard_links:
            refuse_other_names(self.directory, self.file)
        return read_range(self.file, 0, self.found.st_size)

    def etag(self, allow_hard_links: bool, max_bytes: int) -> ETag:
        """The etag of the open file; above ``max_bytes``, the size limit of a read, it is a `state_etag`."""
        assert self.found is not None  # noqa: S101
        if self.found.st_size > max_bytes:
            return state_etag(self.found, self.found.st_size)
        return content_etag(self.content(allow_hard_links))

    def require_same(self, other: LockedPath) -> None:
        """Raise `StalePath` unless this new walk leads to the same directory, with the same file in it.

        Writers of this package respect the lock of a file; other programs, such as editors, do not.
        """
        try:
            here = os.fstat(self.directory)
            file = os.stat(self.name, dir_fd=self.directory, follow_symlinks=False) if other.found else None
        except FileNotFoundError:
            raise StalePath from None
        same = os.path.samestat(here, os.fstat(other.directory))
        if not same or (file and other.found and _state(file) != _state(other.found)):
            raise StalePath

    def release_file(self) -> None:
        """Release the lock of the file, if it is held."""
        if self.found is not None:
            self.found = None
            unlock_file(self.file)

    def release(self) -> None:
        """Release the lock of the tree, if it is held; call it when the remaining work depends on no path."""
        if self._tree is not None:
            tree, self._tree = self._tree, None
            if unlock_tree(tree.number):
                self._locks.keep(self.key, tree)

    def close(self) -> None:
        """Release all locks and close all descriptors; after an interrupt here, descriptors close themselves."""
        self.release()
        self.release_file()
        self._file = self._directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def refuse_other_names(directory: int, file: int) -> None:
    """Raise unless all other names of an open file are temporary names beside it; these are removed.

    Another name may be outside the root. A writer that was killed after it gave the file its name leaves a temporary
    name; see `_staged.StagedFile.create`.
    """
    found = os.fstat(file)
    if found.st_nlink - _removed_temporaries(directory, found) > 1:
        allowed = "allow_hard_links=True accepts it"
        raise Failed(f"the file has another name (a hard link), perhaps outside the tree; {allowed}")


def _removed_temporaries(directory: int, found: os.stat_result) -> int:
    with os.scandir(directory) as entries:
        ours = [e.name for e in entries if is_temporary(e.name) and e.inode() == found.st_ino]
    for name in ours:
        with suppress(OSError):  # already removed, or no permission: it counts as a temporary name in any case
            os.unlink(name, dir_fd=directory)
    return len(ours)
