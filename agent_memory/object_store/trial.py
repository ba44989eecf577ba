"""`Trial`: finds out on scratch objects which preconditions a server keeps, before a write relies on them.

The server keeps a precondition if it refuses a change whose precondition does not hold, makes a change whose
precondition holds, *and* lets only one of several changes through that race on one precondition (`Races`). Only answers
decide: an unanswered request is repeated, and if a refusal may answer a repetition, the state of the scratch object
decides, because it has no other writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

from agent_memory.errors import UnsupportedOperationError
from agent_memory.object_store.cleanup import Cleanup
from agent_memory.object_store.conditions import Condition, Conditions
from agent_memory.object_store.engine import (
    NO_ETAG,
    NotFound,
    ObjectStore,
    PermanentError,
    SupportsMultipart,
    UnknownOutcome,
)
from agent_memory.object_store.race import RacedChanges, Races, completions, creates, deletes, swaps
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.scratch import METADATA, ScratchObject, scratch_object
from agent_memory.object_store.tried_servers import tried_server
from agent_memory.object_store.upload_trial import UploadTrial

_FIRST, _SECOND = b"1", b"2"
_OTHER_BYTES = (
    "the server returns other bytes than it was sent, perhaps with the framing of the request, so no file is safe"
    " there: use a release of the server that stores the content alone"
)
_OTHER_METADATA = (
    "the server does not keep the metadata of objects, by which a write whose answer was lost is found, so no file is"
    " safe there: let it keep them, 2,048 bytes for each object"
)


class Trial:
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
        self._has_other_writers = has_other_writers
        unsent = {} if store.conditional_delete else {"delete": Condition.NOT_SENT}
        self.known = Conditions(**unsent)

    async def of_writes(self, name: str, attempts: Attempts) -> Conditions:
        """Try conditional PUTs and DELETEs, unless they were tried or the store is trusted.

        Args:
            name: an object; the scratch objects lie in its directory, so that the same permissions apply.
            attempts: the operation, for its deadline.

        Raises:
            PermanentError: the server stores other bytes or metadata than it was sent.
        """
        if self.known.swap is Condition.NOT_TRIED:
            trusted = await attempts.until_answered(self._store.is_trusted)
            found = self._trusted() if trusted else await self._remembered_writes(name, attempts)
            self.known = replace(self.known, create=found.create, swap=found.swap, delete=found.delete)
        return self.known

    async def _remembered_writes(self, name: str, attempts: Attempts) -> Conditions:
        server = tried_server(self._store)
        if server.writes.swap is Condition.NOT_TRIED:
            server.writes = await self._tried_writes(name, attempts)
            server.bare_etags = self._store.bare_etags
        self._store.bare_etags = server.bare_etags
        return server.writes

    async def of_deletes(self, name: str, attempts: Attempts) -> Conditions:
        """Try a conditional DELETE if `of_writes` did not, because the credentials had no permission to delete.

        Raises:
            PermanentError: they still have none.
        """
        if self.known.delete is Condition.NOT_TRIED:
            async with scratch_object(self._store, name, self._cleanup, attempts) as scratch:
                await scratch.takes(lambda: scratch.put(_FIRST))
                delete = await self._tried_delete(scratch, NO_ETAG)
            self.known = await self._raced(name, attempts, replace(self.known, delete=delete), {"delete": deletes()})
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
            copy = complete = Condition.KEPT
            if not await attempts.until_answered(store.is_trusted):
                copy, complete = await UploadTrial(store, name, self._cleanup, attempts).of_copies()
                if complete is Condition.KEPT:
                    complete = await self._raced_uploads(store, name, attempts, absent=False)
            self.known = replace(self.known, copy=copy, complete=complete)
        return self.known

    async def of_new_parts(self, name: str, attempts: Attempts, condition: Literal["create", "swap"]) -> Conditions:
        """Try the completion of a multipart upload of new parts with one kind of condition.

        Args:
            name: an object; the scratch objects lie in its directory.
            attempts: the operation, for its deadline.
            condition: "create" is ``If-None-Match: *``, "swap" is ``If-Match``.
        """
        store, field = self._store, f"{condition}_upload"
        if getattr(self.known, field) is Condition.NOT_TRIED and isinstance(store, SupportsMultipart):
            found = Condition.KEPT
            if not await attempts.until_answered(store.is_trusted):
                found = await UploadTrial(store, name, self._cleanup, attempts).of_new_parts(condition)
                if found is Condition.KEPT:
                    found = await self._raced_uploads(store, name, attempts, absent=condition == "create")
            self.known = replace(self.known, **{field: found})
        return self.known

    async def _raced_uploads(
        self, store: SupportsMultipart, name: str, attempts: Attempts, *, absent: bool
    ) -> Condition:
        """The result of a race of completed uploads; each of the two conditions is raced once."""
        if not self._has_other_writers:
            return Condition.KEPT
        uploads = tried_server(store).uploads
        if absent not in uploads:
            kind = completions(store, self._cleanup, attempts, absent=absent)
            uploads[absent] = (await self._races(name, attempts).run({"uploads": kind}))["uploads"]
        return uploads[absent]

    def _races(self, name: str, attempts: Attempts) -> Races:
        return Races(partial(scratch_object, self._store, name, self._cleanup, attempts), attempts)

    def _trusted(self) -> Conditions:
        kept = Condition.KEPT
        return Conditions(kept, kept, kept if self._store.conditional_delete else Condition.NOT_SENT)

    async def _tried_writes(self, name: str, attempts: Attempts) -> Conditions:
        alone = await self._tried_alone(name, attempts)
        return await self._raced(name, attempts, alone, {"create": creates(), "swap": swaps(), "delete": deletes()})

    async def _raced(
        self, name: str, attempts: Attempts, alone: Conditions, kinds: Mapping[str, RacedChanges]
    ) -> Conditions:
        """The conditions that are kept alone and in a race; a DELETE is raced against PUTs with ``If-Match``."""
        kept = Condition.KEPT
        raced = {field: kind for field, kind in kinds.items() if getattr(alone, field) is kept}
        if alone.swap is not kept:
            raced.pop("delete", None)
        found = replace(alone, **await self._races(name, attempts).run(raced))
        can_be_raced = found.swap is kept or found.delete is not kept
        return found if can_be_raced else replace(found, delete=Condition.NOT_RACED)

    async def _tried_alone(self, name: str, attempts: Attempts) -> Conditions:
        async with scratch_object(self._store, name, self._cleanup, attempts) as scratch:
            create = await scratch.condition(
                lambda: scratch.put(_FIRST, absent=True), lambda: scratch.put(_SECOND, absent=True)
            )
            if scratch.etag is None:
                await scratch.takes(lambda: scratch.put(_FIRST))
            await self._require_content(scratch, attempts)
            first = scratch.etag or NO_ETAG
            swap = await self._tried_swap(scratch, first)
            former = scratch.etag or NO_ETAG
            try:
                delete = await self._tried_delete(scratch, first if former != first else NO_ETAG)
            except UnknownOutcome:
                raise
            except PermanentError:  # no permission to delete: `of_deletes` tries it when it is needed
                delete = Condition.NOT_TRIED
            if swap is Condition.KEPT:
                swap = await self._tried_missing(scratch, former, attempts)
            return Conditions(create, swap, delete)

    async def _require_content(self, scratch: ScratchObject, attempts: Attempts) -> None:
        try:
            found = await attempts.until_answered(partial(self._store.get, scratch.name))
        except NotFound:
            raise PermanentError(_OTHER_BYTES) from None
        if found.data not in (_FIRST, _SECOND):
            raise PermanentError(_OTHER_BYTES)
        if any(found.metadata.get(name) != value for name, value in METADATA.items()):
            raise PermanentError(_OTHER_METADATA)

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

    async def _tried_missing(self, scratch: ScratchObject, former: str, attempts: Attempts) -> Condition:
        """Try ``If-Match`` on the object after its deletion, or on a new name without permission to delete."""
        try:
            await scratch.delete_if_present()
        except UnknownOutcome:
            raise
        except PermanentError:
            async with scratch_object(self._store, scratch.name, self._cleanup, attempts) as missing:
                made = await missing.takes(partial(missing.put, b"5", if_match=former))
        else:
            made = await scratch.takes(partial(scratch.put, b"5", if_match=former))
        return Condition.NOT_IF_MISSING if made else Condition.KEPT
