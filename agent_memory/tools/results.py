"""The result of a tool call, and the conversion of failures into results."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from agent_memory.errors import AgentMemoryError

MAX_CHARACTERS: Final = 16_000
"""The most characters of content in one answer, as in `view`; tools cut longer content and say how to continue."""
MAX_AROUND: Final = 4_000
"""The most characters around the content: a header, a path, a hint."""
_log = logging.getLogger("agent_memory")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer to a model.

    Attributes:
        output: the text the model reads.
        is_error: whether the call failed; then ``output`` says why, and nothing changed unless ``output`` says so.
        data: the same answer as a mapping that JSON can encode; None if the tool has none.
    """

    output: str
    is_error: bool = False
    data: Mapping[str, object] | None = None

    @property
    def status(self) -> Literal["success", "error"]:
        """``is_error`` as a word."""
        return "error" if self.is_error else "success"


class ToolRefusal(Exception):
    """Ends a call with an error result of exactly this text."""


class Malformed(Exception):
    """Arguments that do not match the parameters of the tool."""


async def answered(
    call: Callable[[], Awaitable[ToolResult]], prefix: str = "Error: ", most: int = MAX_CHARACTERS
) -> ToolResult:
    """Run a tool call, and convert every `Exception` to an error result without host paths or content.

    Every answer of a tool passes here, errors included, and is limited: the text, and the JSON of ``data``, have at
    most ``most`` characters of content and `MAX_AROUND` other characters. A tool cuts its own content and says how to
    continue; this function cuts an answer that is still too long.
    """
    return _bounded(_encodable(await _outcome(call, prefix)), most + MAX_AROUND)


def cut(text: str, most: int = MAX_CHARACTERS + MAX_AROUND) -> str:
    """Cut a text to at most ``most`` characters, including a note that it was cut."""
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
    except Exception as error:  # noqa: BLE001 - an error in a plugin or a bug here must not end the model's session
        _log.exception("a tool call failed")
        return ToolResult(f"{prefix}the memory failed ({type(error).__name__})", is_error=True)


def _encodable(result: ToolResult) -> ToolResult:
    """The same answer in valid Unicode: foreign JSON can hold lone surrogates, which no protocol can carry."""
    try:
        result.output.encode()
    except UnicodeEncodeError:
        text = result.output.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return replace(result, output=text)
    return result
