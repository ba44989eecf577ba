"""Paths as users paste them: ``/memories/notes.md`` of a model's tool is ``notes.md`` in the memory."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from agent_memory.cli import completing
from agent_memory.tools.memory_tool import ROOT


class _MemoryPath(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A path within the memory, ``.`` for the whole memory; a shell completes it."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's
        if value == ROOT or value.startswith(f"{ROOT}/"):
            return value[len(ROOT) :].lstrip("/") or "."
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        return completing.paths(ctx, incomplete, ROOT)


memory_path = _MemoryPath()
"""The type of every argument and option that is a path within the memory."""
