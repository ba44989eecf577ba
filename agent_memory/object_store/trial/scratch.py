"""`ScratchObject`: the object of a trial, and `ScratchUpload`, a multipart upload of it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory.object_store.engine import (
    NoResponse,
    NotFound,
    ObjectStore,
    PreconditionFailed,
    RetainedVersion,
    SupportsMultipart,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts, Cleanup
from agent_memory.object_store.trial.results import TrialResult
from agent_memory.object_store.write_log import WRITERS

METADATA: Final = {WRITERS: "-" * 1_500}
"""The metadata of a scratch object: nearly as long as those of a file can be, and accepted by every server."""


class ScratchObject:
    """An object with a random name, used by one trial only.

    Attributes:
        etag: the ETag of its current state; None if the object does not exist.
        may_exist: whether a request that creates it may have reached the server.
    """

    def __init__(self, store: ObjectStore, beside: str, attempts: Attempts) -> None:
        directory, slash, _ = beside.rpartition("/")
        self.name = f"{directory}{slash}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        self.etag: str | None = None
        self.may_exist = False
        self._store = store
        self._attempts = attempts

    async def put(self, data: bytes, *, if_match: str | None = None, absent: bool = False) -> str:
        return await self._store.put(self.name, data, METADATA, if_match=if_match, absent=absent)

    async def delete(self, if_match: str | None) -> None:
        await self._store.delete(self.name, if_match=if_match)

    async def delete_if_present(self) -> None:
        """Delete the object, unless it is known not to exist; raises as `takes`."""
        if self.etag is not None:
            await self.takes(partial(self.delete, None))

    async def remove(self) -> None:
        if self.may_exist:
            await self._store.delete(self.name)

    async def try_condition(
        self, holds: Callable[[], Awaitable[str]], does_not_hold: Callable[[], Awaitable[str]]
    ) -> TrialResult:
        """Send a change whose precondition holds, then a change whose precondition does not hold."""
        try:
            if not await self.takes(holds):
                return TrialResult.NEVER_MET
            return TrialResult.IGNORED if await self.takes(does_not_hold) else TrialResult.ENFORCED
        except UnsupportedOperationError:
            return TrialResult.NOT_TAKEN

    async def takes(self, change: Callable[[], Awaitable[str | None]]) -> bool:
        """Send a change until the server makes it or refuses it; return whether it was made.

        A refusal after an unanswered request may answer a repetition: then the state of the object decides.

        Raises:
            UnsupportedOperationError, PermanentError: as `ObjectStore`.
            OutOfTimeError: as `Attempts`.
        """
        repeated, attempts = self._store.resends, self._attempts.afresh()
        while True:
            existed, self.may_exist = self.may_exist, True
            try:
                self.etag = await attempts.once(change)
            except NoResponse as failure:
                repeated, self.may_exist = True, existed or failure.sent
                await attempts.back_off(failure)
            except WriteConflict:
                await attempts.back_off_after_race()
            except (PreconditionFailed, NotFound):
                return repeated and await self._has_changed()
            else:
                return True

    async def read_etag(self) -> None:
        """Read the present ETag."""
        try:
            self.etag = (await self._attempts.until_answered(partial(self._store.head, self.name))).etag
        except NotFound:
            self.etag = None

    async def _has_changed(self) -> bool:
        before = self.etag
        await self.read_etag()
        return self.etag != before


@asynccontextmanager
async def scratch_object(
    store: ObjectStore, beside: str, cleanup: Cleanup, attempts: Attempts
) -> AsyncIterator[ScratchObject]:
    """A scratch object in the directory of an object; it is removed afterwards, if the credentials permit it."""
    scratch = ScratchObject(store, beside, attempts)
    async with cleanup.on_failure(scratch.remove, attempts):
        yield scratch
        if scratch.etag is not None:
            await cleanup.run(scratch.remove, attempts)


class ScratchUpload:
    """A multipart upload of one small part with random content."""

    def __init__(self, store: SupportsMultipart, name: str, upload: str, part: str) -> None:
        self._store = store
        self._name = name
        self._upload = upload
        self._part = part
        self.is_complete = False

    async def complete(self, *, if_match: str | None = None, absent: bool = False) -> str:
        """Complete the upload on a condition; return the object's ETag."""
        complete = self._store.complete_upload
        etag = await complete(self._name, self._upload, [self._part], if_match=if_match, absent=absent)
        self.is_complete = True
        return etag


@asynccontextmanager
async def scratch_upload(
    store: SupportsMultipart, scratch: ScratchObject, cleanup: Cleanup, attempts: Attempts
) -> AsyncIterator[ScratchUpload]:
    """Begin an upload of a scratch object; it is aborted afterwards, unless it is complete."""
    upload = await attempts.until_answered(partial(store.begin_upload, scratch.name, {}))
    abort = partial(store.abort_upload, RetainedVersion(scratch.name, upload))
    async with cleanup.on_failure(abort, attempts):
        put = partial(store.put_part, scratch.name, upload, 1, secrets.token_bytes(8))
        begun = ScratchUpload(store, scratch.name, upload, await attempts.until_answered(put))
        yield begun
        if not begun.is_complete:
            await cleanup.run(abort, attempts)
