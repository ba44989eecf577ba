"""`Origin`: the identity of a state of a file and the operation that made it, stored in one step with the state."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, replace
from typing import Final

from agent_memory._json import parse_json
from agent_memory.backend import ORIGIN_BYTES
from agent_memory.core.stored_facts import count, hexadecimal, moment, optional, text
from agent_memory.hookspecs import Operation

_NO_SPACE: Final = "\\u0020"
_MOST_TEXT: Final = 200
"""The maximum bytes of an actor and of a tool call's id."""
_DIGEST_OF_TEXT: Final = 16
_FIELDS: Final = 12
ID = hexadecimal(16)
HISTORY = hexadecimal(24)

_FACTS: Final = 4
"""The number of facts of an operation."""


@dataclass(frozen=True, slots=True)
class MadeBy:
    """The operation that made or ended a version.

    Attributes:
        operation: its kind.
        actor: the actor that it was called for; None if unknown.
        tool_call_id: the tool call that it was part of; None if unknown.
        time: when the storage made the change, in POSIX seconds by the storage's clock.
    """

    operation: str
    actor: str | None
    tool_call_id: str | None
    time: float

    @staticmethod
    def of(values: object) -> MadeBy:
        """Return the operation that a record names; raises `ValueError` if it names none."""
        if not isinstance(values, list | tuple) or len(values) != _FACTS:
            raise ValueError("not an operation")
        operation, actor, tool_call_id, at = values
        return MadeBy(text(operation), optional(text, actor), optional(text, tool_call_id), moment(at))

    @property
    def facts(self) -> tuple[str, str | None, str | None, float]:
        """The stored form."""
        return self.operation, self.actor, self.tool_call_id, self.time

    def shortened(self) -> MadeBy:
        """Return it with texts that fit into an origin."""
        return replace(self, actor=short(self.actor), tool_call_id=short(self.tool_call_id))


def made_by(operation: Operation) -> MadeBy:
    """The facts of a running operation; its time is the caller's, until the storage makes the change."""
    return MadeBy(operation.kind, operation.actor, operation.tool_call_id, operation.time)


@dataclass(frozen=True)
class Origin:
    """The origin of one state of a file. Digests and salt are hexadecimal.

    An append makes no new state, so the origin describes the state before the appends to it. A copy of a file that
    copies its metadata too, by any tool, has the same origin: one state has two names, and each goes on for itself.

    Attributes:
        id: random, new for each state.
        history: the file's history, which begins when the file is created; random.
        number: the number of changes since the history began.
        previous: the id of the replaced state; None for the first one.
        by: the operation that made the state; None if it was made without this package, or before versions were kept.
        size: the state's size in bytes when it was made.
        salt: random; without it the digest cannot be tested.
        digest: the digest of the salt and the content as it was made; None if the content was written in parts.
    """

    id: str
    history: str
    number: int
    previous: str | None
    by: MadeBy | None
    size: int
    salt: str
    digest: str | None

    @staticmethod
    def first(by: MadeBy | None, size: int, data: bytes | None) -> Origin:
        """Return the origin of a file that is created, or of a state without one."""
        return _made(secrets.token_hex(12), 0, None, by, size, data)

    @staticmethod
    def unknown(size: int) -> Origin:
        """Return the origin of a state that has none: its ids are ""."""
        return Origin("", "", 0, None, None, size, "", None)

    def next(self, by: MadeBy | None, size: int, data: bytes | None) -> Origin:
        """Return the origin of the state that replaces this one."""
        return _made(self.history, self.number + 1, self.id, by, size, data)

    def changed_by_another_program(self, size: int, content: bytes) -> Origin:
        """Return the origin of a state that another program made from this one; the same each time it is asked.

        ``content`` is its content, or a text that only this state has.
        """
        id_ = _digest(self.salt, content)[:16]
        return Origin(id_, self.history, self.number + 1, self.id, None, size, "", None)

    def of_another_state(self, begins: bool) -> Origin:
        """Return it with another id, for another request; with ``begins`` also with another history."""
        return replace(self, id=secrets.token_hex(8), history=secrets.token_hex(12) if begins else self.history)

    def is_of(self, data: bytes) -> bool:
        """Whether the content begins with the content that this origin was made for."""
        if len(data) < self.size:
            return False
        return self.digest is None or hmac.compare_digest(self.digest, _digest(self.salt, data[: self.size]))

    def at(self, time: float) -> str:
        """The stored form of the origin of a state that the storage makes now: a list in JSON, in ASCII, no spaces.

        The time of its maker is the storage's. Because S3 tells whole seconds, the caller's clock tells the place
        within the next second.
        """
        by: tuple[object, ...] = (None,) * _FACTS
        if self.by:
            by = replace(self.by, time=round(min(max(self.by.time, time), time + 1), 6)).facts
        fields = [1, self.id, self.history, self.number, self.previous, *by, self.size, self.salt, self.digest]
        return _ascii(fields)

    @staticmethod
    def parse(stored: str | None) -> Origin | None:
        """Return a stored origin; None if there is none, or if another program made it."""
        if stored is None or len(stored) > ORIGIN_BYTES:
            return None
        try:
            fields = parse_json(stored)
            if not isinstance(fields, list) or len(fields) != _FIELDS or type(fields[0]) is not int or fields[0] != 1:
                return None
            _, id_, history, number, previous, *by, size, salt, digest = fields
            return Origin(
                ID(id_), HISTORY(history), count(number), optional(ID, previous),
                None if by[0] is None else MadeBy.of(by),
                count(size), hexadecimal(32)(salt), optional(hexadecimal(64), digest),
            )  # fmt: skip
        except ValueError:
            return None


def _made(history: str, number: int, previous: str | None, by: MadeBy | None, size: int, data: bytes | None) -> Origin:
    salt = secrets.token_hex(16)
    digest = None if data is None else _digest(salt, data)
    return Origin(secrets.token_hex(8), history, number, previous, by and by.shortened(), size, salt, digest)


def _ascii(value: object) -> str:
    """JSON in ASCII without spaces."""
    return json.dumps(value, separators=(",", ":")).replace(" ", _NO_SPACE)


def _digest(salt: str, data: bytes) -> str:
    return hashlib.sha256(salt.encode() + data).hexdigest()


def digest_of_text(text: str) -> str:
    """The SHA-256 of any str: an actor may have lone surrogates."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def short(given: str | None) -> str | None:
    """Return a text that fits into an origin; a longer one is cut, and gets a digest of the whole."""
    if given is None or len(_ascii(given)) - 2 <= _MOST_TEXT:
        return given
    digest = digest_of_text(given)[:_DIGEST_OF_TEXT]
    given = given[:_MOST_TEXT]
    while len(_ascii(f"{given}…{digest}")) - 2 > _MOST_TEXT:
        given = given[:-1]
    return f"{given}…{digest}"


assert ORIGIN_BYTES >= 2 * _MOST_TEXT + 350  # noqa: S101 - the other fields
