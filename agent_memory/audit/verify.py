"""`verify`: the verification of a whole audit log, from its base on.

Each writer's records form a chain: a record contains the hash of the previous one. A change, removal or move inside a
chain is therefore found. Several records may follow one, if a process was restored several times from one image of its
memory; such branches are counted. The end of a chain can be cut off unnoticed only after its last checkpoint. An
attacker with write access to the log can invent records of a writer without any checkpoint, unless they are keyed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent_memory.audit.bases import Base, BaseFacts, CutPart, bases_of
from agent_memory.audit.findings import Finding, FindingKind, Line, Verdict
from agent_memory.audit.location import LogLocation
from agent_memory.audit.salts import Salts
from agent_memory.audit.verifier import Anchors, Verifier
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step

_ATTEMPTS: Final = 10
_BLOCK: Final = 64 * 1024
Parts = Sequence[tuple[Key, Reader]]


class Proofs(NamedTuple):
    """What a verification compares a log with: see `verify`."""

    anchors: dict[tuple[str, int], set[str]]
    key: bytes | None
    identity: str | None
    logs: Mapping[str, str]
    salts: bool
    archived: bool = False


class ReadPart(NamedTuple):
    """A part that was read: its bytes and its lines, with those that a base replaces."""

    key: Key
    reader: Reader
    size: int
    lines: int


class Examined(NamedTuple):
    """A log that was read: its verifier, bases and parts; and the findings, the time and the records of its base."""

    verifier: Verifier
    bases: Sequence[Base]
    parts: Sequence[ReadPart]
    known: tuple[Finding, ...]
    since: float | None
    before: int


def verify(
    location: LogLocation,
    anchors: Anchors | None = None,
    key: bytes | None = None,
    *,
    identity: str | None = None,
    logs: Mapping[str, str] | None = None,
    salts: bool = True,
    archived: bool = False,
) -> Verdict:
    """Verify a whole log as it is now; if writers are active, read the checkpoints before calling this.

    Args:
        location: the log.
        anchors: the hash in the checkpoints, or the hashes of several branches: the keys are ``(writer, seq)``.
        key: the key of keyed hashes.
        identity: the identity of the log from a checkpoint; if None, the one in the file beside the log.
        logs: the identity of each writer's log, from the checkpoints; needed if they are of several logs.
        salts: whether to check the salts; False for a copy of the log without them.
        archived: whether the log is an archive, so that later checkpoints are of records elsewhere.

    Raises:
        ValueError: the records are keyed, and no key was given.
        ConflictError: the log was begun anew again and again while it was read.
    """
    found = {each: {one} if isinstance(one, str) else set(one) for each, one in (anchors or {}).items()}
    proofs = Proofs(found, key, identity or location.identity(), logs or {}, salts, archived)
    examined = examine(location, proofs)
    verdict = examined.verifier.verdict
    return Verdict(verdict.findings, verdict.records, verdict.writers, verdict.branches, examined.since, examined.known)


def examine(location: LogLocation, proofs: Proofs, names: Collection[str] | None = None) -> Examined:
    """Read a log, or only the parts with these names; again, if it was begun anew or merged meanwhile."""
    failed: AgentMemoryError | None = None
    for _ in range(_ATTEMPTS):
        bases = bases_of(location, proofs.key)
        try:
            found = _examined(location, proofs, bases, names)
        except (AgentMemoryFileNotFoundError, ConflictError) as error:
            failed = error
            continue
        if location.base_numbers() == [base.number for base in bases]:
            return found
    raise failed or ConflictError("the audit log was begun anew again and again while it was read; verify it again")


def _examined(location: LogLocation, proofs: Proofs, bases: Sequence[Base], names: Collection[str] | None) -> Examined:
    parts = [part for part in location.readers() if names is None or location.name_of(part[0]) in names]
    start = _start(location, proofs, bases, parts)
    verifier, begun, skipped = start.verifier, start.bases, start.skipped
    for base in begun:
        verifier.feed(base.name, base.data)
    read = _fed_parts(location, verifier, parts, skipped)
    if verifier.links:
        for base in begun:
            verifier.follow_links(base.data)
        for part, reader in parts:
            for block in location.blocks(part, reader, after(reader, skipped.get(location.name_of(part)))):
                verifier.follow_links(block)
    if proofs.salts:
        verifier.judge_salts(Salts(location).known_commitment)
    facts = start.facts
    return Examined(
        verifier, bases, read, *((tuple(facts.known), facts.time, facts.records) if facts else ((), None, 0))
    )


class Beginning(NamedTuple):
    """Where a verification begins: the base in effect, the bases from it on, and the bytes of the parts to skip."""

    verifier: Verifier
    facts: BaseFacts | None
    bases: Sequence[Base]
    skipped: Mapping[str, CutPart]


def _start(location: LogLocation, proofs: Proofs, bases: Sequence[Base], parts: Parts) -> Beginning:
    """Begin after the newest base that is in effect."""
    verifier = Verifier(proofs.anchors, proofs.key, proofs.identity, proofs.logs, is_archive=proofs.archived)
    readers = {location.name_of(part): reader for part, reader in parts}
    removed = [cut.name for base in bases if base.facts for cut in base.facts.removed]
    is_archive = proofs.archived and (not readers or not readers.keys().isdisjoint(removed))
    archived: set[str] = set()
    for at in range(len(bases) - 1, -1, -1):
        base, facts = bases[at], bases[at].facts
        if facts is None:
            continue  # its lines are fed, and the verifier reports them
        there = {cut.name: cut for cut in facts.parts if is_there(readers, cut, whole=is_archive)}
        if is_archive:  # each part is of the newest base that removed a part with its name
            own = [cut for cut in facts.removed if cut.name not in archived]
            archived.update(cut.name for cut in own)
            if own and (base is bases[-1] or any(cut.name in readers for cut in own)):
                _report_changed(verifier, own, there, readers)
                continue
        if facts.removed and all(cut.name in there for cut in facts.removed) and not is_vouched(base, proofs):
            continue  # it was interrupted before its checkpoint, and the log is whole without it
        verifier.begin_at(facts.ends, facts.salts)
        if not is_vouched(base, proofs):
            line = Line(base.name, base.position.seq)
            verifier.report("base", line, "no checkpoint names the last record of this base of the log")
        _report_changed(verifier, [cut for cut in facts.parts if cut.stays], there, readers)
        return Beginning(verifier, facts, bases[at:], there)
    return Beginning(verifier, None, bases, {})


def is_there(readers: Mapping[str, Reader], cut: CutPart, *, whole: bool = False) -> bool:
    """Whether a part still begins with the bytes that a base replaces; with ``whole``, whether it has only these."""
    reader = readers.get(cut.name)
    try:
        return reader is not None and cut.is_beginning_of(reader) and not (whole and reader.size > cut.size)
    except AgentMemoryFileNotFoundError:
        return False  # it was removed since the listing


def is_vouched(base: Base, proofs: Proofs) -> bool:
    """Whether a checkpoint names the last record of a base; True if there are no checkpoints."""
    position = base.position
    return not proofs.anchors or position.hash in proofs.anchors.get((position.writer, position.seq), ())


def _report_changed(
    verifier: Verifier, wanted: Iterable[CutPart], there: Mapping[str, CutPart], readers: Mapping[str, Reader]
) -> None:
    """Report parts that a base names and that were changed since."""
    for cut in wanted:
        if cut.name not in there:
            kind: FindingKind = "edited" if cut.name in readers else "missing"
            verifier.report(kind, Line(cut.name, 1), "a part before the log was begun anew is not as it was")


def _fed_parts(
    location: LogLocation, verifier: Verifier, parts: Parts, skipped: Mapping[str, CutPart]
) -> list[ReadPart]:
    """Feed all parts to the verifier, except those that a base replaces and a prune removed since the listing."""
    read: list[ReadPart] = []
    for part, reader in parts:
        replaced = skipped.get(location.name_of(part))
        try:
            read.append(_fed(location, verifier, part, reader, replaced))
        except AgentMemoryFileNotFoundError:
            if replaced is None:
                raise
    return read


def _fed(location: LogLocation, verifier: Verifier, part: Key, reader: Reader, skipped: CutPart | None) -> ReadPart:
    """Feed a part, after the bytes that a base replaces; return what was read."""
    name, start = location.name_of(part), after(reader, skipped)
    number = skipped.lines + (start >= skipped.size) if skipped else 1
    for block in location.blocks(part, reader, start):
        number = verifier.feed(name, block, number)
    return ReadPart(part, reader, reader.size, number - 1)


def after(reader: Reader, cut: CutPart | None) -> int:
    """Where the lines of a part begin that a base does not replace: a crash may have left its last line without end.

    A line that a writer had not finished when the part was cut, and has finished since, is not replaced.
    """
    if cut is None or not cut.size:
        return 0
    end = step(reader.read(cut.size - 1, cut.size + 1))
    if end[:1] == b"\n" or len(end) == 1:
        return cut.size
    if end[1:] == b"\n":
        return cut.size + 1
    start, at = cut.size, -1
    while start and at < 0:
        start = max(0, start - _BLOCK)
        at = step(reader.read(start, min(cut.size, start + _BLOCK))).rfind(b"\n")
    return start + at + 1
