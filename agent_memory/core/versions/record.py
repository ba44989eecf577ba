"""`Record`: an earlier state of a file with its content, as one file below ``.agent-memory/versions``.

The content comes first, so that a storage can copy it from the current file without a transfer. The facts follow: a
line of JSON, and a line with its length. The name has a fixed length and sorts newest first. It contains the history,
the state's number and id, but not the path: records lie in a directory whose name is a keyed digest of the path.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, NamedTuple

from agent_memory.core.internal_trees import internal_tree
from agent_memory.core.stored_facts import count, fields_of, optional, path, text
from agent_memory.core.versions.origin import HISTORY, ID, MadeBy, Origin
from agent_memory.errors import ReadError
from agent_memory.key import Key

DIRECTORY: Final = "versions"
_MOST_CHANGES: Final = 10**10 - 1
MOST_REASON: Final = 500
"""The maximum characters of the reason of a redaction."""
_LENGTH_LINE: Final = 9
MOST_FACTS: Final = 1 << 16
"""The maximum bytes of the facts of a record or a link."""
NONCE_LENGTH: Final = 8
_NAME: Final = re.compile(rf"([0-9a-f]{{21}})-([0-9]{{10}})-([0-9a-f]{{16}})-([0-9a-f]{{{NONCE_LENGTH}}})")
_LINK: Final = "link-"
LAST_BYTES: Final = 4096
"""This many bytes at the end of a record contain its facts, unless a path is very long."""


class Name(NamedTuple):
    """The parts of a record's name."""

    history: str
    number: int
    id: str
    nonce: str

    def is_of(self, version: str) -> bool:
        """Whether the record belongs to a version; the id of a state's second content ends with the nonce."""
        return version in (self.id, self.id + self.nonce)

    def __str__(self) -> str:
        return f"{self.history}-{_MOST_CHANGES - self.number:010d}-{self.id}-{self.nonce}"

    @staticmethod
    def parse(name: str) -> Name | None:
        """Return the parts of a record's name; None for another name."""
        if (found := _NAME.fullmatch(name)) is None:
            return None
        return Name(found[1], _MOST_CHANGES - int(found[2]), found[3], found[4])


@dataclass(frozen=True)
class Record:
    """The facts of one record.

    Attributes:
        id: the id of the state.
        history: see `Origin.history`.
        number: see `Origin.number`.
        previous: the id of the state before; None for the first one.
        made_by: the operation that made the state; None if it was made without this package, or before versions were
            kept.
        ended_by: the operation that replaced or deleted the state.
        next: the id of the state that replaced it; None if it was deleted.
        path: the file, in the agent's tree.
        made_size: the content's size in bytes when the state was made, before the appends to it; 0 if it was redacted.
        size: the content's size in bytes; 0 if it was redacted.
        redacted_by: the operation that redacted it; None if it was not redacted, or if the redaction did not end.
        reason: the reason that was given for the redaction; None if none was begun.
    """

    id: str
    history: str
    number: int
    previous: str | None
    made_by: MadeBy | None
    ended_by: MadeBy
    next: str | None
    path: str
    made_size: int
    size: int
    redacted_by: MadeBy | None = None
    reason: str | None = None

    @staticmethod
    def of(path: str, origin: Origin, size: int, by: MadeBy, successor: Origin | None) -> Record:
        """Return the record of a state of ``size`` bytes that an operation ends; ``successor`` replaces it."""
        return Record(
            origin.id, origin.history, origin.number, origin.previous, origin.by, by.shortened(),
            successor.id if successor else None, path, min(origin.size, size), size,
        )  # fmt: skip

    def redacted(self, by: MadeBy | None, reason: str) -> Record:
        """Return the tombstone of this record: its facts without content; without ``by`` the redaction did not end."""
        return replace(self, made_size=0, size=0, redacted_by=by and by.shortened(), reason=reason)

    @property
    def name(self) -> str:
        """A new name for this record."""
        return str(Name(self.history, self.number, self.id, secrets.token_hex(NONCE_LENGTH // 2)))

    def trailer(self) -> bytes:
        """The bytes that follow the content."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        stored = {name: value.facts if isinstance(value, MadeBy) else value for name, value in values}
        facts = json.dumps({"v": 1, **stored}).encode()
        return b"\n%b\n%08d\n" % (facts, len(facts))

    @staticmethod
    def bytes_of_facts(data: bytes) -> int:
        """The number of bytes at the end of a record that contain its facts; 0 if it is no record."""
        length = data[-_LENGTH_LINE:]
        if not re.fullmatch(rb"[0-9]{8}\n", length) or int(length) > MOST_FACTS:
            return 0
        return int(length) + 2 + _LENGTH_LINE

    @staticmethod
    def parse(key: Key, data: bytes, size: int) -> Record:
        """Return the facts at the end of a record of ``size`` bytes, from at least as many of its last bytes.

        Raises:
            ReadError: the file is no record, or its name or its size contradicts its facts.
        """
        try:
            length = Record.bytes_of_facts(data)
            facts = fields_of(data[-length + 1 : -_LENGTH_LINE - 1] if length else b"")
            if facts.pop("v") != 1:
                raise ValueError
            facts = {"redacted_by": None, "reason": None, **facts}
            record = Record(**{name: check(facts.pop(name)) for name, check in _CHECKS.items()}, **facts)
            if not record._is_at(key, size - length):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise ReadError("the record of an earlier version is damaged", path=key.path) from None
        return record

    def _is_at(self, key: Key, size: int) -> bool:
        """Whether it agrees with its name and with the size of its content."""
        name = Name.parse(key.name)
        is_named = name is not None and (name.history, name.number, name.id) == (self.history, self.number, self.id)
        return is_named and size == self.size and self.made_size <= self.size


def _reason(value: object) -> str:
    if not 1 <= len(reason := text(value)) <= MOST_REASON or not reason.isprintable():
        raise ValueError("not a reason")
    return reason


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "id": ID,
    "history": HISTORY,
    "number": count,
    "previous": partial(optional, ID),
    "made_by": partial(optional, MadeBy.of),
    "ended_by": MadeBy.of,
    "next": partial(optional, ID),
    "path": path,
    "made_size": count,
    "size": count,
    "redacted_by": partial(optional, MadeBy.of),
    "reason": partial(optional, _reason),
}


class Link(NamedTuple):
    """The record of a rename of a file or a directory, whose histories continue at the new name.

    It is written before the move. A process that ends in between leaves a link of a move that was not made.

    Attributes:
        source: the earlier name.
        target: the new name.
        by: the operation.
        history: the history of the file; "" if it has none, None for a directory.
        id_before: the id of the file's state before it was renamed by a copy, which gives it another id.
        id_after: the id afterwards.
    """

    source: str
    target: str
    by: MadeBy
    history: str | None
    id_before: str | None = None
    id_after: str | None = None

    @property
    def name(self) -> str:
        """A new name for this link; it sorts after all records."""
        return f"{_LINK}{10**13 - 1 - int(self.by.time * 1000):013d}-{secrets.token_hex(4)}"

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        return json.dumps({"v": 1, **self._asdict(), "by": self.by.facts}).encode() + b"\n"

    @staticmethod
    def parse(key: Key, data: bytes) -> Link:
        """Return a stored link; raises `ReadError` if the file is none."""
        try:
            facts = fields_of(data)
            if facts.pop("v") != 1:
                raise ValueError
            return Link(
                path(facts.pop("source")), path(facts.pop("target")), MadeBy.of(facts.pop("by")),
                optional(_history_or_none, facts.pop("history")),
                optional(ID, facts.pop("id_before", None)), optional(ID, facts.pop("id_after", None)), **facts,
            )  # fmt: skip
        except (ValueError, TypeError, KeyError):
            raise ReadError("the record of a rename is damaged", path=key.path) from None


def _history_or_none(value: object) -> str:
    return "" if value == "" else HISTORY(value)


def is_link(name: str) -> bool:
    """Whether a name below a file's records is that of a link."""
    return name.startswith(_LINK)


def records_of(agent: str | None) -> Key:
    """The tree of the records of one agent, or of a tree without agents."""
    return internal_tree(DIRECTORY, agent)


def records_of_file(agent: str | None, secret: str, path: str) -> Key:
    """The tree of the records of one file."""
    return internal_tree(DIRECTORY, agent, hmac.digest(bytes.fromhex(secret), path.encode(), "sha256").hex()[:32])
