"""The salts of the digests in an audit log: one per agent, kept beside the log, destroyed by forgetting the agent.

A digest in the log is the HMAC-SHA-256 (RFC 2104) of the SHA-256 of a content, with the agent's salt as its key. The
salt makes it possible to test whether a record was of a given content. Without it that is impossible, even for short
content.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Final, NamedTuple

from agent_memory.audit.findings import Finding, Line
from agent_memory.audit.location import LogLocation, NoNumberError
from agent_memory.audit.names import UNNAMED, AgentNames, is_digest
from agent_memory.audit.record import facts_of
from agent_memory.backend.helpers import Uncopied
from agent_memory.core import tree_flows
from agent_memory.errors import InvalidPathError
from agent_memory.key import Key, is_agent_id
from agent_memory.key.quoting import field

REREAD_SECONDS: Final = 60.0
"""How long a salt is used before it is read again: another process may have destroyed it."""
_DIRECTORY: Final = "salts"
_SUFFIX: Final = ".salt"
_NO_AGENT: Final = "-"
_MOST_KEPT: Final = 65_536
_SALT: Final = (64, "not a salt (64 hexadecimal digits)")
"""The number of digits of a salt, and the message for a file with other content."""
_COMMITS, _FORGETS = b',"commitment":"', b',"salt":"destroyed"'
"""Bytes of a record about a salt; no other record contains them, because quotes in a JSON string are escaped."""


class _Read(NamedTuple):
    """A salt, and when it was read, by the monotonic clock."""

    salt: bytes
    at: float


class Salts(Uncopied):
    """The salts of one log's agents; each is read again after `REREAD_SECONDS`, and created if it does not exist.

    Until then another process that has read a salt still uses it after its destruction: what it records then is
    unverifiable.
    """

    def __init__(self, location: LogLocation) -> None:
        self._location = location
        self._known: OrderedDict[str | None, _Read] = OrderedDict()
        self._guard = threading.Lock()
        self._destroyed: OrderedDict[str | None, float] = OrderedDict()
        self._commitments: dict[str | None, str] = {}

    def digest(self, agent: str | None, sha256: str, began: float) -> str | None:
        """The digest for the log of a content with this SHA-256, both in hexadecimal; raises the backend's errors.

        None if the operation began (``began``, POSIX seconds) before a forget of the agent ended: its content may be
        forgotten, and with a digest under a new salt it could be guessed.
        """
        names = self.names(agent, began)
        return names and names.content(sha256)

    def names(self, agent: str | None, began: float) -> AgentNames | None:
        """The digests of an agent for a record; None as for `digest`."""
        salt = self._salt(agent, began)
        return None if salt is None else AgentNames(agent, salt)

    def take_commitment(self, agent: str | None) -> str | None:
        """The SHA-256 of an agent's salt, once per new salt: a record of it binds the salt to the log."""
        with self._guard:
            return self._commitments.pop(agent, None)

    def known_commitment(self, agent: str | None) -> str | None:
        """The SHA-256 of an agent's salt, "" if its file is no salt, or None if there is none; creates nothing.

        ``agent`` is from a record, and may be a digest, or no valid id: then there is none.
        """
        if agent is not None and is_digest(agent):
            return found.commitment if (found := self.by_digest.get(agent)) else None
        try:
            salt = self._read(self._key(agent))
        except InvalidPathError:
            return None
        except NoNumberError:
            return ""
        return None if salt is None else hashlib.sha256(salt).hexdigest()

    @cached_property
    def by_digest(self) -> Mapping[str, AgentNames]:
        """The agents that have a salt, by their digests; all salts are read, once."""
        found: dict[str, AgentNames] = {}
        listing = self._location.store.run(tree_flows.list_all, self._directory(), recursive=False)
        for name in (entry.key.name for entry in listing.entries if not entry.is_directory):
            agent = name.removesuffix(_SUFFIX)
            if agent + _SUFFIX == name and is_agent_id(agent):
                with suppress(NoNumberError):
                    names = self.known_names(agent)
                    found |= {str(names.digest): names} if names else {}
        return found

    def known_names(self, agent: str | None) -> AgentNames | None:
        """The digests of an agent, or None if the agent has no salt; creates nothing."""
        salt = self._read(self._key(agent))
        return None if salt is None else AgentNames(agent, salt)

    def destroy(self, agent: str | None, ended: float | None = None) -> None:
        """Destroy an agent's salt permanently; ``ended`` is the end of the forget, in POSIX seconds, by default now.

        Raises:
            UnsupportedOperationError: the log's backend does not promise to keep nothing of a deleted file.
            WriteError: the storage failed.
        """
        key = self._key(agent)
        with self._guard:  # so no other thread reads the salt again before it is destroyed
            self._destroyed[agent] = time.time() if ended is None else ended
            if len(self._destroyed) > _MOST_KEPT:
                self._destroyed.popitem(last=False)
            try:
                self._location.store.run(tree_flows.forget, key)
            finally:
                self._known.pop(agent, None)
                self._commitments.pop(agent, None)

    def _salt(self, agent: str | None, began: float) -> bytes | None:
        with self._guard:
            if began <= self._destroyed.get(agent, -math.inf):
                return None
            known = self._known.get(agent)
            if known is None or time.monotonic() - known.at > REREAD_SECONDS:
                known = self._remembered(agent, known and known.salt)
            return known.salt

    def _remembered(self, agent: str | None, before: bytes | None) -> _Read:
        salt = bytes.fromhex(self._location.make_number(self._key(agent), *_SALT))
        known = self._known[agent] = _Read(salt, time.monotonic())
        if salt != before:
            self._commitments[agent] = hashlib.sha256(salt).hexdigest()
        if len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return known

    def _read(self, key: Key) -> bytes | None:
        found = self._location.number(key, *_SALT)
        return None if found is None else bytes.fromhex(found)

    def _key(self, agent: str | None) -> Key:
        return self._directory().join(f"{_NO_AGENT if agent is None else agent}{_SUFFIX}")

    def _directory(self) -> Key:
        if self._location.name is None:
            return Key.internal(_DIRECTORY)
        return self._location.directory.join(f"{self._location.name}.{_DIRECTORY}")


class SaltFact(NamedTuple):
    """The SHA-256 of a salt that a record names, and whether a forget destroyed the salt."""

    agent: str | None
    commitment: str
    is_forgotten: bool


class RecordedSalts:
    """The salts of all agents, by the records in the order of the log.

    An agent whose names were recorded as they are, and later as digests, is named in two ways, with one salt.
    """

    def __init__(self) -> None:
        self._of: defaultdict[str | None, dict[str, Line]] = defaultdict(dict)
        self._forgotten: set[str] = set()
        self._successors: defaultdict[str, list[object]] = defaultdict(list)
        self._raced: set[object] = set()

    def begin_with(self, facts: Iterable[SaltFact]) -> None:
        """Note the salts that records name which are no longer in the log."""
        for agent, commitment, is_forgotten in facts:
            self._of[agent][commitment] = Line("", 0)
            if is_forgotten:
                self._forgotten.add(commitment)

    def facts(self) -> list[SaltFact]:
        """All salts that the records name."""
        return [
            SaltFact(agent, commitment, commitment in self._forgotten or agent in self._raced)
            for agent, salts in self._of.items()
            for commitment in salts
        ]

    def note(self, line: bytes, at: Line) -> None:
        """Note the salt that a record names, if it names one."""
        if _COMMITS not in line and _FORGETS not in line:
            return
        try:
            facts = facts_of(line)
        except ValueError:
            return
        agent, commitment = facts.get("agent"), facts.get("commitment")
        if not isinstance(agent, str | None):
            return
        if isinstance(commitment, str):
            self._of[agent].setdefault(commitment, at)
        if facts.get("salt") == "destroyed":
            self._forgotten.update(self._of[agent])
            if agent != UNNAMED and is_digest(agent):
                self._note_successor(str(agent), facts.get("successor"))

    def _note_successor(self, agent: str, successor: object) -> None:
        """Note the next digest of an agent. If two forgets name one digest, one destroyed the other's new salt."""
        successors = self._successors[agent]
        successors.append(successor)
        if len(successors) > 1:
            self._raced.update(filter(is_digest, successors))

    def judged(self, known: Callable[[str | None], str | None]) -> Iterator[Finding]:
        """Salts that differ from the recorded ones; ``known`` returns the SHA-256 of an agent's present salt."""
        for agent, salts in self._of.items():
            current = {each: at for each, at in salts.items() if each not in self._forgotten}
            name = "the operations without an agent" if agent is None else f"agent {field(agent)}"
            found = known(agent) if current else None
            for commitment, at in current.items() if agent not in self._raced else ():
                if found is None:
                    detail = f"the salt of {name} is missing, and no record says that it was destroyed"
                    yield Finding("salt", at, detail)
                elif commitment != found:
                    yield Finding("salt", at, f"the salt of {name} was replaced, and no record says why")
