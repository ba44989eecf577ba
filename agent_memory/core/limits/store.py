"""`LimitedStore`: a store that keeps the limits of files and of one agent at each of its primitives.

Every change passes here, after filters, archiving and receipts: a write, an append, the copy of a rename, a restored
version. What it adds is taken from the agent's lease before the primitive begins (`Quota`). The size of one file is
checked with the content, and by the backend in the atomic step of an append. A file over its limit may become smaller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    Appended,
    AppendWhen,
    Backend,
    BlockingBackend,
    DeletedTree,
    ETag,
    NewOrigin,
    Parts,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.core.flow_store import FlowParts, FlowStore
from agent_memory.core.flows import Effect, until_won
from agent_memory.core.limits.count import trees_beside
from agent_memory.core.limits.ledger import NOTHING, Amount, limit_of_agent, portion_of_limit
from agent_memory.core.limits.quota import Charge, LimitReachedError, Quota
from agent_memory.core.limits.settings import LimitSetting
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileTooLargeError,
    OperationDenied,
    OutcomeUnknownError,
)
from agent_memory.key import Key
from agent_memory.runtime.run import Run

T = TypeVar("T")


class LimitedStore(FlowStore):
    """A store for the flow of one operation of one agent; its methods are flows.

    Attributes:
        storage_type: the class whose optional verbs this store has.
    """

    def __init__(self, inner: Backend, run: Run, agent: str | None, setting: LimitSetting, quota: Quota) -> None:
        super().__init__(inner, run)
        self.keeps_origins = inner.keeps_origins
        self.storage_type = type(inner)
        self.quota = quota
        self._verbs: Any = inner
        self._agent = agent
        self._setting = setting
        self._limits = limits = setting.limits
        self._counted_trees = {tree.base for tree in trees_beside(agent)} if limits.count_versions else set()

    async def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        def put(state: WriteWhen) -> Awaitable[ETag]:
            return self._call(self._verbs.write, key, data, state, *(() if origin is None else (origin,)))

        return await self._put(key, len(data), when, put)

    async def write_copy(self, key: Key, of: Key, snapshot: Snapshot, origin: NewOrigin | None = None) -> ETag:
        def put(_: WriteWhen) -> Awaitable[ETag]:
            return self._call(self._verbs.write_copy, key, of, snapshot, origin)

        return await self._put(key, snapshot.size, ABSENT, put)

    async def write_in_parts(
        self, key: Key, size: int, when: WriteWhen = ANY, origin: NewOrigin | None = None
    ) -> Parts:
        change = _Change(self, key, size, when)
        if not isinstance(when, ETag):
            change.forget_state()
        state = await change.begin()
        begun = self._call(self._verbs.write_in_parts, key, size, state, *(() if origin is None else (origin,)))
        return _LimitedParts(await change.unless_it_fails(begun), self._run, change)

    async def write_copy_in_parts(
        self, key: Key, size: int, of: Key, etag: ETag, origin: NewOrigin | None = None
    ) -> Parts:
        change = _Change(self, key, size, ABSENT)
        await change.begin()
        begun = self._call(self._verbs.write_copy_in_parts, key, size, of, etag, origin)
        return _LimitedParts(await change.unless_it_fails(begun), self._run, change)

    async def append(
        self,
        key: Key,
        data: bytes,
        *,
        separator: bytes = b"",
        when: AppendWhen = ANY,
        most: int | None = None,
        origin: NewOrigin | None = None,
    ) -> Appended:
        most = most if key.is_internal else self._limits.file_bytes
        given: dict[str, Any] = {"separator": separator, "most": most, "origin": origin}
        given = {name: value for name, value in given.items() if value is not None}

        async def appended(state: AppendWhen) -> Appended:
            creates = int(state is ANY)
            charge = await self.charge(key, Amount(len(data) + len(separator), creates))
            made: Appended = await settled(charge, self._call(self._verbs.append, key, data, when=state, **given))
            if not key.is_internal:
                self.quota.learn(key, made.etag, Amount(len(data), creates))
            await self.fold(charge)
            return made

        async def of_any_file() -> Appended:
            """A file that exists needs no room for a file; only if there is none, it is asked for one."""
            if self.quota.state_of(key):
                with suppress(AgentMemoryFileNotFoundError):
                    return await appended(PRESENT)
                self.quota.unlearn(key)
            try:
                return await appended(ANY)
            except OperationDenied as denied:
                if self._limits.agent_files is None:
                    raise
                with suppress(AgentMemoryFileNotFoundError):
                    return await appended(PRESENT)
                raise denied from None

        try:
            return await (of_any_file() if when is ANY else appended(when))
        except FileTooLargeError:
            size = await self._size(key) + len(data)
            if most is not None and size <= most:
                size += len(separator)
            if most is None or size <= most:
                raise
            raise self.file_denied(size) from None

    async def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        """Delete a file; it frees its bytes at once only where no answer can be lost: else another may have deleted it.

        Over a network the next count frees them, at the latest before a refusal.
        """
        known, count = self.quota.state_of(key), self.quota.count
        self.quota.unlearn(key)
        if known and known.etag and when in (ANY, known.etag) and isinstance(self._verbs, BlockingBackend):
            try:
                await self._call(self._inner.delete, key, known.etag)
            except ConflictError:
                if when is not ANY:
                    raise
            else:
                self.quota.credit(known.amount, count)
                return
        await self._call(self._inner.delete, key, when)

    async def move_file(self, source: Key, target: Key, when: ReadWhen = ANY) -> int | None:
        self.quota.unlearn(source)
        moved: int | None = await self._call(self._verbs.move_file, source, target, *(() if when is ANY else (when,)))
        return moved

    async def move_tree(self, source: Key, target: Key) -> int | None:
        self.quota.unlearn(source)
        moved: int | None = await self._call(self._verbs.move_tree, source, target)
        return moved

    async def delete_tree(self, prefix: Key) -> DeletedTree:
        self.quota.unlearn(prefix)
        deleted: DeletedTree = await self._call(self._verbs.delete_tree, prefix)
        return deleted

    async def erase(self, prefix: Key) -> DeletedTree:
        self.quota.unlearn(prefix)
        erased: DeletedTree = await self._call(self._verbs.erase, prefix)
        return erased

    async def erase_earlier(self, key: Key, is_meant: Callable[[Key], bool] | None = None) -> int | None:
        erased: int | None = await self._call(self._verbs.erase_earlier, key, is_meant)
        return erased

    async def charge(self, key: Key, need: Amount, change: _Change | None = None) -> Charge:
        """Take from the agent's lease what a primitive adds.

        Raises:
            OperationDenied: the limit of the agent leaves less.
        """
        if not self._limits.of_agents or (key.is_internal and key.base not in self._counted_trees):
            need = NOTHING
        elif key.is_internal:
            need = Amount(need.bytes)
        try:
            return await self.quota.charge(self._inner, self._run, self._setting, need, change)
        except LimitReachedError as reached:
            raise self._agent_denied(reached) from None

    async def fold(self, charge: Charge) -> None:
        """After a change that is large for the limit: count it as used, so that it is not reserved any more."""
        if charge.amount.exceeds(portion_of_limit(limit_of_agent(self._limits))):
            await self.quota.fold(self._inner, self._run)

    def is_too_large(self, key: Key, size: int) -> bool:
        """Whether a file is over the limit of each file."""
        most = self._limits.file_bytes
        return most is not None and size > most and not key.is_internal

    def file_denied(self, size: int) -> OperationDenied:
        """The error for a file that would be too large."""
        return OperationDenied(
            f"a file may have {self._limits.file_bytes:,} bytes, and this one would have {size:,}: shorten it, or begin"
            " another file"
        )

    def _agent_denied(self, reached: LimitReachedError) -> OperationDenied:
        limits, need = self._limits, reached.need
        total = need.plus(reached.used).plus(reached.reserved)
        is_of_files = limits.agent_files is not None and need.files > 0 and total.files > limits.agent_files
        most, what, index = (limits.agent_files, "file", 1) if is_of_files else (limits.agent_bytes, "byte", 0)
        used, reserved = reached.used[index], reached.reserved[index]
        who = "this memory" if self._agent is None else f"agent {self._agent!r}"
        also = f", and {reserved:,} are reserved by other calls" if reserved > 0 else ""
        return OperationDenied(
            f"{who} may have {most:,} {what}{'' if most == 1 else 's'} and has {used:,}{also}; {need[index]:,} more do"
            " not fit: delete or shorten files"
        )

    async def _put(self, key: Key, size: int, when: WriteWhen, put: Callable[[WriteWhen], Awaitable[ETag]]) -> ETag:
        """Write a whole file; a condition that this store adds is lost to other writers without an error."""
        if when in (ANY, PRESENT):

            async def attempt() -> Effect:
                return Effect(etag=await self._put_once(key, size, when, put))

            return cast(ETag, (await until_won(self._inner, self._run, key, attempt)).etag)
        return await self._put_once(key, size, when, put)

    async def _put_once(
        self, key: Key, size: int, when: WriteWhen, put: Callable[[WriteWhen], Awaitable[ETag]]
    ) -> ETag:
        change = _Change(self, key, size, when)
        return await change.complete(put(await change.begin()))

    async def _size(self, key: Key) -> int:
        try:
            return (await self._call(self._inner.stat, key)).size
        except AgentMemoryFileNotFoundError:
            return 0


class _Change:
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
        """See `agent_memory.core.limits.quota.Replaced`."""
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


class _LimitedParts(FlowParts):
    """See `agent_memory.backend.Parts`."""

    def __init__(self, parts: Parts, run: Run, change: _Change) -> None:
        super().__init__(parts, run)
        self._change = change

    async def complete(self) -> ETag:
        await self._change.renew(self._run.now())
        return await self._change.complete(super().complete())

    async def abort(self) -> None:
        self._change.withdraw()
        await super().abort()


async def settled(charge: Charge, write: Awaitable[T]) -> T:
    """Await a write, and end its charge: only a write that certainly failed adds nothing."""
    try:
        result = await write
    except OutcomeUnknownError:
        charge.leave_in_doubt()
        raise
    except AgentMemoryError:
        charge.give_back()
        raise
    except BaseException:
        charge.leave_in_doubt()
        raise
    charge.keep()
    return result
