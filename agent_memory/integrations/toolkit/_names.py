"""Any texts as names of files, the texts of names that an adapter made, and names in place of refused ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from agent_memory.core.one_file import fails_alone
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidContentError,
    InvalidPathError,
    ReadError,
)
from agent_memory.integrations.toolkit._files import warn_left_out
from agent_memory.key import RULES, decode_segment, encode_segment, segments
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._each_file import LeftOut, reason_of

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


async def known_text(memory: AsyncAgentMemory, segment: str, suffix: str = "") -> str | None:
    """Return the text of a segment.

    None if another program made the name, or, with a warning, if the record of the text cannot be read.
    """
    try:
        return await segment_text(memory, segment, suffix)
    except (InvalidPathError, AgentMemoryFileNotFoundError):
        return None
    except AgentMemoryError as error:
        if not fails_alone(error):
            raise
        warn_left_out([LeftOut(segment, reason_of(error))])
        return None


class PathTexts:
    """The texts of paths whose segments `record_segment` made; each segment is decoded once.

    Args:
        memory: the tree of the files.
        suffix: the end of the name of a file, which is decoded without it.
        is_valid: whether an adapter makes a segment without a suffix from a text; None: from all texts.
    """

    def __init__(self, memory: AsyncAgentMemory, suffix: str, is_valid: Callable[[str], bool] | None = None) -> None:
        self._memory = memory
        self._suffix = suffix
        self._is_valid = is_valid
        self._known: dict[tuple[str, str], str | None] = {}

    async def of(self, path: str, *, is_file: bool = True) -> tuple[str, ...] | None:
        """Return the texts of a path, () for an empty path; None if the adapter made no such path."""
        *directories, name = path.split("/")
        texts = [await self._text(segment, "") for segment in directories]
        texts += [await self._text(name, self._suffix if is_file else "")] if path else []
        found = tuple(text for text in texts if text is not None)
        return found if len(found) == len(texts) else None

    async def _text(self, segment: str, suffix: str) -> str | None:
        if (segment, suffix) not in self._known:
            text = await known_text(self._memory, segment, suffix)
            is_valid = suffix or text is None or self._is_valid is None or self._is_valid(text)
            self._known[segment, suffix] = text if is_valid else None
        return self._known[segment, suffix]


def refusal(error: AgentMemoryError) -> str:
    """Return why a path was refused, and names in place of those that were refused; never a path.

    The paths that a framework shows a model may differ from those of the memory: by a route, or by a scope that a model
    must not see.
    """
    if not isinstance(error, InvalidPathError) or error.rule not in RULES:
        return f"{error.args[0]}; use a different name"
    return f"{RULES[error.rule]}; {_advice(error)}"


def _advice(error: InvalidPathError) -> str:
    if not error.suggestion:
        return "use a different name"
    given, better = error.refused[1:-1].split("/"), error.suggestion.split("/")
    changed = [(old, new) for old, new in zip(given, better, strict=False) if old != ascii(new)[1:-1]]
    if len(given) != len(better) or not changed or error.refused.endswith("..."):
        return f"use the name '{better[-1]}'"
    return "; ".join(f"in place of '{old}' use '{new}'" for old, new in changed)
