"""`UploadTrial`: finds out which preconditions of multipart uploads a server keeps, one request at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.cleanup import Cleanup
from agent_memory.object_store.conditions import Condition
from agent_memory.object_store.engine import (
    NO_ETAG,
    NotFound,
    PermanentError,
    PreconditionFailed,
    RetainedVersion,
    SupportsMultipart,
    UnknownOutcome,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.scratch import ScratchObject, scratch_object, scratch_upload


class UploadTrial:
    """The trial of uploads beside one object.

    Args:
        store: the engine.
        name: an object; the scratch objects lie in its directory, so that the same permissions apply.
        cleanup: removes scratch objects and uploads.
        attempts: the operation, for its deadline.
    """

    def __init__(self, store: SupportsMultipart, name: str, cleanup: Cleanup, attempts: Attempts) -> None:
        self._store = store
        self._name = name
        self._cleanup = cleanup
        self._attempts = attempts

    async def of_copies(self) -> tuple[Condition, Condition]:
        """Try a conditional copy of a part of the object, and a conditional completion of the upload."""
        async with scratch_object(self._store, self._name, self._cleanup, self._attempts) as scratch:
            await scratch.takes(lambda: scratch.put(b"1"))
            try:
                copy, complete = await self._copied_and_completed(scratch)
                if complete is Condition.KEPT:
                    complete = await self._completed_if_missing(scratch)
                return copy, complete
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return Condition.NOT_TAKEN, Condition.NOT_TAKEN

    async def of_new_parts(self, condition: Literal["create", "swap"]) -> Condition:
        """Try a conditional completion of an upload of new parts; "create" is ``If-None-Match: *``."""
        async with scratch_object(self._store, self._name, self._cleanup, self._attempts) as scratch:
            try:
                if condition == "create":
                    if not await self._takes_completion(scratch, absent=True):
                        return Condition.NEVER_MET
                    return Condition.IGNORED if await self._takes_completion(scratch, absent=True) else Condition.KEPT
                await scratch.takes(lambda: scratch.put(b"1"))
                if await self._takes_completion(scratch, if_match=NO_ETAG):
                    return Condition.IGNORED
                if not await self._takes_completion(scratch, if_match=scratch.etag):
                    return Condition.NEVER_MET
                return await self._completed_if_missing(scratch)
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return Condition.NOT_TAKEN

    async def _completed_if_missing(self, scratch: ScratchObject) -> Condition:
        """Try ``If-Match`` with the present ETag after the object is deleted."""
        former = scratch.etag
        await scratch.delete_if_present()
        made = await self._takes_completion(scratch, if_match=former)
        return Condition.NOT_IF_MISSING if made else Condition.KEPT

    async def _takes_completion(
        self, scratch: ScratchObject, *, if_match: str | None = None, absent: bool = False
    ) -> bool:
        """Whether the server completes an upload on a condition."""
        async with scratch_upload(self._store, scratch, self._cleanup, self._attempts) as upload:
            return await scratch.takes(partial(upload.complete, if_match=if_match, absent=absent))

    async def _copied_and_completed(self, scratch: ScratchObject) -> tuple[Condition, Condition]:
        begin = partial(self._store.begin_upload, scratch.name, {})
        upload = await self._attempts.until_answered(begin)
        abort = partial(self._store.abort_upload, RetainedVersion(scratch.name, upload))
        async with self._cleanup.on_failure(abort, self._attempts):
            found = await self._tried_copy(scratch, upload)
        if found != (Condition.KEPT, Condition.KEPT):  # otherwise the upload is complete
            await self._cleanup.run(abort, self._attempts)
        return found

    async def _tried_copy(self, scratch: ScratchObject, upload: str) -> tuple[Condition, Condition]:
        store, head = self._store, partial(self._store.head, self._name)
        span = (0, store.least_part - 1)
        copy = partial(store.copy_part, scratch.name, upload, 1, source=self._name, span=span)
        while True:
            current = (await self._attempts.until_answered(head)).etag
            if part := await self._copied(partial(copy, if_match=current)):
                break
            if (await self._attempts.until_answered(head)).etag == current:
                return Condition.NEVER_MET, Condition.NOT_TAKEN
        if await self._copied(partial(copy, if_match=NO_ETAG)):
            return Condition.IGNORED, Condition.NOT_TAKEN
        complete = partial(store.complete_upload, scratch.name, upload, [part])
        if await scratch.takes(partial(complete, if_match=NO_ETAG)):
            return Condition.KEPT, Condition.IGNORED
        made = await scratch.takes(partial(complete, if_match=scratch.etag or NO_ETAG))
        return Condition.KEPT, Condition.KEPT if made else Condition.NEVER_MET

    async def _copied(self, copy: Callable[[], Awaitable[str]]) -> str | None:
        """The ETag of a copied part; None if the server refused the copy."""
        while True:
            try:
                return await self._attempts.until_answered(copy)
            except WriteConflict:
                await self._attempts.lose()
            except (PreconditionFailed, NotFound):
                return None
