"""The logic of every operation, written once for sync and async callers.

A flow is an async function over a `Backend` and a `Run`. It awaits only its run, which calls the backend's
primitives. So it can run without an event loop, and a simulator can interleave many flows at every primitive. A
conflict with another writer is normal: `_until_won` is the only place that retries it, until the deadline.
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
    Appended,
    Appends,
    AppendWhen,
    Backend,
    ChecksCapabilities,
    Entry,
    Erases,
    MovesFiles,
    MovesTrees,
    Snapshot,
    Version,
    WritesInParts,
    content_sha256,
    deadline_or_default,
    joined,
    not_found,
    refuse_larger,
)
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AppendError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidContentError,
    ReadError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.runtime.run import Run

T = TypeVar("T")
ApplyFilters = Callable[[bytes], Awaitable[bytes]]

_FIRST_DELAY = 0.01
_LONGEST_DELAY = 0.5
_MOST_CLASHES = 2


@dataclass(slots=True)  # not frozen: creation would take three times as long, and every operation makes one
class Effect:
    """The result of an operation; None if not known without extra cost. Sizes in bytes, digests hexadecimal SHA-256.

    ``before_sha256`` is the digest of the old content, if the operation read it; ``sha256`` of the written content.
    """

    size: int | None = None
    sha256: str | None = None
    before_sha256: str | None = None
    version: Version | None = None
    attempts: int = 1
    data: bytes = b""
    text: str = ""
    entries: tuple[Entry, ...] = ()
    files: int | None = None
    skipped: int = 0


async def read(store: Backend, run: Run, key: Key) -> Effect:
    """Read a whole file."""
    snapshot = await run.call(store.read, key)
    return Effect(data=snapshot.data, size=snapshot.size)


async def read_text(store: Backend, run: Run, key: Key) -> Effect:
    """Read a whole file that must be UTF-8."""
    snapshot = await run.call(store.read, key)
    return Effect(text=_decode(key, snapshot.data), size=snapshot.size)


async def stat(store: Backend, run: Run, key: Key) -> Effect:
    """Return a file's entry."""
    entry = await run.call(store.stat, key)
    return Effect(entries=(entry,), size=entry.size, version=entry.version)


async def exists(store: Backend, run: Run, key: Key) -> Effect:
    """Return a file's entry, or an effect without entries if there is no file."""
    try:
        return await stat(store, run, key)
    except AgentMemoryFileNotFoundError:
        return Effect()


async def write(store: Backend, run: Run, key: Key, data: bytes, expected: str | None) -> Effect:
    """Replace or create a file; with ``expected``, only if its content has that SHA-256."""
    refuse_larger(key, len(data), store.max_bytes)
    if expected is None:
        version = await run.call(store.write, key, data)
        return Effect(size=len(data), sha256=content_sha256(data, version), version=version)
    snapshot = await _read_expected(store, run, key, expected, missing=ConflictError)
    version = await run.call(store.write, key, data, when=snapshot.version)
    return Effect(size=len(data), sha256=content_sha256(data, version), before_sha256=expected, version=version)


async def create(store: Backend, run: Run, key: Key, data: bytes) -> Effect:
    """Write a file that must not exist yet."""
    refuse_larger(key, len(data), store.max_bytes)
    version = await run.call(store.write, key, data, when=ABSENT)
    return Effect(size=len(data), sha256=content_sha256(data, version), version=version)


async def append(
    store: Backend,
    run: Run,
    key: Key,
    data: bytes,
    *,
    separator: bytes = b"",
    when: AppendWhen = ANY,
    expected: str | None = None,
) -> Effect:
    """Append to a file: in place if the backend supports it, otherwise by compare-and-swap."""
    refuse_larger(key, len(data), store.max_bytes)
    if expected is not None:
        return await _append_once(store, run, key, data, separator, expected)
    if appends(store):
        in_place = cast("Callable[..., Awaitable[Appended]]", store.append)  # quoted: else created on each call
        appended = await run.call(in_place, key, data, separator=separator, when=when)
        return Effect(size=appended.size, sha256=sha256(data), version=appended.version)

    try:
        return await _append_by_swapping(store, run, key, data, separator, when)
    except (ReadError, WriteError) as error:
        raise AppendError(str(error)) from error


def appends(store: Any) -> TypeGuard[Appends]:
    """Whether a backend appends in place."""
    return _supports(cast(Any, type(store)), Appends)


def checks_capabilities(store: Any) -> TypeGuard[ChecksCapabilities]:
    """Whether a backend tests the capabilities of its server."""
    return _supports(cast(Any, type(store)), ChecksCapabilities)


def moves_trees(store: Any) -> TypeGuard[MovesTrees]:
    """Whether a backend moves and deletes whole directories."""
    return _supports(cast(Any, type(store)), MovesTrees)


def moves_files(store: Any) -> TypeGuard[MovesFiles]:
    """Whether a backend renames a file in one step."""
    return _supports(cast(Any, type(store)), MovesFiles)


def writes_in_parts(store: Any) -> TypeGuard[WritesInParts]:
    """Whether a backend writes files of any size, in parts."""
    return _supports(cast(Any, type(store)), WritesInParts)


def erases(store: Any) -> TypeGuard[Erases]:
    """Whether a backend erases all data of a file, such as earlier versions."""
    return _supports(cast(Any, type(store)), Erases)


@cache  # issubclass with a protocol is slow
def _supports(backend: Any, protocol: Any) -> bool:
    return issubclass(backend, protocol)


async def _append_by_swapping(
    store: Backend, run: Run, key: Key, data: bytes, separator: bytes, when: AppendWhen
) -> Effect:
    clashes = 0

    async def attempt() -> Effect:
        nonlocal clashes
        before = await _read_if_present(store, run, key)
        if before is None and when is PRESENT:
            raise not_found(key)
        try:
            return await _write_appended(store, run, key, before, data, separator)
        except FileAlreadyExistsError as error:  # another writer created the file, or the name is a directory
            clashes += not (await exists(store, run, key)).entries
            if clashes > _MOST_CLASHES:
                raise
            raise ConflictError("another writer created the file", path=key.path) from error

    return await _until_won(store, run, key, attempt)


async def _append_once(store: Backend, run: Run, key: Key, data: bytes, separator: bytes, expected: str) -> Effect:
    before = await _read_expected(store, run, key, expected, missing=ConflictError)
    return await _write_appended(store, run, key, before, data, separator)


async def _write_appended(
    store: Backend, run: Run, key: Key, before: Snapshot | None, data: bytes, separator: bytes
) -> Effect:
    old = before.data if before else b""
    whole = joined(old, separator, data)
    refuse_larger(key, len(whole), store.max_bytes)
    version = await run.call(store.write, key, whole, when=before.version if before else ABSENT)
    return Effect(
        size=len(whole),
        sha256=sha256(data),
        before_sha256=sha256(old) if before else None,
        version=version,
    )


async def edit(
    store: Backend, run: Run, key: Key, change: Callable[[str], str], apply_filters: ApplyFilters, expected: str | None
) -> Effect:
    """Replace a file's text by a pure function of it; retry with the new text if another writer was faster."""

    async def attempt() -> Effect:
        before = await _read_expected(store, run, key, expected, missing=AgentMemoryFileNotFoundError)
        digest = sha256(before.data)
        text = _decode(key, before.data)
        try:
            changed = change(text)
        except ConflictError as error:  # raised by the caller's function: not a conflict to retry
            raise _ChangeRaisedError(error) from error
        unchanged = Effect(size=before.size, sha256=digest, before_sha256=digest, version=before.version)
        if changed == text:
            return unchanged
        data = await apply_filters(text_bytes(changed))
        if data == before.data:
            return unchanged
        refuse_larger(key, len(data), store.max_bytes)
        version = await run.call(store.write, key, data, when=before.version)
        return Effect(size=len(data), sha256=content_sha256(data, version), before_sha256=digest, version=version)

    try:
        return await (_until_won(store, run, key, attempt) if expected is None else attempt())
    except _ChangeRaisedError as carrier:
        raise carrier.error from None


class _ChangeRaisedError(Exception):
    def __init__(self, error: ConflictError) -> None:
        super().__init__()
        self.error = error


async def delete(store: Backend, run: Run, key: Key, expected: str | None) -> Effect:
    """Delete a file; with ``expected``, only if its content has that SHA-256."""
    if expected is None:
        await run.call(store.delete, key)
        return Effect(files=1)
    snapshot = await _read_expected(store, run, key, expected, missing=AgentMemoryFileNotFoundError)
    await run.call(store.delete, key, when=snapshot.version)
    return Effect(files=1, before_sha256=expected)


async def _until_won(store: Backend, run: Run, key: Key, attempt: Callable[[], Awaitable[Effect]]) -> Effect:
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


async def _read_if_present(store: Backend, run: Run, key: Key) -> Snapshot | None:
    try:
        return await run.call(store.read, key)
    except AgentMemoryFileNotFoundError:
        return None


async def _read_expected(
    store: Backend, run: Run, key: Key, expected: str | None, missing: type[AgentMemoryError]
) -> Snapshot:
    snapshot = await _read_if_present(store, run, key)
    if snapshot is None:
        raise missing("no such file", path=key.path)
    if expected is not None and sha256(snapshot.data) != expected:
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


def _decode(key: Key, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ReadError(f"not UTF-8 text: byte {error.start}; read_bytes() can read it", path=key.path) from None


def sha256(data: bytes) -> str:
    """Return the SHA-256 as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
