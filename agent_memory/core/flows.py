"""The logic of every operation, written once for sync and async callers.

A flow is an async function over a `Backend` and a `Run`. It awaits only its run, which calls the backend's
primitives. So it can run without an event loop, and a simulator can interleave many flows at every primitive. A
conflict with another writer is normal: `until_won` retries it until the deadline. Only the append of an object store
retries itself (`agent_memory.object_store.conditional_write.Write`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeGuard, TypeVar, cast

from agent_memory.backend import (
    ABSENT,
    ANY,
    PRESENT,
    ActsAsAnotherProcess,
    AnyBackend,
    Appended,
    Appends,
    AppendWhen,
    Backend,
    Capabilities,
    ChecksCapabilities,
    Entry,
    Erases,
    ETag,
    MovesFiles,
    MovesTrees,
    ReadWhen,
    Snapshot,
    WritesCopies,
    WritesInParts,
    WriteWhen,
)
from agent_memory.backend._checks import content_sha256, joined, refuse_larger
from agent_memory.backend.helpers import deadline_or_default, not_found
from agent_memory.core.precondition import SHA256, DeleteCondition, EditCondition, WriteCondition
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AppendError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
    ReadError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.reading.reader import CheckRead
from agent_memory.runtime.run import Run

T = TypeVar("T")

_FIRST_DELAY = 0.01
_LONGEST_DELAY = 0.5


@dataclass(slots=True)  # not frozen: creation would take three times as long, and every operation makes one
class Effect:
    """The result of an operation; None if not known without extra cost. Sizes in bytes, digests hexadecimal SHA-256.

    ``before_sha256`` is the digest of the old content, if the operation read it; ``sha256`` of the written content.
    ``version_id`` is the id of the version that an append appended to.
    ``replayed``: an earlier call with the same idempotency key had this result; this one changed nothing.
    ``versions_searched``: False if an erasing did not look for the storage's own versions, because it says it has none.
    """

    size: int | None = None
    sha256: str | None = None
    before_sha256: str | None = None
    etag: ETag | None = None
    version_id: str | None = None
    attempts: int = 1
    data: bytes = b""
    text: str = ""
    entries: tuple[Entry, ...] = ()
    files: int | None = None
    skipped: int = 0
    replayed: bool = False
    versions_searched: bool = True


async def read(store: Backend, run: Run, key: Key, check: CheckRead | None = None) -> Effect:
    """Read a whole file."""
    snapshot = await run.call(store.read, key)
    if check is not None:
        await check(snapshot.data, 0, snapshot.size)
    return Effect(data=snapshot.data, size=snapshot.size)


async def read_text(store: Backend, run: Run, key: Key, check: CheckRead | None = None) -> Effect:
    """Read a whole file that must be UTF-8."""
    snapshot = await run.call(store.read, key)
    if check is not None:
        await check(snapshot.data, 0, snapshot.size)
    return Effect(text=decode(key, snapshot.data), size=snapshot.size)


async def stat(store: Backend, run: Run, key: Key, *, with_etag: bool = False) -> Effect:
    """Return a file's entry; ``with_etag``: read the file if the backend's `stat` does not tell its etag."""
    entry = await run.call(store.stat, key)
    if with_etag and entry.etag is None:
        try:
            snapshot = await run.call(store.read, key)
        except FileTooLargeError:
            snapshot = await run.call(store.read, key, 0, 0)
        entry = replace(entry, size=snapshot.size, etag=snapshot.etag)
    return Effect(entries=(entry,), size=entry.size, etag=entry.etag)


async def exists(store: Backend, run: Run, key: Key) -> Effect:
    """Return a file's entry, or an effect without entries if there is no file."""
    try:
        return await stat(store, run, key)
    except AgentMemoryFileNotFoundError:
        return Effect()


async def is_directory(store: Backend, run: Run, key: Key) -> bool:
    """Whether there are files below a name.

    The first name may be no valid key, for example a temporary name of another process; then more names are read.
    """
    page = await run.call(store.list, key, limit=1)
    while not page.entries and page.next is not None:
        page = await run.call(store.list, key, after=page.next)
    return bool(page.entries)


async def write(store: Backend, run: Run, key: Key, data: bytes, when: WriteCondition = ANY) -> Effect:
    """Replace or create a file, if the precondition holds."""
    refuse_larger(key, len(data), store.max_bytes)
    etag = await run.call(store.write, key, data, when=await state_of(store, run, key, when, missing=ConflictError))
    before = when.digest if isinstance(when, SHA256) else None
    return Effect(size=len(data), sha256=content_sha256(data, etag), before_sha256=before, etag=etag)


async def append(
    store: Backend, run: Run, key: Key, data: bytes, *, separator: bytes = b"", when: EditCondition = ANY
) -> Effect:
    """Append to a file: in place if the backend supports it, otherwise by compare-and-swap."""
    refuse_larger(key, len(data), store.max_bytes)
    if isinstance(when, ETag | SHA256):
        before = await read_expected(store, run, key, when, missing=ConflictError)
        return await _write_appended(store, run, key, before, data, separator)
    if appends(store):
        appended: Appended = await run.call(cast(Any, store.append), key, data, separator=separator, when=when)
        return Effect(size=appended.size, sha256=sha256(data), etag=appended.etag)

    try:
        return await _append_by_swapping(store, run, key, data, separator, when)
    except (ReadError, WriteError) as error:
        raise AppendError(str(error)) from error


def appends(store: Any) -> TypeGuard[Appends]:
    """Whether a backend appends in place."""
    return _supports(store, Appends)


def checks_capabilities(store: Any) -> TypeGuard[ChecksCapabilities]:
    """Whether a backend tests the capabilities of its server."""
    return _supports(store, ChecksCapabilities)


async def checked_capabilities(store: Backend, run: Run, key: Key) -> Capabilities:
    """Return the capabilities of a backend, after it has tested those that depend on its server."""
    asked: object = store
    if checks_capabilities(asked):
        await run.call(cast("Callable[[Key], Awaitable[object]]", asked.check_capabilities), key)
    return store.capabilities


def moves_trees(store: Any) -> TypeGuard[MovesTrees]:
    """Whether a backend moves and deletes whole directories."""
    return _supports(store, MovesTrees)


def moves_files(store: Any) -> TypeGuard[MovesFiles]:
    """Whether a backend renames a file in one step."""
    return _supports(store, MovesFiles)


def writes_in_parts(store: Any) -> TypeGuard[WritesInParts]:
    """Whether a backend writes files of any size, in parts."""
    return _supports(store, WritesInParts)


def writes_copies(store: Any) -> TypeGuard[WritesCopies]:
    """Whether a backend creates a file as a copy of another one."""
    return _supports(store, WritesCopies)


def erases(store: Any) -> TypeGuard[Erases]:
    """Whether a backend erases all data of a file, such as earlier versions."""
    return _supports(store, Erases)


def as_another_process(store: AnyBackend) -> AnyBackend:
    """Return a backend on the same storage that does not wait for this one's changes, or else this one."""
    return store.as_another_process() if isinstance(store, ActsAsAnotherProcess) else store


def _supports(store: Any, protocol: Any) -> bool:
    return _is_a(cast(Any, getattr(store, "storage_type", type(store))), protocol)


@cache  # issubclass with a protocol is slow
def _is_a(backend: Any, protocol: Any) -> bool:
    return issubclass(backend, protocol)


async def _append_by_swapping(
    store: Backend, run: Run, key: Key, data: bytes, separator: bytes, when: AppendWhen
) -> Effect:
    async def attempt() -> Effect:
        before = await read_if_present(store, run, key)
        if before is None and when is PRESENT:
            raise not_found(key)
        return await _write_appended(store, run, key, before, data, separator)

    return await until_won(store, run, key, attempt)


async def _write_appended(
    store: Backend, run: Run, key: Key, before: Snapshot | None, data: bytes, separator: bytes
) -> Effect:
    old = before.data if before else b""
    whole = joined(old, separator, data)
    refuse_larger(key, len(whole), store.max_bytes)
    etag = await write_in_place(store, run, key, whole, before)
    return Effect(
        size=len(whole),
        sha256=sha256(data),
        before_sha256=sha256(old) if before else None,
        etag=etag,
    )


async def write_in_place(store: Backend, run: Run, key: Key, data: bytes, before: Snapshot | None) -> ETag:
    """Write a file in the place of the state that was read; None is the state without a file.

    Raises:
        ConflictError: the file is in another state.
        FileAlreadyExistsError: the name is a directory, or lies below a file.
    """
    try:
        return await run.call(store.write, key, data, when=before.etag if before else ABSENT)
    except FileAlreadyExistsError as error:
        if error.taken_by != "file":
            raise
        raise ConflictError("another writer created the file", path=key.path) from error


async def delete(store: Backend, run: Run, key: Key, when: DeleteCondition = ANY) -> Effect:
    """Delete a file, if the precondition holds."""
    state = await state_of(store, run, key, when, missing=AgentMemoryFileNotFoundError)
    await run.call(store.delete, key, when=cast(ReadWhen, state))  # never ABSENT: no condition of a delete is
    return Effect(files=1, before_sha256=when.digest if isinstance(when, SHA256) else None)


async def until_won(store: Backend, run: Run, key: Key, attempt: Callable[[], Awaitable[Effect]]) -> Effect:
    """Retry after each conflict, until the deadline; the back-off doubles up to its cap, with full jitter."""
    end = deadline_or_default(run.now()).at
    tries = 1
    async with run.file_lock(store, key):
        while True:
            try:
                return replace(await attempt(), attempts=tries)
            except ConflictError:
                delay = run.random() * min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(tries, 32))
                if run.now() + delay >= end:
                    raise
            await run.sleep(delay)
            tries += 1


async def read_if_present(store: Backend, run: Run, key: Key) -> Snapshot | None:
    """Read a file; None if there is none."""
    try:
        return await run.call(store.read, key)
    except AgentMemoryFileNotFoundError:
        return None


async def state_of(
    store: Backend, run: Run, key: Key, when: WriteCondition, missing: type[AgentMemoryError]
) -> WriteWhen:
    """Return a precondition for the backend: the etag of the content for a `SHA256`; raises as `read_expected`."""
    if isinstance(when, SHA256):
        return (await read_expected(store, run, key, when, missing)).etag
    return when


async def read_expected(
    store: Backend, run: Run, key: Key, when: ETag | SHA256, missing: type[AgentMemoryError]
) -> Snapshot:
    """Read a file that must exist and be in the expected state.

    Raises:
        ConflictError: the file is in another state.
        AgentMemoryError: of the type ``missing``: no such file.
    """
    try:
        snapshot = await run.call(store.read, key, when=ANY if isinstance(when, SHA256) else when)
    except AgentMemoryFileNotFoundError:
        raise missing("the file is gone" if missing is ConflictError else "no such file", path=key.path) from None
    if isinstance(when, SHA256) and sha256(snapshot.data) != when.digest:
        raise ConflictError("the content is not the expected content; nothing was written", path=key.path)
    return snapshot


def text_bytes(content: object) -> bytes:
    """Return a text's UTF-8 bytes.

    Raises:
        InvalidContentError: the content is not a str, or contains a lone surrogate.
    """
    if not isinstance(content, str):
        raise InvalidContentError(f"content must be a str, not {type(content).__name__}")
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        raise InvalidContentError(f"content is not valid Unicode: a lone surrogate at position {error.start}") from None


def raw_bytes(content: object) -> bytes:
    """Return the bytes of a bytes-like object; errors as `text_bytes`."""
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidContentError(f"content must be bytes, not {type(content).__name__}")
    return bytes(content)


def content_bytes(content: object) -> bytes:
    """Return the bytes of a text or of a bytes-like object; errors as `text_bytes`."""
    if isinstance(content, str):
        return text_bytes(content)
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidContentError(f"content must be a str or bytes, not {type(content).__name__}")
    return bytes(content)


def decode(key: Key, data: bytes) -> str:
    """Return a file's text; raises `ReadError` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ReadError(f"not UTF-8 text: byte {error.start}; read_bytes() can read it", path=key.path) from None


def sha256(data: bytes) -> str:
    """Return the SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
