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

    Those are asked for when this process first writes a file into the directory itself; None before that. A directory
    is known to the trees of one base, by its path there, and is among the subdirectories of those above that are known.
    """

    def __init__(self, bucket: Bucket, turns: Turns) -> None:
        self._bucket = bucket
        self._turns = turns
        self._known: OrderedDict[tuple[str, str], set[str] | None] = OrderedDict()

    async def claim(self, key: Key) -> None:
        """Make sure the name can be a file.

        Raises:
            FileAlreadyExistsError: it is a directory, or lies below a file.
        """
        path, _, name = key.path.rpartition("/")
        directory = (key.base, path)
        children = self._known.get(directory)
        if children is None:
            async with self._turns.turn((self, directory)):  # whoever comes meanwhile asks nothing
                children = await self._looked_up(key)
        self._known.move_to_end(directory)
        if name in children:
            if await self._bucket.is_directory(key):
                raise taken_name(key)
            # what was a directory has been emptied since
            children.discard(name)
            self._forget(key)

    async def _looked_up(self, key: Key) -> set[str]:
        parents = _parents(key)
        for directory in parents[1:]:
            if (directory.base, directory.path) not in self._known:
                if await self._bucket.is_file(directory):
                    raise taken_name(key)
                self._remember(directory, None)
        top = parents[-1]
        children = self._known.get((top.base, top.path))
        if children is None:
            children = await self._bucket.subdirectories(top) | self._known_below(top)
            self._remember(top, children)
        for above, below in pairwise(parents):  # which a claim may have forgotten meanwhile
            if (others := self._known.get((above.base, above.path))) is not None:
                others.add(below.name)
        return children

    def _known_below(self, directory: Key) -> set[str]:
        """What this process writes into, whether or not a file is there yet."""
        top = f"{directory.path}/" if directory.path else ""
        paths = (path for base, path in self._known if base == directory.base and path != directory.path)
        return {path[len(top) :].partition("/")[0] for path in paths if path.startswith(top)}

    def _remember(self, directory: Key, children: set[str] | None) -> None:
        self._known[directory.base, directory.path] = children
        self._known.move_to_end((directory.base, directory.path))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _forget(self, directory: Key) -> None:
        top = f"{directory.path}/"
        for base, path in list(self._known):
            if base == directory.base and f"{path}/".startswith(top):
                del self._known[base, path]


def _parents(key: Key) -> list[Key]:
    """The directories above a key in its tree, from the top down."""
    parents = [key.parent]
    while parents[-1].path:
        parents.append(parents[-1].parent)
    return parents[::-1]
