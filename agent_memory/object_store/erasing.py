"""Erasing: deletes every version, deletion mark and incomplete upload of a tree, with one request for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from agent_memory.backend import DeletedTree, Markers, named
from agent_memory.errors import PartialOperationError, UnsupportedOperationError, WriteError
from agent_memory.key import TEMPORARY_SUFFIX, Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.engine import RetainedPage, RetainedVersion, SupportsVersions

_AT_ONCE = 16
_MOST_ROUNDS = 5
_STILL_THERE = "the server still lists a version or an upload that it said it had deleted"
_OURS = Key.internal("x").parent
_NO_FILES = ("/", TEMPORARY_SUFFIX)
"""Endings of names that are no files: folder markers of a console, and scratch objects of a trial."""
ListPage = Callable[[str, tuple[str, str] | None], Awaitable[RetainedPage]]
Drop = Callable[[RetainedVersion], Awaitable[None]]


async def erase(bucket: Bucket, prefix: Key) -> DeletedTree:
    """See `agent_memory.backend.Erases.erase`; this package's own data belong to no tree."""
    store = bucket.store
    if not isinstance(store, SupportsVersions):
        raise UnsupportedOperationError(f"{named(prefix)}: this store cannot list the versions that it keeps")
    erasing = _Erasing(bucket, prefix)
    await erasing.drop_all(store.list_uploads, store.abort_upload)
    if not await erasing.drop_all(store.list_versions, store.delete_version):
        await erasing.require_nothing()
    return erasing.result()


async def erase_earlier(bucket: Bucket, key: Key) -> int:
    """See `agent_memory.backend.Erases.erase_earlier`; the latest version of the name stays."""
    store = bucket.store
    if not isinstance(store, SupportsVersions):
        raise UnsupportedOperationError(f"{named(key)}: this store cannot list the versions that it keeps")
    erasing = _Erasing(bucket, key, alone=True)
    await erasing.drop_all(store.list_uploads, store.abort_upload)
    count = await erasing.drop_all(store.list_versions, store.delete_version, latest=False)
    erasing.result()
    return count


class _Erasing:
    """The erasing of a file, and of all files below its name unless ``alone``."""

    def __init__(self, bucket: Bucket, prefix: Key, *, alone: bool = False) -> None:
        self._bucket = bucket
        self._alone = alone
        self._prefix = prefix
        self._top = bucket.directory(prefix)
        self._name = bucket.name(prefix) if prefix.path else self._top
        self._found: set[str] = set()
        self._left: dict[str, WriteError] = {}

    async def drop_all(self, pages: ListPage, drop: Drop, *, latest: bool = True) -> int:
        """Drop everything listed for the name and below it, until nothing new is listed; return how much that was.

        Without ``latest`` the first entry listed for a name stays.

        All pages are read before anything is dropped: for each name the oldest version goes first and the latest last,
        so that no older version becomes visible meanwhile. An entry is left over if the last listing still has it,
        whatever the server answered.
        """
        tried: set[RetainedVersion] = set()
        errors: dict[RetainedVersion, WriteError] = {}
        found = await self._listed(pages, latest)
        for _ in range(_MOST_ROUNDS):  # bounded, because other writers may never stop
            if not (new := [kept for kept in found if kept not in tried]):
                break
            tried |= set(new)
            errors |= await self._drop(new, drop)
            found = await self._listed(pages, latest)
        told = {kept.name: error for kept, error in errors.items()}
        for name in dict.fromkeys(kept.name for kept in found if kept in tried):
            still_there = WriteError(f"{named(self._prefix)}: {_STILL_THERE}")
            self._left.setdefault(name, told.get(name, still_there))
        return len(tried)

    async def require_nothing(self) -> None:
        """Raise `WriteError` if a file exists although the server listed no version: it does not list versions.

        The whole root is not checked, because this package's own data may lie there.
        """
        bucket, prefix = self._bucket, self._prefix
        if prefix.storage and (await bucket.is_file(prefix) or await bucket.is_directory(prefix)):
            raise WriteError(f"{named(prefix)}: the server lists no version of an existing file")

    def result(self) -> DeletedTree:
        """How many files were erased; raises `WriteError` if none was, `PartialOperationError` if some were not."""
        if not self._left:
            return DeletedTree(len(self._found), 0)
        first = next(iter(self._left.values()))
        done, left = self._paths(self._found - set(self._left)), self._paths(self._left)
        if not done:
            raise first
        message = f"{named(self._prefix)}: {len(left)} of {len(self._found)} files were not erased completely: {first}"
        raise PartialOperationError(message, done, left) from first

    async def _listed(self, pages: ListPage, latest: bool) -> list[RetainedVersion]:
        found: list[RetainedVersion] = []
        after: tuple[str, str] | None = None
        markers = Markers(self._prefix, WriteError)
        while True:
            with self._bucket.operation(self._prefix, WriteError) as attempts:
                page = await attempts.until_answered(partial(pages, self._name, after))
            found += filter(self._is_named, page.found)
            after = page.next
            if after is None or (after[0] > self._top and not after[0].startswith(self._top)):
                return found if latest else _without_first(found)  # later names are not the name, nor below it
            markers.go_on(after)

    def _is_named(self, kept: RetainedVersion) -> bool:
        if not self._prefix.storage and kept.name.startswith(self._bucket.directory(_OURS)):
            return False  # this package's own data, even if the whole root is erased
        return kept.name == self._name or (kept.name.startswith(self._top) and not self._alone)

    async def _drop(self, those: Sequence[RetainedVersion], drop: Drop) -> dict[RetainedVersion, WriteError]:
        by_name: dict[str, list[RetainedVersion]] = {}
        for kept in reversed(those):
            by_name.setdefault(kept.name, []).append(kept)
        self._found |= {name for name in by_name if not name.endswith(_NO_FILES)}
        errors: dict[RetainedVersion, WriteError] = {}
        slots = asyncio.Semaphore(_AT_ONCE)

        async def drop_of_one(versions: Sequence[RetainedVersion]) -> None:
            async with slots:
                await self._drop_in_order(versions, drop, errors)

        await asyncio.gather(*map(drop_of_one, by_name.values()))
        return errors

    async def _drop_in_order(
        self, versions: Sequence[RetainedVersion], drop: Drop, errors: dict[RetainedVersion, WriteError]
    ) -> None:
        """Stop at the first failure: if the newer versions were dropped, that version would become the current file."""
        for kept in versions:
            try:
                with self._bucket.operation(self._prefix, WriteError) as attempts:
                    await attempts.until_answered(partial(drop, kept))
            except FileNotFoundError:
                continue  # already deleted
            except WriteError as error:
                errors[kept] = error
                return

    def _paths(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(self._bucket.path(name, self._prefix) for name in names))


def _without_first(found: Sequence[RetainedVersion]) -> list[RetainedVersion]:
    """All entries but the first one of each name."""
    first = {kept.name: kept for kept in reversed(found)}
    return [kept for kept in found if kept is not first[kept.name]]
