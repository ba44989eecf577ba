"""A message of a history, and its line in ``history.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from agent_memory._json import MOST_LEVELS, parse_json, refuse_constant
from agent_memory.conversation.shapes import FIELDS, OPTIONAL, message_fields
from agent_memory.errors import InvalidContentError
from agent_memory.reading.lines import MARK, MAX_LINE

_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_TEXT_OR_NONE: Final = frozenset({str, type(None)})
_PREVIEW = 80


def _now() -> datetime:
    return datetime.now(tz=UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: the speaker: ``user``, ``assistant``, ``tool``, ...
        content: the text.
        timestamp: the time of the message; without a zone it is local time; `NO_TIME` if its line has none.
        tool_calls: mappings of ``id``, ``name`` and ``arguments``.
        tool_call_id: the id of the call that this message answers.
        reasoning_content: the reasoning of the model.
        channel: the channel of the message.
        sender_id: the sender's id in this channel.
        extra: unknown fields of other programs, preserved unchanged.
    """

    role: str
    content: str = ""
    timestamp: datetime = field(default_factory=_now)
    tool_calls: Sequence[Mapping[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    channel: str | None = None
    sender_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """The message's fields as in its line, without fields that are None."""
        found = ((name, getattr(self, name)) for name in OPTIONAL)
        values = {
            **self.extra,
            "role": self.role,
            "content": self.content,
            "timestamp": self.timestamp.isoformat(),
            **{name: value for name, value in found if value is not None},
        }
        return {name: values.pop(name) for name in FIELDS if name in values} | values

    def to_line(self) -> str:
        """The message as one line of JSON, without its newline.

        Raises:
            InvalidContentError: the message cannot be encoded as JSON (``tool_calls`` or ``extra`` hold another type
                of value), has no role, holds lone surrogates, or its line would be longer than `MAX_LINE`.
        """
        try:
            line = json.dumps(self.to_mapping(), ensure_ascii=False, allow_nan=False)
            size = len(line.encode())
        except UnicodeEncodeError:
            raise InvalidContentError("the message holds lone surrogates, which UTF-8 cannot encode") from None
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise InvalidContentError(f"the message cannot be encoded as JSON: {type(error).__name__}") from None
        if size > MAX_LINE:
            raise InvalidContentError(f"the message's line has {size:,} bytes; the most is {MAX_LINE:,}")
        if not isinstance(self.content, str) or parse(line.encode()) is None:
            raise InvalidContentError(
                "the message is malformed: tool_calls must be a list, every other field text, role not empty, and "
                f"nothing nested deeper than {MOST_LEVELS} levels"
            )
        return line


def is_system(message: Message) -> bool:
    """Whether model APIs treat a message as the program's own words."""
    return message.role.strip().lower() in _SYSTEM_ROLES


def parse(line: bytes) -> Message | None:
    """Parse the message of a line; None if the line is not UTF-8, not JSON, or holds no message in a known form."""
    try:
        values = parse_json(line, parse_constant=refuse_constant)
        return _message(message_fields(values)) if isinstance(values, dict) else None
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _message(values: dict[str, Any]) -> Message:
    message = Message(
        role=values.pop("role"),
        content=values.pop("content"),
        timestamp=values.pop("timestamp"),
        **{name: values.pop(name, None) for name in OPTIONAL},
        extra=values,
    )
    if not (isinstance(message.role, str) and message.role and isinstance(message.content, str)):
        raise TypeError("role and content must be text")
    optional = (message.tool_call_id, message.reasoning_content, message.channel, message.sender_id)
    if not _TEXT_OR_NONE.issuperset(map(type, optional)):
        raise TypeError("channel, sender_id, tool_call_id and reasoning_content must be text")
    if not isinstance(message.tool_calls, list | None):
        raise TypeError("tool_calls must be a list")
    return message


class History(list[Message]):
    """Messages, oldest first, and counts of the lines and messages that were left out.

    Attributes:
        skipped: the number of lines without a message.
        preview: the first such line in reading order, escaped to ASCII and cut to 80 characters.
        withheld: the number of system messages that were left out; see `ConversationMemory`.
    """

    def __init__(
        self, messages: Sequence[Message] = (), skipped: int = 0, preview: str = "", withheld: int = 0
    ) -> None:
        super().__init__(messages)
        self.skipped = skipped
        self.preview = preview
        self.withheld = withheld


class Skipped:
    """Counts lines without a message, keeps a preview of the first, and counts system messages left out."""

    def __init__(self) -> None:
        self.count = 0
        self.preview = ""
        self.withheld = 0

    def add(self, line: bytes) -> None:
        """Count a line without a message."""
        if not self.count:
            self.preview = ascii(line[:_PREVIEW].decode(errors="replace"))[1:-1][:_PREVIEW]
        self.count += 1

    def parse(self, line: bytes, *, system: bool = True) -> Message | None:
        """Parse a line; None, uncounted, for a blank line; None, counted, for a system message without ``system``."""
        if not line.removeprefix(MARK).strip():
            return None
        message = parse(line)
        if message is None:
            self.add(line)
        elif not system and is_system(message):
            self.withheld += 1
            return None
        return message
