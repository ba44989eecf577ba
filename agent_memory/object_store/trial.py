"""`Trial`: finds out on a scratch object which preconditions a server keeps, before a write relies on them.

The server keeps a precondition if it refuses a change whose precondition does not hold *and* makes a change whose
precondition holds. Only answers decide: an unanswered request is repeated, and if a refusal may answer a repetition,
the state of the scratch object decides, because it has no other writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from agent_memory.backend import Uncopied
from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.cleanup import Cleanup
from agent_memory.object_store.conditions import Condition, Conditions
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
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.scratch import ScratchObject
from agent_memory.object_store.upload_race import UploadRace, scratch_upload


class Trial(Uncopied):
    """The trial of one server. Each precondition is tried before the first operation that relies on it.

    Args:
        store: the engine.
        cleanup: removes a scratch object if the trial fails.
        has_other_writers: whether the server's uploads are also raced; otherwise it need not write in one step.

    Attributes:
        known: the results so far.
    """

    def __init__(self, store: ObjectStore, cleanup: Cleanup, *, has_other_writers: bool) -> None:
        self._store = store
        self._cleanup = cleanup
        self._uploads = Condition.NOT_TRIED if has_other_writers else Condition.KEPT
        unsent = {} if store.conditional_delete else {"delete": Condition.NOT_SENT}
        self.known = Conditions(**unsent)

    async def of_writes(self, name: str, attempts: Attempts) -> Conditions:
        """Try conditional PUTs and DELETEs, unless they were tried or the store is trusted.

        Args:
            name: an object; the scratch object lies in its directory, so that the same permissions apply.
            attempts: the operation, for its deadline.
        """
        if self.known.swap is Condition.NOT_TRIED:
            trusted = await attempts.until_answered(self._store.is_trusted)
            found = self._trusted() if trusted else await self._tried(name, attempts)
            self.known = replace(self.known, create=found.create, swap=found.swap, delete=found.delete)
        return self.known

    async def of_deletes(self, name: str, attempts: Attempts) -> Conditions:
        """Try a conditional DELETE if `of_writes` did not, because the credentials had no permission to delete.

        Raises:
            PermanentError: they still have none.
        """
        if self.known.delete is Condition.NOT_TRIED:
            async with self._scratch(name, attempts) as scratch:
                await scratch.takes(lambda: scratch.put(b"1"))
                self.known = replace(self.known, delete=await self._tried_delete(scratch, NO_ETAG))
        return self.known

    async def of_uploads(self, name: str, attempts: Attempts) -> Conditions:
        """Try conditional copies of parts, and conditional completions of such uploads.

        Args:
            name: an object of at least the least size of a part.
            attempts: the operation, for its deadline.

        Raises:
            NotFound: the object no longer exists.
        """
        store = self._store
        if self.known.complete is Condition.NOT_TRIED and isinstance(store, SupportsMultipart):
            kept = (Condition.KEPT, Condition.KEPT)
            trusted = await attempts.until_answered(store.is_trusted)
            copy, complete = kept if trusted else await self._tried_uploads(store, name, attempts)
            if not trusted and complete is Condition.KEPT:
                complete = await self._raced(store, name, attempts)
            self.known = replace(self.known, copy=copy, complete=complete)
        return self.known

    async def of_new_parts(self, name: str, attempts: Attempts, condition: Literal["create", "swap"]) -> Conditions:
        """Try the completion of a multipart upload of new parts with one kind of condition.

        Args:
            name: an object; the scratch object lies in its directory.
            attempts: the operation, for its deadline.
            condition: "create" is ``If-None-Match: *``, "swap" is ``If-Match``.
        """
        store, field = self._store, f"{condition}_upload"
        if getattr(self.known, field) is Condition.NOT_TRIED and isinstance(store, SupportsMultipart):
            trusted = await attempts.until_answered(store.is_trusted)
            found = Condition.KEPT if trusted else await self._tried_new_parts(store, name, attempts, condition)
            if not trusted and found is Condition.KEPT:
                found = await self._raced(store, name, attempts)
            self.known = replace(self.known, **{field: found})
        return self.known

    async def _tried_new_parts(
        self, store: SupportsMultipart, name: str, attempts: Attempts, condition: str
    ) -> Condition:
        async with self._scratch(name, attempts) as scratch:
            takes = partial(self._takes_completion, store, scratch, attempts)
            try:
                if condition == "create":
                    if not await takes(absent=True):
                        return Condition.NEVER_MET
                    return Condition.IGNORED if await takes(absent=True) else Condition.KEPT
                await scratch.takes(lambda: scratch.put(b"1"))
                if await takes(if_match=NO_ETAG):
                    return Condition.IGNORED
                return Condition.KEPT if await takes(if_match=scratch.etag) else Condition.NEVER_MET
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return Condition.NOT_TAKEN

    async def _takes_completion(
        self,
        store: SupportsMultipart,
        scratch: ScratchObject,
        attempts: Attempts,
        *,
        if_match: str | None = None,
        absent: bool = False,
    ) -> bool:
        """Whether the server completes an upload on a condition."""
        async with scratch_upload(store, scratch, self._cleanup, attempts) as upload:
            made = await scratch.takes(partial(upload.complete, if_match=if_match, absent=absent))
        if not made:
            await self._cleanup.run(upload.abort, attempts)
        return made

    async def _raced(self, store: SupportsMultipart, name: str, attempts: Attempts) -> Condition:
        """`KEPT` if of several uploads that are completed at once on one condition only one is; raced once."""
        if self._uploads is Condition.NOT_TRIED:
            async with self._scratch(name, attempts) as scratch:
                await scratch.takes(lambda: scratch.put(b"1"))
                race = UploadRace(store, scratch, self._cleanup, attempts)
                self._uploads = Condition.KEPT if await race.has_one_winner() else Condition.NOT_ATOMIC
        return self._uploads

    def _trusted(self) -> Conditions:
        kept = Condition.KEPT
        return Conditions(kept, kept, kept if self._store.conditional_delete else Condition.NOT_SENT)

    async def _tried(self, name: str, attempts: Attempts) -> Conditions:
        async with self._scratch(name, attempts) as scratch:
            create = await scratch.condition(
                lambda: scratch.put(b"1", absent=True), lambda: scratch.put(b"2", absent=True)
            )
            if scratch.etag is None:
                await scratch.takes(lambda: scratch.put(b"1"))
            first = scratch.etag or NO_ETAG
            swap = await self._tried_swap(scratch, first)
            stale = first if scratch.etag != first else NO_ETAG
            try:
                delete = await self._tried_delete(scratch, stale)
            except UnknownOutcome:
                raise
            except PermanentError:  # no permission to delete: `of_deletes` tries it when it is needed
                delete = Condition.NOT_TRIED
            return Conditions(create, swap, delete)

    async def _tried_swap(self, scratch: ScratchObject, first: str) -> Condition:
        """Try ``If-Match`` with the ETag as the server sends it, then without its quotes, which Ceph RGW requires."""
        found = Condition.NEVER_MET
        for etag in (first, first.strip('"')):
            swap = partial(scratch.put, if_match=etag)
            found = await scratch.condition(partial(swap, b"3"), partial(swap, b"4"))
            if found is not Condition.NEVER_MET:
                self._store.bare_etags = found is Condition.KEPT and etag != first
                break
        return found

    async def _tried_delete(self, scratch: ScratchObject, stale: str) -> Condition:
        if not self._store.conditional_delete:
            return Condition.NOT_SENT
        try:
            if await scratch.takes(partial(scratch.delete, stale)):
                return Condition.IGNORED
            return Condition.KEPT if await scratch.takes(partial(scratch.delete, scratch.etag)) else Condition.NEVER_MET
        except UnsupportedOperationError:
            return Condition.NOT_TAKEN

    async def _tried_uploads(
        self, store: SupportsMultipart, name: str, attempts: Attempts
    ) -> tuple[Condition, Condition]:
        async with self._scratch(name, attempts) as scratch:
            await scratch.takes(lambda: scratch.put(b"1"))
            try:
                upload = await attempts.until_answered(partial(store.begin_upload, scratch.name, {}))
                abort = partial(store.abort_upload, RetainedVersion(scratch.name, upload))
                async with self._cleanup.on_failure(abort, attempts):
                    found = await _tried_parts(store, name, upload, scratch, attempts)
                if found != (Condition.KEPT, Condition.KEPT):  # otherwise the upload is complete
                    await self._cleanup.run(abort, attempts)
                return found
            except UnknownOutcome:
                raise
            except (UnsupportedOperationError, PermanentError):
                return Condition.NOT_TAKEN, Condition.NOT_TAKEN

    @asynccontextmanager
    async def _scratch(self, name: str, attempts: Attempts) -> AsyncIterator[ScratchObject]:
        scratch = ScratchObject(self._store, name, attempts)
        remove = scratch.remove
        async with self._cleanup.on_failure(remove, attempts):
            yield scratch
            if scratch.etag is not None:
                await self._cleanup.run(remove, attempts)  # without permission to delete, the object stays


async def _tried_parts(
    store: SupportsMultipart, source: str, upload: str, scratch: ScratchObject, attempts: Attempts
) -> tuple[Condition, Condition]:
    copy = partial(store.copy_part, scratch.name, upload, 1, source=source, span=(0, store.least_part - 1))
    while True:
        current = (await attempts.until_answered(partial(store.head, source))).etag
        if part := await _copied(partial(copy, if_match=current), attempts):
            break
        if (await attempts.until_answered(partial(store.head, source))).etag == current:
            return Condition.NEVER_MET, Condition.NOT_TAKEN
    if await _copied(partial(copy, if_match=NO_ETAG), attempts):
        return Condition.IGNORED, Condition.NOT_TAKEN
    complete = partial(store.complete_upload, scratch.name, upload, [part])
    if await scratch.takes(partial(complete, if_match=NO_ETAG)):
        return Condition.KEPT, Condition.IGNORED
    made = await scratch.takes(partial(complete, if_match=scratch.etag or NO_ETAG))
    return Condition.KEPT, Condition.KEPT if made else Condition.NEVER_MET


async def _copied(copy: Callable[[], Awaitable[str]], attempts: Attempts) -> str | None:
    """The ETag of a copied part; None if the server refused the copy."""
    while True:
        try:
            return await attempts.until_answered(copy)
        except WriteConflict:
            await attempts.lose()
        except (PreconditionFailed, NotFound):
            return None
