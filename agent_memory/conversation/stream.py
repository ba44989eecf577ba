"""A history in batches: a separate operation reads each batch and checks that it continues the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_memory.conversation.messages import Message, Skipped
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import lines_at
from agent_memory.reading.reader import Reader

_MARK = 1024


class Batch(NamedTuple):
    """Some messages; the next batch begins at offset ``end``, directly after the bytes ``mark``."""

    messages: Sequence[Message] = ()
    end: int = 0
    mark: bytes = b""


async def next_batch(
    memory: AsyncAgentMemory, path: str, last: Batch, skipped: Skipped, *, system: bool
) -> Batch | None:
    """Read the batch after ``last``; None at the end of the file, or before the first batch if there is no file.

    Raises:
        ConflictError: the file was rewritten or deleted after ``last`` was read.
    """

    async def work(reader: Reader) -> Batch | None:
        if last.mark and await reader.read(last.end - len(last.mark), last.end) != last.mark:
            raise ConflictError("the file was rewritten while it was read", path=path)
        lines = await lines_at(reader, last.end)
        if lines is None:
            return None
        if lines.too_long:
            skipped.add(lines.too_long)
        messages = [message for line in lines.data.split(b"\n") if (message := skipped.parse(line, system=system))]
        begin = max(lines.start, lines.end - _MARK)
        mark = lines.data[-_MARK:] if lines.data else await reader.read(begin, lines.end)
        return Batch(messages, lines.end, mark)

    try:
        return await memory.scan(path, work)
    except AgentMemoryFileNotFoundError:
        if last.end:
            raise ConflictError("the file was deleted while it was read", path=path) from None
        return None
