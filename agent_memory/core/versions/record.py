"""`Record`: an earlier state of a file with its content, as one file below ``.agent-memory/versions``.

The content comes first, so that a storage can copy it from the current file without a transfer. The facts follow: a
line of JSON, and a line with its length. Records lie in the directory of their history. A name has a fixed length and
sorts newest first; it tells the state, a digest of the file's path, digests of who ended the state, and the kind.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from agent_memory.core.internal_trees import internal_tree
from agent_memory.core.stored_facts import count, fields_of, hexadecimal, optional, path, text, truth
from agent_memory.core.versions.origin import HISTORY, ID, MadeBy, Origin, digest_of_text, short
from agent_memory.errors import ReadError
from agent_memory.key import Key, is_at_or_below

DIRECTORY: Final = "versions"
OF_DIRECTORIES: Final = "0" * 24
"""In the place of a history: the marks of renamed directories."""
_NO_STATE: Final = "0" * 16
_MOST_CHANGES: Final = 10**10 - 1
MOST_REASON: Final = 500
"""The maximum characters of the reason of a redaction."""
_LENGTH_LINE: Final = 9
MOST_FACTS: Final = 1 << 16
"""The maximum bytes of the facts of a record."""
NONCE_LENGTH: Final = 8
WHO_LENGTH: Final = 8
_NAME: Final = re.compile(
    r"([0-9]{10})-([0-9a-f]{16})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{8})([rdtm])([an])"
)
_PLACE: Final = hexadecimal(32)
_HISTORY: Final = re.compile(r"[0-9a-f]{24}")
LAST_BYTES: Final = 4096
"""This many bytes at the end of a record contain its facts, unless a path is very long."""

Kind: TypeAlias = Literal["r", "d", "t", "m"]
"""Replaced, deleted, a tombstone, the mark of a rename."""


class Name(NamedTuple):
    """The name of a record.

    Attributes:
        history: the history of its file; `OF_DIRECTORIES` for the mark of a renamed directory.
        number: the number of the state, see `Origin.number`.
        id: the id of the state.
        path: the digest of the file's path; of a mark, of its new path.
        made_by: the digests of the actor and of the tool call of the operation that made the state; see `who`.
        ended_by: those of the operation that ended it, or renamed the file.
        nonce: random.
        kind: see `Kind`.
        appended: "a" if something was appended to the state after it was made, else "n".
    """

    history: str
    number: int
    id: str
    path: str
    made_by: str
    ended_by: str
    nonce: str
    kind: Kind
    appended: str = "n"

    @property
    def is_mark(self) -> bool:
        """Whether it is the mark of a rename, and no record of a state."""
        return self.kind == "m"

    @property
    def version_id(self) -> str:
        """The id of the version if its state has another content that is shown too."""
        return self.id + self.nonce

    def is_of(self, version: str) -> bool:
        """Whether the record belongs to a version."""
        return not self.is_mark and version in (self.id, self.version_id)

    def __str__(self) -> str:
        number = _MOST_CHANGES - self.number
        return (
            f"{number:010d}-{self.id}-{self.path}-{self.made_by}-{self.ended_by}-{self.nonce}{self.kind}{self.appended}"
        )

    @staticmethod
    def parse(key: Key) -> Name | None:
        """Return the parts of a record's name; None for another file."""
        history, _, name = key.path.rpartition("/")
        found = _NAME.fullmatch(name)
        if found is None or not _HISTORY.fullmatch(history):
            return None
        number, *rest = found.groups()
        return Name(history, _MOST_CHANGES - int(number), *rest)  # type: ignore[arg-type]  # the kind is one of four


def who(by: MadeBy | None) -> str:
    """The digests of the actor and of the tool call of an operation, in the names of records."""
    return digest_of(by.actor if by else None) + digest_of(by.tool_call_id if by else None)


def digest_of(text: str | None) -> str:
    """The digest of an actor or of a tool call; zeros for None."""
    shortened = short(text)
    return "0" * WHO_LENGTH if shortened is None else digest_of_text(shortened)[:WHO_LENGTH]


def _nonce() -> str:
    return secrets.token_hex(NONCE_LENGTH // 2)


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
        ended_by: the operation that replaced or deleted the state. The stored time is the caller's claim; that of a
            tombstone is the storage's.
        next: the id of the state that replaced it; None if it was deleted.
        path: the file, in the agent's tree.
        made_size: the content's size in bytes when the state was made, before the appends to it; 0 if it was redacted.
        size: the content's size in bytes; 0 if it was redacted.
        appended: whether something was appended to the state after it was made.
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
    appended: bool
    redacted_by: MadeBy | None = None
    reason: str | None = None

    @staticmethod
    def of(path: str, origin: Origin, size: int, by: MadeBy, successor: Origin | None) -> Record:
        """Return the record of a state of ``size`` bytes that an operation ends; ``successor`` replaces it."""
        return Record(
            origin.id, origin.history, origin.number, origin.previous, origin.by, by.shortened(),
            successor.id if successor else None, path, min(origin.size, size), size, size > origin.size,
        )  # fmt: skip

    def redacted(self, by: MadeBy | None, reason: str) -> Record:
        """Return the tombstone of this record: its facts without content; without ``by`` the redaction did not end."""
        return replace(self, made_size=0, size=0, redacted_by=by and by.shortened(), reason=reason)

    def new_name(self, agent: str | None) -> Name:
        """Return a new name for this record of an agent's file."""
        kind: Kind = "t" if self.reason is not None else "r" if self.next else "d"
        place, made_by, ended_by = digest_of_path(agent, self.path), who(self.made_by), who(self.ended_by)
        appended = "a" if self.appended else "n"
        return Name(self.history, self.number, self.id, place, made_by, ended_by, _nonce(), kind, appended)

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
    def parse(key: Key, agent: str | None, data: bytes, size: int) -> Record:
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
            if not record._is_at(key, agent, size - length):
                raise ValueError
        except (ValueError, TypeError, KeyError):
            raise ReadError("the record of an earlier version is damaged", path=key.path) from None
        return record

    def _is_at(self, key: Key, agent: str | None, size: int) -> bool:
        """Whether it agrees with its name and with the size of its content."""
        name = Name.parse(key)
        if name is None or size != self.size or self.made_size > self.size:
            return False
        return name == self.new_name(agent)._replace(nonce=name.nonce)


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
    "appended": truth,
    "redacted_by": partial(optional, MadeBy.of),
    "reason": partial(optional, _reason),
}


class Mark(NamedTuple):
    """The mark of a rename: it tells a person, and `forget`, of files whose origin is lost. Reading does not follow it.

    It is written before the rename, and deleted if the rename is certainly refused.

    Attributes:
        source: the earlier name of the file or directory.
        target: the new name.
        by: the operation.
        files: of a directory: the history of each of its files, and the digest of its new path.
    """

    source: str
    target: str
    by: MadeBy
    files: Sequence[tuple[str, str]] = ()

    def new_path(self, path: str) -> str | None:
        """Return the path that the rename gave to a file; None if it did not move this path."""
        return self.target + path[len(self.source) :] if is_at_or_below(path, self.source) else None

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        return json.dumps({"v": 1, **self._asdict(), "by": self.by.facts}).encode() + b"\n"

    @staticmethod
    def parse(key: Key, data: bytes) -> Mark:
        """Return a stored mark; raises `ReadError` if the file is none."""
        try:
            facts = fields_of(data)
            if facts.pop("v") != 1:
                raise ValueError
            files = [(HISTORY(history), _PLACE(place)) for history, place in facts.pop("files")]
            source, target, by = path(facts.pop("source")), path(facts.pop("target")), MadeBy.of(facts.pop("by"))
            return Mark(source, target, by, files, **facts)
        except (ValueError, TypeError, KeyError):
            raise ReadError("the mark of a rename is damaged", path=key.path) from None


def mark_name(agent: str | None, target: str, by: MadeBy, origin: Origin | None) -> Name:
    """Return a new name for the mark of a rename; ``origin`` is None for a directory."""
    history, number, id_ = (origin.history, origin.number, origin.id) if origin else (OF_DIRECTORIES, 0, _NO_STATE)
    made_by = who(origin.by if origin else None)
    return Name(history, number, id_, digest_of_path(agent, target), made_by, who(by), _nonce(), "m")


def records_of(agent: str | None) -> Key:
    """The tree of the records of one agent, or of a tree without agents."""
    return internal_tree(DIRECTORY, agent)


def digest_of_path(agent: str | None, path: str) -> str:
    """The digest of a file's path, in the names of its records."""
    whole = ["" if agent is None else agent, path]
    return digest_of_text("\0".join(whole))[:32]
