"""`Directories`: keeps a name from being both a file and a directory, on a store without directories.

A process reads the storage when it first writes into a directory, and remembers the result. So a name can still become
both if two processes race, or if a process writes again into a directory that another process has changed. Then both
stay readable.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from agent_memory.backend.helpers import taken_name
from agent_memory.errors import ReadError, WriteError
from agent_memory.key import RESERVED, Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.engine import Listing
from agent_memory.runtime.queues import KeyedLocks
from agent_memory.runtime.tasks import gather_or_cancel, map_or_cancel

_OWN_TREES = f"{RESERVED}/"
_MOST_BYTES = 32 << 20
_COST, _COST_OF_NAMES, _COST_OF_NAME = 200, 180, 40
"""The bytes of a remembered directory, of its set of names, and of each name, without their texts."""
_MOST_NAMES = 65_536
"""The most subdirectories of one directory; with more, they are forgotten, and listed again when they are needed."""
_MAX_KEYS = 1000
_AT_ONCE = 16
Directory: TypeAlias = tuple[str, str]
"""A directory: the base of its tree, and its path there."""


@dataclass(slots=True)
class _Subdirectories:
    """The names of subdirectories, None for no names; if they are ``listed``, the storage has been read for them."""

    names: set[str] | None = None
    listed: bool = False


class KnownDirectories:
    """Directories that are known not to be files, each with the names of its subdirectories.

    The subdirectories are listed when this process first writes a file into the directory itself. They are then the
    first 1,000 that the storage lists, and those that this process writes into. About 32 MiB are remembered, which is
    some 65,536 directories; the least recently used one is dropped first, and always before those above it.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Directory, _Subdirectories] = OrderedDict()
        self._bytes = 0

    def __contains__(self, place: Directory) -> bool:
        return place in self._known

    def children(self, place: Directory) -> Collection[str] | None:
        """The subdirectories; None if they are not known."""
        known = self._known.get(place)
        if known is None or not known.listed:
            return None
        for above in _upwards(place):
            if above in self._known:
                self._known.move_to_end(above)
        return known.names or ()

    def add(self, place: Directory) -> None:
        """Remember that a directory and those above it are no files."""
        name = None
        for above in _upwards(place):
            known = self._known.get(above)
            if known is None:
                known = self._known[above] = _Subdirectories()
                self._bytes += _cost(above)
            if name is not None:
                self._add_names(known, [name])
            self._known.move_to_end(above)
            name = above[1].rpartition("/")[2]
        while self._bytes > _MOST_BYTES and (oldest := next(iter(self._known))) != place:
            self._drop(oldest)

    def add_children(self, place: Directory, found: Collection[str]) -> Collection[str]:
        """Remember the subdirectories found, and those that this process writes into, even if no file is there yet."""
        self.add(place)
        known = self._known[place]
        known.listed = True
        self._add_names(known, found)
        return known.names or found

    def forget(self, place: Directory) -> None:
        """Forget an emptied directory and all directories below it, and remove it from its parent's subdirectories."""
        base, path = place
        above, _, name = path.rpartition("/")
        parent = self._known.get((base, above))
        if parent is not None and parent.names and name in parent.names:
            parent.names.remove(name)
            self._bytes -= _cost_of_name(name)
        places = [place]
        while places:
            base, path = places.pop()
            if (known := self._known.get((base, path))) is not None:
                places += [(base, f"{path}/{each}") for each in known.names or ()]
                self._drop((base, path))

    def _add_names(self, known: _Subdirectories, names: Iterable[str]) -> None:
        for name in names:
            if known.names is None:
                known.names = set()
                self._bytes += _COST_OF_NAMES
            if name not in known.names:
                known.names.add(name)
                self._bytes += _cost_of_name(name)
        if known.names is not None and len(known.names) > _MOST_NAMES:
            self._forget_names(known)

    def _forget_names(self, known: _Subdirectories) -> None:
        if known.names is not None:
            self._bytes -= _COST_OF_NAMES + sum(map(_cost_of_name, known.names))
        known.names, known.listed = None, False

    def _drop(self, place: Directory) -> None:
        self._forget_names(self._known.pop(place))
        self._bytes -= _cost(place)


def _cost(place: Directory) -> int:
    base, path = place
    return _COST + sys.getsizeof(path or base)  # those below the top have the same text as their base


def _cost_of_name(name: str) -> int:
    return _COST_OF_NAME + sys.getsizeof(name)


def _upwards(place: Directory) -> Iterator[Directory]:
    """A directory and those above it, from the bottom up."""
    base, path = place
    yield place
    while path:
        path = path.rpartition("/")[0]
        yield base, path


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

    async def _looked_up(self, key: Key) -> Collection[str]:
        """Ask the storage at once about all that is not known of the directories above a key."""
        parents = _parents(key)
        unknown = [parent for parent in parents[1:] if (parent.base, parent.path) not in self._known]
        checks = [self._refuse_file(parent, key) for parent in unknown]
        *_, found = await gather_or_cancel([*checks, self._subdirectories(parents[-1])])
        return self._known.add_children((parents[-1].base, parents[-1].path), found)

    async def _refuse_file(self, parent: Key, key: Key) -> Collection[str]:
        if await self._bucket.is_file(parent):
            raise taken_name(key, "file_above")
        return ()

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
            holds_files = partial(self._bucket.holds_files, prefix, ReadError)
            held = await map_or_cancel(holds_files, found, _AT_ONCE)
            found = [name for name, holds in zip(found, held, strict=True) if holds]
        return [name[len(top) : -1] for name in found]

    async def _subdirectories(self, directory: Key) -> Collection[str]:
        top = self._bucket.directory(directory)
        listing = await self._bucket.list(directory, WriteError, top, deep=False, limit=_MAX_KEYS)
        return {name[len(top) : -1] for name in listing.prefixes}


def _parents(key: Key) -> list[Key]:
    """The directories above a key in its tree, from the top down."""
    parents = [key.parent]
    while parents[-1].path:
        parents.append(parents[-1].parent)
    return parents[::-1]
