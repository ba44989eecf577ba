"""`VersionedTree`: the calls of a tree that read, restore and erase earlier versions of its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from agent_memory.backend import Backend, WriteWhen
from agent_memory.core import flows, part_flows, tree_flows
from agent_memory.core.flows import Effect
from agent_memory.core.operation import Call, Flow, Scope
from agent_memory.core.results import checked_count
from agent_memory.core.versions.forget import forget_records, plan_forget
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.origin import made_by
from agent_memory.core.versions.record import records_of
from agent_memory.core.versions.redact import RedactResult, checked_reason, redact
from agent_memory.core.versions.retention import prune, prune_a_few
from agent_memory.core.versions.settings import VersionLimits, checked_limits, require_versions
from agent_memory.core.versions.states import FileVersion, StoredRecord, current_file
from agent_memory.core.versions.store import VersionedStore
from agent_memory.core.versions.undo import (
    Range,
    RecordedAppends,
    Selection,
    without_ranges,
)
from agent_memory.core.versions.undo_file import UndoContext
from agent_memory.core.versions.undo_plan import Plan
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileTooLargeError,
    without_top,
)
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_ARCHIVE_NOTHING: Final = frozenset({"append", "create", "copy"})
"""The operations that end no state, so no version expires after them."""
T = TypeVar("T")


class VersionedTree(Scope):
    """The part of `agent_memory.core.tree.Tree` that writes and uses the records of earlier versions."""

    def archiving(self, flow: Flow) -> Flow:
        """Return a flow that keeps the states that it ends, if the store keeps versions."""

        async def archived(store: Backend, run: Run, call: Call) -> Effect:
            settings = await self.settings.for_change(store, run, call)
            if settings is None or settings.limits is None:
                return await flow(store, run, call)
            await require_versions(store, run, call.key)
            versioned = VersionedStore(store, run, call.agent, settings.secret, made_by(call.operation))
            try:
                effect = await flow(versioned, versioned.run, call)
            except AgentMemoryError:
                await versioned.archive.delete_unused_links()
                raise
            await versioned.archive.delete_unused_links()
            effect.version_id = versioned.appended_to
            if call.kind not in _ARCHIVE_NOTHING:
                await prune_a_few(self.settings.sweep, store, run, call.agent, settings.limits, call.time)
            return effect

        return archived

    async def file_versions(self, run: Run, path: str, limit: int | None, after: str | None) -> tuple[FileVersion, ...]:
        if limit is not None:
            checked_count("limit", limit)

        async def found(store: Backend, run: Run, key: Key, histories: Histories | None) -> tuple[FileVersion, ...]:
            if key == self.top:
                return await histories.recent(partial(self._shows, key), limit, after) if histories else ()
            if histories is not None:
                return await histories.versions(key, limit, after)
            only = await current_file(store, run, key)
            return (only.version,) if only else ()

        return self._seen_versions(await self._of_histories(run, "versions", path, found, directory=not path))

    def _seen_versions(self, versions: Iterable[FileVersion]) -> tuple[FileVersion, ...]:
        return tuple(replace(each, path=without_top(each.path, self.top.path)) for each in versions)

    def _shows(self, top: Key, path: str) -> bool:
        """Whether a file is below a directory and not hidden."""
        if not is_at_or_below(path, top.path):
            return False
        return not any(names.hides(top.join(without_top(path, top.path))) for names in self.protected)

    async def read_version(self, run: Run, path: str, version: str) -> bytes:
        async def found(_store: Backend, _run: Run, key: Key, histories: Histories | None) -> bytes:
            return await _content(histories, key, version)

        return await self._of_histories(run, "read_version", path, found)

    async def read_version_text(self, run: Run, path: str, version: str) -> str:
        async def found(_store: Backend, _run: Run, key: Key, histories: Histories | None) -> str:
            return flows.decode(key, await _content(histories, key, version))

        return await self._of_histories(run, "read_version", path, found)

    async def set_version_limits(self, run: Run, limits: VersionLimits | None) -> None:
        checked_limits(limits)

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            await self.settings.set_limits(store, run, c, limits)
            return Effect()

        await self.operate(run, "set_versions", "", flow, directory=True)

    async def version_limits(self, run: Run) -> VersionLimits | None:
        async def stored(store: Backend, run: Run, c: Call) -> tuple[VersionLimits | None, Effect]:
            settings = await self.settings.stored(store, run, c)
            return settings.limits if settings else None, Effect()

        return await self.find(run, "versions", "", stored, directory=True)

    async def prune_versions(self, run: Run) -> int:
        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            settings = await self.settings.stored(store, run, c)
            if settings is None or settings.limits is None:
                return Effect(files=0)
            histories = Histories(store, run, self.agent, settings.secret)
            return Effect(files=await prune(store, run, histories, settings.limits, c.time))

        return (await self.operate(run, "prune", "", flow, directory=True)).result.files or 0

    def restoring(self, version: str, when: WriteWhen, cut: Sequence[Range], of: str | None) -> Flow:
        """The flow that writes the content of an earlier version, without the ranges ``cut``, as a new version.

        ``of`` is the name of the file that had this version, if it is another one.
        """

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            key = c.key if of is None else self.top.join(of)
            histories = await self._histories(store, run, c)
            try:
                content = without_ranges(await _content(histories, key, version), cut)
            except FileTooLargeError:
                if cut or histories is None:
                    raise
                return await self._restore_large(store, run, c, await histories.record_of_version(key, version), when)
            data = await self.apply_filters(c, content)

            def write(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
                return flows.write(store, run, c.key, data, when)

            return await self.archiving(write)(store, run, c)

        return flow

    async def _restore_large(self, store: Backend, run: Run, c: Call, stored: StoredRecord, when: WriteWhen) -> Effect:
        size = stored.record.size
        await c.offload(lambda: c.call_hooks(lambda: self.hooks.call_size_guards(c.operation, size)))

        async def copy(store: Backend, run: Run, c: Call) -> Effect:
            return (await part_flows.copy(store, run, stored.key, c.key, size, when))[0]

        return await self.archiving(copy)(store, run, c)

    async def redact(self, run: Run, path: str, version: str, reason: str) -> RedactResult:
        reason = checked_reason(reason)

        async def redacted(store: Backend, run: Run, c: Call) -> tuple[RedactResult, Effect]:
            if (histories := await self._histories(store, run, c)) is None:
                raise _unknown(c.key, version)
            by = made_by(c.operation)
            result = await redact(store, run, histories, c.key, version, by, reason)
            return result, Effect(files=1, versions_searched=result.versions_searched)

        found = await self.find(run, "redact", path, redacted)
        path = without_top(found.path, self.top.path)
        return replace(found, path=path, still_in=self._seen_versions(found.still_in))

    async def plan_undo(self, run: Run, selection: Selection, appends: RecordedAppends | None) -> Plan | None:
        """Plan an undo for all files; None if the store never kept versions."""

        async def planned(store: Backend, run: Run, key: Key, histories: Histories | None) -> Plan | None:
            if histories is None:
                return None
            return await Plan(UndoContext(store, run, histories, key, selection, appends)).make()

        return await self._of_histories(run, "versions", "", planned, directory=True)

    async def _of_histories(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        find: Callable[[Backend, Run, Key, Histories | None], Awaitable[T]],
        *,
        directory: bool = False,
    ) -> T:
        async def found(store: Backend, run: Run, c: Call) -> tuple[T, Effect]:
            histories = await self._histories(store, run, c)
            value = await find(store, run, c.key, histories)
            return value, Effect(skipped=histories.left_out if histories else 0)

        return await self.find(run, kind, path, found, directory=directory)

    async def plan_forget_versions(self, store: Backend, run: Run, c: Call) -> Callable[[], Awaitable[None]]:
        """Find the earlier versions of a file, or of the files of a directory; return a function that erases them."""
        histories = await self._histories(store, run, c) if c.key.path else None
        if histories is None:
            return lambda: _erase_all(store, run, c)
        plan = await plan_forget(store, run, histories, c.key.path)
        return lambda: forget_records(store, run, histories, plan)

    async def _histories(self, store: Backend, run: Run, c: Call) -> Histories | None:
        """The records of this agent; None if the store never kept versions."""
        settings = await self.settings.stored(store, run, c)
        return None if settings is None else Histories(store, run, self.agent, settings.secret)


async def _content(histories: Histories | None, key: Key, version: str) -> bytes:
    if histories is None:
        raise _unknown(key, version)
    return await histories.content(key, version)


def _unknown(key: Key, version: str) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError(f"no version {version!r}: this store keeps none", path=key.path)


async def _erase_all(store: Backend, run: Run, c: Call) -> None:
    """Erase all versions of the agent, if its whole tree is forgotten."""
    if not c.key.path:
        await tree_flows.forget(store, run, records_of(c.agent))
