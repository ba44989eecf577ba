"""What a tool answers, and how a failure becomes an answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent_memory.errors import AgentMemoryError

MAX_CHARACTERS: Final = 16_000
"""The most characters of content in one answer, the bound of `view`; tools show what fits and say how to go on."""
MAX_AROUND: Final = 4_000
"""The most characters around the content: a header, a path, a hint."""
_log = logging.getLogger("agent_memory")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer to a model.

    Attributes:
        output: the text the model reads.
        is_error: whether the call failed; then ``output`` says why, and nothing was changed unless it says so.
        data: the same answer as a mapping fit for JSON, where the tool has one.
    """

    output: str
    is_error: bool = False
    data: Mapping[str, object] | None = None

    @property
    def status(self) -> Literal["success", "error"]:
        """``is_error`` as seed 003 spells it."""
        return "error" if self.is_error else "success"


class ToolRefusal(Exception):
    """A call that ends with an error result of exactly this text."""


class Malformed(Exception):
    """Arguments that are not what the tool declares."""


async def answered(
    call: Callable[[], Awaitable[ToolResult]], prefix: str = "Error: ", most: int = MAX_CHARACTERS
) -> ToolResult:
    """Run a tool's call; whatever it raises becomes an error result without host paths or content.

    Every tool's answer passes here, errors too, and is bounded: the text, and the JSON of ``data``, have at most
    ``most`` characters of content and `MAX_AROUND` others. A tool cuts its own content and says how to go on; an
    answer that is longer nevertheless is cut here.
    """
    return _bounded(_encodable(await _outcome(call, prefix)), most + MAX_AROUND)


def cut(text: str, most: int = MAX_CHARACTERS + MAX_AROUND) -> str:
    """A text of at most ``most`` characters; if it is cut, it says so."""
    if len(text) <= most:
        return text
    note = f"\n[Cut at {most:,} of {len(text):,} characters: ask for less at once]"
    return text[: max(0, most - len(note))] + note


def _bounded(result: ToolResult, most: int) -> ToolResult:
    data = result.data
    if data is not None and len(json.dumps(data, ensure_ascii=False)) > most:
        data = {"truncated": True}
    if data is result.data and len(result.output) <= most:
        return result
    return replace(result, output=cut(result.output, most), data=data)


async def _outcome(call: Callable[[], Awaitable[ToolResult]], prefix: str) -> ToolResult:
    try:
        return await call()
    except ToolRefusal as refused:
        return ToolResult(str(refused), is_error=True)
    except (Malformed, AgentMemoryError) as error:
        return ToolResult(f"{prefix}{error}", is_error=True)
    except Exception as error:  # noqa: BLE001 - a plugin's, or a fault of ours: the model's session goes on
        _log.exception("a tool's call failed")
        return ToolResult(f"{prefix}the memory failed ({type(error).__name__})", is_error=True)


def _encodable(result: ToolResult) -> ToolResult:
    """The same answer in valid Unicode: JSON of others can hold lone surrogates, which no protocol carries."""
    try:
        result.output.encode()
    except UnicodeEncodeError:
        text = result.output.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return replace(result, output=text)
    return result
