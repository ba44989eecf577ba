"""Keeps a name from being a file and a directory at once, on a store that has no directories.

The storage is asked the first time this process writes into a directory, and the answer remembered; so two processes
that race, or one that returns to a directory another has changed, may still make both, which then both stay readable.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import TypeAlias

from agent_memory.backend import Uncopied, taken_name
from agent_memory.errors import WriteError
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.runtime.queues import KeyedLocks

_REMEMBERED = 1024
Directory: TypeAlias = tuple[str, str]
"""Of a directory: the base of its trees, and its path there."""


class KnownDirectories(Uncopied):
    """Directories that are known to be no files, each with its subdirectories (at first 1,000, and ours).

    Those are asked for when this process first writes a file into the directory itself; None before that. A directory
    is known to the trees of one base, by its path there, and is among the subdirectories of those above that are known.
    """

    def __init__(self) -> None:
        self._children: OrderedDict[Directory, set[str] | None] = OrderedDict()

    def __contains__(self, place: Directory) -> bool:
        return place in self._children

    def children(self, place: Directory) -> set[str] | None:
        """The subdirectories, if they are known."""
        if (children := self._children.get(place)) is not None:
            self._children.move_to_end(place)
        return children

    def add(self, place: Directory) -> None:
        """Remember that it is no file."""
        self._remember(place, self._children.get(place))

    def add_children(self, place: Directory, found: set[str]) -> set[str]:
        """Remember what was found below, and what this process writes into, whether or not a file is there yet."""
        children = found | self._known_below(place)
        self._remember(place, children)
        return children

    def add_to_parents(self, places: list[Directory]) -> None:
        """Remember each of these, from the top down, below the one before."""
        for above, (_, path) in pairwise(places):
            if (children := self._children.get(above)) is not None:
                children.add(path.rpartition("/")[2])

    def forget(self, place: Directory) -> None:
        """Forget a directory that has been emptied, with what was below, and that it was below another."""
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


class ClaimedDirectories(Uncopied):
    """Asks for what is not known."""

    def __init__(self, bucket: Bucket, locks: KeyedLocks) -> None:
        self._bucket = bucket
        self._locks = locks
        self._known = KnownDirectories()

    async def claim(self, key: Key) -> None:
        """Make sure the name can be a file.

        Raises:
            FileAlreadyExistsError: it is a directory, or lies below a file.
        """
        path, _, name = key.path.rpartition("/")
        directory = (key.base, path)
        children = self._known.children(directory)
        if children is None:
            with self._bucket.operation(key, WriteError) as attempts:
                async with self._locks.lock((self, directory), attempts.deadline.at):  # others ask nothing meanwhile
                    children = await self._looked_up(key)
        if name in children:
            if await self._bucket.is_directory(key):
                raise taken_name(key)
            self._known.forget((key.base, key.path))  # it has been emptied since

    async def _looked_up(self, key: Key) -> set[str]:
        parents = _parents(key)
        places = [(parent.base, parent.path) for parent in parents]
        for parent, place in zip(parents[1:], places[1:], strict=True):
            if place not in self._known:
                if await self._bucket.is_file(parent):
                    raise taken_name(key)
                self._known.add(place)
        children = self._known.children(places[-1])
        if children is None:
            children = self._known.add_children(places[-1], await self._bucket.subdirectories(parents[-1]))
        self._known.add_to_parents(places)  # which a claim may have forgotten meanwhile
        return children


def _parents(key: Key) -> list[Key]:
    """The directories above a key in its tree, from the top down."""
    parents = [key.parent]
    while parents[-1].path:
        parents.append(parents[-1].parent)
    return parents[::-1]
