"""The trial of a server with one request at a time: `WriteTrial` of PUTs and DELETEs, `UploadTrial` of uploads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.engine import (
    NO_ETAG,
    NotFound,
    ObjectStore,
    PermanentError,
    PreconditionFailed,
    RetainedVersion,
    SupportsMultipart,
    UnknownOutcome,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts, Cleanup
from agent_memory.object_store.trial.results import TrialResult, TrialResults
from agent_memory.object_store.trial.scratch import METADATA, ScratchObject, scratch_object, scratch_upload

_FIRST, _SECOND = b"1", b"2"
_OTHER_BYTES = (
    "the server returns other bytes than it was sent, perhaps with the framing of the request, so no file is safe"
    " there: use a release of the server that stores the content alone"
)
_OTHER_METADATA = (
    "the server does not keep the metadata of objects, by which a write whose answer was lost is found, so no file is"
    " safe there: let it keep them, 2,048 bytes for each object"
)


@dataclass(frozen=True)
class WriteTrial:
    """The trial of conditional PUTs and DELETEs.

    Attributes:
        store: the engine.
        name: an object; the scratch objects lie in its directory, so that the same permissions apply.
        cleanup: removes scratch objects.
        attempts: the operation, for its deadline.
    """

    store: ObjectStore
    name: str
    cleanup: Cleanup
    attempts: Attempts

    async def try_all(self) -> TrialResults:
        """Try a PUT with each condition, and a DELETE unless the credentials have no permission to delete.

        Raises:
            PermanentError: the server stores other bytes or metadata than it was sent.
        """
        async with scratch_object(self.store, self.name, self.cleanup, self.attempts) as scratch:
            create = await scratch.try_condition(
                lambda: scratch.put(_FIRST, absent=True), lambda: scratch.put(_SECOND, absent=True)
            )
            if scratch.etag is None:
                await scratch.takes(lambda: scratch.put(_FIRST))
            await self._require_content(scratch)
            first = scratch.etag or NO_ETAG
            swap = await self._try_swap(scratch, first)
            former = scratch.etag or NO_ETAG
            try:
                delete = await self._try_delete(scratch, first if former != first else NO_ETAG)
            except UnknownOutcome:
                raise
            except PermanentError:  # no permission to delete: `Trial.try_deletes` tries it when it is needed
                delete = TrialResult.NOT_TRIED
            if swap is TrialResult.ENFORCED:
                swap = await self._try_swap_if_missing(scratch, former)
            return TrialResults(create, swap, delete)

    async def try_delete(self) -> TrialResult:
        """Try a conditional DELETE; raises `PermanentError` without a permission to delete."""
        async with scratch_object(self.store, self.name, self.cleanup, self.attempts) as scratch:
            await scratch.takes(lambda: scratch.put(_FIRST))
            return await self._try_delete(scratch, NO_ETAG)

    async def _require_content(self, scratch: ScratchObject) -> None:
        try:
            found = await self.attempts.until_answered(partial(self.store.get, scratch.name))
        except NotFound:
            raise PermanentError(_OTHER_BYTES) from None
        if found.data not in (_FIRST, _SECOND):
            raise PermanentError(_OTHER_BYTES)
        if any(found.metadata.get(name) != value for name, value in METADATA.items()):
            raise PermanentError(_OTHER_METADATA)

    async def _try_swap(self, scratch: ScratchObject, first: str) -> TrialResult:
        """Try ``If-Match`` with the ETag as the server sends it, then without its quotes, which Ceph RGW requires."""
        found = TrialResult.NEVER_MET
        for etag in (first, first.strip('"')):
            swap = partial(scratch.put, if_match=etag)
            found = await scratch.try_condition(partial(swap, b"3"), partial(swap, b"4"))
            if found is not TrialResult.NEVER_MET:
                self.store.bare_etags = found is TrialResult.ENFORCED and etag != first
                break
        return found

    async def _try_delete(self, scratch: ScratchObject, stale: str) -> TrialResult:
        if not self.store.conditional_delete:
            return TrialResult.NOT_SENT
        try:
            if await scratch.takes(partial(scratch.delete, stale)):
                return TrialResult.IGNORED
            delete = partial(scratch.delete, scratch.etag)
            if not await scratch.takes(delete):
                return TrialResult.NEVER_MET
            return TrialResult.NOT_IF_MISSING if await scratch.takes(delete) else TrialResult.ENFORCED
        except UnsupportedOperationError:
            return TrialResult.NOT_TAKEN

    async def _try_swap_if_missing(self, scratch: ScratchObject, former: str) -> TrialResult:
        """Try ``If-Match`` on the object after its deletion, or on a new name without permission to delete."""
        try:
            await scratch.delete_if_present()
        except UnknownOutcome:
            raise
        except PermanentError:
            async with scratch_object(self.store, scratch.name, self.cleanup, self.attempts) as missing:
                made = await missing.takes(partial(missing.put, b"5", if_match=former))
        else:
            made = await scratch.takes(partial(scratch.put, b"5", if_match=former))
        return TrialResult.NOT_IF_MISSING if made else TrialResult.ENFORCED


@dataclass(frozen=True)
class UploadTrial:
    """The trial of conditional copies of parts, and of conditional completions of uploads.

    Attributes:
        store: the engine.
        name: an object; the scratch objects lie in its directory, so that the same permissions apply.
        cleanup: removes scratch objects and uploads.
        attempts: the operation, for its deadline.
    """

    store: SupportsMultipart
    name: str
    cleanup: Cleanup
    attempts: Attempts

    async def try_copies(self) -> tuple[TrialResult, TrialResult]:
        """Try a conditional copy of a part of the object, and a conditional completion of the upload."""
        async with scratch_object(self.store, self.name, self.cleanup, self.attempts) as scratch:
            await scratch.takes(lambda: scratch.put(_FIRST))
            try:
                copy, complete = await self._try_copied_upload(scratch)
                if complete is TrialResult.ENFORCED:
                    complete = await self._try_completion_if_missing(scratch)
                return copy, complete
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return TrialResult.NOT_TAKEN, TrialResult.NOT_TAKEN

    async def try_new_parts(self, condition: Literal["create", "swap"]) -> TrialResult:
        """Try a conditional completion of an upload of new parts; "create" is ``If-None-Match: *``."""
        async with scratch_object(self.store, self.name, self.cleanup, self.attempts) as scratch:
            try:
                if condition == "create":
                    if not await self._takes_completion(scratch, absent=True):
                        return TrialResult.NEVER_MET
                    made = await self._takes_completion(scratch, absent=True)
                    return TrialResult.IGNORED if made else TrialResult.ENFORCED
                await scratch.takes(lambda: scratch.put(_FIRST))
                if await self._takes_completion(scratch, if_match=NO_ETAG):
                    return TrialResult.IGNORED
                if not await self._takes_completion(scratch, if_match=scratch.etag):
                    return TrialResult.NEVER_MET
                return await self._try_completion_if_missing(scratch)
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return TrialResult.NOT_TAKEN

    async def _try_completion_if_missing(self, scratch: ScratchObject) -> TrialResult:
        """Try ``If-Match`` with the present ETag after the object is deleted."""
        former = scratch.etag
        await scratch.delete_if_present()
        made = await self._takes_completion(scratch, if_match=former)
        return TrialResult.NOT_IF_MISSING if made else TrialResult.ENFORCED

    async def _takes_completion(
        self, scratch: ScratchObject, *, if_match: str | None = None, absent: bool = False
    ) -> bool:
        """Whether the server completes an upload on a condition."""
        async with scratch_upload(self.store, scratch, self.cleanup, self.attempts) as upload:
            return await scratch.takes(partial(upload.complete, if_match=if_match, absent=absent))

    async def _try_copied_upload(self, scratch: ScratchObject) -> tuple[TrialResult, TrialResult]:
        begin = partial(self.store.begin_upload, scratch.name, {})
        upload = await self.attempts.until_answered(begin)
        abort = partial(self.store.abort_upload, RetainedVersion(scratch.name, upload))
        async with self.cleanup.on_failure(abort, self.attempts):
            found = await self._try_copy_and_completion(scratch, upload)
        if found != (TrialResult.ENFORCED, TrialResult.ENFORCED):  # otherwise the upload is complete
            await self.cleanup.run(abort, self.attempts)
        return found

    async def _try_copy_and_completion(self, scratch: ScratchObject, upload: str) -> tuple[TrialResult, TrialResult]:
        store, head = self.store, partial(self.store.head, self.name)
        span = (0, store.least_part - 1)
        copy = partial(store.copy_part, scratch.name, upload, 1, source=self.name, span=span)
        while True:
            current = (await self.attempts.until_answered(head)).etag
            if part := await self._copied(partial(copy, if_match=current)):
                break
            if (await self.attempts.until_answered(head)).etag == current:
                return TrialResult.NEVER_MET, TrialResult.NOT_TAKEN
        if await self._copied(partial(copy, if_match=NO_ETAG)):
            return TrialResult.IGNORED, TrialResult.NOT_TAKEN
        complete = partial(store.complete_upload, scratch.name, upload, [part])
        if await scratch.takes(partial(complete, if_match=NO_ETAG)):
            return TrialResult.ENFORCED, TrialResult.IGNORED
        made = await scratch.takes(partial(complete, if_match=scratch.etag or NO_ETAG))
        return TrialResult.ENFORCED, TrialResult.ENFORCED if made else TrialResult.NEVER_MET

    async def _copied(self, copy: Callable[[], Awaitable[str]]) -> str | None:
        """The ETag of a copied part; None if the server refused the copy."""
        while True:
            try:
                return await self.attempts.until_answered(copy)
            except WriteConflict:
                await self.attempts.back_off_after_race()
            except (PreconditionFailed, NotFound):
                return None
