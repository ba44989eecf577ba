"""The memory tool's definition for a model: commands and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from agent_memory.tools.arguments import Parameter, Parameters

DefinitionStyle = Literal["claude", "json_schema"]

_FILE: Final = Parameter("string", "A file below /memories, for example /memories/notes.md.")


@dataclass(frozen=True, slots=True)
class CommandSchema:
    """One command: its description for the model, and its parameters."""

    description: str
    parameters: Parameters


COMMANDS: Final[dict[str, CommandSchema]] = {
    "view": CommandSchema(
        "Show a directory up to two levels deep with sizes, or a text file with line numbers; long files page by "
        "view_range.",
        {
            "path": Parameter("string", "A file or directory: /memories, or something below it."),
            "view_range": Parameter(
                "range", "For files: the first and the last line to show, from 1; -1 is the end.", required=False
            ),
            "line_offset": Parameter(
                "integer",
                "For files: how many characters of the first line to pass over, for a line too long to show at once.",
                required=False,
            ),
        },
    ),
    "create": CommandSchema(
        "Create a text file, and the directories above it.",
        {"path": _FILE, "file_text": Parameter("string", "The whole text of the file.")},
    ),
    "str_replace": CommandSchema(
        "Replace a text that occurs exactly once in a file.",
        {
            "path": _FILE,
            "old_str": Parameter("string", "The text to replace, verbatim, with enough around it to be unique."),
            "new_str": Parameter(
                "string", "The text to put in its place; left out, old_str is deleted.", required=False
            ),
        },
    ),
    "insert": CommandSchema(
        "Insert text after a line of a file.",
        {
            "path": _FILE,
            "insert_line": Parameter("integer", "The number of the line to insert after; 0 is the beginning."),
            "insert_text": Parameter("string", "The text to insert, one line or several."),
        },
    ),
    "delete": CommandSchema(
        "Delete a file, or a directory with all that is in it.",
        {"path": Parameter("string", "The file or directory; not /memories itself.")},
    ),
    "rename": CommandSchema(
        "Rename or move a file or a directory; what exists is never overwritten.",
        {
            "old_path": Parameter("string", "The file or directory to move."),
            "new_path": Parameter("string", "Its new path, which must be free."),
        },
    ),
}
_DESCRIPTION: Final = (
    "Keeps text files in /memories that outlive this conversation. View the directory before you begin, "
    "and note down what will be needed again."
)


def definition(style: DefinitionStyle) -> dict[str, object]:
    """The tool's definition for the Claude API, or with a JSON schema for any other model."""
    if style == "claude":
        return {"type": "memory_20250818", "name": "memory"}
    if style != "json_schema":
        raise ValueError(f"style must be 'claude' or 'json_schema', not {style!r}")
    return {"name": "memory", "description": _DESCRIPTION, "input_schema": _input_schema()}


def _input_schema() -> dict[str, object]:
    told: dict[str, list[str]] = {}
    schemas: dict[str, dict[str, object]] = {}
    for name, command in COMMANDS.items():
        for parameter_name, parameter in command.parameters.items():
            schemas.setdefault(parameter_name, parameter.schema())
            told.setdefault(parameter_name, []).append(f"{name}: {parameter.description}")
    does = " ".join(f"{name}: {command.description}" for name, command in COMMANDS.items())
    properties: dict[str, object] = {"command": {"type": "string", "enum": list(COMMANDS), "description": does}}
    properties |= {name: {**schema, "description": " ".join(told[name])} for name, schema in schemas.items()}
    return {"type": "object", "properties": properties, "required": ["command"], "additionalProperties": False}
