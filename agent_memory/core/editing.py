"""The flow of an edit: replace a file's content by a function of it, create the file, or delete it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from agent_memory.backend import ANY, PRESENT, Backend, ETag, Snapshot
from agent_memory.backend._checks import content_sha256, refuse_larger
from agent_memory.core.flows import Effect, read_expected, read_if_present, sha256, until_won, write_in_place
from agent_memory.core.precondition import SHA256, EditCondition
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import Key
from agent_memory.reading.reader import CheckRead
from agent_memory.runtime.run import Run

Change: TypeAlias = Callable[[bytes], bytes | None]
"""A pure function of a file's content: the new content, or None to delete the file."""


class EditHooks(NamedTuple):
    """The hooks of an edit: the filters of its new content, the guards of a deletion, and those of its old content."""

    apply_filters: Callable[[bytes], Awaitable[bytes]]
    permit_delete: Callable[[], Awaitable[None]]
    check_read: CheckRead | None = None


async def edit(
    store: Backend,
    run: Run,
    key: Key,
    change: Change,
    hooks: EditHooks,
    when: EditCondition = PRESENT,
    missing: bytes = b"",
) -> Effect:
    """Replace a file's content by a function of it; call the function again if another writer was faster.

    If there is no file and ``when`` is ``ANY``, the function gets ``missing``, and its result creates the file.
    """

    async def attempt() -> Effect:
        before = await _read(store, run, key, when)
        if before is not None and hooks.check_read is not None:
            await hooks.check_read(before.data, 0, before.size)
        changed = _changed(change, before.data if before else missing)
        if changed is None:
            return await _delete(store, run, key, before, hooks)
        if before and changed == before.data:
            return _unchanged(before)
        return await _write(store, run, key, before, await hooks.apply_filters(changed))

    try:
        return await (attempt() if isinstance(when, ETag | SHA256) else until_won(store, run, key, attempt))
    except _ChangeRaisedError as carrier:
        raise carrier.error from None


async def _read(store: Backend, run: Run, key: Key, when: EditCondition) -> Snapshot | None:
    if isinstance(when, ETag | SHA256):
        return await read_expected(store, run, key, when, missing=AgentMemoryFileNotFoundError)
    return await (read_if_present(store, run, key) if when is ANY else run.call(store.read, key))


def _changed(change: Change, data: bytes) -> bytes | None:
    try:
        return change(data)
    except ConflictError as error:  # raised by the caller's function: not a conflict to retry
        raise _ChangeRaisedError(error) from error


class _ChangeRaisedError(Exception):
    def __init__(self, error: ConflictError) -> None:
        super().__init__()
        self.error = error


async def _write(store: Backend, run: Run, key: Key, before: Snapshot | None, data: bytes) -> Effect:
    if before and data == before.data:
        return _unchanged(before)
    refuse_larger(key, len(data), store.max_bytes)
    etag = await write_in_place(store, run, key, data, before)
    digest = sha256(before.data) if before else None
    return Effect(size=len(data), sha256=content_sha256(data, etag), before_sha256=digest, etag=etag)


def _unchanged(before: Snapshot) -> Effect:
    digest = sha256(before.data)
    return Effect(size=before.size, sha256=digest, before_sha256=digest, etag=before.etag)


async def _delete(store: Backend, run: Run, key: Key, before: Snapshot | None, hooks: EditHooks) -> Effect:
    if before is None:
        return Effect(files=0)
    await hooks.permit_delete()
    try:
        await run.call(store.delete, key, when=before.etag)
    except AgentMemoryFileNotFoundError as error:
        raise ConflictError("another writer deleted the file", path=key.path) from error
    return Effect(files=1, before_sha256=sha256(before.data))
