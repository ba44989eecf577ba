"""`VersionedTree`: the calls of a tree that read, restore and erase earlier versions of its files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from agent_memory.backend import WriteWhen
from agent_memory.core import flows, part_flows, tree_flows
from agent_memory.core.flows import Effect
from agent_memory.core.listed_part import checked_count
from agent_memory.core.operation import Call, Flow, Scope
from agent_memory.core.versions.attribution import without
from agent_memory.core.versions.forgetting import forget_records, to_forget
from agent_memory.core.versions.history import Histories, present
from agent_memory.core.versions.origin import made_by
from agent_memory.core.versions.recent import recent
from agent_memory.core.versions.record import records_of
from agent_memory.core.versions.redacting import RedactResult, checked_reason, redact
from agent_memory.core.versions.retention import prune
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.core.versions.states import FileVersion, Kept
from agent_memory.core.versions.undo import Range, RecordedAppends, Selection
from agent_memory.core.versions.undo_file import UndoContext
from agent_memory.core.versions.undo_plan import Plan
from agent_memory.errors import AgentMemoryFileNotFoundError, FileTooLargeError, without_top
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

T = TypeVar("T")


class VersionedTree(Scope):
    """The part of `agent_memory.core.tree.Tree` that uses the records of earlier versions."""

    async def file_versions(self, run: Run, path: str, limit: int | None, after: str | None) -> tuple[FileVersion, ...]:
        if limit is not None:
            checked_count("limit", limit)

        async def found(c: Call, histories: Histories | None) -> tuple[FileVersion, ...]:
            if c.key == self.top:
                shows = partial(self._shows, c.key)
                return await recent(histories, shows, limit, after) if histories else ()
            if histories is not None:
                return await histories.versions(c.key, limit, after)
            only = await present(c.store, c.run, c.key)
            return (only[1],) if only else ()

        return self._seen_versions(await self._of_histories(run, "versions", path, found, directory=not path))

    def _seen_versions(self, versions: Iterable[FileVersion]) -> tuple[FileVersion, ...]:
        return tuple(each._replace(path=without_top(each.path, self.top.path)) for each in versions)

    def _shows(self, top: Key, path: str) -> bool:
        """Whether a file is below a directory and not hidden."""
        if not is_at_or_below(path, top.path):
            return False
        return not any(names.hides(top.join(without_top(path, top.path))) for names in self.protected)

    async def read_version(self, run: Run, path: str, version: str) -> bytes:
        async def found(c: Call, histories: Histories | None) -> bytes:
            return await _content(histories, c.key, version)

        return await self._of_histories(run, "read_version", path, found)

    async def read_version_text(self, run: Run, path: str, version: str) -> str:
        async def found(c: Call, histories: Histories | None) -> str:
            return flows.decode(c.key, await _content(histories, c.key, version))

        return await self._of_histories(run, "read_version", path, found)

    async def turn_versions(self, run: Run, limits: VersionLimits | None) -> None:
        async def flow(c: Call) -> Effect:
            await self.versions.turn(c, limits)
            return Effect()

        await self.operate(run, "set_versions", "", flow, directory=True)

    async def version_limits(self, run: Run) -> VersionLimits | None:
        limits: list[VersionLimits | None] = []

        async def flow(c: Call) -> Effect:
            settings = await self.versions.any(c)
            limits.append(settings.limits if settings else None)
            return Effect()

        await self.operate(run, "versions", "", flow, directory=True)
        return limits[0]

    async def prune_versions(self, run: Run) -> int:
        counts: list[int] = []

        async def flow(c: Call) -> Effect:
            settings = await self.versions.any(c)
            if settings is None or settings.limits is None:
                counts.append(0)
            else:
                histories = Histories(c.store, c.run, self.agent, settings.secret)
                counts.append(await prune(c.store, c.run, histories, settings.limits, c.time))
            return Effect(files=counts[0])

        await self.operate(run, "prune", "", flow, directory=True)
        return counts[0]

    def restoring(self, version: str, expected: WriteWhen, cut: Sequence[Range], of: str | None) -> Flow:
        """The flow that writes the content of an earlier version, without the ranges ``cut``, as a new version.

        ``of`` is the name of the file that had this version, if it is another one.
        """

        async def flow(c: Call) -> Effect:
            key = c.key if of is None else self.top.join(of)
            histories = await self._histories(c)
            try:
                content = without(await _content(histories, key, version), cut)
            except FileTooLargeError:
                if cut or histories is None:
                    raise
                return await self._restore_large(c, await histories.kept(key, version), expected)
            data = await self.apply_filters(c, content)

            def write(c: Call) -> Awaitable[Effect]:
                return flows.write(c.store, c.run, c.key, data, expected)

            return await self.versions.keeping(write)(c)

        return flow

    async def _restore_large(self, c: Call, kept: Kept, expected: WriteWhen) -> Effect:
        size = kept.record.size
        await c.offload(lambda: c.call_hooks(lambda: self.hooks.call_size_guards(c.operation, size)))

        async def copy(c: Call) -> Effect:
            return (await part_flows.copy(c.store, c.run, kept.key, c.key, size, expected))[0]

        return await self.versions.keeping(copy)(c)

    async def redact(self, run: Run, path: str, version: str, reason: str) -> RedactResult:
        reason = checked_reason(reason)
        results: list[RedactResult] = []

        async def flow(c: Call) -> Effect:
            if (histories := await self._histories(c)) is None:
                raise _unknown(c.key, version)
            by = made_by(c.operation)
            results.append(await redact(c.store, c.run, histories, c.key, version, by, reason))
            return Effect(files=1, versions_searched=results[0].versions_searched)

        await self.operate(run, "redact", path, flow)
        found = results[0]
        path = without_top(found.path, self.top.path)
        return found._replace(path=path, still_in=self._seen_versions(found.still_in))

    async def plan_undo(self, run: Run, selection: Selection, appends: RecordedAppends | None) -> Plan | None:
        """Plan an undo for all files; None if the store never kept versions."""

        async def planned(c: Call, histories: Histories | None) -> Plan | None:
            if histories is None:
                return None
            return await Plan(UndoContext(c.store, c.run, histories, c.key, selection, appends)).make()

        return await self._of_histories(run, "versions", "", planned, directory=True)

    async def _of_histories(
        self,
        run: Run,
        kind: OperationKind,
        path: str,
        find: Callable[[Call, Histories | None], Awaitable[T]],
        *,
        directory: bool = False,
    ) -> T:
        results: list[T] = []

        async def flow(c: Call) -> Effect:
            results.append(await find(c, await self._histories(c)))
            return Effect()

        await self.operate(run, kind, path, flow, directory=directory)
        return results[0]

    async def forgetting(self, c: Call) -> Callable[[], Awaitable[None]]:
        """Find the earlier versions of a file, or of the files of a directory; return a function that erases them."""
        histories = await self._histories(c) if c.key.path else None
        if histories is None:
            return lambda: _erase_all(c)
        forgotten = await to_forget(c.store, c.run, histories, c.key.path)
        return lambda: forget_records(c.store, c.run, histories, forgotten)

    async def _histories(self, c: Call) -> Histories | None:
        """The records of this agent; None if the store never kept versions."""
        settings = await self.versions.any(c)
        return None if settings is None else Histories(c.store, c.run, self.agent, settings.secret)


async def _content(histories: Histories | None, key: Key, version: str) -> bytes:
    if histories is None:
        raise _unknown(key, version)
    return await histories.content(key, version)


def _unknown(key: Key, version: str) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError(f"no version {version!r}: this store keeps none", path=key.path)


async def _erase_all(c: Call) -> None:
    """Erase all versions of the agent, if its whole tree is forgotten."""
    if not c.key.path:
        await tree_flows.forget(c.store, c.run, records_of(c.agent))
