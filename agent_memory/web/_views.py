"""The views of a file: as text, JSON, conversation, rendered Markdown, and as the agent's tool shows it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from agent_memory._json import parse_json
from agent_memory.conversation.messages import Message, parse
from agent_memory.conversation.shapes import NO_TIME
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import MARK
from agent_memory.reading.reader import Reader
from agent_memory.runtime.threads import in_thread
from agent_memory.tools.memory_tool import ROOT, AsyncMemoryTool
from agent_memory.web._lines import LinesPage, ShownLine, lines_page, position_of
from agent_memory.web._markdown import rendered
from agent_memory.web._site import Site

MOST_RENDERED: Final = 64 * 1024
"""The bytes of a file that is rendered as Markdown; a hostile one of this size takes a second."""
_MOST_FORMATTED: Final = 200_000
_LONGEST_MESSAGE: Final = 64 * 1024
_MOST_CHARACTERS: Final = 20_000
_HEX_ROW: Final = 16


class MessageLine(NamedTuple):
    """A line of a history, and its message; None if the line is not one."""

    line: ShownLine
    message: Message | None

    @property
    def text(self) -> str:
        """The beginning of the message's text."""
        return self.message.content[:_MOST_CHARACTERS] if self.message else self.line.text

    @property
    def time(self) -> float | None:
        """The time of the message in POSIX seconds; None if its line has none."""
        if self.message is None or self.message.timestamp == NO_TIME:
            return None
        try:
            return self.message.timestamp.timestamp()
        except (ValueError, OverflowError):  # a local time in the year 1
            return None

    @property
    def rest(self) -> int:
        """How many characters follow."""
        return len(self.message.content) - len(self.text) if self.message else self.line.rest

    @property
    def calls(self) -> str:
        """The tool calls of the message as JSON."""
        found = self.message.tool_calls if self.message else None
        return json.dumps(found, ensure_ascii=False, indent=1)[:_MOST_CHARACTERS] if found else ""


async def text_view(site: Site, memory: AsyncAgentMemory, path: str, at: int, line: int) -> dict[str, Any]:
    """The lines at a position; or, without one, those around the line with a number."""
    del site
    page = await memory.scan(path, partial(_page_at, at=at, line=line, longest=None))
    return {"page": page, "hex_rows": () if page.is_text else hex_rows(page)}


async def _page_at(reader: Reader, *, at: int, line: int, longest: int | None) -> LinesPage:
    if not at and line > 1:
        at, line = await position_of(reader, line)
    number = line if at else 1
    return await (lines_page(reader, at, number, longest) if longest else lines_page(reader, at, number))


def hex_rows(page: LinesPage) -> list[tuple[int, str, str]]:
    """The first bytes of a page as rows: the position, the bytes in hexadecimal, and as ASCII."""
    rows = []
    for begin in range(0, len(page.head), _HEX_ROW):
        data = page.head[begin : begin + _HEX_ROW]
        shown = "".join(chr(byte) if chr(byte).isprintable() and byte < 127 else "." for byte in data)
        rows.append((page.start + begin, data.hex(" "), shown))
    return rows


async def conversation_view(site: Site, memory: AsyncAgentMemory, path: str, at: int, line: int) -> dict[str, Any]:
    """The lines at a position as messages."""
    del site
    page = await memory.scan(path, partial(_page_at, at=at, line=line, longest=_LONGEST_MESSAGE))
    rows = [MessageLine(each, None if each.rest else parse(each.data)) for each in page.lines if each.data.strip()]
    return {"page": page, "rows": rows}


async def json_view(site: Site, memory: AsyncAgentMemory, path: str, at: int, line: int) -> dict[str, Any]:
    """The file as formatted JSON; ``problem`` says why it is not."""
    del site, at, line
    data, reason = await _small(memory, path, "formatted", _MOST_FORMATTED)
    if reason:
        return {"problem": reason}
    return await in_thread(lambda: _formatted(data))


def _formatted(data: bytes) -> dict[str, Any]:
    try:
        text = json.dumps(parse_json(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return {"problem": "This is not JSON."}
    return {"problem": "", "lines": text[: 5 * _MOST_FORMATTED].split("\n")}


async def markdown_view(site: Site, memory: AsyncAgentMemory, path: str, at: int, line: int) -> dict[str, Any]:
    """The file as rendered Markdown; ``problem`` says why it is not."""
    del at, line
    data, reason = await _small(memory, path, "rendered", MOST_RENDERED)
    if reason:
        return {"problem": reason}
    text = data.removeprefix(MARK).decode(errors="replace")
    async with site.large:  # rendering takes the processor
        return {"problem": "", "prose": await in_thread(lambda: rendered(text))}


async def _small(memory: AsyncAgentMemory, path: str, what: str, most: int) -> tuple[bytes, str]:
    """The bytes of a file, and ""; or why they are not shown in this way."""

    async def read(reader: Reader) -> tuple[bytes, int]:
        return await reader.read(0, most), reader.size

    data, size = await memory.scan(path, read)
    return data, f"Files of more than {most:,} bytes are not {what}." if size > len(data) else ""


async def agent_view(site: Site, memory: AsyncAgentMemory, path: str, at: int, line: int) -> dict[str, Any]:
    """The exact answer of the memory tool."""
    del at, line
    async with site.large:  # the tool reads whole files
        answer = await AsyncMemoryTool(memory).call({"command": "view", "path": f"{ROOT}/{path}"})
    return {"answer": answer}


View = Callable[[Site, AsyncAgentMemory, str, int, int], Awaitable[dict[str, Any]]]
VIEWS: Final[Mapping[str, View]] = {
    "text": text_view, "json": json_view, "conversation": conversation_view, "markdown": markdown_view,
    "agent": agent_view,
}  # fmt: skip
"""The views by the name in the address."""


def views_of(path: str) -> list[str]:
    """The views that a file of this name has, the first one unasked."""
    name = path.rpartition("/")[2].lower()
    if name.endswith(".jsonl"):
        return ["conversation", "text", "agent"] if name == "history.jsonl" else ["text", "conversation", "agent"]
    if name.endswith(".json"):
        return ["text", "json", "agent"]
    return ["text", "markdown", "agent"] if name.endswith((".md", ".markdown")) else ["text", "agent"]
