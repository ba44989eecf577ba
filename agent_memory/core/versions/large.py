"""Writes the record of a state that is too large for one call: by the storage's own copy, or in parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

from agent_memory.backend import ABSENT, Backend, Parts, Snapshot, WritesInParts, renewed_deadline
from agent_memory.errors import ConflictError
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_COPIED_AT_ONCE: Final = 256 << 20


async def copy_to_record(store: Backend, run: Run, source: Key, state: Snapshot, name: Key, trailer: bytes) -> None:
    """Write a record: the content of ``source`` in the state that was read, and ``trailer``.

    Raises:
        ConflictError: the file is in another state; nothing was written.
    """
    size = state.size + len(trailer)
    begin = cast("Callable[..., Awaitable[Parts]]", cast(WritesInParts, store).write_in_parts)
    with renewed_deadline(run.now()):
        parts = await run.call(begin, name, size, ABSENT)
    try:
        if not await _copied(run, parts, source, state):
            await _sent(store, run, parts, source, state, trailer)
        else:
            await _add(run, parts, trailer)
        with renewed_deadline(run.now()):
            await run.call(cast("Callable[[], Awaitable[object]]", parts.complete))
    except GeneratorExit:
        raise
    except BaseException:
        await run.call(cast("Callable[[], Awaitable[None]]", parts.abort))
        raise


async def _copied(run: Run, parts: Parts, source: Key, state: Snapshot) -> bool:
    """Whether the storage copied the content, in parts of about equal size, because none but the last may be small."""
    count = -(-state.size // _COPIED_AT_ONCE)
    copy = cast("Callable[..., Awaitable[bool]]", parts.add_copy)
    for number in range(count):
        start, end = state.size * number // count, state.size * (number + 1) // count
        with renewed_deadline(run.now()):
            if not await run.call(copy, source, start, end, state.version):
                if number:
                    raise ConflictError("the file changed since it was read", path=source.path)
                return False
    return True


async def _sent(store: Backend, run: Run, parts: Parts, source: Key, state: Snapshot, trailer: bytes) -> None:
    at = 0
    while state.size - at > parts.part_bytes:
        with renewed_deadline(run.now()):
            data = (await run.call(store.read, source, at, at + parts.part_bytes, state.version)).data
        await _add(run, parts, data)
        at += len(data)
    with renewed_deadline(run.now()):
        last = (await run.call(store.read, source, at, state.size, state.version)).data
    await _add(run, parts, last + trailer)


async def _add(run: Run, parts: Parts, data: bytes) -> None:
    with renewed_deadline(run.now()):
        await run.call(cast("Callable[[bytes], Awaitable[None]]", parts.add), data)
