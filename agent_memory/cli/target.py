"""The memory that files are copied to: each file once, compared before it is written."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Final, NamedTuple

from agent_memory.backend import ABSENT, ANY, Backend, ETag
from agent_memory.cli.folder import Blocks
from agent_memory.errors import FileAlreadyExistsError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory
from agent_memory.reading.reader import Reader

_LARGE: Final = 5 << 20


class Target:
    """A memory that receives files; files with equal content are not written again. In a dry run nothing is written."""

    def __init__(self, memory: AgentMemory, *, overwrite: bool, dry_run: bool) -> None:
        self._memory = memory
        self._overwrite = overwrite
        self._dry_run = dry_run
        self._large = threading.Lock()
        self._sizes = {entry.path: entry.size for entry in memory.list()}

    def put(self, path: str, size: int, blocks: Blocks, *, grows: bool = False) -> bool:
        """Write a file of ``size`` bytes, or in a dry run nothing; False if it exists with the same content.

        ``blocks`` is called to compare and to write; each call gives the content from the beginning. Only one large
        file is written at a time, so that the use of RAM does not grow with the number of threads. With ``grows``, a
        stored file that begins with the content counts as the same, and one that is the beginning of the content gets
        the rest as one append, up to 50 MB.

        Raises:
            ConflictError: the file was changed between the comparison and the append.
            FileAlreadyExistsError: the file exists with other content, and ``overwrite`` is not set.
        """
        with self._large if size > _LARGE else nullcontext():
            known = self._sizes.get(path)
            stored = self._compare(path, blocks) if known == size or (grows and known is not None) else None
            if stored and (stored.size == size or (grows and stored.size > size)):
                return False
            part = stored if grows and size <= Backend.max_bytes else None
            if known is not None and not (self._overwrite or part):
                raise FileAlreadyExistsError("a file with other content exists", path=path)
            if self._dry_run:
                Key.tree().join(path)  # refuses an invalid name
            elif part and part.etag:
                self._memory.append(path, _rest(blocks(), part.size), when=part.etag)
            else:
                self._memory.write_blocks(path, blocks(), size, when=ANY if self._overwrite else ABSENT)
            return True

    def _compare(self, path: str, blocks: Blocks) -> _StoredState | None:
        """The state of a stored file that has the content, begins with it or is its beginning; None for another."""

        async def state(reader: Reader) -> _StoredState | None:
            first: ETag | None = None
            at = 0
            for block in blocks():
                found = await reader.read(at, at + len(block))
                first = first or reader.etag  # a later etag could include appends
                if not block.startswith(found):
                    return None
                at += len(block)
                if at >= reader.size:
                    break
            return _StoredState(reader.size, first)

        return self._memory.scan(path, state)


class _StoredState(NamedTuple):
    size: int
    etag: ETag | None


def _rest(blocks: Iterable[bytes], start: int) -> bytes:
    rest = bytearray()
    for block in blocks:
        rest += block[start:]
        start = max(0, start - len(block))
    return bytes(rest)
