"""`LimitedStore`: a store that keeps the limits of files and of one agent at each of its primitives.

Every change passes here, after filters, archiving and receipts: a write, an append, the copy of a rename, a restored
version. What it adds is taken from the agent's lease before the primitive begins (`Quota`). The size of one file is
checked with the content, and by the backend in the atomic step of an append. A file over its limit may become smaller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

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
from agent_memory.core.flow_store import FlowStore
from agent_memory.core.flows import Effect, until_won
from agent_memory.core.limits.change import FileChange, LimitedParts
from agent_memory.core.limits.charge import Charge, LimitReachedError, settled
from agent_memory.core.limits.count import trees_beside
from agent_memory.core.limits.ledger import NOTHING, Amount, limit_of_agent, portion_of_limit
from agent_memory.core.limits.quota import Quota
from agent_memory.core.limits.settings import LimitSetting
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileTooLargeError,
    OperationDenied,
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
        change = FileChange(self, key, size, when)
        if not isinstance(when, ETag):
            change.forget_state()
        state = await change.begin()
        begun = self._call(self._verbs.write_in_parts, key, size, state, *(() if origin is None else (origin,)))
        return LimitedParts(await change.unless_it_fails(begun), self._run, change)

    async def write_copy_in_parts(
        self, key: Key, size: int, of: Key, etag: ETag, origin: NewOrigin | None = None
    ) -> Parts:
        change = FileChange(self, key, size, ABSENT)
        await change.begin()
        begun = self._call(self._verbs.write_copy_in_parts, key, size, of, etag, origin)
        return LimitedParts(await change.unless_it_fails(begun), self._run, change)

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

    async def charge(self, key: Key, need: Amount, change: FileChange | None = None) -> Charge:
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
        change = FileChange(self, key, size, when)
        return await change.complete(put(await change.begin()))

    async def _size(self, key: Key) -> int:
        try:
            return (await self._call(self._inner.stat, key)).size
        except AgentMemoryFileNotFoundError:
            return 0
