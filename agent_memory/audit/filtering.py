"""`RecordFilter`: the records of an audit log that a person asks for, by agent, path, actor, tool call and time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from agent_memory.audit.location import LogLocation, NoNumberError
from agent_memory.audit.names import Spellings
from agent_memory.audit.record import quoted
from agent_memory.audit.records import Record
from agent_memory.audit.salts import Salts
from agent_memory.key import Key, is_agent_id, is_at_or_below

EDITED: Final = "edited"
"""The field that marks a record which is not as it was written."""
_OF_THE_LOG: Final = ("begin", "segment")


def spellings_of(location: LogLocation, agent: str | None) -> Spellings:
    """How the records of a log spell the names of an agent; without an agent, names are as they are."""
    if agent is None or not is_agent_id(agent):
        return Spellings(agent, None)
    try:
        return Spellings(agent, Salts(location).known_names(agent))
    except NoNumberError:
        return Spellings(agent, None)  # the verification reports the salt


class RecordFilter:
    """Whether a record has all of the given facts; None is every fact.

    Records that begin a log, or continue it in another file, are never chosen, because only a verification needs them.

    Args:
        spelled: the names of the agent, as `spellings_of`.
        agent: the agent.
        path: a file, or a directory and all below it.
        actor: the actor.
        tool_call: the id of the tool call.
        since: the earliest time, in POSIX seconds.
        until: the first time after the wanted ones.
        digest: the digest of a content, before or after the operation.

    Raises:
        InvalidPathError: no file can have this path.
    """

    def __init__(
        self,
        spelled: Spellings,
        *,
        agent: str | None = None,
        path: str | None = None,
        actor: str | None = None,
        tool_call: str | None = None,
        since: float | None = None,
        until: float | None = None,
        digest: str | None = None,
    ) -> None:
        self.name = None if path is None else Key.tree().join_prefix(path).path
        self.about_path = 0
        self._spelled = spelled
        self._names = () if self.name is None else spelled.of(self.name)
        self._agent = agent
        self._equal = {"actor": actor, "tool_call_id": tool_call}
        self._since, self._until = since, until
        self._digest = digest

    @property
    def texts(self) -> list[bytes]:
        """The line of a chosen record contains one of these texts; with an empty list, any line may be chosen."""
        if self.name is not None:
            return [quoted(name)[:-1] for name in self._names]  # also the names below it
        return [] if self._agent is None else [quoted(agent) for agent in self._spelled.agents if agent is not None]

    def __call__(self, record: Record) -> bool:
        """Whether it is chosen."""
        return (
            (record["event"] not in _OF_THE_LOG or EDITED in record)
            and (self._agent is None or record.get("agent") in self._spelled.agents)
            and (self.name is None or self._is_about_path(record))
            and all(wanted is None or record.get(name) == wanted for name, wanted in self._equal.items())
            and (self._digest is None or self._digest in (record.get("digest"), record.get("before_digest")))
            and (self._since is None or time_of(record).timestamp() >= self._since)
            and (self._until is None or time_of(record).timestamp() < self._until)
        )

    def plain(self, record: Record) -> Record:
        """A chosen record with the agent's id and path in the place of their digests."""
        return record if self._agent is None else self._spelled.plain(record, self.name or "")

    def _is_about_path(self, record: Record) -> bool:
        """Whether a record is about the path, or below it; `about_path` counts these."""
        is_named = any(is_at_or_below(path, name) for path in paths_of(record) for name in self._names)
        self.about_path += is_named
        return is_named


def paths_of(record: Record) -> Sequence[str]:
    """The path of a record, and the target of a move; a log may have been edited."""
    return [path for end in ("path", "target") if isinstance(path := record.get(end), str)]


def time_of(record: Record) -> datetime:
    """The time of a record in UTC."""
    return datetime.fromisoformat(record["time"]).astimezone(UTC)
