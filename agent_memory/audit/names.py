"""The names in records: an agent and a path as they are, or their digests under the agent's salt.

A digest begins with ``~``, as no agent id and no path does. A path is digested segment by segment, so that a record of
a directory still covers the paths below it. A forget destroys the salt: then no name can be tested against a digest.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from functools import cached_property
from itertools import takewhile
from operator import eq
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

PathsOption: TypeAlias = Literal["names", "digest"]
"""How a log records agents and paths."""
PATHS_OPTIONS: Final = get_args(PathsOption)
UNNAMED: Final = "~"
"""The name in a record whose salt was destroyed, or could not be read, before the record was made."""
_NAMES: Final = ("path", "target")
_AGENT_DIGITS: Final = 32
_SEGMENT_DIGITS: Final = 24


def is_digest(name: object) -> bool:
    """Whether a recorded agent or path is a digest."""
    return isinstance(name, str) and name.startswith(UNNAMED)


class AgentNames(NamedTuple):
    """The digests of one agent under one salt; ``agent`` is None for trees without an agent."""

    agent: str | None
    salt: bytes

    @property
    def commitment(self) -> str:
        """The SHA-256 of the salt."""
        return hashlib.sha256(self.salt).hexdigest()

    @property
    def digest(self) -> str | None:
        """The digest of the agent's id."""
        return None if self.agent is None else self._digest("agent", self.agent, _AGENT_DIGITS)

    def content(self, sha256: str) -> str:
        """The digest of a content with this SHA-256, both in hexadecimal."""
        return hmac.digest(self.salt, bytes.fromhex(sha256), "sha256").hex()

    def path(self, path: str) -> str:
        """The digest of a path."""
        return "/".join(map(self.text, path.split("/"))) if path else ""

    def text(self, text: str) -> str:
        """The digest of a segment, or of a refused name."""
        return self._digest("segment", text, _SEGMENT_DIGITS)

    def _digest(self, kind: str, text: str, digits: int) -> str:
        data = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
        return UNNAMED + hmac.digest(self.salt, data, "sha256").hex()[:digits]


def with_digests(facts: Mapping[str, object], names: AgentNames | None) -> dict[str, object]:
    """The facts of an operation with digests in the place of its names; without ``names`` with no name at all."""
    found = dict(facts)
    if found["agent"] is not None:
        found["agent"] = names.digest if names else UNNAMED
    for name in _NAMES:
        if isinstance(path := found.get(name), str):
            found[name] = names.path(path) if names else path and UNNAMED
    return found


class Spellings:
    """How records spell the names of one agent: as they are, and as digests if the agent has a salt.

    Args:
        agent: the agent's id; None for trees without an agent.
        names: the digests; None if the agent has no salt.
    """

    def __init__(self, agent: str | None, names: AgentNames | None) -> None:
        self._agent = agent
        self._names = names

    @cached_property
    def agents(self) -> tuple[str | None, ...]:
        """The spellings of the agent."""
        return (self._agent,) if self._names is None else (self._agent, self._names.digest)

    def of(self, path: str) -> tuple[str, ...]:
        """The spellings of a path."""
        return (path,) if self._names is None else (path, self._names.path(path))

    def plain(self, record: dict[str, Any], path: str = "") -> dict[str, Any]:
        """A record of this agent with its id, and with the segments of a path that its names begin with."""
        found = {**record, "agent": self._agent} if self._agent is not None else dict(record)
        spelled, known = self.of(path)[-1].split("/"), path.split("/")
        for name in _NAMES:
            if is_digest(record.get(name)):
                parts = record[name].split("/")
                same = sum(takewhile(bool, map(eq, parts, spelled)))
                found[name] = "/".join([*known[:same], *parts[same:]])
        return found
