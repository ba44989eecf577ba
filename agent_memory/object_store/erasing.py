"""Erasing: deletes every version, deletion mark and incomplete upload of a tree, with one request for each.

On a server that has no versions it deletes the files. What a plain listing shows afterwards decides: some servers
ignore that versions were requested, and list none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from agent_memory.backend import DeletedTree
from agent_memory.backend._pages import Markers
from agent_memory.backend.helpers import named
from agent_memory.errors import FileOperationError, PartialOperationError, UnsupportedOperationError, WriteError
from agent_memory.key import TEMPORARY_SUFFIX, Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.engine import RetainedPage, RetainedVersion, SupportsVersions, UnsupportedRequest
from agent_memory.object_store.retry import Attempts
from agent_memory.runtime.tasks import map_or_cancel

_AT_ONCE = 16
_MOST_ROUNDS = 5
_PAGE = 1000
_STILL_THERE = (
    "the server still lists a file, a version or an upload that it said it had deleted, unless another process has just"
    " written it"
)
_NO_VERSIONS = "the server lists no version of an existing file, unless another process has just written it"
_OURS = Key.internal("x").parent
_NO_FILES = ("/", TEMPORARY_SUFFIX)
"""Endings of names that are no files: folder markers of a console, and scratch objects of a trial."""
ListPage = Callable[[str, tuple[str, str] | None], Awaitable[RetainedPage]]
List = Callable[[], Awaitable[list[RetainedVersion]]]
Drop = Callable[[RetainedVersion], Awaitable[None]]
IsMeant = Callable[[Key], bool]


class _NoVersionsError(Exception):
    """The server has no versions: it cannot list them, and says of the bucket that it keeps none."""


async def erase(bucket: Bucket, prefix: Key) -> DeletedTree:
    """See `agent_memory.backend.Erases.erase`; this package's own data belong to no tree."""
    store = _versions_of(bucket, prefix)
    erasing = _Erasing(bucket, store, prefix)
    with erasing.reported_as_partial():
        searched = await _erase(erasing, store)
    return erasing.result(searched)


async def _erase(erasing: _Erasing, store: SupportsVersions) -> bool:
    """Erase all found versions, uploads and files; return whether versions were searched."""
    searched = True
    files: list[RetainedVersion] = []
    for _ in range(_MOST_ROUNDS):
        try:
            await erasing.drop_all(erasing.uploads, store.abort_upload)
            dropped = await erasing.drop_all(erasing.versions, store.delete_version)
        except _NoVersionsError:
            searched = False
            dropped = await erasing.drop_all(erasing.files, erasing.delete)
        files = await erasing.files()
        if not files or not dropped or erasing.has_failed:  # else another process wrote a file during the erasing
            break
    erasing.note_left(files)
    return searched


async def erase_earlier(bucket: Bucket, key: Key, is_meant: IsMeant | None = None) -> int | None:
    """See `agent_memory.backend.Erases.erase_earlier`; the latest version of each name stays."""
    store = _versions_of(bucket, key)
    erasing = _Erasing(bucket, store, key, is_meant or _no_name)
    with erasing.reported_as_partial():
        try:
            await erasing.drop_all(erasing.uploads, store.abort_upload)
            count = await erasing.drop_all(erasing.earlier_versions, store.delete_version)
        except _NoVersionsError:
            return None
    erasing.result()
    return count


def _versions_of(bucket: Bucket, key: Key) -> SupportsVersions:
    store: object = bucket.store
    if not isinstance(store, SupportsVersions):
        raise UnsupportedOperationError("this store cannot list the versions that it keeps", path=key.path)
    return store


def _no_name(_: Key) -> bool:
    return False


class _Erasing:
    """The erasing of a file, and of the files below its name: of all, or of those for which ``is_meant`` is true."""

    def __init__(self, bucket: Bucket, store: SupportsVersions, prefix: Key, is_meant: IsMeant | None = None) -> None:
        self._bucket = bucket
        self._store = store
        self._is_meant = is_meant
        self._prefix = prefix
        self._top = bucket.directory(prefix)
        self._name = bucket.name(prefix) if prefix.path else self._top
        self._found: set[str] = set()
        self._left: dict[str, WriteError] = {}
        self._has_dropped = False
        self._has_erased = False

    @contextmanager
    def reported_as_partial(self) -> Iterator[None]:
        """Raise `PartialOperationError` for a failure after the first drop; all found files count as left."""
        try:
            yield
        except PartialOperationError:
            raise
        except FileOperationError as error:
            if not self._has_dropped:
                raise
            message = f"{named(self._prefix)}: a part was erased, then this failed: {error}"
            raise PartialOperationError(message, (), self._paths(self._found)) from error

    async def drop_all(self, listed: List, drop: Drop) -> int:
        """Drop all listed versions or uploads, until nothing new is listed; return their number.

        All pages are read before the first one is dropped. For each name the oldest version is dropped first and the
        latest last, so that no older version becomes visible meanwhile. A version is left over if the last listing
        still has it, even if the server answered that it was deleted.
        """
        tried: set[RetainedVersion] = set()
        errors: dict[RetainedVersion, WriteError] = {}
        found = await listed()
        for _ in range(_MOST_ROUNDS):  # bounded, because other writers may never stop
            if not (new := [version for version in found if version not in tried]):
                break
            tried |= set(new)
            errors |= await self._drop(new, drop)
            found = await listed()
        self._has_erased |= not tried.issubset(found)
        reasons = {version.name: error for version, error in errors.items()}
        for name in dict.fromkeys(version.name for version in found if version in tried):
            still_there = WriteError(_STILL_THERE, path=self._prefix.path)
            self._left.setdefault(name, reasons.get(name, still_there))
        return len(tried)

    async def uploads(self) -> list[RetainedVersion]:
        return await self._listed(self._store.list_uploads)

    async def versions(self) -> list[RetainedVersion]:
        return await self._listed(self._store.list_versions)

    async def earlier_versions(self) -> list[RetainedVersion]:
        """The versions except the latest one of each name; raises `WriteError` if a present file has no version."""
        found = await self.versions()
        if not found and self._prefix.path and await self._bucket.is_file(self._prefix):
            raise WriteError(_NO_VERSIONS, path=self._prefix.path)
        latest = {version.name: version for version in reversed(found)}
        return [version for version in found if version is not latest[version.name]]

    async def files(self) -> list[RetainedVersion]:
        """The present files, by a request for the name and by a plain listing below the name."""
        found = [self._name] if self._name != self._top and await self._bucket.is_file(self._prefix) else []
        after: str | None = None
        markers = Markers(self._prefix, WriteError)
        while True:
            page = await self._bucket.list(self._prefix, WriteError, self._top, deep=True, limit=_PAGE, after=after)
            found += (each.name for each in page.objects if not each.name.endswith(_NO_FILES))
            if (after := page.next) is None:
                return [each for name in found if self._is_named(each := RetainedVersion(name, ""))]
            markers.go_on(after)

    async def delete(self, file: RetainedVersion) -> None:
        """Delete a file of a server that has no versions."""
        await self._bucket.store.delete(file.name)

    @property
    def has_failed(self) -> bool:
        """Whether a dropped version, upload or file is still listed."""
        return bool(self._left)

    def note_left(self, files: Iterable[RetainedVersion]) -> None:
        """Note that these files are still there, unless another error is known for their names."""
        for file in files:
            still_there = _NO_VERSIONS if file.name not in self._found else _STILL_THERE
            self._left.setdefault(file.name, WriteError(still_there, path=self._prefix.path))
            self._found.add(file.name)

    def result(self, searched: bool = True) -> DeletedTree:
        """Return the number of erased files; raise `PartialOperationError` if some are left, `WriteError` if all."""
        if not self._left:
            return DeletedTree(len(self._found), 0, searched)
        first = next(iter(self._left.values()))
        done, left = self._paths(self._found - set(self._left)), self._paths(self._left)
        if self._prefix.is_internal or not (done or self._has_erased):
            raise first
        message = f"{named(self._prefix)}: {len(left)} of {len(self._found)} files were not erased completely: {first}"
        raise PartialOperationError(message, done, left) from first

    async def _listed(self, pages: ListPage) -> list[RetainedVersion]:
        found: list[RetainedVersion] = []
        after: tuple[str, str] | None = None
        markers = Markers(self._prefix, WriteError)
        while True:
            page = await self._page(pages, after)
            found += filter(self._is_named, page.found)
            after = page.next
            if after is None or (after[0] > self._top and not after[0].startswith(self._top)):
                return found  # later names are not the name, nor below it
            markers.go_on(after)

    async def _page(self, pages: ListPage, after: tuple[str, str] | None) -> RetainedPage:
        with self._bucket.operation(self._prefix, WriteError) as attempts:
            try:
                return await attempts.until_answered(partial(pages, self._name, after))
            except UnsupportedRequest:
                if await self._may_have_versions(attempts):
                    raise
        raise _NoVersionsError

    async def _may_have_versions(self, attempts: Attempts) -> bool:
        try:
            await attempts.until_answered(partial(self._store.list_versions, self._name, None))
        except UnsupportedRequest:
            try:
                return await attempts.until_answered(self._store.has_versioning)
            except UnsupportedRequest:
                return False
        return True

    def _is_named(self, version: RetainedVersion) -> bool:
        if not self._prefix.storage and version.name.startswith(self._bucket.directory(_OURS)):
            return False  # this package's own data, even if the whole root is erased
        if version.name == self._name or not version.name.startswith(self._top):
            return version.name == self._name
        key = self._prefix.stored(version.name[len(self._top) :])
        return self._is_meant is None or bool(key and self._is_meant(key))

    async def _drop(self, those: Sequence[RetainedVersion], drop: Drop) -> dict[RetainedVersion, WriteError]:
        by_name: dict[str, list[RetainedVersion]] = {}
        for version in reversed(those):
            by_name.setdefault(version.name, []).append(version)
        self._found |= {name for name in by_name if not name.endswith(_NO_FILES)}
        errors: dict[RetainedVersion, WriteError] = {}

        async def drop_of_one(versions: Sequence[RetainedVersion]) -> None:
            await self._drop_in_order(versions, drop, errors)

        await map_or_cancel(drop_of_one, by_name.values(), _AT_ONCE)
        return errors

    async def _drop_in_order(
        self, versions: Sequence[RetainedVersion], drop: Drop, errors: dict[RetainedVersion, WriteError]
    ) -> None:
        """Drop versions of one name, and stop at the first failure: else that version could become the current file."""
        for version in versions:
            try:
                with self._bucket.operation(self._prefix, WriteError) as attempts:
                    await attempts.until_answered(partial(drop, version))
                self._has_dropped = True
            except FileNotFoundError:
                continue  # already deleted
            except WriteError as error:
                errors[version] = error
                return

    def _paths(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(self._bucket.path(name, self._prefix) for name in names))
