"""`VersionedTree`: the calls of a tree that read, restore and erase earlier versions of its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, cast

from agent_memory.backend import Backend, WriteWhen
from agent_memory.core import flows, part_flows, tree_flows
from agent_memory.core.call import Call, Flow
from agent_memory.core.flows import Effect
from agent_memory.core.idempotency import forget_receipts
from agent_memory.core.limits.count import Usage, usage_of
from agent_memory.core.limits.settings import Limits, checked_file_limits
from agent_memory.core.operation import Scope
from agent_memory.core.results import checked_count
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.forget import Forgetting, Forgotten
from agent_memory.core.versions.keep import VersionedStore
from agent_memory.core.versions.origin import Origin, made_by
from agent_memory.core.versions.record import records_of
from agent_memory.core.versions.redact import RedactResult, checked_reason, redact
from agent_memory.core.versions.retention import prune, prune_a_few
from agent_memory.core.versions.settings import VersionLimits, checked_limits, require_versions
from agent_memory.core.versions.states import CurrentFile, Cursor, FileVersion, StoredRecord
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

    def archiving(self, flow: Flow, continues: Origin | None = None) -> Flow:
        """Return a flow that keeps the states that it ends, if the store keeps versions.

        ``continues`` is the last state of a deleted file; a file that the flow creates continues its history.
        """

        async def archived(store: Backend, run: Run, call: Call) -> Effect:
            limits = await self.settings.for_change(store, run, call)
            if limits is None:
                return await flow(store, run, call)
            await require_versions(store, run, call.key)
            versioned = VersionedStore(store, run, call.agent, made_by(call.operation), continues)
            try:
                effect = await flow(versioned, versioned.run, call)
            except AgentMemoryError:
                await versioned.archive.delete_unused_marks()
                raise
            await versioned.archive.delete_unused_marks()
            effect.version_id = versioned.appended_to
            if call.kind not in _ARCHIVE_NOTHING:
                await prune_a_few(self.settings.sweep, store, run, call.agent, limits, call.time)
            return effect

        return archived

    async def file_versions(
        self, run: Run, path: str, limit: int | None, after: Cursor | None
    ) -> tuple[FileVersion, ...]:
        if limit is not None:
            checked_count("limit", limit)

        async def found(_store: Backend, _run: Run, key: Key, histories: Histories) -> tuple[FileVersion, ...]:
            if key == self.top:
                last = after and after._replace(path=after.path and key.join(after.path).path)
                return await histories.recent(partial(self._shows, key), limit, last)
            return await histories.versions(key, limit, after)

        return self._seen_versions(await self._of_histories(run, "versions", path, found, directory=not path))

    def _seen_versions(self, versions: Iterable[FileVersion]) -> tuple[FileVersion, ...]:
        return tuple(replace(each, path=without_top(each.path, self.top.path)) for each in versions)

    def _shows(self, top: Key, path: str) -> bool:
        """Whether a file is below a directory and not hidden."""
        if not is_at_or_below(path, top.path):
            return False
        return not any(names.hides(top.join(without_top(path, top.path))) for names in self.protected)

    async def read_version(self, run: Run, path: str, version: str) -> bytes:
        return await self._read_version(run, path, version, lambda _, data: data)

    async def read_version_text(self, run: Run, path: str, version: str) -> str:
        return await self._read_version(run, path, version, flows.decode)

    async def _read_version(self, run: Run, path: str, version: str, result: Callable[[Key, bytes], T]) -> T:
        async def found(store: Backend, run: Run, c: Call) -> tuple[T, Effect]:
            histories = Histories(store, run, self.agent)
            content = await histories.content(c.key, version)
            if check := self.read_guard(c):
                await check(content, 0, len(content))
            return result(c.key, content), Effect(skipped=histories.left_out)

        return await self.find(run, "read_version", path, found)

    async def set_version_limits(self, run: Run, limits: VersionLimits | None) -> None:
        checked_limits(limits)

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            await self.settings.set_limits(store, run, c, limits)
            return Effect()

        await self.operate(run, "set_versions", "", flow, directory=True)

    async def version_limits(self, run: Run) -> VersionLimits | None:
        async def stored(store: Backend, run: Run, c: Call) -> tuple[VersionLimits | None, Effect]:
            return await self.settings.stored(store, run, c), Effect()

        return await self.find(run, "versions", "", stored, directory=True)

    async def set_limits(self, run: Run, limits: Limits | None) -> None:
        checked_file_limits(limits)

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            await self.settings.set_file_limits(store, run, c, limits)
            return Effect()

        await self.operate(run, "set_limits", "", flow, directory=True)

    async def limits(self, run: Run) -> Limits | None:
        async def stored(store: Backend, run: Run, c: Call) -> tuple[Limits | None, Effect]:
            return await self.settings.stored_file_limits(store, run, c), Effect()

        return await self.find(run, "list", "", stored, directory=True)

    async def usage(self, run: Run) -> Usage:
        async def counted(store: Backend, run: Run, c: Call) -> tuple[Usage, Effect]:
            limits = await self.settings.stored_file_limits(store, run, c)
            found = await usage_of(store, run, c.key, self.agent, limits)
            return found, Effect(files=found.files, size=found.bytes)

        return await self.find(run, "list", "", counted, directory=True)

    async def prune_versions(self, run: Run) -> int:
        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            if (limits := await self.settings.stored(store, run, c)) is None:
                return Effect(files=0)
            return Effect(files=await prune(store, run, Histories(store, run, self.agent), limits, c.time))

        return (await self.operate(run, "prune", "", flow, directory=True)).result.files or 0

    def restoring(self, version: str, when: WriteWhen, cut: Sequence[Range]) -> Flow:
        """The flow that writes the content of an earlier version, without the ranges ``cut``, as a new version."""

        async def flow(store: Backend, run: Run, c: Call) -> Effect:
            histories = Histories(store, run, self.agent)
            current, record = await histories.locate(c.key, version)
            continues = None if current or not record else await histories.last_state(record.record.history, c.key)
            try:
                content = (
                    await histories.content_of(record)
                    if record
                    else cast(CurrentFile, current).whole(store.max_bytes).data
                )
            except FileTooLargeError:
                if cut or record is None:
                    raise
                return await self._restore_large(store, run, c, record, when, continues)
            data = await self.apply_filters(c, without_ranges(content, cut))

            def write(store: Backend, run: Run, c: Call) -> Awaitable[Effect]:
                return flows.write(store, run, c.key, data, when)

            return await self.archiving(write, continues)(store, run, c)

        return flow

    async def _restore_large(
        self, store: Backend, run: Run, c: Call, stored: StoredRecord, when: WriteWhen, continues: Origin | None
    ) -> Effect:
        size = stored.record.size
        await c.offload(lambda: c.call_hooks(lambda: self.hooks.call_size_guards(c.operation, size)))

        async def copy(store: Backend, run: Run, c: Call) -> Effect:
            return (await part_flows.copy(store, run, stored.key, c.key, size, when))[0]

        return await self.archiving(copy, continues)(store, run, c)

    async def redact(self, run: Run, path: str, version: str, reason: str) -> RedactResult:
        reason = checked_reason(reason)

        async def redacted(store: Backend, run: Run, c: Call) -> tuple[RedactResult, Effect]:
            by, histories = made_by(c.operation), Histories(store, run, self.agent)
            result = await redact(store, run, histories, self.agent, c.key, version, by, reason)
            return result, Effect(files=1, skipped=histories.left_out, versions_searched=result.versions_searched)

        found = await self.find(run, "redact", path, redacted)
        path, *others = (without_top(name, self.top.path) for name in (found.path, *found.other_names))
        return replace(found, path=path, still_in=self._seen_versions(found.still_in), other_names=tuple(others))

    async def plan_undo(self, run: Run, selection: Selection, appends: RecordedAppends | None) -> Plan:
        """Plan an undo for all files."""

        async def planned(store: Backend, run: Run, key: Key, histories: Histories) -> Plan:
            return await Plan(UndoContext(store, run, histories, key, selection, appends)).make()

        return await self._of_histories(run, "versions", "", planned, directory=True)

    async def _of_histories(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        find: Callable[[Backend, Run, Key, Histories], Awaitable[T]],
        *,
        directory: bool = False,
    ) -> T:
        async def found(store: Backend, run: Run, c: Call) -> tuple[T, Effect]:
            histories = Histories(store, run, self.agent)
            value = await find(store, run, c.key, histories)
            return value, Effect(skipped=histories.left_out)

        return await self.find(run, kind, path, found, directory=directory)

    async def forgetting(self, store: Backend, run: Run, c: Call, dry_run: bool) -> tuple[Forgotten, Effect]:
        """Erase a file, or the files of a directory, with their versions and receipts; with ``dry_run`` only count."""
        histories = Histories(store, run, self.agent)
        forgetting = Forgetting(store, run, histories, c.key)
        await forgetting.plan()
        if dry_run:
            return forgetting.forgotten, Effect(files=forgetting.files, skipped=forgetting.unknown)
        effect = Effect()
        with tree_flows.reported_as_partial(c.key, lambda: forgetting.has_erased or bool(effect.files)):
            await forget_receipts(store, run, c)  # first: if they cannot be read, the file stays
            await forgetting.erase()
            effect = await tree_flows.forget(store, run, c.key)  # a repetition finds the records by the file
            await forgetting.erase_rest()
            if not c.key.path:
                await tree_flows.forget(store, run, records_of(c.agent))  # files with other names lie there too
                await self.quotas.of(c.agent).erase(store, run)
        return forgetting.forgotten, replace(effect, skipped=effect.skipped + forgetting.unknown)
