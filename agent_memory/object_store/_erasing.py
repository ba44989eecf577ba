"""Erasing: every version, deletion mark and incomplete upload of some names, one request each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agent_memory.backend import DeletedTree
from agent_memory.errors import PartialOperationError, UnsupportedOperationError, WriteError
from agent_memory.key import Key
from agent_memory.object_store._bucket import Bucket
from agent_memory.object_store._store import KeepsVersions, Kept, KeptPage

_AT_ONCE = 16
_STILL_THERE = "the server still lists what it said it had deleted"
_OURS = Key.internal("x").parent
ListPage = Callable[[str, tuple[str, str] | None], Awaitable[KeptPage]]
Drop = Callable[[Kept], Awaitable[None]]


async def erase(bucket: Bucket, prefix: Key) -> DeletedTree:
    """See `agent_memory.backend.Erases.erase`; this package's own data are no files of any tree."""
    store = bucket.store
    if not isinstance(store, KeepsVersions):
        raise UnsupportedOperationError(f"{prefix.path!r}: this store does not tell which versions it keeps")
    erasing = _Erasing(bucket, prefix)
    await erasing.drop_all(store.list_uploads, store.abort_upload)
    await erasing.drop_all(store.list_versions, store.delete_version)
    return erasing.result()


class _Erasing:
    def __init__(self, bucket: Bucket, prefix: Key) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._top = bucket.directory(prefix)
        self._name = bucket.name(prefix) if prefix.path else self._top
        self._found: set[str] = set()
        self._left: dict[str, WriteError] = {}

    async def drop_all(self, pages: ListPage, drop: Drop) -> None:
        """Drop what the pages of a listing have of the file of the name, and of all below it.

        A page of which something could be dropped is listed again: a store need not know where a version was that is
        gone, and what was written meanwhile goes too.
        """
        after: tuple[str, str] | None = None
        tried: set[Kept] = set()
        while True:
            with self._bucket.operation(self._prefix, WriteError) as attempts:
                page = await attempts.until_answered(partial(pages, self._name, after))
            found = [kept for kept in page.found if self._is_named(kept)]
            new = [kept for kept in found if kept not in tried]
            dropped = await self._drop(new, drop)
            for kept in tried.intersection(found):
                self._left.setdefault(kept.name, WriteError(f"{self._prefix.path!r}: {_STILL_THERE}"))
            if dropped:
                tried = set(new)
                continue
            after = page.next
            if after is None or (after[0] > self._top and not after[0].startswith(self._top)):
                return  # what comes is neither the name nor below it

    def result(self) -> DeletedTree:
        """How many files were erased; raises if some were not."""
        if not self._left:
            return DeletedTree(len(self._found), 0)
        first = next(iter(self._left.values()))
        done, left = (self._paths(self._found - set(self._left)), self._paths(self._left))
        if not done:
            raise first
        message = f"{self._prefix.path!r}: of {len(left)} of {len(self._found)} files something is left: {first}"
        raise PartialOperationError(message, done, left) from first

    def _is_named(self, kept: Kept) -> bool:
        if not self._prefix.storage and kept.name.startswith(self._bucket.directory(_OURS)):
            return False  # of the whole root, too, our own data are no part
        return kept.name == self._name or kept.name.startswith(self._top)

    async def _drop(self, page: Sequence[Kept], drop: Drop) -> int:
        """Drop of each name the oldest first, so that no earlier version is shown meanwhile; returns how many."""
        by_name: dict[str, list[Kept]] = {}
        for kept in reversed(page):
            by_name.setdefault(kept.name, []).append(kept)
        places = asyncio.Semaphore(_AT_ONCE)

        async def drop_of(name: str) -> int:
            async with places:
                return await self._drop_one(name, by_name[name], drop)

        return sum(await asyncio.gather(*map(drop_of, by_name)))

    async def _drop_one(self, name: str, those: Sequence[Kept], drop: Drop) -> int:
        if not name.endswith("/"):  # a console's folder marker
            self._found.add(name)
        for dropped, kept in enumerate(those):
            try:
                with self._bucket.operation(self._prefix, WriteError) as attempts:
                    await attempts.until_answered(partial(drop, kept))
            except FileNotFoundError:
                continue  # gone already
            except WriteError as error:
                self._left[name] = error
                return dropped
        self._left.pop(name, None)
        return len(those)

    def _paths(self, names: set[str] | dict[str, WriteError]) -> tuple[str, ...]:
        return tuple(sorted(self._bucket.path(name, self._prefix) for name in names))
