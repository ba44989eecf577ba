"""Output for the user: results on stdout, errors and notes on stderr, each as text or as one JSON document."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    BackendNotAvailableError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
    InvalidPathError,
    OperationDenied,
    PartialOperationError,
    UnsupportedOperationError,
)
from agent_memory.key.quoting import UNPRINTABLE
from agent_memory.key.quoting import counted as counted
from agent_memory.key.quoting import printable as printable

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS: Final = 80
"""Columns of a table if there is no terminal."""
_INDENT: Final = "    "
_LINE_SECONDS: Final = 10.0
"""Seconds between two lines of progress."""


class Exit(IntEnum):
    """The exit codes; `agent_memory.cli` explains them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REFUSED = 5
    UNSUPPORTED = 6
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class Explained(click.ClickException):
    """An error with an addition to its message, and with extra facts for its JSON document."""

    def __init__(self, cause: Exception, addition: str, facts: Mapping[str, Any]) -> None:
        super().__init__(f"{cause}; {addition}")
        self.cause = cause
        self.facts = facts


_CODES: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    (click.UsageError, Exit.USAGE),
    (AgentMemoryFileNotFoundError, Exit.NOT_FOUND),
    (FileAlreadyExistsError, Exit.CONFLICT),
    (ConflictError, Exit.CONFLICT),
    (InvalidPathError, Exit.REFUSED),
    (InvalidContentError, Exit.REFUSED),
    (FileTooLargeError, Exit.REFUSED),
    (OperationDenied, Exit.REFUSED),
    (UnsupportedOperationError, Exit.UNSUPPORTED),
    (BackendNotAvailableError, Exit.UNSUPPORTED),
)


def code_of(error: Exception) -> Exit:
    """The exit code of a command that ends with this error."""
    if isinstance(error, Explained):
        return code_of(error.cause)
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def message_of(error: Exception) -> str:
    """An error as one line of text."""
    if isinstance(error, click.UsageError):
        text = error.format_message().rstrip(".") + (f"; try '{error.ctx.command_path} --help'" if error.ctx else "")
    elif isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, AgentMemoryError | OSError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def document_of(error: Exception) -> dict[str, Any]:
    """An error as a JSON document: its stable kind, its message, and its other fields."""
    if isinstance(error, Explained):
        return {**document_of(error.cause), **error.facts, "message": message_of(error)}
    facts: dict[str, Any] = {"kind": _kind(error), "message": message_of(error)}
    if isinstance(error, InvalidPathError):
        facts |= {"rule": error.rule, "suggestion": error.suggestion or None}
    if isinstance(error, PartialOperationError):
        facts |= {"done": error.done, "left": error.left}
    return facts


def _kind(error: Exception) -> str:
    if isinstance(error, AgentMemoryError):
        return error.kind
    return "usage" if isinstance(error, click.UsageError) else "failed"


def report(error: Exception, as_json: bool, *, verbose: bool = False) -> Exit:
    """Print an error on stderr, and return its exit code; with ``verbose`` also where it is documented."""
    code = code_of(error)
    if as_json:
        click.echo(json.dumps({"error": {**document_of(error), "exit_code": int(code)}}), err=True)
        return code
    click.echo(printable(f"Error: {message_of(error)}"), err=True)
    if isinstance(error, InvalidPathError) and error.suggestion and error.suggestion not in message_of(error):
        click.echo(printable(f"Suggestion: {error.suggestion}"), err=True)
    if verbose and (details := _details(error)):
        click.echo(f"Details: {details}", err=True)
    return code


def _details(error: Exception) -> str | None:
    """The class, the kind and the section in the documentation of an error of this package; None for another error."""
    cause = error.cause if isinstance(error, Explained) else error
    if not isinstance(cause, AgentMemoryError):
        return None
    # The class of another package has no section there: its nearest base class has one.
    name = next(kind.__name__ for kind in type(cause).__mro__ if kind.__module__ == AgentMemoryError.__module__)
    return f"{name} ({cause.kind}), see docs/errors.md#{name.lower()}"


def show_json(document: Mapping[str, Any], *, err: bool = False) -> None:
    """Print a result, or with ``err`` a note on stderr, as one line of ASCII JSON."""
    click.echo(json.dumps(document), err=err)


def note(text: str) -> None:
    """Print a note on stderr."""
    click.echo(printable(f"Note: {text}"), err=True)


def argument(text: str) -> str | None:
    """A text as an argument in a printed command; None if it has characters that must not be printed."""
    return None if UNPRINTABLE.search(text) else shlex.quote(text)


def row(*facts: str) -> str:
    """A row of a table: its facts, two spaces apart, in lines of at most 80 columns.

    A fact that does not fit begins an indented line, and is never cut: a longer one has a line of its own.
    """
    from rich.cells import cell_len

    lines: list[str] = []
    for fact in facts:
        if lines and cell_len(f"{lines[-1]}  {fact}") <= COLUMNS:
            lines[-1] += f"  {fact}"
        else:
            lines.append(f"{_INDENT if lines else ''}{fact}")
    return "\n".join(lines)


def draw(drawing: RenderableType, columns: int = COLUMNS) -> None:
    """Print a table or a tree; in so many columns if there is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else columns)
    with console.capture() as captured:
        console.print(drawing, soft_wrap=False)
    # Rich does not print this itself: it would end the process if the output pipe is closed.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


class TableRow(NamedTuple):
    """A row of a table: its cells, and whether it shows something bad."""

    cells: Sequence[str]
    is_bad: bool = False


def show_table(columns: Sequence[str], rows: Iterable[TableRow]) -> None:
    """Print a table with a row of titles; a bad row is bold and red."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE)
    for each in rows:
        table.add_row(*map(Text, each.cells), style="bold red" if each.is_bad else "")
    draw(table)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr, if that is a terminal; each call advances it by one."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def reported_progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """`progress`; if stderr is not a terminal, a line on stderr at most every ten seconds."""
    done, last = 0, time.monotonic()

    with progress(title, total) as advance_bar:

        def advance() -> None:
            nonlocal done, last
            done += 1
            advance_bar()
            if not sys.stderr.isatty() and time.monotonic() - last >= _LINE_SECONDS:
                last = time.monotonic()
                note(f"{title}: {done} of {total}")

        yield advance


def moment(seconds: float) -> str:
    """POSIX seconds as a time in UTC, which `undo --since` takes."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def iso_moment(seconds: float) -> str:
    """POSIX seconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
