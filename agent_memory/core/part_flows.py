"""The flows that write a file in parts: it is too large for one call, or need not be in memory as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast

from agent_memory.backend import ABSENT, ANY, Backend, ETag, NewOrigin, Parts, ReadWhen, WritesInParts, WriteWhen
from agent_memory.backend._checks import content_sha256
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core.flows import Effect, raw_bytes, state_of, writes_copies, writes_in_parts
from agent_memory.core.precondition import WriteCondition
from agent_memory.errors import ConflictError, InvalidContentError, UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import Run

COPIED_AT_ONCE: Final = 256 << 20
Fill = Callable[[Parts], Awaitable[str | None]]


class Blocks:
    """Content in blocks of any size; ``size`` is the total number of bytes."""

    def __init__(self, blocks: Iterable[bytes], size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InvalidContentError(f"size must be the number of bytes of the content, not {size!r}")
        self._blocks = iter(blocks)
        self._rest = b""
        self._taken = 0
        self.size: Final = size

    def part(self, most: int) -> bytes:
        """Return the next ``most`` bytes: fewer at the end, none after ``size`` bytes.

        Raises:
            InvalidContentError: a block is not bytes, or the content has fewer or more than ``size`` bytes.
        """
        data = self._take(min(most, self.size - self._taken))
        self._taken += len(data)
        if not data and (self._taken != self.size or self._take(1)):
            found = f"{self._taken:,}" if self._taken < self.size else "more"
            raise InvalidContentError(f"the content has {found} bytes, but size is {self.size:,}; nothing was written")
        return data

    def whole(self) -> bytes:
        """Return the whole content; raises as `part`."""
        data = self.part(self.size)
        return data + self.part(1)

    def _take(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size and (block := self._rest or self._next()):
            pieces.append(block[:size])
            self._rest = block[size:]
            size -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next(self) -> bytes:
        """Return the next block that is not empty; an empty block at the end."""
        return next((data for data in map(raw_bytes, self._blocks) if data), b"")


async def write(store: Backend, run: Run, key: Key, blocks: Blocks, when: WriteCondition) -> Effect:
    """Write a file in parts, or in one call if the backend cannot write in parts and the size allows it.

    For an async caller the content is read in a thread.
    """

    async def fill(parts: Parts) -> str:
        digest = hashlib.sha256()
        while data := await run.offload(lambda: blocks.part(parts.part_bytes)):
            digest.update(data)
            await add(run, parts, data)
            del data  # only one part at a time is in memory
        return digest.hexdigest()

    state = await state_of(store, run, key, when, missing=ConflictError)
    try:
        parts = await begin(store, run, key, blocks.size, state)
    except UnsupportedOperationError:
        if blocks.size > store.max_bytes:
            raise
        data = await run.offload(blocks.whole)
        etag = await run.call(store.write, key, data, when=state)
        return Effect(size=len(data), sha256=content_sha256(data, etag), etag=etag)
    return await fill_and_complete(run, parts, blocks.size, fill)


async def copy(
    store: Backend,
    run: Run,
    source: Key,
    target: Key,
    size: int | None = None,
    when: WriteWhen = ABSENT,
    of: ReadWhen = ANY,
    keeps_origin: bool = False,
) -> tuple[Effect, Callable[[], ETag]]:
    """Copy a file in parts, or its first ``size`` bytes; also return a function for the source's etag.

    ``when`` is the state of the target, ``of`` that of the source. A concurrent append to the source is allowed: the
    copy has the bytes from before it. With ``keeps_origin`` it has the origin of the source, because it is a rename.
    """
    _supporting(store, source)  # raises before anything is read
    reader = Reader(store, run, source)
    await reader.read(0, 0)
    etag = cast(ETag, reader.etag)
    if of not in (ANY, etag):
        raise ConflictError("the file changed since it was read; nothing was written", path=source.path)
    size = reader.size if size is None else size

    async def fill(parts: Parts) -> str | None:
        done = 0
        while done < size and await add_copy(run, parts, source, done, min(size, done + COPIED_AT_ONCE), etag):
            done = min(size, done + COPIED_AT_ONCE)
        digest = None if done else hashlib.sha256()
        while done < size:
            data = await _read(reader, source, done, min(size, done + parts.part_bytes), store.max_bytes)
            if digest:
                digest.update(data)
            done += len(data)
            await add(run, parts, data)
            del data
        return digest.hexdigest() if digest else None

    if when is ABSENT and writes_copies(store):
        origin = same_origin(reader.origin) if keeps_origin else None
        parts: Parts = await _call(run, store.write_copy_in_parts, target, size, source, etag, origin)
    else:
        parts = await begin(store, run, target, size, when)
    return await fill_and_complete(run, parts, size, fill), lambda: etag


def same_origin(origin: str | None) -> NewOrigin | None:
    """The origin of a copy that is a file under a new name: what it had."""
    return None if origin is None else lambda _: origin


async def _read(reader: Reader, source: Key, start: int, end: int, most: int) -> bytes:
    """Return the bytes of a part, with reads of at most ``most`` bytes each."""
    found: list[bytes] = []
    while start < end:
        if not (data := await reader.read(start, min(end, start + most))):
            raise ConflictError("the file was rewritten during the copy", path=source.path)
        found.append(data)
        start += len(data)
    return found[0] if len(found) == 1 else b"".join(found)


async def fill_and_complete(run: Run, parts: Parts, size: int, fill: Fill) -> Effect:
    """Let ``fill`` add all bytes, and complete the file; abort it after an error."""
    try:
        digest = await fill(parts)
        etag: ETag = await _call(run, parts.complete)
    except GeneratorExit:
        raise  # the caller's event loop is gone: nothing can be awaited
    except BaseException:
        await run.call(cast("Callable[[], Awaitable[None]]", parts.abort))
        raise
    return Effect(size=size, sha256=digest, etag=etag, files=1)


async def begin(store: Backend, run: Run, key: Key, size: int, when: WriteWhen) -> Parts:
    """Begin to write a file in parts; raises `UnsupportedOperationError` if the backend cannot."""
    parts: Parts = await _call(run, _supporting(store, key).write_in_parts, key, size, when)
    return parts


def _supporting(store: object, key: Key) -> WritesInParts:
    if not writes_in_parts(store):
        most = cast(Backend, store).max_bytes
        raise UnsupportedOperationError(
            f"the file is larger than the limit of {most:,} bytes for one call, "
            "and this backend cannot write a file in parts",
            path=key.path,
        )
    return store


async def add(run: Run, parts: Parts, data: bytes) -> None:
    """Add the next bytes."""
    await _call(run, parts.add, data)


async def add_copy(run: Run, parts: Parts, source: Key, start: int, end: int, etag: ETag) -> bool:
    """Add bytes of another file by the storage's own copy; False if it cannot copy them."""
    return bool(await _call(run, parts.add_copy, source, start, end, etag))


async def _call(run: Run, verb: Callable[..., Any], *args: object) -> Any:
    """Call a verb of an optional protocol, with the operation's time for each call."""
    with renewed_deadline(run.now()):
        return await run.call(verb, *args)
