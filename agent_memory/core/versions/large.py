"""Writes the record of a state that is too large for one call: by the storage's own copy, or in parts."""

from __future__ import annotations

from agent_memory.backend import ABSENT, Backend, Parts, Snapshot, renewed_deadline
from agent_memory.core import part_flows
from agent_memory.errors import ConflictError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


async def copy_to_record(store: Backend, run: Run, source: Key, state: Snapshot, name: Key, trailer: bytes) -> None:
    """Write a record: the content of ``source`` in the state that was read, and ``trailer``.

    Raises:
        ConflictError: the file is in another state; nothing was written.
    """

    async def fill(parts: Parts) -> None:
        if await _copied(run, parts, source, state):
            await part_flows.add(run, parts, trailer)
        else:
            await _sent(store, run, parts, source, state, trailer)

    size = state.size + len(trailer)
    await part_flows.filled(run, await part_flows.begun(store, run, name, size, ABSENT), size, fill)


async def _copied(run: Run, parts: Parts, source: Key, state: Snapshot) -> bool:
    """Whether the storage copied the content, in parts of about equal size, because none but the last may be small."""
    count = -(-state.size // part_flows.COPIED_AT_ONCE)
    for number in range(count):
        start, end = state.size * number // count, state.size * (number + 1) // count
        if not await part_flows.add_copy(run, parts, source, start, end, state.etag):
            if number:
                raise ConflictError("the file changed since it was read", path=source.path)
            return False
    return True


async def _sent(store: Backend, run: Run, parts: Parts, source: Key, state: Snapshot, trailer: bytes) -> None:
    async def read(start: int, end: int) -> bytes:
        with renewed_deadline(run.now()):
            return (await run.call(store.read, source, start, end, state.etag)).data

    at = 0
    while state.size - at > parts.part_bytes:
        await part_flows.add(run, parts, await read(at, at + parts.part_bytes))
        at += parts.part_bytes
    await part_flows.add(run, parts, await read(at, state.size) + trailer)
