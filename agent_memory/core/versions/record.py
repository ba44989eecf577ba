"""`Record`: an earlier state of a file with its content, as one file below ``.agent-memory/versions``.

The content comes first, so that a storage can copy it from the live file without sending it. The facts follow: a line
of JSON, and a line with its length. The name has a fixed length and sorts newest first. It contains the history, the
state's number and id, but not the path: records lie in a directory whose name is a keyed digest of the path.
"""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from agent_memory.core.own_trees import own_tree
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.errors import ReadError
from agent_memory.key import Key

DIRECTORY: Final = "versions"
_MOST_CHANGES: Final = 10**10 - 1
_LENGTH_LINE: Final = 9
NONCE_LENGTH: Final = 8
_NAME_LENGTH: Final = 21 + 1 + 10 + 1 + 16 + 1 + NONCE_LENGTH
_LINK: Final = "link-"
LAST_BYTES: Final = 4096
"""As many bytes at the end of a record contain its facts, unless a path is very long."""


class Name(NamedTuple):
    """The parts of a record's name."""

    history: str
    number: int
    id: str
    nonce: str

    def is_of(self, version: str) -> bool:
        """Whether the record is one of a version; the id of a second content of a state has the nonce, too."""
        return version in (self.id, self.id + self.nonce)

    def __str__(self) -> str:
        return f"{self.history}-{_MOST_CHANGES - self.number:010d}-{self.id}-{self.nonce}"

    @staticmethod
    def parse(text: str) -> Name | None:
        """Return the parts of a record's name; None for another name."""
        parts = text.split("-")
        if len(text) != _NAME_LENGTH or len(parts) != len(Name._fields) or not parts[1].isdecimal():
            return None
        return Name(parts[0], _MOST_CHANGES - int(parts[1]), parts[2], parts[3])


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
        made_size: the content's size in bytes when the state was made, without what was appended; 0 if it was redacted.
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
    def of(path: str, origin: Origin, size: int, by: MadeBy, following: Origin | None) -> Record:
        """Return the record of a state of ``size`` bytes that an operation ends; ``following`` replaces it."""
        return Record(
            origin.id, origin.history, origin.number, origin.previous, origin.by, by.shortened(),
            following.id if following else None, path, min(origin.size, size), size,
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
        facts = json.dumps({"v": 1, **asdict(self)}).encode()
        return b"\n%b\n%08d\n" % (facts, len(facts))

    @staticmethod
    def bytes_of_facts(data: bytes) -> int:
        """The number of bytes at the end of a record that contain its facts; 0 if it is no record."""
        try:
            return int(data[-_LENGTH_LINE:]) + 2 + _LENGTH_LINE
        except ValueError:
            return 0

    @staticmethod
    def parse(key: Key, data: bytes) -> Record:
        """Return the facts at the end of a record, from at least as many of its last bytes as they have.

        Raises:
            ReadError: the file is no record.
        """
        try:
            length = int(data[-_LENGTH_LINE:])
            fields: dict[str, Any] = json.loads(data[-_LENGTH_LINE - 1 - length : -_LENGTH_LINE - 1])
            if fields.pop("v") != 1:
                raise ValueError
            for name in ("made_by", "ended_by", "redacted_by"):
                fields[name] = None if fields.get(name) is None else MadeBy(*fields[name])
            return Record(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ReadError("the record of an earlier version is damaged", path=key.path) from None


class Link(NamedTuple):
    """The fact that a file or a directory got another name; the histories below it go on at the new name.

    It is written before the move, so a process that ends in between leaves a link of a move that was not made.

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
        return json.dumps({"v": 1, **self._asdict()}).encode() + b"\n"

    @staticmethod
    def parse(key: Key, data: bytes) -> Link:
        """Return a stored link; raises `ReadError` if the file is none."""
        try:
            fields = json.loads(data)
            if fields.pop("v") != 1:
                raise ValueError
            return Link(by=MadeBy(*fields.pop("by")), **fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ReadError("the record of a rename is damaged", path=key.path) from None


def is_link(name: str) -> bool:
    """Whether a name below a file's records is that of a link."""
    return name.startswith(_LINK)


def records_of(agent: str | None) -> Key:
    """The tree of the records of one agent, or of a tree without agents."""
    return own_tree(DIRECTORY, agent)


def records_of_file(agent: str | None, secret: str, path: str) -> Key:
    """The tree of the records of one file."""
    return own_tree(DIRECTORY, agent, hmac.digest(bytes.fromhex(secret), path.encode(), "sha256").hex()[:32])
