"""`verify_files`: holds the files of a store against the records of its audit log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast

from agent_memory.audit.location import LogLocation
from agent_memory.audit.logged import BEGINNING, NEVER, SKEW_SECONDS, LoggedAppend, LoggedFile, Whole
from agent_memory.audit.names import AgentNames, is_digest
from agent_memory.audit.salts import Salts
from agent_memory.audit.states import FORGOTTEN, LoggedFiles
from agent_memory.backend import Entry
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError
from agent_memory.key import AGENTS, Key, is_agent_id
from agent_memory.reading.reader import Reader
from agent_memory.runtime.run import step

FileFindingKind: TypeAlias = Literal["changed", "missing", "unknown", "unvouched"]
_EMPTY: Final = hashlib.sha256().hexdigest()
_BLOCK: Final = 1024 * 1024
_PAGE: Final = 1000
_TURNS: Final = 3
WAIT_SECONDS: Final = 3.0
"""How long the record of a change that a writer has just made is awaited, in seconds."""


@dataclass(frozen=True, slots=True)
class FileFinding:
    """A file that is not as the last records tell, or about which they tell too little ("unvouched").

    ``agent`` and ``path`` of a missing file are digests, if the records have no other name of it.
    """

    kind: FileFindingKind
    agent: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.agent}/{self.path}: {self.kind}: {self.detail}"


@dataclass
class Progress:
    """How far a verification of files came.

    Attributes:
        files: the files that were compared.
        size: their bytes.
        skipped: the names that break the rules for names; no record can tell of them.
        agent: the agent of the last one.
        path: the path of the last one.
    """

    files: int = 0
    size: int = 0
    skipped: int = 0
    agent: str = ""
    path: str = ""


class FilePart:
    """A part of a file that was read, as a reader; `read` returns None for bytes that are not in it."""

    def __init__(self, content: bytes, start: int, size: int) -> None:
        self.size = size
        self._content = content
        self._start = start

    async def read(self, start: int, end: int) -> bytes | None:
        """The bytes ``[start:end]`` of the file."""
        at = start - self._start
        if at < 0 or end - self._start > len(self._content):
            return None
        return self._content[at : end - self._start]


class FileVerifier:
    """Compares files with what the records of an audit log tell of them.

    Args:
        location: the log.
        store: the store whose files are compared.
    """

    def __init__(self, location: LogLocation, store: BlockingStore) -> None:
        self.states = LoggedFiles(location)
        self._store = store
        self._salts = Salts(location)
        self._known: dict[str, AgentNames | None] = {}

    def verify(
        self, agents: list[str] | None = None, after: tuple[str, str] = ("", ""), progress: Progress | None = None
    ) -> Iterator[FileFinding]:
        """Yield the findings, by agent and path.

        A file that differs is compared again after the newest records were read, because writers may go on meanwhile.

        Args:
            agents: only files of these agents.
            after: only files after this agent and path, to go on where an earlier call ended.
            progress: is told about each file.

        Raises:
            ReadError: a file or the log could not be read.
        """
        progress, suspects = progress or Progress(), list[tuple[str, str]]()
        self.states.update()
        names = agents if agents is not None else sorted({*self._stored_agents(progress), *self.states.agents()})
        for agent in names:
            if agent >= after[0]:
                for found in self._of_agent(agent, after[1] if agent == after[0] else "", progress):
                    if found.kind == "unvouched":
                        yield found
                    else:
                        suspects.append((agent, found.path))
        yield from self._again(suspects)

    def _again(self, suspects: Sequence[tuple[str, str]]) -> Iterator[FileFinding]:
        """Compare files again: their content now with the records after a wait, because writers may go on."""
        for turn in range(_TURNS):
            if not suspects:
                return
            read = [(agent, path, self._reader(agent, path)) for agent, path in self._named(suspects)]
            read_at = time.time()
            time.sleep(WAIT_SECONDS)
            self.states.update()
            suspects = []
            for agent, path, reader in read:
                state = self.states.of(agent, path)
                is_busy = state is not None and state.latest >= read_at - SKEW_SECONDS
                found = self._judged(agent, path, reader, read_at if is_busy else None)
                if is_busy and turn + 1 < _TURNS:
                    suspects.append((agent, path))
                elif found:
                    yield replace(found, kind="unvouched", detail="writers changed it meanwhile") if is_busy else found

    def _of_agent(self, agent: str, after: str, progress: Progress) -> Iterator[FileFinding]:
        found: list[FileFinding] = []
        wanted = self.states.paths(agent)
        for entry in self._entries(agent, progress):
            wanted.pop(self.states.name(agent, entry.path), None)
            if entry.path > after:
                judged = self._judged(agent, entry.path, self._opened(agent, entry.path, _BLOCK))
                found += [judged] if judged else []
                progress.files, progress.size = progress.files + 1, progress.size + entry.size
                progress.agent, progress.path = agent, entry.path
        missing = (self._judged(agent, path, None) for path in wanted.values() if is_digest(path) or path > after)
        found += filter(None, missing)
        yield from sorted(found, key=lambda each: each.path)

    def _named(self, suspects: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """The files with their paths, if files have the digests of these paths by now."""
        digests = {agent for agent, path in suspects if is_digest(path)}
        paths = {
            (agent, self.states.name(agent, each.path)): each.path
            for agent in digests
            for each in self._entries(agent, Progress())
        }
        for agent, path in suspects:
            yield agent, paths.get((agent, path), path)

    def judged_now(self, agent: str, path: str, reader: Reader, read_at: float) -> FileFinding | None:
        """Judge one content, read at a time, by the newest records and the present salt; None if nothing differs."""
        self.states.update()
        self._known.pop(agent, None)
        state = self.states.of(agent, path)
        if state is not None and state.latest >= read_at:
            return None  # the content may be older than the last change
        return self._judged(agent, path, reader, read_at)

    def _judged(self, agent: str, path: str, reader: Reader | None, busy: float | None = None) -> FileFinding | None:
        """Judge a file; no reader if there was no file. ``busy``: writers went on when it was read, at this time."""
        state = self.states.of(agent, path)
        if self.states.is_interrupted(agent, path):
            return FileFinding("unvouched", agent, path, "an operation on it was interrupted")
        if reader is None:
            is_missing = state is not None and state.exists and busy is None
            return FileFinding("missing", agent, path, "the last record says that it exists") if is_missing else None
        if state is None and self.states.is_doubted(agent):
            return FileFinding("unvouched", agent, path, FORGOTTEN)
        if state is None or not (state.wholes or state.appends or state.doubt):
            return FileFinding("unknown", agent, path, "no record names it")
        if not state.may_exist:
            return FileFinding("unknown", agent, path, "the last record says that it was deleted")
        try:
            return self.judge(agent, path, state, reader, busy)
        except (ConflictError, AgentMemoryFileNotFoundError):
            return FileFinding("unvouched", agent, path, "it was written while it was read")

    def judge(
        self, agent: str, path: str, state: LoggedFile, reader: Reader, busy: float | None = None
    ) -> FileFinding | None:
        """Compare a content with a state; None if it is as the records tell."""
        wholes = state.wholes or ([] if state.doubt else [_NOTHING])
        judged = [self._follow(agent, whole, state, reader, busy) for whole in reversed(wholes)]
        if "" in judged:
            return None
        if state.doubt:
            return FileFinding("unvouched", agent, path, state.doubt)
        if unvouched := [each for each in judged if each.startswith("bytes")]:
            return FileFinding("unvouched", agent, path, unvouched[0])
        return FileFinding("changed", agent, path, judged[0])

    def _follow(self, agent: str, whole: Whole, state: LoggedFile, reader: Reader, busy: float | None) -> str:
        """Follow a content and its appends: "" if the file has it, else the bytes without proof, or the difference."""
        size, at, unproved = reader.size, whole.size or 0, ""
        if not size and whole.digest == BEGINNING:
            return "it is empty, the records tell of appends"
        whole = _content(whole)
        if size < at:
            return f"it has {size:,} bytes, the record says {at:,}"
        proof = self._proves(agent, whole, _sha256(reader, 0, at))
        if proof is False:
            return f"its first {at:,} bytes are not those of the record"
        unproved = "" if proof else f"bytes 0 to {at:,}: the salt of their digest was destroyed"
        for append in sorted(state.appends, key=lambda each: each.size):
            is_later = append.size > size and busy is not None and append.when.end >= busy - SKEW_SECONDS
            if append.size <= at or is_later:
                continue
            proof = self._appended(agent, append, reader, at) if append.size <= size else False
            if proof is False:
                if whole.when.may_follow(append.when):
                    continue  # it may have been replaced by the whole content
                return f"its bytes from {at:,} on are not those of the records"
            unproved = unproved or ("" if proof else f"bytes {at:,} to {append.size:,}: no proof")
            at = append.size
        return unproved if at == size else f"it has {size:,} bytes, the records say {at:,}"

    def _appended(self, agent: str, append: LoggedAppend, reader: Reader, at: int) -> bool | None:
        """Whether the bytes after ``at`` are those of an append, perhaps after a separator; None: unknown."""
        results: list[bool | None] = []
        for start in (at, at + 1):
            results.append(self._proves(agent, append, _sha256(reader, start, append.size)))
            if results[-1]:
                return True
        return None if None in results else False

    def _proves(self, agent: str, recorded: Whole | LoggedAppend, sha256: str | None) -> bool | None:
        """Whether a digest is of a content; None if the content is unknown, or the salt is not the present one."""
        if sha256 is None:
            return None
        if recorded.digest is None or recorded.digest == _EMPTY:
            return (sha256 == _EMPTY) if recorded.digest else None
        if agent not in self._known:
            self._known[agent] = self._salts.known_names(agent)
        if (names := self._known[agent]) is None:
            return None
        if names.content(sha256) == recorded.digest:
            return True
        return False if recorded.salt == names.commitment else None

    def _reader(self, agent: str, path: str) -> Reader | None:
        return None if is_digest(agent) or is_digest(path) else self._opened(agent, path, 0)

    def _opened(self, agent: str, path: str, most: int) -> Reader | None:
        """A reader of a file; a file of at most ``most`` bytes is read at once, with one request instead of several."""
        reader = self._store.reader(Key.agent(agent).join(path))
        try:
            data = step(reader.read(0, most))
        except AgentMemoryFileNotFoundError:
            return None
        return cast(Reader, FilePart(data, 0, reader.size)) if len(data) == reader.size else reader

    def _entries(self, agent: str, progress: Progress) -> Iterator[Entry]:
        token: str | None = None
        while not is_digest(agent):
            page = self._store.list(Key.agent(agent), after=token, limit=_PAGE)
            progress.skipped += page.skipped
            yield from page.entries
            token = page.next
            if token is None:
                return

    def _stored_agents(self, progress: Progress) -> list[str]:
        listing = self._store.run(tree_flows.list_all, AGENTS, recursive=False)
        names = [entry.key.name for entry in listing.entries if entry.is_directory]
        agents = [name for name in names if is_agent_id(name)]
        progress.skipped += listing.skipped + len(names) - len(agents)
        return agents


_NOTHING: Final = Whole(NEVER, 0, _EMPTY)


def _content(whole: Whole) -> Whole:
    """The content of a file that did not exist is empty, for the appends that follow."""
    return Whole(whole.when, 0, _EMPTY) if whole.size is None or whole.digest == BEGINNING else whole


def _sha256(reader: Reader, start: int, end: int) -> str | None:
    """The digest of a part of a file; None if a reader of a part of the file does not have all of it."""
    digest = hashlib.sha256()
    for at in range(start, end, _BLOCK):
        data: bytes | None = step(reader.read(at, min(end, at + _BLOCK)))
        if data is None:
            return None
        digest.update(data)
    return digest.hexdigest()
