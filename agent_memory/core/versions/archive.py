"""`Archive`: the records that one operation writes: of the states that it ends, and the marks of its renames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from agent_memory.backend import ABSENT, Backend, Parts, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import part_flows
from agent_memory.core.internal_trees import about_callers_file
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import Mark, Name, Record, digest_of_path, mark_name, records_of
from agent_memory.core.versions.states import CurrentFile
from agent_memory.errors import AgentMemoryError, ConflictError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

T = TypeVar("T")


class Archive:
    """The records of one operation: each is written before the change, and deleted if the change is refused.

    Args:
        store: the storage.
        run: runs its primitives.
        agent: the agent whose files are changed.
        by: the operation.
    """

    def __init__(self, store: Backend, run: Run, agent: str | None, by: MadeBy) -> None:
        self._store = store
        self._run = run
        self._agent = agent
        self._by = by
        self._marks: dict[Key, Key] = {}
        self._unused: list[Key] = []

    async def keep_then(self, file: CurrentFile, successor: Origin | None, change: Callable[[], Awaitable[T]]) -> T:
        """Write the record of a state, then make the change that ends it.

        Args:
            file: the state, with a known origin.
            successor: the origin of the state that replaces it; None for a deletion.
            change: makes the change on the condition that the file is still in this state.
        """
        path, size = file.key.path, file.snapshot.size
        record = Record.of(path, file.origin, size, self._by, successor)
        name = self._place_of(record.new_name(self._agent))
        with about_callers_file(path, "the current content cannot be kept as a version"):
            if file.is_whole:
                await self._run.call(self._store.write, name, file.snapshot.data + record.trailer(), ABSENT)
            else:
                await _copy_to_record(self._store, self._run, file.key, file.snapshot, name, record.trailer())
        try:
            return await change()
        except OutcomeUnknownError:
            raise
        except AgentMemoryError:
            with suppress(AgentMemoryError):  # readers recognise it as a leftover
                await self._run.call(self._store.delete, name)
            raise

    def _place_of(self, name: Name) -> Key:
        return records_of(self._agent).join(f"{name.history}/{name}")

    async def write_mark(
        self, source: Key, target: Key, origin: Origin | None, files: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Write the mark of a rename: of a file with an origin, or of a directory with files that have one.

        ``files`` has the history and the new path of each file of the directory.
        """
        if not (origin.id if origin else files):
            return
        places = [(history, digest_of_path(self._agent, path)) for history, path in files]
        mark = Mark(source.path, target.path, self._by.shortened(), places)
        name = self._place_of(mark_name(self._agent, target.path, self._by, origin))
        with about_callers_file(source.path, "the rename cannot be recorded"):
            await self._run.call(self._store.write, name, mark.to_bytes(), ABSENT)
        self._marks[target] = name
        self._unused.append(name)

    @contextmanager
    def using_mark(self, target: Key) -> Iterator[None]:
        """Keep the mark of a rename to a name if the block gives a file this name, or may have done so."""
        try:
            yield
        except OutcomeUnknownError:
            self._use_mark(target)
            raise
        self._use_mark(target)

    def _use_mark(self, target: Key) -> None:
        self._unused = [name for name in self._unused if name != self._marks.get(target)]

    def withdraw_mark(self, target: Key) -> None:
        """Do not keep the mark of a rename to a name after all: no file has the name any more."""
        if target in self._marks:
            self._unused.append(self._marks[target])

    async def delete_unused_marks(self) -> None:
        """Delete the marks of the renames that were refused."""
        for name in self._unused:
            with suppress(AgentMemoryError):
                await self._run.call(self._store.delete, name)


async def _copy_to_record(store: Backend, run: Run, source: Key, state: Snapshot, name: Key, trailer: bytes) -> None:
    """Write a record: the content of ``source`` in the state that was read, and ``trailer``.

    Raises:
        ConflictError: the file is in another state; nothing was written.
    """

    async def fill(parts: Parts) -> None:
        if await _copy_by_storage(run, parts, source, state):
            await part_flows.add(run, parts, trailer)
        else:
            await _send(store, run, parts, source, state, trailer)

    size = state.size + len(trailer)
    await part_flows.fill_and_complete(run, await part_flows.begin(store, run, name, size, ABSENT), size, fill)


async def _copy_by_storage(run: Run, parts: Parts, source: Key, state: Snapshot) -> bool:
    """Copy the content by the storage, in parts of about equal size: only the last may be small; False if it cannot."""
    count = -(-state.size // part_flows.COPIED_AT_ONCE)
    for number in range(count):
        start, end = state.size * number // count, state.size * (number + 1) // count
        if not await part_flows.add_copy(run, parts, source, start, end, state.etag):
            if number:
                raise ConflictError("the file changed since it was read", path=source.path)
            return False
    return True


async def _send(store: Backend, run: Run, parts: Parts, source: Key, state: Snapshot, trailer: bytes) -> None:
    async def read(start: int, end: int) -> bytes:
        with renewed_deadline(run.now()):
            return (await run.call(store.read, source, start, end, state.etag)).data

    at = 0
    while state.size - at > parts.part_bytes:
        await part_flows.add(run, parts, await read(at, at + parts.part_bytes))
        at += parts.part_bytes
    await part_flows.add(run, parts, await read(at, state.size) + trailer)
