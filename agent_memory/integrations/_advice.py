"""What an adapter tells a model to do after its path was refused."""

from __future__ import annotations

from agent_memory.errors import InvalidPathError

__all__ = ["better_name"]


def better_name(error: InvalidPathError) -> str:
    """Return the end of a message: names in place of those that were refused, never a path.

    The paths that a framework shows a model may differ from those of the memory: by a route, or by a scope that a model
    must not see.
    """
    if not error.suggestion:
        return "; use a different name"
    given, better = error.refused[1:-1].split("/"), error.suggestion.split("/")
    changed = [(old, new) for old, new in zip(given, better, strict=False) if old != ascii(new)[1:-1]]
    if len(given) != len(better) or not changed or error.refused.endswith("..."):
        return f"; use the name '{better[-1]}'"
    return "".join(f"; in place of '{old}' use '{new}'" for old, new in changed)
