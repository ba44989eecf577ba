"""`ScratchObject`: the object on which a trial tests a server."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial

from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory.object_store.conditions import Condition
from agent_memory.object_store.engine import NoResponse, NotFound, ObjectStore, PreconditionFailed, WriteConflict
from agent_memory.object_store.retry import Attempts


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
        return await self._store.put(self.name, data, {}, if_match=if_match, absent=absent)

    async def delete(self, if_match: str | None) -> None:
        await self._store.delete(self.name, if_match=if_match)

    async def remove(self) -> None:
        if self.may_exist:
            await self._store.delete(self.name)

    async def condition(
        self, holds: Callable[[], Awaitable[str]], does_not_hold: Callable[[], Awaitable[str]]
    ) -> Condition:
        """Send a change whose precondition holds, then a change whose precondition does not hold."""
        try:
            if not await self.takes(holds):
                return Condition.NEVER_MET
            return Condition.IGNORED if await self.takes(does_not_hold) else Condition.KEPT
        except UnsupportedOperationError:
            return Condition.NOT_TAKEN

    async def takes(self, change: Callable[[], Awaitable[str | None]]) -> bool:
        """Send a change until the server makes it or refuses it; return whether it was made.

        A refusal after an unanswered request may answer a repetition: then the state of the object decides.

        Raises:
            UnsupportedOperationError, PermanentError: as `ObjectStore`.
            OutOfTimeError: as `Attempts`.
        """
        repeated = self._store.resends
        while True:
            existed, self.may_exist = self.may_exist, True
            try:
                self.etag = await self._attempts.once(change)
            except NoResponse as failure:
                repeated, self.may_exist = True, existed or failure.sent
                await self._attempts.back_off(failure)
            except WriteConflict:
                await self._attempts.lose()
            except (PreconditionFailed, NotFound):
                return repeated and await self._has_changed()
            else:
                return True

    async def look(self) -> None:
        """Find out the present ETag."""
        try:
            self.etag = (await self._attempts.until_answered(partial(self._store.head, self.name))).etag
        except NotFound:
            self.etag = None

    async def _has_changed(self) -> bool:
        before = self.etag
        await self.look()
        return self.etag != before
