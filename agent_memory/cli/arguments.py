"""The types of arguments and options: paths within the memory, as users paste them, and times."""

from __future__ import annotations

from datetime import UTC, datetime

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


class Moment(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A date or a time in ISO 8601, in UTC unless it has an offset; as POSIX seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time like 2026-03-01 or 2026-03-01 09:12:07Z", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
