"""The tools as shown to an MCP client: descriptions, schemas, annotations, instructions."""

from __future__ import annotations

from typing import Any, Final

from mcp.types import Tool, ToolAnnotations

from agent_memory.tools._schema import CommandSchema
from agent_memory.tools._toolset import description_of, table
from agent_memory.tools.arguments import object_schema

INSTRUCTIONS: Final = (
    "A memory that outlives this conversation: text files below /memories. View /memories before you begin, and note "
    "down what will be needed again. Others may change the same files at the same time: str_replace, insert and append "
    "keep their changes. If a path is refused, the answer names one that is allowed."
)
_READING: Final = frozenset({"view", "search", "memory_versions"})
_ADDING: Final = frozenset({"create", "insert", "append"})
_IDEMPOTENT: Final = frozenset({"view", "search", "create", "delete", "rename", "memory_versions", "memory_restore"})
"""Tools without a further effect when called again with the same arguments; the second call may return an error."""

_TEXT: Final = {"type": "string"}
_LINES: Final = {"type": "array", "items": _TEXT}
_MATCH: Final = {"path": _TEXT, "line": {"type": "integer"}, "text": _TEXT, "before": _LINES, "after": _LINES}
_FOUND: Final = {
    "matches": {"type": "array", "items": {"type": "object", "properties": _MATCH, "required": [*_MATCH]}},
    "more": {"type": "boolean", "description": "Whether there are more matches than these."},
}
_GOING_ON: Final = {
    "next": {"type": "string", "description": "If there are more: the value of `after` to continue."},
    "truncated": {"type": "boolean", "description": "Whether lines around the match were left out as too long."},
    "left_out_count": {"type": "integer", "description": "The number of files that could not be searched."},
    "left_out": {"type": "array", "items": {"type": "object"}, "description": "The first of them, with reasons."},
}
_RECORDS: Final[dict[str, dict[str, Any]]] = {
    "search": {"type": "object", "properties": {**_FOUND, **_GOING_ON}, "required": [*_FOUND]}
}
"""The output schemas; the answer of a tool without one is only text."""


def definitions(*, versions: bool) -> list[Tool]:
    """Every tool of `table`, with the hints of MCP's specification.

    A tool is destructive if it does more than add, and idempotent if a second call changes nothing.
    """
    return [_definition(name, schema) for name, schema in table(versions=versions).items()]


def _definition(name: str, schema: CommandSchema) -> Tool:
    return Tool(
        name=name,
        title=f"Memory: {name.removeprefix('memory_')}",
        description=description_of(name, schema),
        input_schema=object_schema(schema.parameters),
        output_schema=_RECORDS.get(name),
        annotations=ToolAnnotations(
            read_only_hint=name in _READING,
            destructive_hint=name not in _READING | _ADDING,
            idempotent_hint=name in _IDEMPOTENT,
            open_world_hint=False,
        ),
    )
