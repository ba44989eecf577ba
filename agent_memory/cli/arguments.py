"""The arguments and options of several commands: paths and agents, which a shell completes, times, and ``--yes``."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from agent_memory.backend import AnyBackend
from agent_memory.backend._deadline import default_seconds
from agent_memory.cli.inspection import first_page
from agent_memory.cli.output import printable
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import AGENTS, Key
from agent_memory.registry import open_backend
from agent_memory.tools.memory_tool import ROOT

F = TypeVar("F", bound=Callable[..., Any])
_SECONDS: Final = 5.0
_MOST: Final = 200
_MOST_DAYS: Final = 100_000  # no time before the year 1
_SAFE: Final = re.compile(r"(?!-)[\w@+,./-]+")
"""Names that a shell may insert as they are: agents choose names, and a shell runs the command in ``$(...)``."""


class _MemoryPath(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.4 on
    """A path within the memory, ``.`` for the whole memory; a shell completes it."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's
        if value == ROOT or value.startswith(f"{ROOT}/"):
            return value[len(ROOT) :].lstrip("/") or "."
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        return _complete_path(ctx, incomplete)


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


class Days(click.FloatRange):
    """A number of days that is not 0."""

    def __init__(self) -> None:
        super().__init__(0, _MOST_DAYS, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if math.isnan(days := super().convert(value, param, ctx)):
            self.fail(f"{value!r} is no number", param, ctx)
        return float(days)


def complete_agents(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete an agent; the first 200 are looked at."""
    return _completed(
        ctx.obj, incomplete, lambda backend: [each.name for each in first_page(backend, AGENTS, _MOST).directories]
    )


def _complete_path(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Complete a path of ``--agent``, also in the form of a tool.

    The first 200 names of the directory are looked at; hidden ones only if the beginning is hidden.
    """
    top = f"{ROOT}/" if incomplete.startswith(f"{ROOT}/") else ""
    beginning = incomplete.removeprefix(top)
    return _completed(ctx.obj, beginning, lambda backend: _paths(backend, ctx.obj.agent, beginning), top)


def _completed(
    settings: Any, incomplete: str, find: Callable[[AnyBackend], Sequence[str]], top: str = ""
) -> list[CompletionItem]:
    """Read the store in a thread, for a few seconds at most; an error completes nothing."""
    names: list[str] = []

    def look() -> None:
        try:
            names.extend(_found(settings, find))
        except Exception:  # noqa: BLE001 - a completion that fails is no completion
            names.clear()

    before = logging.root.manager.disable
    logging.disable()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_SECONDS)
    if thread.is_alive():
        os._exit(0)  # threads that wait for the network would delay the end of the process
    logging.disable(before)
    return [CompletionItem(top + name) for name in names if name.startswith(incomplete) and _SAFE.fullmatch(top + name)]


def _found(settings: Any, find: Callable[[AnyBackend], Sequence[str]]) -> Sequence[str]:
    with default_seconds(_SECONDS):
        store = BlockingStore(open_backend(settings.url, settings.storage_options()))
        try:
            return find(store.backend)
        finally:
            store.close()


def _paths(backend: AnyBackend, agent: str, incomplete: str) -> Sequence[str]:
    """The names in the directory of a path. The only one is looked into if it is a directory: a shell ends its word."""
    top = Key.agent(agent)
    above, _, beginning = incomplete.rpartition("/")
    page = first_page(backend, top.join_prefix(above), _MOST)
    names = [key.relative_to(top).path + "/" for key in page.directories]
    names += [entry.key.relative_to(top).path for entry in page.entries]
    found = [
        name for name in names
        if name.startswith(incomplete) and (beginning.startswith(".") or not _last(name).startswith("."))
    ]  # fmt: skip
    if found == [incomplete] or len(found) != 1 or not found[0].endswith("/"):
        return found
    return [*found, *_paths(backend, agent, found[0])]


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def max_results_option(what: str, default: int, most: int) -> Callable[[F], F]:
    """The option --max-results of a search."""
    return click.option(
        "--max-results",
        type=click.IntRange(1, most),
        default=default,
        metavar="N",
        help=f"{what}, 1 to {most}.  [default: {default}]",
    )


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask first; required without a terminal.")


def require_answer(command: str, yes: bool) -> None:
    """Raise `click.UsageError` if a command would have to ask and there is no terminal; call it before all else."""
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise click.UsageError(
            f"{command} asks first, and there is no terminal to ask in, so nothing was changed; --yes goes on without "
            "asking"
        )


def ask(question: str, yes: bool) -> None:
    """Ask on the terminal, unless ``yes``; raise if the answer is no."""
    if not yes and not click.confirm(printable(question), err=True):
        raise click.ClickException("nothing was changed")
