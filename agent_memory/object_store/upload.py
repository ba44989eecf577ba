"""`UploadInParts`: writes a file of any size by a multipart upload, invisible until the server completes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from agent_memory.backend import ABSENT, ANY, PRESENT, ETag, Key, WriteWhen
from agent_memory.backend.helpers import not_found
from agent_memory.errors import WriteError
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.conditional_write import Write
from agent_memory.object_store.engine import (
    NotFound,
    PermanentError,
    PreconditionFailed,
    RetainedVersion,
    SupportsMultipart,
    WriteConflict,
)
from agent_memory.object_store.late_requests import etag_of_parts, require_another_etag
from agent_memory.object_store.multipart import Composer
from agent_memory.object_store.retry import Cleanup
from agent_memory.object_store.states import Base, BeatenError, State, refused, unknown
from agent_memory.object_store.write_log import TrackedETag, WriteLog, WriteRecord

UPLOAD_SECONDS: Final = 86_400.0
"""The longest time of an upload; the object's metadata keep its record for as long."""
MOST_PARTS: Final = 9_999


class BegunUpload(NamedTuple):
    """An upload that has begun: the state that it is conditional on, and the record and write log in its metadata."""

    id: str
    when: WriteWhen
    base: State | None
    record: WriteRecord
    log: WriteLog


@dataclass(eq=False)
class UploadInParts:
    """See `agent_memory.backend.Parts`.

    Attributes:
        key: the key of the file.
        begun: the upload.
        part_bytes: the number of bytes of each part, except the last one.
        store: the engine.
        bucket: gives each request a deadline.
        composer: finds out whether the server enforces the preconditions of copied parts.
        cleanup: aborts the upload.
        writing: opens the write that completes the upload, under the file's lock.
    """

    key: Key
    begun: BegunUpload
    part_bytes: int
    store: SupportsMultipart
    bucket: Bucket
    composer: Composer
    cleanup: Cleanup
    writing: Callable[[], AbstractAsyncContextManager[Write]]
    _etags: list[str] = field(default_factory=list, init=False)
    _is_complete: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.bucket.name(self.key)

    async def add(self, data: bytes) -> None:
        put = partial(self.store.put_part, self.name, self.begun.id, len(self._etags) + 1, data)
        with self.bucket.operation(self.key, WriteError) as attempts:
            try:
                self._etags.append(await attempts.until_answered(put))
            except NotFound as gone:
                raise PermanentError("the multipart upload no longer exists") from gone

    async def add_copy(self, source: Key, start: int, end: int, etag: ETag) -> bool:
        """See `agent_memory.backend.Parts.add_copy`; False also if the server ignores the precondition of a copy.

        The source is looked at again after the copy, because a server may check the precondition some time before.
        """
        if end - start < self.store.least_part and not start:
            return False
        name, number = self.bucket.name(source), len(self._etags) + 1
        copy = partial(self.store.copy_part, self.name, self.begun.id, number, source=name, if_match=etag.token)
        with self.bucket.operation(source, WriteError) as attempts:
            try:
                if not await self.composer.is_safe(name, attempts):
                    return False
                part = await attempts.until_answered(partial(copy, span=(start, end - 1)))
                if (await attempts.until_answered(partial(self.store.head, name))).etag != etag.token:
                    return False
                self._etags.append(part)
            except (PreconditionFailed, WriteConflict, NotFound):
                return False
        return True

    async def complete(self) -> ETag:
        if not self._etags:
            await self.add(b"")  # an upload has at least one part
        async with self.writing() as write:
            etag = await self._complete(write)
        self._is_complete = True
        return etag

    async def abort(self) -> None:
        if not self._is_complete:
            with self.bucket.operation(self.key, WriteError) as attempts:
                abort = partial(self.store.abort_upload, RetainedVersion(self.name, self.begun.id))
                await self.cleanup.run(abort, attempts)

    async def _complete(self, write: Write) -> TrackedETag:
        begun = self.begun
        if self.store.now() + write.attempts.seconds_left > begun.record.until:
            raise PermanentError("the multipart upload took more than a day")
        if begun.when is ABSENT and begun.log.former_names:  # a copy
            require_another_etag(etag_of_parts(self._etags), write.avoided(begun.log), self.store.now())
        if begun.when in (ABSENT, ANY):
            await write.directories.claim(self.key)  # it may have become a directory since the upload began
        complete = partial(self.store.complete_upload, self.name, begun.id, self._etags)
        base: Base = begun.base
        if begun.when is ANY:
            base = ANY
        elif begun.when is PRESENT:
            return await self._complete_over(write, complete)
        elif begun.when is ABSENT:
            complete = partial(complete, absent=True)
        else:
            complete = partial(complete, if_match=begun.when.token)
        try:
            return await write.complete(complete, begun.record, begun.log, base)
        except BeatenError as beaten:
            raise refused(self.key, begun.when, beaten) from beaten

    async def _complete_over(self, write: Write, complete: Callable[..., Awaitable[str]]) -> TrackedETag:
        """Complete the upload in the place of any state of the file, and retry while other writers are faster."""
        begun = self.begun
        while (seen := await write.read_state(whole=False)) is not None:
            request = partial(complete, if_match=seen.etag)
            try:
                return await write.complete(request, begun.record, begun.log, seen)
            except BeatenError as beaten:
                if not beaten.certain:
                    raise unknown(self.key) from beaten
                await write.attempts.back_off_after_race()
        raise not_found(self.key)
