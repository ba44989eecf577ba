"""`Base`: the first record of an audit log that was begun anew, with the ends of all chains before it.

A base is a file beside the log with a chain of its own: ``begin``, then records of the parts that the base replaces, of
the ends of their chains, of salts and of findings, and at last one record that names the reason. The file is created in
one step. A checkpoint of its last record proves it, because each record contains the hash of the record before.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from agent_memory.audit.chains import End
from agent_memory.audit.findings import Finding, FindingKind, Line
from agent_memory.audit.journal import Position
from agent_memory.audit.location import LogLocation
from agent_memory.audit.record import START, encode, facts_of, head
from agent_memory.audit.salts import SaltFact
from agent_memory.backend import ABSENT
from agent_memory.core import part_flows
from agent_memory.core.part_flows import Blocks
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step

BaseKind: TypeAlias = Literal["pruned", "closed", "restarted"]
KINDS: Final = ("pruned", "closed", "restarted")
_IN_ONE_RECORD: Final = 200
_BLOCK: Final = 8 * 1024 * 1024
MOST_FINDINGS: Final = 1_000
"""The maximum number of findings that a base names; it counts the others."""


def blocks_of(reader: Reader, start: int, end: int) -> Iterator[bytes]:
    """Yield a range of a file in blocks, because one call of a backend has a limit."""
    step(reader.read(0, 0))
    for at in range(start, min(end, reader.size), _BLOCK):
        yield step(reader.read(at, min(end, at + _BLOCK)))


class CutPart(NamedTuple):
    """The beginning of a part of the log: its bytes, its lines and its SHA-256 in hexadecimal.

    ``stays``: whether it stays in the log, because a person has to look at it; otherwise it is removed.
    """

    name: str
    size: int
    lines: int
    sha256: str
    stays: bool = False

    def is_beginning_of(self, reader: Reader) -> bool:
        """Whether a file begins with these bytes."""
        digest = hashlib.sha256()
        for block in blocks_of(reader, 0, self.size):
            digest.update(block)
        return reader.size >= self.size and digest.hexdigest() == self.sha256


class BaseFacts(NamedTuple):
    """The facts of a base.

    Attributes:
        kind: "pruned", "closed" or "restarted".
        time: when it was made, in POSIX seconds.
        actor: the person or program that made it.
        reason: why it was made.
        records: the number of records before it, in all.
        parts: the parts that it replaces.
        ends: the ends of the chains in them.
        salts: the salts that the records in them name.
        known: the findings that it names.
        files: the states of the files by the records in them, see `agent_memory.audit.states`.
    """

    kind: BaseKind
    time: float
    actor: str | None
    reason: str | None
    records: int
    parts: Sequence[CutPart]
    ends: Sequence[End]
    salts: Sequence[SaltFact]
    known: Sequence[Finding] = ()
    files: Sequence[Sequence[Any]] = ()

    @property
    def removed(self) -> Sequence[CutPart]:
        """The parts that are removed from the log."""
        return [part for part in self.parts if not part.stays]


class Base(NamedTuple):
    """A stored base: its number, its lines, its facts and its last record; no facts if its chain is broken."""

    number: int
    data: bytes
    facts: BaseFacts | None
    position: Position

    @property
    def name(self) -> str:
        """The name of its file, for findings."""
        return f"base {self.number}"


def new_base(number: int, facts: BaseFacts, identity: str, key: bytes | None) -> Base:
    """Encode the facts of a base that is not stored yet."""
    position, lines = Position(secrets.token_hex(8), 0, START), []
    for event, fields in _records(facts, identity):
        line, digest = encode(position.writer, position.seq + 1, position.hash, event, facts.time, fields, key)
        position = Position(position.writer, position.seq + 1, digest)
        lines.append(line)
    return Base(number, b"".join(lines), facts, position)


def _records(facts: BaseFacts, identity: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield "begin", {"log": identity}
    lists: Mapping[str, Sequence[object]] = {
        "parts": facts.parts,
        "ends": facts.ends,
        "salts": facts.salts,
        "files": facts.files,
        "findings": [(each.kind, *each.line, each.detail) for each in facts.known[:MOST_FINDINGS]],
    }
    for name, found in lists.items():
        for at in range(0, len(found), _IN_ONE_RECORD):
            yield name, {name: found[at : at + _IN_ONE_RECORD]}
    yield facts.kind, {
        "actor": facts.actor, "reason": facts.reason, "records": facts.records, "findings": len(facts.known) or None,
        "parts": len(facts.parts), "ends": len(facts.ends),
    }  # fmt: skip


def _decoded(data: bytes, key: bytes | None, *, checked: bool) -> tuple[BaseFacts | None, Position]:
    """The facts of a base, None if a line of it is not as it was written, and the position of its last record."""
    position, lists = Position("", 0, START), dict[str, list[Any]](parts=[], ends=[], salts=[], files=[], findings=[])
    facts: BaseFacts | None = None
    for line in data.splitlines():
        found = head(line, key)
        if found is None or found.prev != position.hash or (checked and (not found.whole or found.keyed != bool(key))):
            return None, position
        position = Position(found.writer, found.seq, found.hash)
        try:
            fields = facts_of(line)
            if found.event in lists:
                lists[found.event] += fields[found.event]
            elif found.event in KINDS:
                facts = _facts(cast(BaseKind, found.event), fields, lists)
        except (ValueError, TypeError, KeyError):
            return None, position
    return facts, position


def _facts(kind: BaseKind, fields: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> BaseFacts:
    return BaseFacts(
        kind,
        datetime.fromisoformat(fields["time"]).timestamp(),
        fields.get("actor"),
        fields.get("reason"),
        int(fields["records"]),
        [CutPart(*each) for each in lists["parts"]],
        [End(*each) for each in lists["ends"]],
        [SaltFact(*each) for each in lists["salts"]],
        [Finding(_kind(found), Line(part, number), detail) for found, part, number, detail in lists["findings"]],
        lists["files"],
    )


def _kind(text: str) -> FindingKind:
    return cast(FindingKind, text)


def bases_of(location: LogLocation, key: bytes | None = None, *, checked: bool = True) -> list[Base]:
    """The bases of a log, in their order; without ``checked`` also the facts of those that only a key can verify.

    Raises:
        ReadError: one could not be read.
    """
    found = []
    for number in location.base_numbers():
        try:
            reader = location.store.reader(location.base_key(number))
            step(reader.read(0, 0))
            data = b"".join(blocks_of(reader, 0, reader.size))
        except AgentMemoryFileNotFoundError:
            continue  # a later base replaced it
        found.append(Base(number, data, *_decoded(data, key, checked=checked)))
    return found


def create(location: LogLocation, base: Base) -> None:
    """Store a base.

    Raises:
        FileAlreadyExistsError: another call stored a base with this number.
    """
    location.permit_write()
    location.store.run(part_flows.write, location.base_key(base.number), Blocks([base.data], len(base.data)), ABSENT)


def now() -> float:
    """The time of a new base, in POSIX seconds, as its record states it."""
    return round(time.time(), 6)
