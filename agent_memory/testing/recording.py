"""`RecordingPlugin`: records every hook call, for tests of code that plugins observe."""

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


@dataclass(eq=False)  # pluggy distinguishes plugins by identity
class RecordingPlugin:
    """Records the arguments of every hook call, in order.

    It has no guard of reads and no context: after a guard, a cancelled read would end with another status.

    Attributes:
        before: the operations that the guards checked.
        checked: the contents that the guards checked, each with its operation.
        sizes: the sizes that the guards checked, of contents written in parts, each with its operation.
        after: the operations that ended, each with its outcome.
        rejected: the names that were refused.
    """

    before: list[Operation] = field(default_factory=list)
    checked: list[tuple[Operation, bytes]] = field(default_factory=list)
    sizes: list[tuple[Operation, int]] = field(default_factory=list)
    after: list[tuple[Operation, Outcome]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def under_way(self) -> list[Operation]:
        """The operations that have begun and not ended."""
        ended = {operation.id for operation, _ in self.after}
        return [operation for operation in self.before if operation.id not in ended]

    def outcome(self) -> Outcome:
        """The outcome of the only operation that ended.

        Raises:
            ValueError: no operation ended, or several did.
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
