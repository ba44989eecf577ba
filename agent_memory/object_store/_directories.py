"""Keeps a name from being a file and a directory at once, on a store that has no directories.

The storage is asked the first time this process writes into a directory, and the answer remembered; so two processes
that race, or one that returns to a directory another has changed, may still make both, which then both stay readable.
Everything here runs on the I/O loop, hence in one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from agent_memory.backend import Turns, taken_name
from agent_memory.key import Key
from agent_memory.object_store._bucket import Bucket

_REMEMBERED = 1024


class Directories:
    """Directories that are known to be no files, each with the subdirectories it had (the first 1,000).

    Those are asked for when this process first writes a file into the directory itself; None before that.
    """

    def __init__(self, bucket: Bucket, turns: Turns) -> None:
        self._bucket = bucket
        self._turns = turns
        self._known: OrderedDict[Key, set[str] | None] = OrderedDict()

    async def claim(self, key: Key) -> None:
        """Make sure the name can be a file.

        Raises:
            FileAlreadyExistsError: it is a directory, or lies below a file.
        """
        parents = _parents(key)
        children = self._known.get(parents[-1])
        if children is None:
            async with self._turns.turn((self, parents[-1])):  # whoever comes meanwhile asks nothing
                children = await self._looked_up(key, parents)
        self._known.move_to_end(parents[-1])
        if key.name in children:
            if await self._bucket.is_directory(key):
                raise taken_name(key)
            # what was a directory has been emptied since
            children.discard(key.name)
        self._forget_directory(key)
        for directory, below in pairwise(parents):
            if (others := self._known.get(directory)) is not None:
                others.add(below.name)

    async def _looked_up(self, key: Key, parents: list[Key]) -> set[str]:
        for directory in parents[1:]:
            if directory not in self._known:
                if await self._bucket.is_file(directory):
                    raise taken_name(key)
                self._remember(directory, None)
        known = self._known.get(parents[-1])
        if known is None:
            known = await self._bucket.subdirectories(parents[-1])
            known |= self._known.get(parents[-1]) or set()  # what others of this process have made meanwhile
            self._remember(parents[-1], known)
        return known

    def _remember(self, directory: Key, children: set[str] | None) -> None:
        self._known[directory] = children
        self._known.move_to_end(directory)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _forget_directory(self, key: Key) -> None:
        if key in self._known:
            for directory in [d for d in self._known if d == key or d.is_below(key)]:
                del self._known[directory]


def _parents(key: Key) -> list[Key]:
    """The directories above a key in its tree, from the top down."""
    parents = [key.parent]
    while parents[-1].path:
        parents.append(parents[-1].parent)
    return parents[::-1]
