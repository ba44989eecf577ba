"""`RecordedSalts`: the salts that the records of a log name, compared with the present ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent_memory.audit.findings import Finding, Line
from agent_memory.audit.record import facts_of
from agent_memory.key.quoting import field

_COMMITS, _FORGETS = b',"commitment":"', b',"salt":"destroyed"'
"""Bytes of a record about a salt; no other record contains them, because quotes in a JSON string are escaped."""


class _OfAgent(NamedTuple):
    """The salts that an agent's records name: the current ones, and those that a forget destroyed."""

    current: dict[str, Line]
    forgotten: set[str]


class RecordedSalts:
    """The salts of all agents, by the records in the order of the log."""

    def __init__(self) -> None:
        self._of: dict[str | None, _OfAgent] = {}

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
