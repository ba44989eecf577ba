"""Counts the names in storage that the listings of one request left out."""

from __future__ import annotations

from contextvars import ContextVar

from agent_memory.hookspecs import Operation, Outcome, hookimpl

_counts: ContextVar[list[int]] = ContextVar("agent_memory_web_left_out")


class LeftOutNames:
    """An observer for the service of the pages: with it a page says how many names its listings left out.

    Such a name breaks the rules for names, or cannot be read; another program made it.
    """

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        """Add what the operation left out to the count of its request."""
        if outcome.skipped and (counts := _counts.get(None)) is not None:
            counts.append(outcome.skipped)


def begin_count() -> list[int]:
    """Begin the count of a request; the numbers of its operations are added to the list, from any thread."""
    counts: list[int] = []
    _counts.set(counts)
    return counts
