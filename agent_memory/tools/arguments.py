"""Arguments of a tool call, checked against the parameters that the tool declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agent_memory._json import parse_json
from agent_memory.tools.results import Malformed

JsonType = Literal["string", "integer", "boolean", "range"]
Values = dict[str, object]
Arguments = Mapping[str, object] | str
"""The arguments from a model: an object, or its JSON text."""

_SHOWN = 100
_TOO_LARGE = 10**1000  # Python refuses to print an integer of more than 4,300 digits
_WORDS: dict[JsonType, str] = {
    "string": "text",
    "integer": "an integer",
    "boolean": "true or false",
    "range": "a list of two integers, [start, end]",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its JSON type, its description for the model, and whether it is required."""

    type: JsonType
    description: str
    required: bool = True

    def schema(self) -> dict[str, object]:
        """The JSON schema of this parameter."""
        if self.type != "range":
            return {"type": self.type, "description": self.description}
        items = {"type": "integer"}
        return {"type": "array", "items": items, "minItems": 2, "maxItems": 2, "description": self.description}


Parameters = Mapping[str, Parameter]


def object_schema(parameters: Parameters) -> dict[str, object]:
    """The JSON schema of an object with these parameters and no others."""
    return {
        "type": "object",
        "properties": {name: parameter.schema() for name, parameter in parameters.items()},
        "required": [name for name, parameter in parameters.items() if parameter.required],
        "additionalProperties": False,
    }


def as_mapping(arguments: object) -> Mapping[str, object]:
    """Convert the arguments of a call, a mapping or its JSON text, to a mapping.

    Raises:
        Malformed: the arguments are neither.
    """
    if isinstance(arguments, str | bytes):
        try:
            arguments = parse_json(arguments)
        except ValueError:
            raise Malformed("the arguments are not valid JSON") from None
    if not isinstance(arguments, Mapping):
        raise Malformed(f"the arguments are an object, not {type(arguments).__name__}")
    return arguments


def checked(arguments: Mapping[str, object], parameters: Parameters) -> Values:
    """Select the declared arguments and check their types; null counts as absent, undeclared arguments are ignored.

    Raises:
        Malformed: an argument is missing or has the wrong type; the text names it and the allowed type.
    """
    values: Values = {}
    for name, parameter in parameters.items():
        value = arguments.get(name)
        if value is None:
            if parameter.required:
                raise Malformed(f"the parameter `{name}` is missing; it must be {_WORDS[parameter.type]}")
        elif not _fits(value, parameter.type):
            raise Malformed(f"the parameter `{name}` must be {_WORDS[parameter.type]}, not {type(value).__name__}")
        else:
            values[name] = value
    return values


def shown(text: str, limit: int = _SHOWN) -> str:
    """Prepare untrusted text for a message: cut it to ``limit`` characters, and escape it unless it is printable."""
    cut = text if len(text) <= limit else text[:limit] + "..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def _fits(value: object, wanted: JsonType) -> bool:
    if wanted == "string":
        return isinstance(value, str)
    if wanted == "boolean":
        return isinstance(value, bool)
    if wanted == "integer":
        return _is_integer(value)
    return isinstance(value, list | tuple) and all(_is_integer(item) for item in value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _TOO_LARGE
