"""`LoggedFiles`: the state of each file by the records of an audit log.

Records of one file are put in the order in which their operations ended. Two operations of different writers that
overlap, or are less than `SKEW_SECONDS` apart, may have happened in either order: then both results are possible.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from agent_memory.audit.bases import Base, BaseFacts, CutPart, bases_of
from agent_memory.audit.location import LogLocation
from agent_memory.audit.records import lines_of_part, parsed
from agent_memory.audit.verify import after, is_there
from agent_memory.hookspecs import READING
from agent_memory.key import is_at_or_below
from agent_memory.reading.reader import Reader

SKEW_SECONDS: Final = 2.0
"""The difference between the clocks of writers that is allowed for, in seconds."""
_LATE_SECONDS: Final = 60.0
"""A record is written at most this long after records of later operations, in seconds."""
_IN_ONE_PIECE: Final = 100
_STEP_SECONDS: Final = 10.0
"""A clock that goes back by more seconds in a chain was set back."""
_WHOLE: Final = frozenset({"write", "create", "edit", "restore"})
_EVENTS: Final = (b'"event":"operation"', b'"event":"intent"')


class Ran(NamedTuple):
    """When an operation ran, in POSIX seconds, and the writer of its record."""

    start: float
    end: float
    writer: str

    def may_follow(self, other: Ran) -> bool:
        """Whether this operation may have happened after another one whose record is in front of it in the order."""
        return self.end + (0.0 if self.writer == other.writer else SKEW_SECONDS) > other.start


class Whole(NamedTuple):
    """A whole content that a file may have: its bytes and digest; no size if the file may not exist.

    ``salt`` is the SHA-256 of the salt of the digest; None if the record does not tell.
    """

    when: Ran
    size: int | None
    digest: str | None = None
    salt: str | None = None


class LoggedAppend(NamedTuple):
    """An append: the size of the file afterwards, and the digest of the appended bytes."""

    when: Ran
    size: int
    given: int
    digest: str | None
    salt: str | None


class LoggedFile:
    """What the records tell of one file.

    Attributes:
        wholes: the whole contents that it may have had last, in the order of the operations.
        appends: the appends that may have followed.
        doubt: why the records do not tell the content; "" if they do.
    """

    __slots__ = ("appends", "doubt", "wholes")

    def __init__(self) -> None:
        self.wholes: list[Whole] = []
        self.appends: list[LoggedAppend] = []
        self.doubt = ""

    def set(self, whole: Whole) -> None:
        """Take a whole content; earlier ones stay only if they may have been written later."""
        if self._is_replaced(whole.when):
            return
        self.wholes = [each for each in self.wholes if each.when.may_follow(whole.when)] + [whole]
        self.appends = [each for each in self.appends if each.when.may_follow(whole.when)]
        self.doubt = ""

    def append(self, append: LoggedAppend) -> None:
        """Take an append, unless a whole content was certainly written later."""
        if not self._is_replaced(append.when):
            self.appends.append(append)

    def _is_replaced(self, when: Ran) -> bool:
        """Whether a whole content was certainly written after an operation: its record came late."""
        return any(not when.may_follow(each.when) for each in self.wholes)

    def copied(self, when: Ran) -> LoggedFile:
        """The state of a copy, or of the file under a new name."""
        state = LoggedFile()
        state.wholes = [each._replace(when=when) for each in self.wholes]
        state.appends = [each._replace(when=when) for each in self.appends]
        state.doubt = self.doubt or ("it changed while it was moved" if self.latest > when.start else "")
        return state

    @property
    def latest(self) -> float:
        """When the last operation on it ended, in POSIX seconds."""
        ends = [each.when.end for each in self.wholes] + [each.when.end for each in self.appends]
        return max(ends, default=0.0)

    def encoded(self, *, is_interrupted: bool) -> Iterator[Sequence[Any]]:
        """The state as a base stores it, in pieces, because a record of a base is one line."""
        doubt = self.doubt or ("an operation on it was interrupted" if is_interrupted else "")
        yield doubt, self.wholes, self.appends[:_IN_ONE_PIECE]
        for at in range(_IN_ONE_PIECE, len(self.appends), _IN_ONE_PIECE):
            yield doubt, [], self.appends[at : at + _IN_ONE_PIECE]

    @property
    def exists(self) -> bool:
        """Whether the file must exist."""
        return (
            not self.doubt and bool(self.appends or self.wholes) and all(each.size is not None for each in self.wholes)
        )

    @property
    def may_exist(self) -> bool:
        """Whether the file may exist."""
        return bool(self.doubt or self.appends) or any(each.size is not None for each in self.wholes)


class _Start(NamedTuple):
    """Where the records begin: the facts of the base in effect, and the beginnings of parts that it replaces."""

    facts: BaseFacts | None
    skipped: Mapping[str, CutPart]


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
        self._salts: dict[tuple[str, str], str] = {}
        self._sole: dict[str | None, str] = {}
        self._clocks: dict[str, tuple[float, float]] = {}  # of a writer: its latest time, and by how much it went back
        self._start = _Start(None, {})
        self._read: dict[str, int] = {}
        self._waiting: list[tuple[float, str, int, dict[str, Any]]] = []
        self._begun: dict[str, dict[str, Any]] = {}

    def update(self, limits: Mapping[str, int] | None = None) -> None:
        """Read the records that were written since the last call; with ``limits`` only so many bytes of these parts.

        Raises:
            ConflictError: the log was pruned or merged while it was read.
        """
        bases = bases_of(self._location, checked=False)
        parts = [
            each for each in self._location.readers() if limits is None or self._location.name_of(each[0]) in limits
        ]
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
        self._files.clear()
        self._salts.clear()
        self._sole.clear()
        self._clocks.clear()
        self._read.clear()
        self._begun.clear()
        self.lost = 0
        if facts := begun.facts:
            several = {salt.agent for salt in facts.salts if salt.is_forgotten}
            self._sole = {salt.agent: salt.commitment for salt in facts.salts if salt.agent not in several}
            self._files = _decoded(facts.files)

    def agents(self) -> list[str]:
        """The agents that the records name."""
        return sorted(self._files)

    def of(self, agent: str) -> dict[str, LoggedFile]:
        """The states of an agent's files, by path."""
        return self._files.get(agent, {})

    def is_interrupted(self, agent: str, path: str) -> bool:
        """Whether an operation on a file was begun, has no recorded end, and no later one wrote the whole file."""
        state = self.of(agent).get(path)
        written = min((each.when.start for each in state.wholes), default=0.0) if state else 0.0
        return any(
            record.get("agent") == agent
            and any(
                name is not None and is_at_or_below(path, name) for name in (record.get("path"), record.get("target"))
            )
            and datetime.fromisoformat(record["time"]).timestamp() + SKEW_SECONDS >= written
            for record in self._begun.values()
        )

    def encoded(self) -> list[Sequence[Any]]:
        """The states of the files that may exist, as a base stores them."""
        return [
            (agent, path, *piece)
            for agent, files in self._files.items()
            for path, state in files.items()
            if state.may_exist
            for piece in state.encoded(is_interrupted=self.is_interrupted(agent, path))
        ]

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
        agent = record.get("agent")
        if agent is None or record.get("operation") in READING:
            return
        if record["event"] == "intent":
            self._begun[record["id"]] = record
            return
        self._begun.pop(record.get("id", ""), None)
        if salt := record.get("commitment"):
            self._salts[record["writer"], agent] = salt
        if record.get("salt") == "destroyed":
            self._salts = {each: salt for each, salt in self._salts.items() if each[1] != agent}
            self._sole.pop(agent, None)
        if record.get("outcome") == "unknown" or record.get("error") == "partial_operation":
            self._doubt(record, "an operation on it has no known outcome")
        elif record.get("outcome") == "ok" and not record.get("replayed"):
            self._apply(record, agent)

    def _apply(self, record: dict[str, Any], agent: str) -> None:
        kind, path, size = record["operation"], record.get("path", ""), record.get("size")
        when = Ran(record["ended"] - _duration(record), record["ended"], record["writer"])
        files, salt = self._files[agent], self._salts.get((record["writer"], agent)) or self._sole.get(agent)
        if kind in _WHOLE:
            gone = kind == "edit" and size is None
            whole = Whole(when, None if gone else size, record.get("digest"), salt)
            files.setdefault(path, LoggedFile()).set(whole)
        elif kind == "append" and size is not None:
            append = LoggedAppend(when, size, record.get("given", 0), record.get("digest"), salt)
            files.setdefault(path, LoggedFile()).append(append)
        elif kind in ("delete", "delete_tree", "forget"):
            for name in _below(files, path):
                files[name].set(Whole(when, None))
        elif kind in ("rename", "copy"):
            self._move(files, path, record.get("target", ""), when, removes=kind == "rename")

    @staticmethod
    def _move(files: dict[str, LoggedFile], path: str, target: str, when: Ran, *, removes: bool) -> None:
        for name in _below(files, path):
            if files[name].may_exist:
                files[target + name[len(path) :]] = files[name].copied(when)
            if removes:
                files[name] = LoggedFile()
                files[name].set(Whole(when, None))

    def _doubt(self, record: dict[str, Any], why: str) -> None:
        files = self._files[record["agent"]]
        for path in filter(None, (record.get("path"), record.get("target"))):
            for name in {*_below(files, path), path}:
                files.setdefault(name, LoggedFile()).doubt = why


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


def _duration(record: dict[str, Any]) -> float:
    duration = record.get("duration", 0.0)
    return duration if isinstance(duration, int | float) else 0.0


def _decoded(files: Iterable[Sequence[Any]]) -> defaultdict[str, dict[str, LoggedFile]]:
    found: defaultdict[str, dict[str, LoggedFile]] = defaultdict(dict)
    for agent, path, doubt, wholes, appends in files:
        state = found[agent].setdefault(path, LoggedFile())
        state.doubt = doubt
        state.wholes += [Whole(Ran(*when), *rest) for when, *rest in wholes]
        state.appends += [LoggedAppend(Ran(*when), *rest) for when, *rest in appends]
    return found
