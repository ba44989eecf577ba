"""The salts of the digests in an audit log: one per agent, kept beside the log, destroyed by forgetting the agent.

A digest in the log is the HMAC-SHA-256 (RFC 2104) of the SHA-256 of a content, with the agent's salt as its key. The
salt makes it possible to test whether a record was of a given content. Without it that is impossible, even for short
content.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from agent_memory.audit.findings import Finding, Line
from agent_memory.audit.location import LogLocation, NoNumberError
from agent_memory.audit.record import facts_of
from agent_memory.backend.helpers import Uncopied
from agent_memory.core import tree_flows
from agent_memory.errors import InvalidPathError
from agent_memory.key import Key
from agent_memory.key.quoting import field

_DIRECTORY: Final = "salts"
_NO_AGENT: Final = "-"
_MOST_KEPT: Final = 65_536
_SALT: Final = (64, "not a salt (64 hexadecimal digits)")
"""The number of digits of a salt, and the message for a file with other content."""
_COMMITS, _FORGETS = b',"commitment":"', b',"salt":"destroyed"'
"""Bytes of a record about a salt; no other record contains them, because quotes in a JSON string are escaped."""


class Salts(Uncopied):
    """The salts of one log's agents; each is read once, and created if it does not exist.

    Another process that has read a salt still uses it after its destruction; digests recorded then are unverifiable.
    """

    def __init__(self, location: LogLocation) -> None:
        self._location = location
        self._known: OrderedDict[str | None, bytes] = OrderedDict()
        self._guard = threading.Lock()
        self._destroyed = 0.0
        self._commitments: dict[str | None, str] = {}

    def digest(self, agent: str | None, sha256: str, began: float) -> str | None:
        """The digest for the log of a content with this SHA-256, both in hexadecimal; raises the backend's errors.

        None if the operation began (``began``, POSIX seconds) before a salt was destroyed: its content may be
        forgotten, and with a digest under a new salt it could be guessed.
        """
        with self._guard:
            if began <= self._destroyed:
                return None
            salt = self._known.get(agent) or self._remembered(agent)
        return _digest(salt, sha256)

    def take_commitment(self, agent: str | None) -> str | None:
        """The SHA-256 of an agent's salt, once per read or creation: a record of it binds the salt to the log."""
        with self._guard:
            return self._commitments.pop(agent, None)

    def known_commitment(self, agent: str | None) -> str | None:
        """The SHA-256 of an agent's salt, "" if its file is no salt, or None if there is none; creates nothing.

        ``agent`` is from a record, and may be no valid id: then there is none.
        """
        try:
            salt = self._read(self._key(agent))
        except InvalidPathError:
            return None
        except NoNumberError:
            return ""
        return None if salt is None else hashlib.sha256(salt).hexdigest()

    def known_digests(self, agent: str | None) -> Callable[[str], str] | None:
        """A function that returns digests as `digest` does, or None if the agent has no salt; creates nothing."""
        salt = self._read(self._key(agent))
        return None if salt is None else partial(_digest, salt)

    def destroy(self, agent: str | None) -> None:
        """Destroy an agent's salt permanently.

        Raises:
            UnsupportedOperationError: the log's backend does not promise to keep nothing of a deleted file.
            WriteError: the storage failed.
        """
        key = self._key(agent)
        with self._guard:  # so no other thread reads the salt again before it is destroyed
            self._destroyed = time.time()
            try:
                self._location.store.run(tree_flows.forget, key)
            finally:
                self._known.pop(agent, None)
                self._commitments.pop(agent, None)

    def _remembered(self, agent: str | None) -> bytes:
        salt = self._known[agent] = bytes.fromhex(self._location.make_number(self._key(agent), *_SALT))
        self._commitments[agent] = hashlib.sha256(salt).hexdigest()
        if len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)
        return salt

    def _read(self, key: Key) -> bytes | None:
        found = self._location.number(key, *_SALT)
        return None if found is None else bytes.fromhex(found)

    def _key(self, agent: str | None) -> Key:
        name = f"{_NO_AGENT if agent is None else agent}.salt"
        if self._location.name is None:
            return Key.internal(f"{_DIRECTORY}/{name}")
        return self._location.directory.join(f"{self._location.name}.{_DIRECTORY}/{name}")


class _OfAgent(NamedTuple):
    """The salts that an agent's records name: the current ones, and those that a forget destroyed."""

    current: dict[str, Line]
    forgotten: set[str]


class SaltFact(NamedTuple):
    """The SHA-256 of a salt that a record names, and whether a forget destroyed the salt."""

    agent: str | None
    commitment: str
    is_forgotten: bool


class RecordedSalts:
    """The salts of all agents, by the records in the order of the log."""

    def __init__(self) -> None:
        self._of: dict[str | None, _OfAgent] = {}

    def begin_with(self, facts: Iterable[SaltFact]) -> None:
        """Note the salts that records name which are no longer in the log."""
        for agent, commitment, is_forgotten in facts:
            salt = self._of.setdefault(agent, _OfAgent({}, set()))
            if is_forgotten:
                salt.forgotten.add(commitment)
            else:
                salt.current[commitment] = Line("", 0)

    def facts(self) -> list[SaltFact]:
        """All salts that the records name."""
        return [
            SaltFact(agent, commitment, commitment in salt.forgotten)
            for agent, salt in self._of.items()
            for commitment in (*salt.current, *sorted(salt.forgotten))
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
        salt = self._of.setdefault(agent, _OfAgent({}, set()))
        if isinstance(commitment, str) and commitment not in salt.forgotten:
            salt.current.setdefault(commitment, at)
        if facts.get("salt") == "destroyed":
            salt.forgotten.update(salt.current)
            salt.current.clear()

    def judged(self, known: Callable[[str | None], str | None]) -> Iterator[Finding]:
        """Salts that differ from the recorded ones; ``known`` returns the SHA-256 of an agent's present salt."""
        for agent, salt in self._of.items():
            name = "the operations without an agent" if agent is None else f"agent {field(agent)}"
            found = known(agent) if salt.current else None
            for commitment, at in salt.current.items():
                if found is None:
                    detail = f"the salt of {name} is missing, and no record says that it was destroyed"
                    yield Finding("salt", at, detail)
                elif commitment != found:
                    yield Finding("salt", at, f"the salt of {name} was replaced, and no record says why")


def _digest(salt: bytes, sha256: str) -> str:
    return hmac.digest(salt, bytes.fromhex(sha256), "sha256").hex()
