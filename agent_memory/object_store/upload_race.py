"""`UploadRace`: finds out whether a server checks the precondition of a completed upload and writes in one step."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from agent_memory.object_store.cleanup import Cleanup
from agent_memory.object_store.engine import (
    NoResponse,
    NotFound,
    PreconditionFailed,
    RetainedVersion,
    SupportsMultipart,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.scratch import ScratchObject
from agent_memory.runtime.tasks import gather_or_cancel

_UPLOADS: Final = 4
_ROUNDS: Final = 8
"""SeaweedFS 4.48 completes several of four uploads in the first round, 24 of 24 times; a busy server may need more."""


class ScratchUpload(NamedTuple):
    """An upload of one small part with random content: `complete` takes a condition, as `SupportsMultipart` does."""

    complete: Callable[..., Awaitable[str]]
    abort: Callable[[], Awaitable[None]]


@asynccontextmanager
async def scratch_upload(
    store: SupportsMultipart, scratch: ScratchObject, cleanup: Cleanup, attempts: Attempts
) -> AsyncIterator[ScratchUpload]:
    """Begin an upload of a scratch object; it is aborted if the body fails."""
    upload = await attempts.until_answered(partial(store.begin_upload, scratch.name, {}))
    abort = partial(store.abort_upload, RetainedVersion(scratch.name, upload))
    async with cleanup.on_failure(abort, attempts):
        put = partial(store.put_part, scratch.name, upload, 1, secrets.token_bytes(8))
        part = await attempts.until_answered(put)
        yield ScratchUpload(partial(store.complete_upload, scratch.name, upload, [part]), abort)


class UploadRace:
    """Completes several uploads of one scratch object at once, on one condition.

    A server that checks the condition first, and writes afterwards, completes more than one of them: concurrent writers
    would lose each other's changes. Only answers count, and each upload has content of its own, so a network that loses
    or repeats requests makes no server look unsafe.

    Args:
        store: the engine.
        scratch: an object that exists.
        cleanup: aborts the uploads that were not completed.
        attempts: the operation, for its deadline.
    """

    def __init__(self, store: SupportsMultipart, scratch: ScratchObject, cleanup: Cleanup, attempts: Attempts) -> None:
        self._store = store
        self._scratch = scratch
        self._cleanup = cleanup
        self._attempts = attempts

    async def has_one_winner(self) -> bool:
        """Whether in each round at most one upload was completed.

        Raises:
            UnsupportedOperationError, PermanentError: as `ObjectStore`.
            OutOfTimeError: as `Attempts`.
        """
        uploads: list[ScratchUpload] = []
        begun = partial(scratch_upload, self._store, self._scratch, self._cleanup, self._attempts)
        rounds = 0
        async with AsyncExitStack() as on_failure:
            while rounds < _ROUNDS:
                while len(uploads) < _UPLOADS:
                    uploads.append(await on_failure.enter_async_context(begun()))
                ends = await gather_or_cancel(self._end(each) for each in uploads)
                if ends.count(True) > 1:
                    break
                failures = [end for end in ends if isinstance(end, NoResponse)]
                if failures:
                    await self._attempts.back_off(failures[0])
                rounds += len(failures) < _UPLOADS - 1
                await self._scratch.look()
                uploads = [each for each, end in zip(uploads, ends, strict=True) if end is False]
        for upload in uploads:
            await self._cleanup.run(upload.abort, self._attempts)
        return rounds == _ROUNDS

    async def _end(self, upload: ScratchUpload) -> bool | NoResponse:
        """Whether the server completed an upload on the condition of the present state; or the lack of an answer."""
        try:
            await self._attempts.once(partial(upload.complete, if_match=self._scratch.etag))
        except (PreconditionFailed, WriteConflict):
            return False
        except NoResponse as failure:
            return failure
        except NotFound:  # an earlier request completed it, and its answer was lost
            return NoResponse("the upload is gone")
        return True
