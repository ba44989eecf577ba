"""`ObjectStoreBackend`: the five verbs and append, on any object store with conditional writes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Backend,
    Capabilities,
    DeletedTree,
    Entry,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.backend._checks import joined, refuse_larger, refuse_larger_append, refuse_over_most
from agent_memory.backend._deadline import DEFAULT_SECONDS
from agent_memory.backend.helpers import PageBuilder, not_found, require
from agent_memory.errors import AppendError, FileOperationError, ReadError, UnsupportedOperationError, WriteError
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.conditional_write import Write
from agent_memory.object_store.directories import Directories
from agent_memory.object_store.engine import NotSatisfiable, Object, ObjectStore, SupportsMultipart
from agent_memory.object_store.erasing import erase, erase_earlier
from agent_memory.object_store.late_requests import LATE_SECONDS, FormerName, TooSoonError, with_former_name
from agent_memory.object_store.multipart import TAIL_BYTES, Composer
from agent_memory.object_store.preconditions import Preconditions
from agent_memory.object_store.retry import Cleanup
from agent_memory.object_store.states import (
    BeatenError,
    MakeContent,
    RecentWrites,
    State,
    changed,
    deletion_unknown,
    gone,
    is_one_etag,
    refused,
    unknown,
)
from agent_memory.object_store.trial import Trial
from agent_memory.object_store.upload import MOST_PARTS, UPLOAD_SECONDS, BegunUpload, UploadInParts
from agent_memory.object_store.write_log import ON_IO_LOOP, TrackedETag, WriteLog, Writer, origin_in

_EMPTY = "empty"
_TO_APPEND = ("create", "swap")


class ObjectStoreBackend(Backend):
    """Objects below ``prefix`` in one bucket.

    Args:
        store: the engine, which sends each request once.
        prefix: at most 100 bytes of UTF-8, because stores limit an object's name to 1,024.
        allow_single_writer: accept a store that enforces no preconditions, because no other process writes there.
        writer: the writer of the event loop on which the verbs run; all backends on that loop share it.
        jitter: returns random numbers in ``[0, 1)``, which spread retries.
    """

    timeout = DEFAULT_SECONDS
    keeps_origins = True
    without_parts = ""
    """Advice that ends the refusal of a large file, if the engine has no multipart upload."""

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
        self._cleanup = Cleanup()
        self._writer = writer
        trial = Trial(store, self._cleanup, has_other_writers=not allow_single_writer)
        self._preconditions = Preconditions(self._bucket, trial, writer.locks, allow_single_writer=allow_single_writer)
        self._recent_writes = RecentWrites()
        self._composer = Composer(store, trial, self._cleanup)
        self._directories = Directories(self._bucket, writer.locks)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # not to be set
        """The capabilities that the server enforces; before its trial (`check_capabilities`), those of the engine."""
        return self._preconditions.capabilities

    def as_another_process(self) -> Self:
        """See `agent_memory.backend.ActsAsAnotherProcess`; a single writer has no others."""
        if self._preconditions.allow_single_writer:
            return self
        other = object.__new__(type(self))
        vars(other).update(vars(self))  # the same connections, and one trial of the server
        other._writer, other._recent_writes = Writer(), RecentWrites()
        other._directories = Directories(self._bucket, other._writer.locks)
        return other

    async def check_capabilities(self, key: Key) -> Capabilities:
        """See `agent_memory.backend.ChecksCapabilities`."""
        with self._bucket.operation(key, WriteError) as attempts:
            await self._preconditions.find_out(key, attempts, deletes=True)
        return self.capabilities

    async def appends_in_parts(self, key: Key) -> bool:
        """Whether an append to a large file sends only the new bytes; otherwise it sends the whole file.

        Writes a scratch file under the key, of the size of the smallest part.
        """
        store = self._store
        if not isinstance(store, SupportsMultipart):
            return False
        await self.write(key, bytes(store.least_part))
        with self._bucket.operation(key, WriteError) as attempts:
            return await self._composer.is_safe(self._bucket.name(key), attempts)

    async def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        span = _span(start, end)
        if_match = when.token if when is not ANY and is_one_etag(when.token) else None
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
        return Snapshot(found.data, lambda: _etag(found), found.size, origin_in(found.metadata))

    async def stat(self, key: Key) -> Entry:
        with self._bucket.operation(key, ReadError) as attempts:
            found = await self._bucket.head(key, attempts)
        return Entry(key, found.size, found.modified, _etag(found))

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is ANY or when is ABSENT:
            await self._directories.claim(key)
        needed = () if when is ANY else ("create",) if when is ABSENT else ("swap",)
        async with self._writing(key, WriteError, needed) as write:
            return await self._write(write, key, data, when, origin)

    async def _write(self, write: Write, key: Key, data: bytes, when: WriteWhen, origin: NewOrigin | None) -> ETag:
        write.origin = origin
        if when is ANY:
            etag = await write.overwrite(data)
        elif when is PRESENT:
            etag = await self._write_over(write, key, data)
        else:
            base = None if when is ABSENT else await self._state_of(key, when, write)
            try:
                etag = (await write.replace(_constant(data), base)).etag
            except BeatenError as beaten:
                raise refused(key, when, beaten) from beaten
        self._keep(key, write, etag, data)
        return etag

    async def _write_over(self, write: Write, key: Key, data: bytes) -> TrackedETag:
        """Replace any state of the file; raises `not_found` if there is no file."""

        async def content(base: State | None) -> bytes:
            if base is None:
                raise not_found(key)
            return data

        try:
            written = await write.replace(content, await write.read_state(whole=False), follow=True)
        except BeatenError as beaten:
            raise unknown(key) from beaten
        return written.etag

    async def write_copy(self, key: Key, of: Key, snapshot: Snapshot, origin: NewOrigin | None = None) -> ETag:
        """See `agent_memory.backend.WritesCopies`."""
        await self._directories.claim(key)
        async with self._writing(key, WriteError, ("create",)) as write:
            self._become_copy(write, of, snapshot.etag, write.attempts.seconds_left)
            return await self._write(write, key, snapshot.data, ABSENT, origin)

    def _become_copy(self, write: Write, of: Key, etag: ETag, seconds: float) -> None:
        """Prepare a write for a copy; a rename deletes the source in less than ``seconds``.

        Raises:
            TooSoonError: the content had too many names in the last minutes.
        """
        if not self._preconditions.may_enforce_deletes:
            return  # a deletion without a condition deletes an object with any ETag
        now, log = self._store.now(), etag.log if isinstance(etag, TrackedETag) else None
        earlier = log.former_names if log else ()
        former = FormerName.of(self._bucket.name(of), etag.token, now + seconds + LATE_SECONDS)
        write.former_names = with_former_name(earlier, former, now)

    async def _state_of(self, key: Key, when: ETag, write: Write) -> State:
        """The state with the given etag; its write log is read if the etag has none."""
        log = when.log if isinstance(when, TrackedETag) else None
        base = State(when.token, log) if log else await write.read_state(whole=False)
        if base is None or base.etag != when.token:
            raise changed(key) if base else gone(key)
        return base

    async def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> UploadInParts:
        """See `agent_memory.backend.WritesInParts`: a multipart upload, completed on the condition."""
        self._require_multipart(key, size)
        if when is ANY or when is ABSENT:
            await self._directories.claim(key)
        async with self._writing(key, WriteError) as write:
            return await self._begin(write, key, size, when, origin)

    async def write_copy_in_parts(
        self, key: Key, size: int, of: Key, etag: ETag, origin: NewOrigin | None = None
    ) -> UploadInParts:
        """See `agent_memory.backend.WritesCopies`."""
        self._require_multipart(key, size)
        await self._directories.claim(key)
        async with self._writing(key, WriteError) as write:
            self._become_copy(write, of, etag, UPLOAD_SECONDS)
            return await self._begin(write, key, size, ABSENT, origin)

    def _require_multipart(self, key: Key, size: int) -> None:
        """Raise `UnsupportedOperationError` if the engine has no multipart upload; sends nothing."""
        if not isinstance(self._store, SupportsMultipart):
            raise UnsupportedOperationError(
                f"{size:,} bytes are more than the {self.max_bytes:,} bytes of one call, and this engine has no "
                f"multipart upload{self.without_parts}",
                path=key.path,
            )

    async def _begin(
        self, write: Write, key: Key, size: int, when: WriteWhen, origin: NewOrigin | None
    ) -> UploadInParts:
        write.origin = origin
        await self._preconditions.require_for_upload(key, when, write.attempts)
        store = cast(SupportsMultipart, self._store)
        base = await self._state_to_replace(key, when, write)
        await write.learn_clock()
        record = self._writer.new_record(self._store.now() + UPLOAD_SECONDS)
        log = await write.new_log(base, record)
        begin = partial(store.begin_upload, self._bucket.name(key), log.metadata)
        begun = BegunUpload(await write.attempts.until_answered(begin), when, base, record, log)
        part_bytes = max(self.part_bytes, store.least_part, -(-size // MOST_PARTS))
        writing = partial(self._writing, key, WriteError)
        return UploadInParts(key, begun, part_bytes, store, self._bucket, self._composer, self._cleanup, writing)

    async def _state_to_replace(self, key: Key, when: WriteWhen, write: Write) -> State | None:
        """The state that an upload is conditional on; raises at once if the object is in another state now."""
        if isinstance(when, ETag):
            return await self._state_of(key, ETag(when.token), write)
        if when is not ANY:
            seen = await write.read_state(whole=False)
            require(key, ETag(seen.etag) if seen else None, when)
        return None

    async def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        """See `agent_memory.backend.Appends`: replaces the object by a longer one, by compare-and-swap."""
        async with self._writing(key, AppendError, _TO_APPEND) as write:
            return await self._append(write, key, data, separator, when, most, origin)

    async def _append(
        self,
        write: Write,
        key: Key,
        data: bytes,
        separator: bytes,
        when: AppendWhen,
        most: int | None,
        origin: NewOrigin | None,
    ) -> Appended:
        write.origin, write.keeps_origin = origin, True
        name = self._bucket.name(key)
        base = write.known
        if base is None or len(base.data) + len(separator) + len(data) > self.max_bytes:
            base = await write.read_state(whole=True)
        is_shared = self._recent_writes.is_shared(name, base)

        async def make_content(base: State | None) -> bytes:
            if base is None and when is PRESENT:
                raise not_found(key)
            if base is None:
                await self._directories.claim(key)
            whole = joined(base.data if base else b"", separator, data)
            if base is None or not base.before:
                refuse_larger(key, len(data), self.max_bytes)
                refuse_larger_append(key, len(whole), self.max_bytes)
            refuse_over_most(key, (base.before if base else 0) + len(whole), most)
            return whole

        try:
            written = await write.replace(make_content, base, follow=True)
        except BeatenError as beaten:
            raise unknown(key) from beaten
        before = written.state.before if written.state else 0
        if is_shared or written.state is not base:
            self._recent_writes.share(name, written.etag.token)
        else:
            self._keep(key, write, written.etag, written.data, before)
        log = written.etag.log
        return Appended(before + len(written.data), written.etag, (log and log.origin) or None)

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if when is not ANY and not self._store.conditional_delete:  # refused without a request
            self._preconditions.refuse_delete(key)
        needed = () if when is ANY else ("delete",)
        async with self._writing(key, WriteError, needed) as write:
            conditional = await self._preconditions.deletes_on_condition(key, write.attempts)
            try:
                deleted = await write.delete(None if when is ANY else when, conditional=conditional)
            except BeatenError as beaten:
                raise (changed(key) if beaten.certain else deletion_unknown(key)) from beaten
            if not deleted:
                raise not_found(key)

    async def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        top = self._bucket.directory(prefix)
        listing = await self._bucket.list(prefix, ReadError, top, deep=recursive, limit=limit, after=after)
        builder = PageBuilder(prefix)
        for found in listing.objects:
            if not found.name.endswith("/"):  # a console's folder marker
                builder.file(found.name[len(top) :], found.size, found.modified, TrackedETag(found.etag))
        for name in await self._directories.names(prefix, top, listing):
            builder.directory(name)
        return builder.whole_page(listing.next)

    async def erase(self, prefix: Key) -> DeletedTree:
        """See `agent_memory.backend.Erases`; one request for each version and incomplete upload, 16 at a time."""
        try:
            return await erase(self._bucket, prefix)
        finally:
            self._recent_writes.forget_all(self._bucket.name(prefix), self._bucket.directory(prefix))

    async def erase_earlier(self, key: Key, is_meant: Callable[[Key], bool] | None = None) -> int | None:
        """See `agent_memory.backend.Erases`; a deletion mark counts as a state."""
        return await erase_earlier(self._bucket, key, is_meant)

    async def aclose(self) -> None:
        await self._cleanup.aclose()
        await self._store.aclose()

    @asynccontextmanager
    async def _writing(
        self, key: Key, error: type[FileOperationError], needed: tuple[str, ...] = ()
    ) -> AsyncIterator[Write]:
        """A `Write` of a file under the file's lock, because a writer has only one write at a time for each file.

        ``needed`` are the fields of `TrialResults` that the write relies on.
        """
        name = self._bucket.name(key)
        with self._bucket.operation(key, error) as attempts:
            async with self._writer.locks.lock((self._store.identity, name), attempts.deadline.at):
                if needed:
                    await self._preconditions.require(key, attempts, needed)
                helpers = self._composer, self._preconditions, self._directories
                write = Write(key, self._bucket, self._writer, attempts, *helpers, self.max_bytes)
                write.known = self._recent_writes.begin(name, write)
                try:
                    yield write
                except TooSoonError as soon:
                    raise soon.about(key) from soon
                finally:
                    if write.record:
                        self._writer.finish(write.record)

    @property
    def _store(self) -> ObjectStore:
        return self._bucket.store

    def _keep(self, key: Key, write: Write, etag: TrackedETag, data: bytes, before: int = 0) -> None:
        if etag.log is None:
            return
        least = self._composer.least
        if least is not None and before + len(data) >= least:
            before += max(0, len(data) - TAIL_BYTES)
            data = data[-TAIL_BYTES:]
        self._recent_writes.keep(self._bucket.name(key), State(etag.token, etag.log, data, before), write)


def _constant(data: bytes) -> MakeContent:
    async def content(_: State | None) -> bytes:
        return data

    return content


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


def _etag(found: Object) -> TrackedETag:
    return TrackedETag(found.etag, WriteLog.of(found.metadata, found.etag))
