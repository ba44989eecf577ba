"""The shared locks of the trees of one root, each on the tree's own directory.

One open directory of each tree is kept for the next change, because opening costs more than locking. It serves only as
a lock, and only while the tree's name leads to it. A change walks to its own directory from the root.
"""

from __future__ import annotations

import os
from fcntl import LOCK_SH
from weakref import WeakSet

from agent_memory.key import Key
from agent_memory_local._descriptor import LockedDescriptor
from agent_memory_local._locks import Busy, StalePath, is_exclusive_announced, lock_tree, unlock_tree
from agent_memory_local._walk import Walker, segments_of

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
            held = self._opened(key, make, sync)
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

    def _opened(self, key: Key, make: bool, sync: bool) -> LockedDescriptor:
        segments = segments_of(key.base)
        if make:
            return LockedDescriptor(self._walker.made_directory(segments, key, sync))
        return LockedDescriptor(self._walker.directory(segments, key))


_all: WeakSet[TreeLocks] = WeakSet()


def _forget_all() -> None:
    for locks in _all:
        locks.forget()


os.register_at_fork(after_in_child=_forget_all)  # a child shares its parent's open directories and their locks
