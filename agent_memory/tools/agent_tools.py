"""Three tools for a model: read, write and append to files of a memory, with content in base64."""

from __future__ import annotations

import base64
import json
from pathlib import PurePosixPath
from typing import Final, Generic

from agent_memory.core.sync_facade import step
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.reading.reader import Reader
from agent_memory.tools._model_text import appending, overwriting, shown_part
from agent_memory.tools._protected import EitherMemory, logic_view
from agent_memory.tools._warnings import warning
from agent_memory.tools.arguments import Arguments, Parameter, Parameters, Values, as_mapping, checked, object_schema
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolResult, answered

_HINTS: Final = {".yaml": "YAML", ".yml": "YAML", ".md": "MARKDOWN", ".markdown": "MARKDOWN", ".txt": "TEXT"}
_ALL_HINTS: Final = ("YAML", "MARKDOWN", "TEXT", "UNKNOWN")
_PATH: Final = Parameter("string", "The file, relative to your memory, for example notes/today.md.")
MAX_READ_BYTES: Final = MAX_CHARACTERS * 3 // 4
"""The most bytes of a file in one answer; base64 encodes three bytes as four characters."""
_MAX_OFFSET: Final = 2**62 - 1
_TOOLS: Final[dict[str, tuple[str, Parameters]]] = {
    "read_agent_memory_file": (
        f"Read a file of your memory, {MAX_READ_BYTES:,} bytes at once. A longer file is truncated: "
        "call again with offset set to its next_offset.",
        {
            "file_path": _PATH,
            "offset": Parameter("integer", "The first byte to read, counted from 0; default 0.", required=False),
            "limit": Parameter(
                "integer",
                f"The most bytes to read: 1 to {MAX_READ_BYTES:,}, which is the default.",
                required=False,
            ),
        },
    ),
    "write_agent_memory_file": (
        "Write a file of your memory; its old content is replaced.",
        {
            "file_path": _PATH,
            "content_base64": Parameter("string", "The whole text, UTF-8 in base64."),
            "file_type_hint": Parameter("string", f"One of {', '.join(_ALL_HINTS)}.", required=False),
        },
    ),
    "append_to_agent_memory_file": (
        "Append to a file of your memory; creates a missing file.",
        {
            "file_path": _PATH,
            "content_to_append_base64": Parameter("string", "The text to append, UTF-8 in base64."),
            "ensure_newline_before_append": Parameter(
                "boolean", "Begin on a new line if the file is not empty; default true.", required=False
            ),
        },
    ),
}


class _Tools(Generic[EitherMemory]):
    _kind: type[EitherMemory]

    def __init__(self, memory: EitherMemory, *, history: bool = False, conversation: bool = True) -> None:
        self._memory = logic_view(self._kind, memory, history, conversation)

    @staticmethod
    def tool_definitions() -> list[dict[str, object]]:
        """Name, description and JSON schema of each tool."""
        return [
            {"name": name, "description": description, "input_schema": object_schema(parameters)}
            for name, (description, parameters) in _TOOLS.items()
        ]

    async def _call(self, name: str, arguments: object) -> ToolResult:
        async def run() -> ToolResult:
            if not isinstance(name, str) or name not in _TOOLS:
                raise Malformed(f"there is no such tool; the tools are {', '.join(_TOOLS)}")
            data = await getattr(self, f"_{name}")(checked(as_mapping(arguments), _TOOLS[name][1]))
            return ToolResult(json.dumps(data), data=data)

        return await answered(run)

    async def _read_agent_memory_file(self, values: Values) -> dict[str, object]:
        path = str(values["file_path"])
        offset, limit = _range(values)

        async def part(reader: Reader) -> tuple[bytes, int, int]:
            return *shown_part(await reader.read(offset, offset + limit + 1), offset, limit), reader.size

        try:
            (content, used, size), exists = await self._memory.scan(path, part), True
        except AgentMemoryFileNotFoundError:
            content, used, size, exists = b"", 0, 0, False
        return {
            "file_path_read": path,
            "content_base64": base64.b64encode(content).decode(),
            "file_exists": exists,
            "file_type_hint": _HINTS.get(PurePosixPath(path).suffix.lower(), "UNKNOWN"),
            **_rest(offset, offset + used, size),
        }

    async def _write_agent_memory_file(self, values: Values) -> dict[str, object]:
        if values.get("file_type_hint", "UNKNOWN") not in _ALL_HINTS:
            raise Malformed(f"the parameter `file_type_hint` must be one of {', '.join(_ALL_HINTS)}")
        path, text = str(values["file_path"]), _text(values, "content_base64")
        written = await self._memory.write(path, await overwriting(self._memory, path, text))
        answer: dict[str, object] = {"file_path_written": written.path, "status_message": "File saved successfully."}
        return await self._warned(answer, written, text)

    async def _append_to_agent_memory_file(self, values: Values) -> dict[str, object]:
        path, content = str(values["file_path"]), _text(values, "content_to_append_base64")
        separator = "\n" if values.get("ensure_newline_before_append", True) else ""
        content, separator = await appending(self._memory, path, content, separator)
        written = await self._memory.append(path, content, separator=separator)
        answer: dict[str, object] = {
            "file_path_appended": written.path,
            "status_message": "Content appended successfully.",
        }
        return await self._warned(answer, written)

    async def _warned(
        self, answer: dict[str, object], written: WriteResult, text: str | None = None
    ) -> dict[str, object]:
        """Add a warning to an answer, if there is one."""
        line = await warning(self._memory, written.path, size=written.size, text=text)
        return {**answer, "warning": line} if line else answer


def _range(values: Values) -> tuple[int, int]:
    offset, limit = values.get("offset", 0), values.get("limit", MAX_READ_BYTES)
    if not isinstance(offset, int) or not 0 <= offset <= _MAX_OFFSET:
        raise Malformed(f"the parameter `offset` must be 0 to {_MAX_OFFSET:,}")
    if not isinstance(limit, int) or not 1 <= limit <= MAX_READ_BYTES:
        raise Malformed(f"the parameter `limit` must be 1 to {MAX_READ_BYTES:,}")
    return offset, limit


def _rest(start: int, end: int, size: int) -> dict[str, object]:
    """Describe which part of a file the answer holds, and how to read the rest; empty for a whole file."""
    if end >= size:
        return {"size": size, "truncated": False} if start else {}
    hint = f"bytes {start} to {end} of {size} are here; call again with offset {end} for the next"
    return {"size": size, "truncated": True, "next_offset": end, "hint": hint}


def _text(values: Values, name: str) -> str:
    try:
        encoded = "".join(str(values[name]).split())  # base64 may be wrapped into lines, for example inside XML
        return base64.b64decode(encoded, validate=True).decode()
    except UnicodeDecodeError:
        raise Malformed(f"the parameter `{name}` does not hold UTF-8 text") from None
    except ValueError:
        raise Malformed(f"the parameter `{name}` is not valid base64") from None


class AgentMemoryTools(_Tools[AgentMemory]):
    """``read_agent_memory_file``, ``write_agent_memory_file`` and ``append_to_agent_memory_file`` over one tree.

    Reading a missing file is not an error: the answer has ``file_exists: false`` and empty content.

    Args:
        memory: the tree.
        history: see `MemoryTool`.
        conversation: see `MemoryTool`.
    """

    _kind = AgentMemory

    def call(self, name: str, arguments: Arguments) -> ToolResult:
        """Run one tool by its name; never raises for bad input from a model.

        ``data`` of the result is the payload, and ``output`` is the same payload as JSON.
        """
        return step(self._call(name, arguments))


class AsyncAgentMemoryTools(_Tools[AsyncAgentMemory]):
    """`AgentMemoryTools` for async callers."""

    _kind = AsyncAgentMemory

    async def call(self, name: str, arguments: Arguments) -> ToolResult:
        """See `AgentMemoryTools.call`."""
        return await self._call(name, arguments)
