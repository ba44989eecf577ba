"""Begins an audit log anew: without its oldest parts (`prune`), without all of them (`close`), or after tampering.

Each call creates a base (`agent_memory.audit.bases`), sends a checkpoint of it, and then removes the parts that the
base replaces. Writers go on meanwhile: the base has the ends of their chains. A call that was interrupted is finished
by the next one, and the log is intact at each point.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from agent_memory.audit.bases import (
    Base,
    BaseFacts,
    BaseKind,
    CutPart,
    bases_of,
    blocks_of,
    create,
    new_base,
    now,
)
from agent_memory.audit.journal import Position
from agent_memory.audit.location import LogLocation
from agent_memory.audit.merging import finish_merges
from agent_memory.audit.salts import SaltFact, Salts
from agent_memory.audit.states import LoggedFiles
from agent_memory.audit.verify import Examined, Proofs, ReadPart, after, examine, is_vouched
from agent_memory.backend import ABSENT, ANY, BlockingBackend, Snapshot
from agent_memory.core import part_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.part_flows import Blocks
from agent_memory.core.precondition import WriteCondition
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    OperationDenied,
)
from agent_memory.key import Key
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step

_TIME: Final = re.compile(rb'"time":"([0-9T:.+-]{32})"')
_ATTEMPTS: Final = 100
_MOST_CHARACTERS: Final = 4_000


@dataclass(frozen=True)
class Renewal:
    """Begins one log anew.

    Attributes:
        location: the log.
        proofs: what the log is verified with before.
        actor: the person or program that does it.
        receive: receives the checkpoint of the base; None for no checkpoint.
        archive: receives a copy of the parts before they are removed; None for no copy.
    """

    location: LogLocation
    proofs: Proofs
    actor: str | None = None
    receive: Callable[[Position, str], object] | None = None
    archive: LogLocation | None = None

    def prune(self, before: float, reason: str | None = None) -> Base | None:
        """Remove the oldest parts whose records are all older than a POSIX time; None if there is none.

        Raises:
            OperationDenied: the log is not intact.
            ConflictError: another call began the log anew at the same time.
        """
        examined = self._intact()
        names = set(_older(self.location, examined, before))
        if not names.difference(_staying(examined)):
            return None
        self._require_covered(examined, names)
        return self._begun("pruned", examine(self.location, self.proofs, names), reason)

    def close(self, reason: str | None = None) -> Base | None:
        """Remove all parts, also those before a restart; None if there is none. Errors as `prune`."""
        examined = self._intact()
        return self._begun("closed", examined, reason) if examined.parts else None

    def restart(self, reason: str) -> Base:
        """Let the log begin anew after its findings; its parts stay as they are.

        Raises:
            OperationDenied: the log is intact.
            ConflictError: another call began the log anew at the same time.
        """
        self.finish()
        examined = examine(self.location, self.proofs)
        if examined.verifier.verdict.is_intact:
            raise OperationDenied("the audit log is intact, so that nothing needs a restart; `audit close` ends it")
        return self._begun("restarted", examined, reason)

    def finish(self) -> None:
        """Finish an earlier call that was interrupted after its checkpoint.

        A base without a checkpoint is not finished: any program that can write the log can also write a base. The log
        is whole without it, and the next base replaces it.
        """
        finish_merges(self.location)
        bases = [base for base in bases_of(self.location, self.proofs.key) if base.facts]
        if bases and is_vouched(bases[-1], self.proofs) and (self.proofs.anchors or self.receive is None):
            self._remove_parts(bases[-1])

    def _intact(self) -> Examined:
        self.finish()
        examined = examine(self.location, self.proofs)
        verdict = examined.verifier.verdict
        if not verdict.is_intact:
            raise OperationDenied(
                f"the audit log has {len(verdict.findings):,} findings, so nothing was removed: look at `audit "
                "verify`; `audit restart --reason` lets the log begin anew after them"
            )
        return examined

    def _require_covered(self, examined: Examined, names: Collection[str]) -> None:
        """Refuse to replace a base without a checkpoint whose call, if it still runs, removes more parts."""
        for base in examined.bases:
            if base.facts and not is_vouched(base, self.proofs):
                present = {self.location.name_of(part.key) for part in examined.parts}
                if any(cut.name in present and cut.name not in names for cut in base.facts.removed):
                    raise OperationDenied(
                        f"{base.name} of the audit log ({base.facts.kind} by {base.facts.actor}) has no checkpoint and "
                        "names more parts: if its call ended, `audit close` removes them, or remove the file of the "
                        "base by hand; nothing was removed"
                    )

    def _begun(self, kind: BaseKind, examined: Examined, reason: str | None) -> Base:
        if reason and len(reason) > _MOST_CHARACTERS:
            raise ValueError(f"a reason has at most {_MOST_CHARACTERS:,} characters, not {len(reason):,}")
        try:
            base = self._created(kind, examined, reason)
        except (FileAlreadyExistsError, AgentMemoryFileNotFoundError):  # a base, or a part that was removed
            raise ConflictError("another call changed the audit log at the same time; look at it again") from None
        self._finish(base)
        return base

    def _created(self, kind: BaseKind, examined: Examined, reason: str | None) -> Base:
        identity = self.location.make_identity()
        facts = self._facts(kind, examined, reason)
        number = examined.bases[-1].number + 1 if examined.bases else 1
        base = new_base(number, facts, identity, self.proofs.key)
        if self.archive is not None and facts.removed:
            self._copy(self.archive, examined, base, identity)
        create(self.location, base)
        return base

    def _facts(self, kind: BaseKind, examined: Examined, reason: str | None) -> BaseFacts:
        beyond = kind == "restarted"  # records that only a checkpoint names are lost, and a finding
        staying = {} if kind == "closed" else _staying(examined)
        parts = {cut.name: cut for cut in staying.values()}
        for part in examined.parts:
            cut = _cut(self.location.name_of(part.key), part.reader, part.size, part.lines)
            parts[cut.name] = cut._replace(stays=beyond or cut.name in staying)
        verifier, verdict = examined.verifier, examined.verifier.verdict
        known = () if kind == "closed" else examined.known
        return BaseFacts(
            kind,
            now(),
            self.actor,
            reason,
            examined.before + verdict.records,
            list(parts.values()),
            verifier.ends(beyond=beyond),
            self._salts(verifier.salts(), kind),
            (*known, *(each for each in verdict.findings if beyond and not each.is_harmless)),
            self._files(examined),
        )

    def _salts(self, facts: Sequence[SaltFact], kind: BaseKind) -> Sequence[SaltFact]:
        """The salts that the records name; after a restart, those that are missing or exchanged count as destroyed."""
        if kind != "restarted":
            return facts
        known = Salts(self.location).known_commitment
        return [each._replace(is_forgotten=each.is_forgotten or known(each.agent) != each.commitment) for each in facts]

    def _files(self, examined: Examined) -> Sequence[Sequence[Any]]:
        """The states of the files by the records in the parts."""
        states = LoggedFiles(self.location)
        states.update({self.location.name_of(part.key): part.size for part in examined.parts})
        return states.encoded()

    def _finish(self, base: Base) -> None:
        position = base.position
        if self.receive is not None:
            self.receive(position, self.location.make_identity())
            if self.proofs.anchors:
                self.proofs.anchors.setdefault((position.writer, position.seq), set()).add(position.hash)
        self._remove_parts(base)

    def _remove_parts(self, base: Base) -> None:
        """Remove the parts that a base replaces, and the bases before it."""
        present = {self.location.name_of(part) for part in self.location.parts()}
        for cut in base.facts.removed if base.facts else ():
            if cut.name in present:
                self._remove(_part_key(self.location, cut.name), cut)
        if base.facts and base.facts.removed:
            for number in range(base.number - 1, 0, -1):
                try:
                    self.location.store.delete(self.location.base_key(number))
                except AgentMemoryFileNotFoundError:
                    break

    def _remove(self, key: Key, cut: CutPart) -> None:
        """Remove the beginning of a part, on the condition that no writer changed the part meanwhile."""
        store = self.location.store
        for _ in range(_ATTEMPTS):
            with suppress(ConflictError):
                try:
                    found, reader = _state(store, key), store.reader(key)
                    if not cut.is_beginning_of(reader):
                        return  # a writer made it again
                    start = after(reader, cut)
                    if not isinstance(store.backend, BlockingBackend):
                        store.delete(key)  # over a network a part never changes
                    elif found.size != reader.size:
                        continue
                    elif start < reader.size:
                        rest = Blocks(blocks_of(reader, start, reader.size), reader.size - start)
                        store.run(part_flows.write, key, rest, found.etag)
                    else:
                        store.delete(key, found.etag)
                except AgentMemoryFileNotFoundError:
                    pass
                return
        raise ConflictError("writers changed a part of the audit log again and again; call it again to remove the part")

    def _copy(self, archive: LogLocation, examined: Examined, base: Base, identity: str) -> None:
        """Copy the parts, the identity and the bases to the archive.

        Raises:
            OperationDenied: the archive is the log itself, or has another log, or has other parts with these names.
        """
        if archive.identity() not in (None, identity):
            raise OperationDenied("the archive has another audit log; choose another directory; nothing was removed")
        archive.permit_write()
        _write(archive, archive.base_key(base.number), base.data)
        if self._has(base):
            self.location.store.delete(self.location.base_key(base.number))
            raise OperationDenied("the archive is the place of the log itself; choose another directory")
        for each in examined.bases:
            _write(archive, archive.base_key(each.number), each.data)
        archive.store.write(archive.identity_key(), f"{identity}\n".encode("ascii"))
        for part in examined.parts:
            _copy_part(archive, part)

    def _has(self, base: Base) -> bool:
        """Whether the log has this base, and not one of another call with the same number."""
        try:
            reader = self.location.store.reader(self.location.base_key(base.number))
            return b"".join(blocks_of(reader, 0, len(base.data))) == base.data
        except AgentMemoryFileNotFoundError:
            return False


def _state(store: BlockingStore, key: Key) -> Snapshot:
    """The state of a file for a condition; with its bytes only if one call may read them."""
    found = store.read(key, 0, 0)
    return store.read(key) if found.size <= store.backend.max_bytes else found


def _write(archive: LogLocation, key: Key, data: bytes) -> None:
    archive.store.run(part_flows.write, key, Blocks([data], len(data)), ANY)


def _copy_part(archive: LogLocation, part: ReadPart) -> None:
    def write(when: WriteCondition) -> None:
        blocks = Blocks(blocks_of(part.reader, 0, part.size), part.size)
        archive.store.run(part_flows.write, part.key, blocks, when)

    try:
        write(ABSENT)
    except FileAlreadyExistsError:
        found = archive.store.reader(part.key)
        step(found.read(0, 0))
        if not _cut("", found, found.size, 0).is_beginning_of(part.reader):
            raise OperationDenied(
                f"the archive has another part {part.key.name!r}; choose another directory; nothing was removed"
            ) from None
        write(_state(archive.store, part.key).etag)  # an earlier call was interrupted


def _older(location: LogLocation, examined: Examined, before: float) -> Iterator[str]:
    """The names of the oldest parts whose records are all older than a time."""
    limit = datetime.fromtimestamp(before, UTC).isoformat(timespec="microseconds").encode()
    for part in examined.parts:
        for block in location.blocks(part.key, part.reader):
            if any(found >= limit for found in _TIME.findall(block)):
                return
        yield location.name_of(part.key)


def _staying(examined: Examined) -> dict[str, CutPart]:
    """The parts that stay because of an earlier restart."""
    facts = next((base.facts for base in reversed(examined.bases) if base.facts), None)
    return {cut.name: cut for cut in facts.parts if cut.stays} if facts else {}


def _cut(name: str, reader: Reader, size: int, lines: int) -> CutPart:
    digest = hashlib.sha256()
    for block in blocks_of(reader, 0, size):
        digest.update(block)
    return CutPart(name, size, lines, digest.hexdigest())


def _part_key(location: LogLocation, name: str) -> Key:
    return location.directory.join(name)
