"""File objects: one reads in ranges, the others buffer all written data until they are closed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, cast

from fsspec.compression import compr
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from agent_memory.backend import ETag
from agent_memory.backend.helpers import Uncopied
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader

BLOCK = 4 * 2**20
"""The most bytes that one request of a read in ranges asks for."""
_HEAD = 256 * 2**10
_MARK = 1024


class _Opened(NamedTuple):
    """A file's state when it was opened; ``tail`` and ``etag`` only if the file is longer than the head."""

    size: int
    head: bytes
    tail: bytes = b""
    etag: ETag | None = None


class RangedFile(Uncopied, AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A file read in ranges, each one operation, through one of fsspec's caches.

    Opening reads the beginning of the file, which is the whole of a small file. All reads see one state of the file:
    if it changed after it was opened, except by appends, reading raises `ConflictError`.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        memory: AgentMemory,
        path: str,
        block_size: int | None,
        cache_type: str,
        cache_options: dict[str, Any] | None,
    ) -> None:
        self._memory = memory
        self._opened = memory.scan(path, _opened)
        self._etag = self._opened.etag
        super().__init__(
            fs,
            path,
            block_size=cast(Any, block_size or self.DEFAULT_BLOCK_SIZE),
            cache_type=cache_type,
            cache_options=cache_options,
            size=self._opened.size,
        )
        self.details = {"name": path, "size": self._opened.size, "type": "file"}

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self._opened.size)  # some of fsspec's caches ask for more
        head = self._opened.head[start:end]
        start += len(head)
        if start >= end:
            return head
        try:
            return head + self._memory.scan(self.path, lambda reader: self._rest(reader, start, end))
        except AgentMemoryFileNotFoundError:
            raise ConflictError("the file was deleted while it was read", path=self.path) from None

    async def _rest(self, reader: Reader, start: int, end: int) -> bytes:
        size, _, tail, _ = self._opened
        parts = [await reader.read(start, min(end, start + BLOCK))]
        changed = reader.etag != self._etag and reader.size <= size
        while not changed and (start := start + len(parts[-1])) < end:
            parts.append(await reader.read(start, min(end, start + BLOCK)))
        if changed or (reader.etag != self._etag and await reader.read(size - len(tail), size) != tail):
            raise ConflictError("the file was rewritten while it was read", path=self.path)
        self._etag = reader.etag
        return b"".join(parts)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


async def _opened(reader: Reader) -> _Opened:
    head = await reader.read(0, _HEAD)
    if len(head) == reader.size:
        return _Opened(reader.size, head)
    tail = await reader.read(reader.size - _MARK, reader.size)  # an append does not move it
    return _Opened(reader.size, head, tail, reader.etag)


async def sliced(reader: Reader, start: int | None, end: int | None) -> bytes:
    """The bytes ``[start:end]`` of a file, with the meaning of a Python slice."""
    if start is not None and start < 0 and end is None:
        return await reader.read_tail(-start)
    if start is None or start < 0 or end is None or end < 0:
        await reader.read(0, 0)  # sets the reader's size
        start, end, _ = slice(start, end).indices(reader.size)
    return await reader.read(start, max(start, end))


class PendingFile(Uncopied, io.BufferedIOBase):
    """A file for writing: buffers all written data, and saves it in one operation when it is closed.

    If its ``with`` block raises, or it is never closed, it saves nothing. ``flush`` makes nothing visible. It refers to
    its filesystem, which therefore stays open.
    """

    def __init__(self, fs: AbstractFileSystem, path: str, mode: str, save: Callable[[bytes], object]) -> None:
        self.fs = fs
        self.path = path
        self.mode = mode
        self._save = save
        self._buffer = io.BytesIO()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.mode != "ab"  # the position of an append is known only afterwards

    def write(self, data: Any, /) -> int:
        return self._file().write(data)

    def tell(self) -> int:
        """The position; in an append, relative to the appended data."""
        return self._file().tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._seekable().seek(offset, whence)

    def truncate(self, size: int | None = None, /) -> int:
        return self._seekable().truncate(size)

    def close(self) -> None:
        if not self.closed:
            super().close()
            content, self._buffer = self._buffer.getvalue(), io.BytesIO()  # the closed file keeps no content
            self._save(content)

    def discard(self) -> None:
        """Close the file and discard the written data."""
        self._buffer = io.BytesIO()
        super().close()

    def _file(self) -> io.BytesIO:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        return self._buffer

    def _seekable(self) -> io.BytesIO:
        if not self.seekable():
            raise io.UnsupportedOperation("a file opened for append cannot seek")
        return self._file()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close() if kind is None else self.discard()

    def __del__(self) -> None:
        if not self.closed:
            self.discard()
            warnings.warn(f"{self.path!r} was never closed: nothing was written", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} {self.mode!r}>"


class PendingText(Uncopied, io.TextIOWrapper):
    """A `PendingFile` for text."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close() if kind is None else self._pending.discard()

    def __del__(self) -> None:
        with suppress(ValueError, AttributeError):  # never initialized, or detached
            self._pending.__del__()

    @property
    def _pending(self) -> PendingFile:
        return cast(PendingFile, self.buffer)


def pending_text(file: PendingFile, options: dict[str, Any]) -> PendingText:
    """Open a text file over a file; invalid options discard the file."""
    try:
        return PendingText(cast(Any, file), **options)
    except BaseException:
        file.discard()
        raise


def compressed(data: bytes, compression: str) -> bytes:
    """Compress the data with one of fsspec's codecs."""
    out = _Unclosed()
    with cast(Any, compr)[compression](out, mode="w") as file:
        file.write(data)
    return out.getvalue()


class _Unclosed(io.BytesIO):
    def close(self) -> None:
        return  # some codecs close their output, others do not
