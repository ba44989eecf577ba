"""`Directories`: keeps a name from being both a file and a directory, on a store without directories.

A process reads the storage when it first writes into a directory, and remembers the result. So a name can still become
both if two processes race, or if a process writes again into a directory that another process has changed. Then both
stay readable.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

from agent_memory.backend.helpers import taken_name
from agent_memory.errors import ReadError, WriteError
from agent_memory.key import RESERVED, Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.engine import Listing
from agent_memory.runtime.queues import KeyedLocks

_OWN_TREES = f"{RESERVED}/"
_REMEMBERED = 1024
_MAX_KEYS = 1000
Directory: TypeAlias = tuple[str, str]
"""A directory: the base of its tree, and its path there."""


class KnownDirectories:
    """Directories that are known not to be files, each with the names of its subdirectories.

    The subdirectories are None until this process first writes a file into the directory itself. They are then the
    first 1,000 that the storage lists, and those that this process writes into. At most 1,024 directories are
    remembered; the least recently used is dropped first.
    """

    def __init__(self) -> None:
        self._children: OrderedDict[Directory, set[str] | None] = OrderedDict()

    def __contains__(self, place: Directory) -> bool:
        return place in self._children

    def children(self, place: Directory) -> set[str] | None:
        """The subdirectories; None if they are not known."""
        if (children := self._children.get(place)) is not None:
            self._children.move_to_end(place)
        return children

    def add(self, place: Directory) -> None:
        """Remember that a directory is not a file."""
        self._remember(place, self._children.get(place))

    def add_children(self, place: Directory, found: set[str]) -> set[str]:
        """Remember the subdirectories found, and those that this process writes into, even if no file is there yet."""
        children = found | self._known_below(place)
        self._remember(place, children)
        return children

    def add_to_parents(self, places: list[Directory]) -> None:
        """Add each directory to the subdirectories of the one before it; they are given from the top down."""
        for above, (_, path) in pairwise(places):
            if (children := self._children.get(above)) is not None:
                children.add(path.rpartition("/")[2])

    def forget(self, place: Directory) -> None:
        """Forget an emptied directory and all directories below it, and remove it from its parent's subdirectories."""
        base, path = place
        above, _, name = path.rpartition("/")
        if (children := self._children.get((base, above))) is not None:
            children.discard(name)
        for other in list(self._children):
            if other[0] == base and f"{other[1]}/".startswith(f"{path}/"):
                self._children.pop(other, None)

    def _known_below(self, place: Directory) -> set[str]:
        base, directory = place
        top = f"{directory}/" if directory else ""
        paths = (path for other, path in list(self._children) if other == base and path != directory)
        return {path[len(top) :].partition("/")[0] for path in paths if path.startswith(top)}

    def _remember(self, place: Directory, children: set[str] | None) -> None:
        self._children[place] = children
        self._children.move_to_end(place)
        if len(self._children) > _REMEMBERED:
            self._children.popitem(last=False)


class Directories:
    """The directories of one bucket; the storage is read only for unknown directories."""

    def __init__(self, bucket: Bucket, locks: KeyedLocks) -> None:
        self._bucket = bucket
        self._locks = locks
        self._known = KnownDirectories()

    async def claim(self, key: Key) -> None:
        """Make sure that the name can be a file; names in a tree of this package's own data never conflict.

        Raises:
            FileAlreadyExistsError: the name is a directory, or lies below a file.
        """
        if key.base.startswith(_OWN_TREES):
            return
        path, _, name = key.path.rpartition("/")
        directory = (key.base, path)
        children = self._known.children(directory)
        if children is None:
            with self._bucket.operation(key, WriteError) as attempts:
                async with self._locks.lock((self, directory), attempts.deadline.at):  # other tasks wait
                    children = await self._looked_up(key)
        if name in children:
            if await self._bucket.is_directory(key):
                raise taken_name(key, "directory")
            self._known.forget((key.base, key.path))  # the directory has been emptied since

    async def _looked_up(self, key: Key) -> set[str]:
        parents = _parents(key)
        places = [(parent.base, parent.path) for parent in parents]
        for parent, place in zip(parents[1:], places[1:], strict=True):
            if place not in self._known:
                if await self._bucket.is_file(parent):
                    raise taken_name(key, "file_above")
                self._known.add(place)
        children = self._known.children(places[-1])
        if children is None:
            children = self._known.add_children(places[-1], await self._subdirectories(parents[-1]))
        self._known.add_to_parents(places)  # a concurrent claim may have forgotten them
        return children

    async def free(self, key: Key) -> bool:
        """Free a name that a server keeps as an empty directory; return False if a file has the name now.

        Raises:
            FileAlreadyExistsError: there are files below the name.
        """
        if await self._bucket.is_file(key):
            return False
        if await self._bucket.is_directory(key):
            raise taken_name(key, "directory")
        await self._remove_directory(key, self._bucket.directory(key))
        return True

    async def free_where_kept(self, key: Key) -> None:
        """As `free`, on a server that keeps empty directories; one listing on other servers."""
        if (await self._bucket.list(key, WriteError, self._bucket.directory(key), deep=False, limit=1)).has_directories:
            await self.free(key)

    async def _remove_directory(self, key: Key, top: str) -> None:
        for below in (await self._bucket.list(key, WriteError, top, deep=False, limit=_MAX_KEYS)).prefixes:
            await self._remove_directory(key, below)
        with self._bucket.operation(key, WriteError) as attempts:
            await attempts.until_answered(lambda: self._bucket.store.delete(top))  # its name ends in "/": no file

    async def names(self, prefix: Key, top: str, listing: Listing) -> Sequence[str]:
        """The directories of a listing that hold files."""
        found = listing.prefixes
        if listing.has_directories:
            held = await asyncio.gather(*(self._bucket.holds_files(prefix, ReadError, name) for name in found))
            found = [name for name, holds in zip(found, held, strict=True) if holds]
        return [name[len(top) : -1] for name in found]

    async def _subdirectories(self, directory: Key) -> set[str]:
        top = self._bucket.directory(directory)
        listing = await self._bucket.list(directory, WriteError, top, deep=False, limit=_MAX_KEYS)
        return {name[len(top) : -1] for name in listing.prefixes}


def _parents(key: Key) -> list[Key]:
    """The directories above a key in its tree, from the top down."""
    parents = [key.parent]
    while parents[-1].path:
        parents.append(parents[-1].parent)
    return parents[::-1]
