"""`RecordingPlugin`: remembers every hook call, for tests of code that is to be seen by plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agent_memory.hookspecs import Operation, Outcome, hookimpl


class Rejected(NamedTuple):
    """A name that was refused; see `agent_memory.hookspecs.agent_memory_key_rejected`."""

    agent: str | None
    text: str
    reason: str
    actor: str | None


@dataclass(eq=False)  # pluggy tells plugins apart by identity
class RecordingPlugin:
    """Remembers what it was told, in order.

    Attributes:
        before: the operations the guards were asked about.
        checked: the content they were asked about, with its operation.
        sizes: the sizes they were asked about of content that is written in parts, with its operation.
        after: the operations that ended, with how.
        rejected: the names that were refused.
    """

    before: list[Operation] = field(default_factory=list)
    checked: list[tuple[Operation, bytes]] = field(default_factory=list)
    sizes: list[tuple[Operation, int]] = field(default_factory=list)
    after: list[tuple[Operation, Outcome]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def under_way(self) -> list[Operation]:
        """The operations that were begun and have not ended."""
        ended = {operation.id for operation, _ in self.after}
        return [operation for operation in self.before if operation.id not in ended]

    def outcome(self) -> Outcome:
        """Of the only operation that ended.

        Raises:
            ValueError: none did, or several.
        """
        ((_, outcome),) = self.after
        return outcome

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        self.before.append(operation)

    @hookimpl
    def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:
        self.checked.append((operation, content))

    @hookimpl
    def agent_memory_check_size(self, operation: Operation, size: int) -> None:
        self.sizes.append((operation, size))

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        self.after.append((operation, outcome))

    @hookimpl
    def agent_memory_key_rejected(self, agent: str | None, text: str, reason: str, actor: str | None) -> None:
        self.rejected.append(Rejected(agent, text, reason, actor))
