"""The trial of a server: which preconditions it keeps, found out on a scratch object before a write relies on them.

A precondition is kept if the server refuses a change whose precondition does not hold *and* makes one whose
precondition holds. Only answers decide: a request without an answer is sent again, and a refusal that may be the answer
to a repetition is settled by a look at the scratch object, which has no other writer.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Literal

from agent_memory._uncopied import Uncopied
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory.object_store._attempts import Attempts
from agent_memory.object_store._cleanup import Cleanup
from agent_memory.object_store._store import (
    NO_ETAG,
    Broken,
    Composes,
    Failed,
    KeptItem,
    Missing,
    ObjectStore,
    Racing,
    Refused,
    Unanswered,
)

ADVICE = "if a single process writes here, say so by the storage option allow_single_writer"


class Condition(Enum):
    """What a server does with one kind of precondition; the value of each but `KEPT` is why nothing may rely on it."""

    KEPT = ""
    IGNORED = "this server ignores preconditions, so concurrent writers would lose each other's writes"
    NEVER_MET = "this server refuses preconditions that hold, so no conditional write would succeed"
    NOT_TAKEN = "this server does not take conditional requests"
    NOT_SENT = "this engine cannot delete on a condition, and who deletes on none may delete another's write"
    NOT_TRIED = "this server's preconditions were not tried yet"


@dataclass(frozen=True)
class Conditions:
    """The results of a trial of a server.

    Attributes:
        create: a PUT with ``If-None-Match: *``.
        swap: a PUT with ``If-Match``.
        delete: a DELETE with ``If-Match``.
        copy: the copy of a part with ``x-amz-copy-source-if-match``.
        complete: the completion of an upload in parts with ``If-Match``; tried with copied parts.
        create_upload: the completion of an upload of new parts with ``If-None-Match: *``.
        swap_upload: the same with ``If-Match``.
    """

    create: Condition = Condition.NOT_TRIED
    swap: Condition = Condition.NOT_TRIED
    delete: Condition = Condition.NOT_TRIED
    copy: Condition = Condition.NOT_TRIED
    complete: Condition = Condition.NOT_TRIED
    create_upload: Condition = Condition.NOT_TRIED
    swap_upload: Condition = Condition.NOT_TRIED

    @property
    def keeps_uploads(self) -> bool:
        """Whether a large object can be appended to in parts."""
        return self.copy is self.complete is Condition.KEPT

    @property
    def may_keep_uploads(self) -> bool:
        """The same, or not tried yet."""
        return self.keeps_uploads or self.complete is Condition.NOT_TRIED


@dataclass
class KnownConditions:
    """The `Conditions` of a server, shared by the backends that use one store on several event loops."""

    now: Conditions


class Trial(Uncopied):
    """The trial of one server, part by part, each before the first operation that relies on it.

    Args:
        store: the engine.
        cleanup: removes a scratch object if the trial fails.
    """

    def __init__(self, store: ObjectStore, cleanup: Cleanup) -> None:
        self._store = store
        self._cleanup = cleanup
        unsent = {} if store.conditional_delete else {"delete": Condition.NOT_SENT}
        self.known = KnownConditions(Conditions(**unsent))

    async def of_writes(self, name: str, attempts: Attempts) -> Conditions:
        """What the server does with conditional PUTs and DELETEs.

        Args:
            name: an object in whose directory the scratch object lies, so that the same permissions apply.
            attempts: the time there is.
        """
        if self.known.now.swap is Condition.NOT_TRIED:
            trusted = await attempts.until_answered(self._store.is_trusted)
            found = self._trusted() if trusted else await self._tried(name, attempts)
            self.known.now = replace(self.known.now, create=found.create, swap=found.swap, delete=found.delete)
        return self.known.now

    async def of_deletes(self, name: str, attempts: Attempts) -> Conditions:
        """The same after `of_writes`, which leaves DELETE untried where the credentials may not delete.

        Raises:
            Failed: they still may not.
        """
        if self.known.now.delete is Condition.NOT_TRIED:
            async with self._scratch(name, attempts) as scratch:
                await scratch.takes(lambda: scratch.put(b"1"))
                self.known.now = replace(self.known.now, delete=await self._tried_delete(scratch, NO_ETAG))
        return self.known.now

    async def of_uploads(self, name: str, attempts: Attempts) -> Conditions:
        """What the server does with conditional uploads in parts.

        Args:
            name: an object that has the size of a part at least.
            attempts: the time there is.

        Raises:
            Missing: there is no such object any more.
        """
        store = self._store
        if self.known.now.complete is Condition.NOT_TRIED and isinstance(store, Composes):
            kept = (Condition.KEPT, Condition.KEPT)
            trusted = await attempts.until_answered(store.is_trusted)
            copy, complete = kept if trusted else await self._tried_uploads(store, name, attempts)
            self.known.now = replace(self.known.now, copy=copy, complete=complete)
        return self.known.now

    async def of_new_parts(self, name: str, attempts: Attempts, condition: Literal["create", "swap"]) -> Conditions:
        """What the server does with an upload of new parts that is completed on one kind of condition.

        Args:
            name: an object in whose directory the scratch object lies.
            attempts: the time there is.
            condition: ``If-None-Match: *``, or ``If-Match``.
        """
        store, field = self._store, f"{condition}_upload"
        if getattr(self.known.now, field) is Condition.NOT_TRIED and isinstance(store, Composes):
            trusted = await attempts.until_answered(store.is_trusted)
            found = Condition.KEPT if trusted else await self._tried_new_parts(store, name, attempts, condition)
            self.known.now = replace(self.known.now, **{field: found})
        return self.known.now

    async def _tried_new_parts(self, store: Composes, name: str, attempts: Attempts, condition: str) -> Condition:
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
            except Broken:
                raise
            except (UnsupportedOperationError, Failed):
                return Condition.NOT_TAKEN

    async def _takes_completion(
        self,
        store: Composes,
        scratch: _Scratch,
        attempts: Attempts,
        *,
        if_match: str | None = None,
        absent: bool = False,
    ) -> bool:
        """Whether an upload of one small part is completed on a condition; each has a content of its own."""
        upload = await attempts.until_answered(partial(store.begin_upload, scratch.name, {}))
        abort = partial(store.abort_upload, KeptItem(scratch.name, upload))
        async with self._cleanup.on_failure(abort, attempts):
            data = secrets.token_bytes(8)
            part = await attempts.until_answered(partial(store.put_part, scratch.name, upload, 1, data))
            complete = partial(store.complete_upload, scratch.name, upload, [part], if_match=if_match, absent=absent)
            made = await scratch.takes(complete)
        if not made:
            await self._cleanup.run(abort, attempts)
        return made

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
            except Broken:
                raise
            except Failed:  # credentials that may not delete: tried again by what needs it
                delete = Condition.NOT_TRIED
            return Conditions(create, swap, delete)

    async def _tried_swap(self, scratch: _Scratch, first: str) -> Condition:
        """By the ETag as the server gives it, else without its quotes, as Ceph RGW takes it."""
        found = Condition.NEVER_MET
        for etag in (first, first.strip('"')):
            swap = partial(scratch.put, if_match=etag)
            found = await scratch.condition(partial(swap, b"3"), partial(swap, b"4"))
            if found is not Condition.NEVER_MET:
                self._store.bare_etags = found is Condition.KEPT and etag != first
                break
        return found

    async def _tried_delete(self, scratch: _Scratch, stale: str) -> Condition:
        if not self._store.conditional_delete:
            return Condition.NOT_SENT
        try:
            if await scratch.takes(partial(scratch.delete, stale)):
                return Condition.IGNORED
            return Condition.KEPT if await scratch.takes(partial(scratch.delete, scratch.etag)) else Condition.NEVER_MET
        except UnsupportedOperationError:
            return Condition.NOT_TAKEN

    async def _tried_uploads(self, store: Composes, name: str, attempts: Attempts) -> tuple[Condition, Condition]:
        async with self._scratch(name, attempts) as scratch:
            await scratch.takes(lambda: scratch.put(b"1"))
            try:
                upload = await attempts.until_answered(partial(store.begin_upload, scratch.name, {}))
                abort = partial(store.abort_upload, KeptItem(scratch.name, upload))
                async with self._cleanup.on_failure(abort, attempts):
                    found = await _tried_parts(store, name, upload, scratch, attempts)
                if found != (Condition.KEPT, Condition.KEPT):  # else it is complete
                    await self._cleanup.run(abort, attempts)
                return found
            except Broken:
                raise
            except (UnsupportedOperationError, Failed):
                return Condition.NOT_TAKEN, Condition.NOT_TAKEN

    @asynccontextmanager
    async def _scratch(self, name: str, attempts: Attempts) -> AsyncIterator[_Scratch]:
        scratch = _Scratch(self._store, name, attempts)
        remove = scratch.remove
        async with self._cleanup.on_failure(remove, attempts):
            yield scratch
            if scratch.etag is not None:
                await self._cleanup.run(remove, attempts)  # credentials that may not delete leave it


class _Scratch:
    """An object that only one trial knows.

    Attributes:
        etag: of its present state; None if there is none.
        may_exist: whether a request that makes it may have reached the server.
    """

    def __init__(self, store: ObjectStore, beside: str, attempts: Attempts) -> None:
        directory, slash, _ = beside.rpartition("/")
        self.name = f"{directory}{slash}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
        self.etag: str | None = None
        self.may_exist = False
        self._store = store
        self._attempts = attempts

    async def put(self, data: bytes, *, if_match: str | None = None, absent: bool = False) -> str:
        return await self._store.put(self.name, data, {}, if_match=if_match, absent=absent)

    async def delete(self, if_match: str | None) -> None:
        await self._store.delete(self.name, if_match=if_match)

    async def remove(self) -> None:
        if self.may_exist:
            await self._store.delete(self.name)

    async def condition(
        self, holds: Callable[[], Awaitable[str]], does_not_hold: Callable[[], Awaitable[str]]
    ) -> Condition:
        """What becomes of a change whose precondition holds, and of one, sent after it, whose does not."""
        try:
            if not await self.takes(holds):
                return Condition.NEVER_MET
            return Condition.IGNORED if await self.takes(does_not_hold) else Condition.KEPT
        except UnsupportedOperationError:
            return Condition.NOT_TAKEN

    async def takes(self, change: Callable[[], Awaitable[str | None]]) -> bool:
        """Send a change until the server makes it or refuses it; returns whether it was made.

        A refusal after a request without an answer may be the answer to a repetition: then the object tells.

        Raises:
            UnsupportedOperationError, Failed: as `ObjectStore`.
            OutOfTimeError: as `Attempts`.
        """
        repeated = self._store.resends
        while True:
            existed, self.may_exist = self.may_exist, True
            try:
                self.etag = await self._attempts.once(change)
            except Unanswered as failure:
                repeated, self.may_exist = True, existed or failure.sent
                await self._attempts.back_off(failure)
            except Racing:
                await self._attempts.lose()
            except (Refused, Missing):
                return repeated and await self._has_changed()
            else:
                return True

    async def _has_changed(self) -> bool:
        before = self.etag
        try:
            self.etag = (await self._attempts.until_answered(partial(self._store.head, self.name))).etag
        except Missing:
            self.etag = None
        return self.etag != before


async def _tried_parts(
    store: Composes, source: str, upload: str, scratch: _Scratch, attempts: Attempts
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
        except Racing:
            await attempts.lose()
        except (Refused, Missing):
            return None
