"""Records the texts of path segments that contain only a digest; exported by `agent_memory.integrations.toolkit`."""

from __future__ import annotations

import hashlib
from typing import Final

from agent_memory.errors import FileAlreadyExistsError, InvalidContentError, InvalidPathError, ReadError
from agent_memory.key import decode_segment, encode_segment, segments
from agent_memory.memory import AsyncAgentMemory

_TEXTS: Final = ".texts"
"""The directory of the texts whose path segment contains only their digest."""


async def record_segment(memory: AsyncAgentMemory, text: str, suffix: str = "") -> str:
    """Encode any text as `agent_memory.encode_segment` does; if its segment is hashed, store the text in the memory.

    The file is ``.texts/<SHA-256>``. It is created once, by one operation.

    Raises:
        InvalidContentError: a plugin changes the text, so its segment cannot be recorded.
    """
    segment = encode_segment(text, suffix)
    if digest := segments.hashed_digest(segment.removesuffix(suffix)):
        try:
            result = await memory.create(f"{_TEXTS}/{digest}", segments.to_bytes(text))
        except FileAlreadyExistsError as error:
            if error.taken_by != "file":  # else it was recorded before
                raise
        else:
            if result.sha256 != digest:
                raise InvalidContentError("a plugin changes this text, so its segment cannot be recorded")
    return segment


async def segment_text(memory: AsyncAgentMemory, segment: str, suffix: str = "") -> str:
    """Return the text of a segment that `agent_memory.encode_segment` or `record_segment` made.

    Raises:
        InvalidPathError: no text has this segment.
        AgentMemoryFileNotFoundError: the segment is hashed, and its text is not recorded in this tree.
    """
    try:
        return decode_segment(segment, suffix)
    except InvalidPathError as error:
        if error.rule != "hashed":
            raise
    digest = segments.hashed_digest(segment.removesuffix(suffix))
    data = await memory.read_bytes(f"{_TEXTS}/{digest}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise ReadError("the record of a segment's text has been changed", path=f"{_TEXTS}/{digest}")
    return segments.to_text(data)
