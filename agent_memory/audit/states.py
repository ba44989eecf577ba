"""`LoggedFiles`: the state of each file by the records of an audit log.

Records of one file are put in the order in which their operations ended. Two operations of different writers that
overlap, or are less than `SKEW_SECONDS` apart, may have happened in either order: then both results are possible.

Records may name an agent and its files by digests. The states of an agent are under digests from the first such record
on, also those of earlier records. A digest whose salt a forget destroyed is nobody's: its states are dropped.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from agent_memory.audit.bases import Base, BaseFacts, CutPart, bases_of
from agent_memory.audit.location import LogLocation
from agent_memory.audit.logged import SKEW_SECONDS, LoggedAppend, LoggedFile, Ran, Whole
from agent_memory.audit.names import UNNAMED, AgentNames, is_digest
from agent_memory.audit.records import lines_of_part, parsed
from agent_memory.audit.salts import Salts
from agent_memory.audit.verify import after, is_there
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.hookspecs import READING
from agent_memory.key import is_at_or_below
from agent_memory.reading.reader import Reader

_LATE_SECONDS: Final = 60.0
"""A record is written at most this long after records of later operations, in seconds."""
_ATTEMPTS: Final = 10
_STEP_SECONDS: Final = 10.0
"""A clock that goes back by more seconds in a chain was set back."""
_WHOLE: Final = frozenset({"write", "create", "edit", "restore"})
_REMOVES: Final = frozenset({"delete", "delete_tree", "forget"})
FORGOTTEN: Final = "the salt of the digests in its records was destroyed"
"""The doubt about the files of an agent that goes on after a forget of some of them."""
_EVENTS: Final = (b'"event":"operation"', b'"event":"intent"')


class _Start(NamedTuple):
    """Where the records begin: the facts of the base in effect, and the beginnings of parts that it replaces."""

    facts: BaseFacts | None
    skipped: Mapping[str, CutPart]


class _RecentRemoval(NamedTuple):
    """A removal of the files at or below a path."""

    path: str
    when: Ran


class LoggedFiles:
    """The states of the files of all agents; `update` follows the log.

    It needs some hundred bytes of memory for each file, and for each append since a file was written as a whole.

    Attributes:
        lost: how many records writers dropped because they could not write them.
    """

    def __init__(self, location: LogLocation) -> None:
        self.lost = 0
        self._location = location
        self._files: defaultdict[str, dict[str, LoggedFile]] = defaultdict(dict)
        self._removals: defaultdict[str, list[_RecentRemoval]] = defaultdict(list)
        self._salts: dict[tuple[str, str], str] = {}
        self._sole: dict[str | None, str] = {}
        self._clocks: dict[str, tuple[float, float]] = {}  # of a writer: its latest time, and by how much it went back
        self._start = _Start(None, {})
        self._read: dict[str, int] = {}
        self._waiting: list[tuple[float, str, int, dict[str, Any]]] = []
        self._begun: dict[str, dict[str, Any]] = {}
        self._by_digest: Mapping[str, AgentNames] | None = None
        self._agents: dict[str, str] = {}
        self._digested: dict[str, AgentNames] = {}
        self._plain: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._forgotten: dict[str, str | None] = {}
        self._doubted: set[str] = set()

    def update(self, limits: Mapping[str, int] | None = None) -> None:
        """Read the records that were written since the last call; with ``limits`` only so many bytes of these parts.

        Raises:
            ConflictError: the log was pruned or merged while it was read; without ``limits``, again and again.
        """
        for left in reversed(range(_ATTEMPTS if limits is None else 1)):
            try:
                self._update(limits)
                break
            except (AgentMemoryFileNotFoundError, ConflictError):
                self._begin(_Start(None, {}))
                if not left:
                    raise

    def _update(self, limits: Mapping[str, int] | None) -> None:
        bases = bases_of(self._location, checked=False)
        parts = [
            each for each in self._location.readers() if limits is None or self._location.name_of(each[0]) in limits
        ]
        if limits is not None and len(parts) != len(limits):
            raise ConflictError("another call changed the audit log at the same time; look at it again")
        self._by_digest = None
        readers = {self._location.name_of(part): reader for part, reader in parts}
        begun = _begun(bases, readers)
        is_cut = any(name not in readers or 0 < readers[name].size < at for name, at in self._read.items())
        if begun != self._start or is_cut:
            self._begin(begun)
        newest = 0.0
        for record in self._new_records(readers, limits or {}):
            end = record["ended"] = self._ended(record)
            heapq.heappush(self._waiting, (end, record["writer"], record["seq"], record))
            newest = max(newest, end)
            while self._waiting and self._waiting[0][0] < newest - _LATE_SECONDS:
                self._take(heapq.heappop(self._waiting)[3])
        for *_, record in sorted(self._waiting, key=lambda each: each[:3]):
            self._take(record)
        self._waiting.clear()

    def _ended(self, record: dict[str, Any]) -> float:
        """When an operation ended. A chain tells the order of its records, also if the clock was set back."""
        writer, ended = record["writer"], datetime.fromisoformat(record["time"]).timestamp() + _duration(record)
        latest, back = self._clocks.get(writer, (0.0, 0.0))
        if ended + back < latest - _STEP_SECONDS:
            back = latest - ended
        self._clocks[writer] = max(latest, ended + back), back
        return ended + back

    def _begin(self, begun: _Start) -> None:
        """Begin with the oldest record, because the log was begun anew or merged since the last call."""
        self._start = begun
        names = (self._agents, self._digested, self._plain, self._forgotten, self._doubted)
        facts_of_files = (self._files, self._removals, self._begun, self._read, self._clocks, self._waiting)
        for known in (*facts_of_files, self._salts, self._sole, *names):
            known.clear()
        self.lost = 0
        if facts := begun.facts:
            several = {salt.agent for salt in facts.salts if salt.is_forgotten}
            self._sole = {salt.agent: salt.commitment for salt in facts.salts if salt.agent not in several}
            digests = {agent for agent in several if agent is not None and is_digest(agent)}
            self._forgotten = {agent: None for agent in digests if not self._names_of(agent)}
            self._files = _decoded(facts.files)
            self._doubted = {agent for agent, files in self._files.items() if files.pop("", None)}
        for agent in list(self._files):
            self._resolved(agent)

    def agents(self) -> list[str]:
        """The agents that the records name; by its digest, if there is no salt that tells the agent."""
        return sorted(self._files)

    def paths(self, agent: str) -> dict[str, str]:
        """The paths of files that may exist, by their recorded names; the names, if the paths are unknown."""
        known = self._plain.get(agent, {})
        return {name: known.get(name, name) for name, state in self._files.get(agent, {}).items() if state.may_exist}

    def name(self, agent: str, path: str) -> str:
        """The name under which the state of a file is, by its path."""
        names = self._digested.get(agent)
        return path if names is None or is_digest(path) else names.path(path)

    def of(self, agent: str, path: str) -> LoggedFile | None:
        """The state of a file."""
        return self._files.get(agent, {}).get(self.name(agent, path))

    def is_doubted(self, agent: str) -> bool:
        """Whether records of an agent's files may be under a digest whose salt was destroyed."""
        return agent in self._doubted

    def is_interrupted(self, agent: str, path: str) -> bool:
        """Whether an operation on a file was begun, has no recorded end, and no later one wrote the whole file."""
        state, own = self.of(agent, path), self.name(agent, path)
        written = min((each.when.start for each in state.wholes), default=0.0) if state else 0.0
        return any(
            self._resolved(record["agent"]) == agent
            and any(is_at_or_below(own, self.name(agent, record[end])) for end in ("path", "target") if end in record)
            and datetime.fromisoformat(record["time"]).timestamp() + SKEW_SECONDS >= written
            for record in self._begun.values()
        )

    def encoded(self) -> list[Sequence[Any]]:
        """The states of the files that may exist, as a base stores them, by the recorded names."""
        found: list[Sequence[Any]] = [(self._recorded(agent), "", FORGOTTEN, (), ()) for agent in self._doubted]
        return found + [
            (self._recorded(agent), path, *piece)
            for agent, files in self._files.items()
            for path, state in files.items()
            if state.may_exist
            for piece in state.encoded(is_interrupted=self.is_interrupted(agent, path))
        ]

    def _recorded(self, agent: str) -> str | None:
        names = self._digested.get(agent)
        return names.digest if names else agent

    def _resolved(self, recorded: str) -> str:
        """The agent of a recorded name, or the name itself; from its first digest on, its files are under digests."""
        if not is_digest(recorded) or recorded in self._forgotten:
            return recorded
        if recorded in self._agents:
            return self._agents[recorded]
        if (names := self._names_of(recorded)) is None or names.agent is None:
            return recorded
        self._name(names.agent, recorded, names)
        return names.agent

    def _names_of(self, digest: str) -> AgentNames | None:
        """The agent of a digest, if its salt exists."""
        if self._by_digest is None:
            self._by_digest = Salts(self._location).by_digest
        return self._by_digest.get(digest)

    def _name(self, agent: str, digest: str, names: AgentNames) -> None:
        """Put the states of an agent under digests."""
        self._agents[digest] = agent
        if earlier := self._digested.get(agent):  # the record that its salt was destroyed is not read yet
            self._drop(str(earlier.digest), digest)
        self._digested[agent] = names
        files = {**self._files.pop(agent, {}), **self._files.pop(digest, {})}
        self._files[agent] = {self._noted(agent, path): state for path, state in files.items()}
        if earlier or digest in self._doubted:
            self._doubted.discard(digest)
            self._doubt_all(agent)

    def _drop(self, recorded: str, successor: str | None) -> None:
        """Drop what is known of a recorded agent; a digest belongs to no agent any more."""
        agent = self._resolved(recorded)
        for known in (self._files, self._removals, self._digested, self._plain):
            known.pop(agent, None)
        self._doubted.discard(agent)
        if is_digest(recorded):
            self._agents.pop(recorded, None)
            self._forgotten[recorded] = successor

    def _noted(self, agent: str, path: str) -> str:
        """The name of a file of a record; the path is kept if the state is under a digest."""
        if (name := self.name(agent, path)) != path:
            self._plain[agent][name] = path
        return name

    def _new_records(self, readers: Mapping[str, Reader], limits: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        for name, reader in readers.items():
            if self._read.get(name) == reader.size or (name in self._read and not reader.size):
                continue  # a batch never changes, and has no size before it is read
            part, skipped = self._location.directory.join(name), self._start.skipped.get(name)
            at = self._read[name] if name in self._read else after(reader, skipped)
            for line in lines_of_part(self._location, part, reader, at):
                at += len(line) + 1
                if at > limits.get(name, at) + 1:
                    break
                self.lost += b'"event":"lost"' in line
                if any(event in line for event in _EVENTS) and (found := parsed(line)) and found.is_as_written:
                    yield found.record
            self._read[name] = reader.size

    def _take(self, record: dict[str, Any]) -> None:
        recorded = record.get("agent")
        if recorded is None:
            return
        if salt := record.get("commitment"):
            self._salts[record["writer"], recorded] = salt
        if record.get("operation") in READING:
            return
        if record["event"] == "intent":
            self._begun[record["id"]] = record
            return
        self._begun.pop(record.get("id", ""), None)
        if record.get("salt") == "destroyed":
            self._forget(record, recorded)
        elif recorded in self._forgotten:  # by a process that had read the salt before
            self._doubt_all(self._forgotten[recorded])
        if recorded == UNNAMED or recorded in self._forgotten:
            return
        agent = self._resolved(recorded)
        if record.get("outcome") == "unknown" or record.get("error") == "partial_operation":
            self._doubt(record, agent, "an operation on it has no known outcome")
        elif record.get("outcome") == "ok" and not record.get("replayed"):
            self._apply(record, agent)

    def _forget(self, record: dict[str, Any], recorded: str) -> None:
        """Drop the states under digests whose salt was destroyed; if the agent stays, its files are in doubt."""
        commitment = record.get("commitment") or self._salts.get((record["writer"], recorded))
        known = [*((agent, salt) for (_, agent), salt in self._salts.items()), *self._sole.items()]
        holders = {recorded, *(agent for agent, salt in known if agent and salt == commitment)} - {UNNAMED}
        self._salts = {each: salt for each, salt in self._salts.items() if each[1] not in holders}
        for agent in holders:
            self._sole.pop(agent, None)
        digests = {agent for agent in holders if is_digest(agent)}
        if not digests:
            return
        is_whole = record.get("operation") == "forget" and not record.get("path")
        going_on = None if is_whole else record.get("successor", None if is_digest(recorded) else recorded)
        for agent in holders if is_digest(recorded) else digests:
            if other := self._forgotten.get(agent):
                going_on = self._raced(other, going_on)
            self._drop(agent, going_on)
        self._doubt_all(going_on)

    def _raced(self, other: str, successor: str | None) -> str | None:
        """Of two successors of one digest, by two forgets at once, drop the one whose salt is destroyed."""
        gone, stays = (successor, other) if self._names_of(other) else (other, successor)
        if gone is not None and gone != stays:
            self._drop(gone, stays)
        return stays

    def _doubt_all(self, successor: str | None) -> None:
        """Doubt all files of the agent that goes on after a forget."""
        for _ in range(len(self._forgotten)):  # not `while`: a forged log may have a circle
            successor = self._forgotten.get(successor, successor) if successor else None
        if successor is not None:
            agent = self._resolved(successor)
            self._doubted.add(agent)
            for state in self._files[agent].values():
                state.doubt = FORGOTTEN

    def _apply(self, record: dict[str, Any], agent: str) -> None:
        kind, path, size = record["operation"], self._noted(agent, record.get("path", "")), record.get("size")
        when = _ran(record)
        files, salt = self._files[agent], self._salt_of(record, agent)
        if kind in _WHOLE:
            gone = kind == "edit" and size is None
            whole = Whole(when, None if gone else size, record.get("digest"), salt)
            files.setdefault(path, LoggedFile()).set(whole)
        elif kind == "append" and size is not None:
            append = LoggedAppend(when, size, record.get("given", 0), record.get("digest"), salt)
            files.setdefault(path, self._new(agent)).append(append)
        elif kind in ("rename", "copy"):
            self._move(agent, path, self._noted(agent, record.get("target", "")), when, removes=kind == "rename")
        elif kind in _REMOVES:
            self._remove(agent, path, when)
        if path in files:
            for removal in self._removals[agent]:
                if is_at_or_below(path, self.name(agent, removal.path)) and removal.when.may_follow(when):
                    files[path].set(Whole(removal.when, None))

    def _remove(self, agent: str, path: str, when: Ran) -> None:
        """Take a removal, and keep it for a minute: it may also have removed files whose records follow."""
        for name in _below(self._files[agent], path):
            self._files[agent][name].set(Whole(when, None))
        recent = [each for each in self._removals[agent] if each.when.end > when.end - _LATE_SECONDS]
        self._removals[agent] = [*recent, _RecentRemoval(path, when)]

    def _salt_of(self, record: dict[str, Any], agent: str) -> str | None:
        """The SHA-256 of the salt of a record's digests."""
        recorded = record["agent"]
        if is_digest(recorded) and (names := self._digested.get(agent)):
            return names.commitment
        return self._salts.get((record["writer"], recorded)) or self._sole.get(recorded)

    def _new(self, agent: str) -> LoggedFile:
        state = LoggedFile()
        state.doubt = FORGOTTEN if agent in self._doubted else ""
        return state

    def _move(self, agent: str, path: str, target: str, when: Ran, *, removes: bool) -> None:
        files = self._files[agent]
        if agent in self._doubted:
            for name in _below(files, target):
                files[name].doubt = FORGOTTEN  # a file without records may have got this name
        names = [name for name in _below(files, path) if files[name].may_exist]
        for name in names:  # a former file, if there are others below: then a directory has its name
            new = files.setdefault(target + name[len(path) :], LoggedFile())
            new.take(files[name], when, existed=files[name].exists or names == [path])
        if removes:
            self._remove(agent, path, when)

    def _doubt(self, record: dict[str, Any], agent: str, why: str) -> None:
        files, when = self._files[agent], _ran(record)
        for path in filter(None, (record.get("path"), record.get("target"))):
            named = self._noted(agent, path)
            for name in {*_below(files, named), named}:
                files.setdefault(name, LoggedFile()).question(why, when)


def _begun(bases: Sequence[Base], readers: Mapping[str, Reader]) -> _Start:
    """The start after the newest base, but not after one whose parts are all still in the log."""
    for facts in filter(None, (base.facts for base in reversed(bases))):
        there = {cut.name: cut for cut in facts.parts if is_there(readers, cut)}
        if not facts.removed or any(cut.name not in there for cut in facts.removed):
            return _Start(facts, there)
    return _Start(None, {})


def _below(files: Mapping[str, LoggedFile], path: str) -> list[str]:
    if (state := files.get(path)) and state.exists:
        return [path]
    return [name for name in files if is_at_or_below(name, path)]  # a directory, perhaps in the place of a former file


def _ran(record: dict[str, Any]) -> Ran:
    return Ran(record["ended"] - _duration(record), record["ended"], record["writer"])


def _duration(record: dict[str, Any]) -> float:
    duration = record.get("duration", 0.0)
    return duration if isinstance(duration, int | float) else 0.0


def _decoded(files: Iterable[Sequence[Any]]) -> defaultdict[str, dict[str, LoggedFile]]:
    found: defaultdict[str, dict[str, LoggedFile]] = defaultdict(dict)
    for agent, path, doubt, wholes, appends in files:  # without a path: all files of the agent are in doubt
        state = found[agent].setdefault(path, LoggedFile())
        state.doubt = doubt
        state.wholes += [Whole(_decoded_ran(when), *rest) for when, *rest in wholes]
        state.appends += [LoggedAppend(_decoded_ran(when), *rest) for when, *rest in appends]
    return found


def _decoded_ran(when: Sequence[Any]) -> Ran:
    start, end, writer, before = when
    return Ran(start, end, writer, tuple((start, end, writer) for start, end, writer in before))
