"""`FileChange`: the write of one whole file within the limits, and an upload of it in parts."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from agent_memory.backend import ABSENT, ANY, PRESENT, ETag, Parts, ReadWhen, Snapshot, WriteWhen
from agent_memory.core.flow_store import FlowParts
from agent_memory.core.limits.charge import Charge, settled
from agent_memory.core.limits.ledger import NOTHING, Amount
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ConflictError, FileTooLargeError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

if TYPE_CHECKING:
    from agent_memory.core.limits.store import LimitedStore

T = TypeVar("T")


class FileChange:
    """The write of one whole file.

    Args:
        store: the store.
        key: the file.
        size: the bytes of the new file.
        when: the condition.
    """

    def __init__(self, store: LimitedStore, key: Key, size: int, when: WriteWhen) -> None:
        self.key: Final = key
        self._store = store
        self._size = size
        self._when = when
        self._state: WriteWhen = when
        self._counted = NOTHING
        self._creates = when in (ABSENT, ANY)
        self._charge: Charge | None = None
        self._count = ""

    def forget_state(self) -> None:
        """Add no condition that another writer may break: the content of an upload may be read only once."""
        self._store.quota.unlearn(self.key)

    async def begin(self) -> WriteWhen:
        """Take what the write adds; return the condition that the file must meet.

        Raises:
            OperationDenied: the file, or its agent, would be over a limit.
        """
        self._use_known_state()
        if self._store.is_too_large(self.key, self._size) and self._size > self._counted.bytes:
            await self._require_smaller()
        need = Amount(self._size - self._counted.bytes, int(self._creates))
        self._charge = await self._store.charge(self.key, need, None if self._when is ABSENT else self)
        self._count = self._store.quota.count
        return self._state

    async def unless_it_fails(self, begun: Awaitable[T]) -> T:
        """Return the parts of an upload that begins; give everything back if it does not begin."""
        try:
            return await begun
        except AgentMemoryError:
            self.withdraw()
            raise
        except BaseException:
            if self._charge:
                self._charge.leave_in_doubt()
            raise

    async def complete(self, write: Awaitable[ETag]) -> ETag:
        """Let the file be written."""
        charge, self._charge = cast(Charge, self._charge), None
        quota = self._store.quota
        try:
            etag = await settled(charge, write)
        except (ConflictError, AgentMemoryFileNotFoundError):
            quota.unlearn(self.key)
            raise
        if not self.key.is_internal:
            quota.learn(self.key, etag, Amount(self._size, int(self._creates or bool(self._counted.files))))
        quota.credit(Amount(max(0, self._counted.bytes - self._size)), self._count)
        await self._store.fold(charge)
        return etag

    async def renew(self, now: float) -> None:
        """Take what the write adds once more if its lease is over: an upload may take hours."""
        charge = cast(Charge, self._charge)
        if now >= charge.until:
            self._charge = None  # it is ended only once, also if there is no room for another one
            charge.keep()
            self._charge = await self._store.charge(self.key, charge.amount)

    def withdraw(self) -> None:
        """Give back what was taken: nothing is written."""
        if self._charge:
            self._charge.give_back()
        self._charge = None

    async def need(self, counted: int) -> Amount:
        """See `agent_memory.core.limits.charge.Replaced`."""
        if (found := await self._current()) is None:
            return Amount(self._size, 1)
        self._state, self._creates = found.etag, False
        self._counted = Amount(min(counted, found.size), int(counted > 0))
        return Amount(self._size - self._counted.bytes)

    def _use_known_state(self) -> None:
        known = self._store.quota.state_of(self.key)
        if known is None or self._when is ABSENT or not known.etag or self._when not in (ANY, PRESENT, known.etag):
            return
        if self._store.capabilities.compare_and_swap:
            self._state, self._counted, self._creates = known.etag, known.amount, False

    async def _require_smaller(self) -> None:
        found = None if self._when is ABSENT else await self._current()
        if found is None or found.size < self._size:
            raise self._store.file_denied(self._size)
        self._state, self._creates = found.etag, False

    async def _current(self) -> Snapshot | None:
        """The state that the write replaces; None if there is no file, and none is required."""
        when: ReadWhen = self._when if isinstance(self._when, ETag) else ANY
        try:
            try:
                return await self._store.read(self.key, when=when)
            except FileTooLargeError:
                return await self._store.read(self.key, 0, 0, when)
        except AgentMemoryFileNotFoundError:
            if self._when is ANY:
                return None
            raise


class LimitedParts(FlowParts):
    """See `agent_memory.backend.Parts`."""

    def __init__(self, parts: Parts, run: Run, change: FileChange) -> None:
        super().__init__(parts, run)
        self._change = change

    async def complete(self) -> ETag:
        await self._change.renew(self._run.now())
        return await self._change.complete(super().complete())

    async def abort(self) -> None:
        self._change.withdraw()
        await super().abort()
