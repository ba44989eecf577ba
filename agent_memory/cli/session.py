"""The results of a demo, printed in at most 80 columns, with colours in a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from agent_memory.cli.output import printable
from agent_memory.errors import AgentMemoryError

WIDTH: Final = 80
_INDENT: Final = "  "


@dataclass
class Session:
    """The results of a demo."""

    store: str
    agent: str
    expected_lines: int
    quiet: bool = False
    steps: list[str] = field(default_factory=list)
    present_lines: int = 0
    survived_crash: bool = False
    not_refused: list[str] = field(default_factory=list)
    audit: list[dict[str, Any]] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether no write was lost or torn, no escape succeeded, and the audit log has records."""
        whole = self.present_lines == self.expected_lines and self.survived_crash
        return whole and not self.not_refused and bool(self.audit)

    def document(self) -> dict[str, Any]:
        """The results as a JSON document."""
        facts = {name: fact for name, fact in asdict(self).items() if name != "quiet"}
        return {**facts, "held": self.held}

    def say(self, text: str, *, indent: str = _INDENT, colour: str | None = None) -> None:
        """Print a text, wrapped at `WIDTH`, unless ``quiet``."""
        if self.quiet:
            return
        lines = textwrap.wrap(
            printable(text), WIDTH, initial_indent=indent, subsequent_indent=indent + _INDENT,
            break_long_words=True, break_on_hyphens=False, drop_whitespace=True,
        )  # fmt: skip
        for line in lines or [""]:
            self.show(line, colour=colour)

    def show(self, line: str, *, colour: str | None = None, bold: bool = False) -> None:
        """Print a line unchanged, unless ``quiet``."""
        if not self.quiet:
            click.echo(click.style(line, fg=colour, bold=bold or None), color=False if _plain() else None)

    def title(self, text: str) -> None:
        """Print the title of the next part."""
        self.show("")
        self.show(text, colour="cyan", bold=True)

    def step(self, text: str, *, colour: str | None = None) -> None:
        """Record and print a step."""
        self.steps.append(text)
        self.say(text, colour=colour)

    def refused(self, what: str, attempt: Callable[[], object]) -> None:
        """Make an attempt that the store must refuse."""
        try:
            attempt()
        except AgentMemoryError as error:
            self.step(f"{what}: refused: {error}")
        else:
            self.not_refused.append(what)
            self.step(f"{what}: NOT REFUSED", colour="red")


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def typed_command() -> str:
    """The command that calls this program: its name if a shell finds it, else its path."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m agent_memory"
    found = shutil.which(program.name)
    if found is None or not program.exists() or not Path(found).samefile(program):
        return shlex.quote(sys.argv[0]) if program.exists() else program.name
    return program.name
