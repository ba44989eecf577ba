"""The line at the end of a tool's answer that warns of a budget or limit which is nearly used up."""

from __future__ import annotations

import logging

from agent_memory.core.budgets import NearlyFull
from agent_memory.memory import AsyncAgentMemory

_log = logging.getLogger("agent_memory")


async def warned(
    memory: AsyncAgentMemory,
    answer: str,
    path: str | None = None,
    *,
    shown: str | None = None,
    size: int | None = None,
    text: str | None = None,
) -> str:
    """Return an answer about a change, with a warning as its last line if there is one.

    Args:
        memory: the memory.
        answer: the answer.
        path: the changed file; None if it was deleted.
        shown: its name for the model; None: ``path``.
        size: its bytes, if known.
        text: its whole text, if known.
    """
    line = await warning(memory, path, shown=shown, size=size, text=text)
    return f"{answer}\n{line}" if line else answer


async def warning(
    memory: AsyncAgentMemory,
    path: str | None,
    *,
    shown: str | None = None,
    size: int | None = None,
    text: str | None = None,
) -> str | None:
    """Return the warning alone; None if there is none. A failure of it is logged, because the change is done."""
    try:
        full = await memory._nearly_full(path, size, text)
    except Exception as error:  # noqa: BLE001 - also a defect of a plugin: the change took effect
        _log.warning("the budgets could not be compared (%s); the answer has no warning", type(error).__name__)
        return None
    return _line(full, shown or path) if full else None


def _line(full: NearlyFull, path: str | None) -> str:
    unit = full.unit if full.most != 1 else full.unit.removesuffix("s")
    used = f"{'at least ' if full.at_least else ''}{full.used:,} of {full.most:,} {unit}"
    if full.of_agent:
        return f"Your memory has {used}; delete files that you no longer need, or merge files."
    return f"{path} has {used}; move older notes to other files."
