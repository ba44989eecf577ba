"""The confirmation of commands that delete many files, or that cannot be undone."""

from __future__ import annotations

import sys

import click

from agent_memory.cli.output import printable

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
