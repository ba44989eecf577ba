"""`ObjectStoreBackend`: the five verbs and append, on any object store with conditional writes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Literal, TypeVar, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    DEFAULT_SECONDS,
    PRESENT,
    Appended,
    AppendWhen,
    Backend,
    Capabilities,
    DeletedTree,
    Entry,
    Page,
    PageBuilder,
    ReadWhen,
    Snapshot,
    Version,
    WriteWhen,
    joined,
    not_found,
    refuse_larger,
)
from agent_memory.errors import (
    AppendError,
    ConflictError,
    FileOperationError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket, changed
from agent_memory.object_store.cleanup import Cleanup
from agent_memory.object_store.conditional_write import BeatenError, State, Write
from agent_memory.object_store.directories import ClaimedDirectories
from agent_memory.object_store.engine import NotSatisfiable, Object, ObjectStore, SupportsMultipart
from agent_memory.object_store.erasing import erase
from agent_memory.object_store.multipart import TAIL_BYTES, Composer
from agent_memory.object_store.recent_writes import RecentWrites
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.single_writer import SingleWriterStore
from agent_memory.object_store.trial import ADVICE, Condition, Conditions, Trial
from agent_memory.object_store.upload import MOST_PARTS, UPLOAD_SECONDS, BegunUpload, UploadInParts, exists, unknown
from agent_memory.object_store.write_log import ON_IO_LOOP, TrackedVersion, WriteLog, Writer

T = TypeVar("T")
_EMPTY = "empty"
_CAPABILITIES = Capabilities(
    atomic_write=True,
    atomic_create=True,
    compare_and_swap=True,
    conditional_delete=True,
    durability="full",
    exclusive_names=False,
    case_sensitive=True,
    read_after_write=True,
)
_SINGLE_WRITER = replace(_CAPABILITIES, atomic_create=False, compare_and_swap=False, conditional_delete=False)
_TO_APPEND = ("create", "swap")
_REQUESTS = {
    "create": "If-None-Match of a PUT",
    "swap": "If-Match of a PUT",
    "delete": "If-Match of a DELETE",
    "create_upload": "If-None-Match of a completed upload",
    "swap_upload": "If-Match of a completed upload",
}


class ObjectStoreBackend(Backend):
    """Objects below ``prefix`` in one bucket.

    Args:
        store: the engine, which sends each request once.
        prefix: at most 100 bytes of UTF-8, because stores limit an object's name to 1,024.
        allow_single_writer: accept a store that keeps no preconditions, because no other process writes there.
        writer: the writer of the event loop on which the verbs run; all backends on that loop share it.
        jitter: returns random numbers in ``[0, 1)``, which spread retries.
    """

    timeout = DEFAULT_SECONDS

    def __init__(
        self,
        store: ObjectStore,
        prefix: str = "",
        *,
        allow_single_writer: bool = False,
        writer: Writer = ON_IO_LOOP,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._bucket = Bucket(store, prefix, jitter)
        self._allow_single_writer = allow_single_writer
        self._cleanup = Cleanup()
        self._trial = Trial(store, self._cleanup)
        self._writer = writer
        self._recent_writes = RecentWrites()
        self._composer = Composer(store, self._trial, self._cleanup)
        self._directories = ClaimedDirectories(self._bucket, writer.locks)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # not to be set
        """What the server keeps; before its trial (`check_capabilities`), what the engine can request."""
        if isinstance(self._store, SingleWriterStore):
            return _SINGLE_WRITER
        known, untried = self._trial.known, (Condition.KEPT, Condition.NOT_TRIED)
        return replace(
            _CAPABILITIES,
            atomic_create=known.create in untried,
            compare_and_swap=known.swap in untried,
            conditional_delete=known.delete in untried,
        )

    async def check_capabilities(self, key: Key) -> Capabilities:
        """See `agent_memory.backend.ChecksCapabilities`."""
        with self._bucket.operation(key, WriteError) as attempts:
            await self._conditions(key, attempts)
            await self._trial.of_deletes(self._bucket.name(key), attempts)
        return self.capabilities

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        span = _span(start, end)
        if_match = None if when is ANY else when.token
        name = self._bucket.name(key)
        with self._bucket.operation(key, ReadError) as attempts:
            try:
                if span != _EMPTY:
                    found = await attempts.until_answered(
                        lambda: self._store.get(name, span=span, if_match=if_match, most=self.max_bytes)
                    )
                else:
                    found = await self._bucket.head(key, attempts)
            except NotSatisfiable:  # a range at or past the end is empty
                found = await self._bucket.head(key, attempts)
        if when is not ANY and when.token != found.etag:
            raise changed(key)
        return _snapshot(found)

    async def stat(self, key: Key) -> Entry:
        with self._bucket.operation(key, ReadError) as attempts:
            found = await self._bucket.head(key, attempts)
        return Entry(key, found.size, found.modified, _version(found))

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version:
        if not isinstance(when, Version):
            await self._directories.claim(key)
        change = partial(self._write, key, data, when)
        needed = () if when is ANY else ("create",) if when is ABSENT else ("swap",)
        return await self._changing(key, WriteError, change, needed)

    async def _write(self, key: Key, data: bytes, when: WriteWhen, write: Write) -> Version:
        self._recent_writes.begin(self._bucket.name(key), write)
        if when is ANY:
            version = await write.overwrite(data)
        elif when is ABSENT:
            version = await self._create(key, write, data)
        else:
            version = await self._swap(key, write, data, when)
        self._keep(key, write, version, data)
        return version

    async def write_in_parts(self, key: Key, size: int, when: WriteWhen = ANY) -> UploadInParts:
        """See `agent_memory.backend.WritesInParts`: a multipart upload, completed on the condition."""
        if not isinstance(when, Version):
            await self._directories.claim(key)
        return await self._changing(key, WriteError, partial(self._begin, key, size, when), ())

    async def _begin(self, key: Key, size: int, when: WriteWhen, write: Write) -> UploadInParts:
        await self._require_new_parts(key, when, write.attempts)
        store = self._store
        if not isinstance(store, SupportsMultipart):
            raise UnsupportedOperationError(
                f"{size:,} bytes are more than the {self.max_bytes:,} one call may carry, and this "
                "engine has no multipart upload",
                path=key.path,
            )
        base = None if when is ANY else await self._state_to_replace(key, when, write)
        entry = self._writer.entry(self._store.now() + UPLOAD_SECONDS)
        table = await write.stamped(base, entry)
        begin = partial(store.begin_upload, self._bucket.name(key), table.metadata)
        begun = BegunUpload(await write.attempts.until_answered(begin), when, base, entry, table)
        part_bytes = max(self.part_bytes, store.least_part, -(-size // MOST_PARTS))

        async def changing(change: Callable[[Write], Awaitable[TrackedVersion]]) -> TrackedVersion:
            async def forgetting(write: Write) -> TrackedVersion:
                self._recent_writes.begin(self._bucket.name(key), write)
                return await change(write)

            return await self._changing(key, WriteError, forgetting, ())

        return UploadInParts(key, begun, part_bytes, store, self._bucket, self._composer, self._cleanup, changing)

    async def _state_to_replace(self, key: Key, when: WriteWhen, write: Write) -> State | None:
        """The state that an upload is conditional on; raises at once if the object is in another state now."""
        seen = await write.look(whole=False)
        if when is ABSENT:
            if seen:
                raise exists(key)
        elif seen is None or seen.etag != cast(Version, when).token:
            raise changed(key) if seen else ConflictError("the file is gone", path=key.path)
        return seen

    async def append(self, key: Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY) -> Appended:
        """See `agent_memory.backend.Appends`: replaces the object by a longer one, by compare-and-swap."""
        return await self._changing(key, AppendError, partial(self._append, key, data, separator, when), _TO_APPEND)

    async def _append(self, key: Key, data: bytes, separator: bytes, when: AppendWhen, write: Write) -> Appended:
        name = self._bucket.name(key)
        base = self._recent_writes.begin(name, write)
        if base is None or len(base.data) + len(separator) + len(data) > self.max_bytes:
            base = await write.look(whole=True)
        shared = self._recent_writes.is_shared(name, base)
        while True:
            if base is None and when is PRESENT:
                raise not_found(key)
            whole = joined(base.data if base else b"", separator, data)
            before = base.before if base else 0
            if not before:
                refuse_larger(key, len(whole), self.max_bytes)
            try:
                version = await self._append_to(key, write, whole, base)
                break
            except BeatenError as beaten:
                base = beaten.seen  # the object does not contain the append, so send it again
                shared = True
        if shared:
            self._recent_writes.share(name, version.token)
        else:
            self._keep(key, write, version, whole, before)
        return Appended(before + len(whole), version)

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if when is not ANY and not self._store.conditional_delete:  # refused without a request
            self._require(key, self._trial.known, ("delete",))
        needed = () if when is ANY else ("delete",)
        await self._changing(key, WriteError, partial(self._delete, key, when), needed)

    async def _delete(self, key: Key, when: ReadWhen, write: Write) -> None:
        self._recent_writes.begin(self._bucket.name(key), write)
        conditions = await self._conditions(key, write.attempts)
        conditional = conditions.delete is Condition.KEPT or isinstance(self._store, SingleWriterStore)
        try:
            deleted = await write.delete(None if when is ANY else when.token, conditional=conditional)
        except BeatenError as beaten:
            raise changed(key) from beaten
        if not deleted:
            raise not_found(key)

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        top = self._bucket.directory(prefix)
        listing = await self._bucket.list(prefix, ReadError, top, deep=recursive, limit=limit, after=after)
        builder = PageBuilder(prefix)
        for found in listing.objects:
            if not found.name.endswith("/"):  # a console's folder marker
                builder.file(found.name[len(top) :], found.size, found.modified, TrackedVersion(found.etag))
        for name in await self._bucket.directory_names(prefix, top, listing):
            builder.directory(name)
        return builder.whole_page(listing.next)

    async def erase(self, prefix: Key) -> DeletedTree:
        """See `agent_memory.backend.Erases`; one request for each version and incomplete upload, 16 at a time."""
        try:
            return await erase(self._bucket, prefix)
        finally:
            self._recent_writes.forget_all(self._bucket.name(prefix), self._bucket.directory(prefix))

    async def aclose(self) -> None:
        await self._cleanup.aclose()
        await self._store.aclose()

    async def _changing(
        self,
        key: Key,
        error: type[FileOperationError],
        change: Callable[[Write], Awaitable[T]],
        needed: tuple[str, ...],
    ) -> T:
        """Change a file under its lock, because a writer has only one write at a time for each file.

        ``needed`` are the fields of `Conditions` that the change relies on.
        """
        name = self._bucket.name(key)
        place = (self._store.identity, name)
        with self._bucket.operation(key, error) as attempts:
            async with self._writer.locks.lock(place, attempts.deadline.at):
                if needed:
                    await self._require_preconditions(key, attempts, needed)
                write = Write(self._store, self._composer, name, self._writer, attempts, self.max_bytes)
                return await change(write)

    @property
    def _store(self) -> ObjectStore:
        return self._bucket.store

    async def _conditions(self, key: Key, attempts: Attempts) -> Conditions:
        """The results of the server's trial, which runs once."""
        if self._trial.known.swap is Condition.NOT_TRIED:
            async with self._writer.locks.lock(self, attempts.deadline.at):
                found = await self._trial.of_writes(self._bucket.name(key), attempts)
            kept = found.create is found.swap is Condition.KEPT
            if self._allow_single_writer and not kept and not isinstance(self._store, SingleWriterStore):
                self._bucket.store = SingleWriterStore(self._store)
        return self._trial.known

    async def _require_preconditions(self, key: Key, attempts: Attempts, needed: tuple[str, ...]) -> None:
        conditions = await self._conditions(key, attempts)
        if "delete" in needed:
            conditions = await self._trial.of_deletes(self._bucket.name(key), attempts)
        self._require(key, conditions, needed)

    async def _require_new_parts(self, key: Key, when: WriteWhen, attempts: Attempts) -> None:
        if when is ANY:
            return
        kind: Literal["create", "swap"] = "create" if when is ABSENT else "swap"
        await self._require_preconditions(key, attempts, (kind,))
        if not isinstance(self._store, SingleWriterStore):
            async with self._writer.locks.lock(self, attempts.deadline.at):
                found = await self._trial.of_new_parts(self._bucket.name(key), attempts, kind)
            if isinstance(self._store, SupportsMultipart):
                self._require(key, found, (f"{kind}_upload",))

    def _require(self, key: Key, conditions: Conditions, needed: tuple[str, ...]) -> None:
        """Raise `UnsupportedOperationError` unless the server keeps the preconditions that a change relies on."""
        for name in needed:
            condition: Condition = getattr(conditions, name)
            if condition is not Condition.KEPT and not self._allow_single_writer:
                raise UnsupportedOperationError(f"{condition.value} ({_REQUESTS[name]}); {ADVICE}", path=key.path)

    async def _create(self, key: Key, write: Write, data: bytes) -> TrackedVersion:
        try:
            return await self._send_new(key, write, data)
        except BeatenError as beaten:
            if beaten.certain:
                raise exists(key) from beaten
            raise unknown(key) from beaten

    async def _append_to(self, key: Key, write: Write, whole: bytes, base: State | None) -> TrackedVersion:
        if base is not None:
            return await write.send(whole, base, whole=True)
        await self._directories.claim(key)
        return await self._send_new(key, write, whole, whole=True)

    async def _send_new(self, key: Key, write: Write, data: bytes, *, whole: bool = False) -> TrackedVersion:
        while True:
            try:
                return await write.send(data, None, whole=whole)
            except BeatenError as beaten:
                if beaten.seen or not await self._bucket.freed(key):
                    raise

    async def _swap(self, key: Key, write: Write, data: bytes, when: Version) -> TrackedVersion:
        table = when.table if isinstance(when, TrackedVersion) else None
        base = State(when.token, table) if table else await write.look(whole=False)
        if base is None or base.etag != when.token:
            raise changed(key) if base else ConflictError("the file is gone", path=key.path)
        try:
            return await write.send(data, base)
        except BeatenError as beaten:
            if not beaten.certain:
                raise unknown(key) from beaten
            raise changed(key) if beaten.seen else ConflictError("the file is gone", path=key.path) from beaten

    def _keep(self, key: Key, write: Write, version: TrackedVersion, data: bytes, before: int = 0) -> None:
        if version.table is None:
            return
        least = self._composer.least
        if least is not None and before + len(data) >= least:
            before += max(0, len(data) - TAIL_BYTES)
            data = data[-TAIL_BYTES:]
        self._recent_writes.keep(self._bucket.name(key), State(version.token, version.table, data, before), write)


def _span(start: int | None, end: int | None) -> str | None:
    """The ``Range`` header of a slice; None for the whole object, `_EMPTY` for no bytes."""
    if start is None and end is None:
        return None
    if start is not None and start < 0:
        if end is not None:
            raise ValueError("a negative start counts from the end of the file, so an end is not allowed")
        return f"bytes={start}"
    first = start or 0
    if end is not None and end <= first:
        return _EMPTY
    return f"bytes={first}-{'' if end is None else end - 1}"


def _version(found: Object) -> TrackedVersion:
    return TrackedVersion(found.etag, WriteLog.of(found.metadata, found.etag))


def _snapshot(found: Object) -> Snapshot:
    return Snapshot(found.data, lambda: _version(found), found.size)
