"""The command ``agent-memory``: its subcommands, and the conversion of errors to a line and an exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click

from agent_memory.cli.output import Exit, report
from agent_memory.cli.settings import Command, Settings, SuggestingGroup, failures_shown, global_options, log_to
from agent_memory.errors import DISTRIBUTION

_MODULES = {
    "audit": "audit",
    "conversation": "conversation",
    "demo": "demo",
    "doctor": "doctor",
    "erasing": "forget redact",
    "files": "append cp create edit mv rm write",
    "importing": "export import",
    "limiting": "du expire limits",
    "mcp": "connect mcp",
    "prove": "prove",
    "reading": "agents ls read search tree",
    "setting_up": "new plugins s3-policy",
    "transfer": "transfer",
    "versions": "diff prune restore undo versions",
    "web": "web",
}
"""The commands of each module; a module is imported only for its own commands, and for the help of all."""
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

_HELP = """Storage for the memory of AI agents: small text files on local disk, in memory and on S3.

Global options may be given before or after the name of a command. If the last argument begins with a dash and a
space, it is content ("- an item"). "--" ends the options.

\b
Exit codes:
  0  done                        4  the name is taken, or the file changed
  1  failed, or nothing found    5  refused: a name, a content, a veto
  2  wrong usage                 6  not supported here, or not installed
  3  no such file or store       130 interrupted, 141 output closed,
                                 129 and 143 ended by SIGHUP and SIGTERM
"""


class App(SuggestingGroup):
    """The group of all commands; every command ends with an exit code, never with a traceback."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The names of all commands."""
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none with this name."""
        if cmd_name in _PLACES and cmd_name not in self.commands:
            found = vars(import_module(f"agent_memory.cli.{_PLACES[cmd_name]}")).values()
            self.add_command(next(each for each in found if isinstance(each, click.Command) and each.name == cmd_name))
        return super().get_command(ctx, cmd_name)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]  # always in standalone mode
        """Run a command line (by default the process's) and exit."""
        _fill_closed_descriptors()
        given = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        # Without a handler, `logging` prints the warnings of all libraries on stderr, some with a traceback.
        with (
            log_to(logging.NullHandler(), logging.getLogger()),
            log_to(failures_shown(), logging.getLogger("agent_memory")),
        ):
            code = self._ended(given, prog_name or "agent-memory", extra)
        sys.exit(code)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the command line; if the output pipe is closed, for example of --help, exit with 141."""
        with _closed_pipe():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; if the output pipe is closed, exit with 141."""
        with _closed_pipe():
            return super().invoke(ctx)

    def _ended(self, args: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        as_json = "--json" in args[: args.index("--") if "--" in args else None]
        try:
            code = self._code(args, prog_name, extra, as_json)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            code = Exit.CLOSED_PIPE
        except OSError as error:
            code = report(error, as_json)
        _discard_unwritten()
        return code

    def _code(self, args: list[str], prog_name: str, extra: dict[str, Any], as_json: bool) -> int:
        settings = Settings()
        if sys.stdout is None and next((arg for arg in args if arg in _PLACES), None) != "mcp":  # it has a check
            text = "stdout is closed, so nothing was done: redirect it, for example to /dev/null"
            return report(click.ClickException(text), as_json)
        _print_any_name()
        try:
            return int(super().main(args, prog_name, obj=settings, **extra) or Exit.OK)
        except click.Abort:
            click.echo("Error: interrupted", err=True)
            return Exit.INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - every error becomes a line instead of a traceback
            return report(error, as_json, verbose=settings.verbose)


@contextmanager
def _closed_pipe() -> Iterator[None]:
    """Exit with 141 if a pipe is closed; click itself would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(Exit.CLOSED_PIPE) from None


def _fill_closed_descriptors() -> None:
    """Open the null device as each closed standard stream, so that no file of a store gets the stream's number."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest number that is free


def _print_any_name() -> None:
    """Print characters that the terminal's encoding does not have as escapes, instead of raising."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_unwritten() -> None:
    """Redirect each output that cannot be written to the null device, so that the interpreter can flush it at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@click.group(
    cls=App,
    help=_HELP,
    params=global_options(again=False),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name=DISTRIBUTION, message="%(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(Exit.USAGE)
