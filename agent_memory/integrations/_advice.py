"""What an adapter tells a model after its path was refused."""

from __future__ import annotations

from agent_memory.errors import AgentMemoryError, InvalidPathError
from agent_memory.key import RULES

__all__ = ["refusal"]


def refusal(error: AgentMemoryError) -> str:
    """Return why a path was refused, and names in place of those that were refused; never a path.

    The paths that a framework shows a model may differ from those of the memory: by a route, or by a scope that a model
    must not see.
    """
    if not isinstance(error, InvalidPathError):
        return f"{error.args[0]}; use a different name"
    return f"{RULES.get(error.rule, error.rule)}; {_advice(error)}"


def _advice(error: InvalidPathError) -> str:
    if not error.suggestion:
        return "use a different name"
    given, better = error.refused[1:-1].split("/"), error.suggestion.split("/")
    changed = [(old, new) for old, new in zip(given, better, strict=False) if old != ascii(new)[1:-1]]
    if len(given) != len(better) or not changed or error.refused.endswith("..."):
        return f"use the name '{better[-1]}'"
    return "; ".join(f"in place of '{old}' use '{new}'" for old, new in changed)
