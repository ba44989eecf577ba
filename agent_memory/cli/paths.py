"""Paths as people paste them: `/memories/notes.md` of a model's tool is `notes.md` in the memory."""

from __future__ import annotations

from agent_memory.tools.memory_tool import ROOT


def memory_path(text: str) -> str:
    """The name within the memory, ``.`` for the whole of it: the type of whatever names a path here."""
    if text == ROOT or text.startswith(f"{ROOT}/"):
        return text[len(ROOT) :].lstrip("/") or "."
    return text
