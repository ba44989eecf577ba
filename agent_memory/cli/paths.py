"""Paths as users paste them: ``/memories/notes.md`` of a model's tool is ``notes.md`` in the memory."""

from __future__ import annotations

from agent_memory.tools.memory_tool import ROOT


def memory_path(text: str) -> str:
    """The path within the memory, ``.`` for the whole memory; the type of every path argument."""
    if text == ROOT or text.startswith(f"{ROOT}/"):
        return text[len(ROOT) :].lstrip("/") or "."
    return text
