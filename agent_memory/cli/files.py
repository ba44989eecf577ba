"""The commands that change files: write, append, create, rm, mv, cp."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from agent_memory.backend import ANY, Backend
from agent_memory.cli.arguments import memory_path
from agent_memory.cli.asking import ask, require_answer, yes_option
from agent_memory.cli.output import counted, printable, show_json
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.core.precondition import SHA256, DeleteCondition
from agent_memory.errors import AgentMemoryFileNotFoundError, FileTooLargeError, InvalidContentError
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory, TreeResult, WriteResult

F = TypeVar("F", bound=Callable[..., Any])
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
_CONTENT_WITH_DASHES = re.compile(r"-+\s|-{3}")


class ContentCommand(Command):
    """A command that accepts, as last argument, content that looks like an option: a Markdown list, a ``---`` line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and "--" not in args and _CONTENT_WITH_DASHES.match(args[-1]) and not self._awaits_value(args[:-1]):
            args = [*args[:-1], "--", args[-1]]
        return super().parse_args(ctx, args)

    def _awaits_value(self, args: list[str]) -> bool:
        options = [param for param in self.params if isinstance(param, click.Option) and not param.is_flag]
        return bool(args) and any(args[-1] in option.opts for option in options)


def _checked_sha256(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _SHA256.match(value):
        raise click.BadParameter("a SHA-256 has 64 hexadecimal digits", ctx, param)
    return value


def _expected(command: F) -> F:
    return click.option(
        "--expected-sha256",
        metavar="HEX",
        callback=_checked_sha256,
        help="Only if the current content has this SHA-256.",
    )(command)


def content_argument(command: F) -> F:
    """Add CONTENT and --file to a command; `given_text` reads them."""
    command = click.option("--file", "file", metavar="F", help="Take the content from a file of the host.")(command)
    return click.argument("content", required=False)(command)


@click.command(cls=ContentCommand)
@click.argument("path", type=memory_path)
@content_argument
@_expected
@pass_settings
def write(settings: Settings, path: str, content: str | None, file: str | None, expected_sha256: str | None) -> None:
    """Replace or create a file.

    The content is CONTENT, or the file of --file, or without both (or with "-") stdin. It is stored byte for byte.
    """
    text = given_text(content, file)
    with settings.memory(Access.MAKE) as memory:
        show_written(settings, "wrote", memory.write(path, text, when=_when(expected_sha256)))


@click.command(cls=ContentCommand)
@click.argument("path", type=memory_path)
@content_argument
@click.option("--newline", is_flag=True, help="Begin a new line if the file does not end with a newline.")
@_expected
@pass_settings
def append(
    settings: Settings, path: str, content: str | None, file: str | None, newline: bool, expected_sha256: str | None
) -> None:
    """Append to a file, or create it.

    CONTENT is as for write, and is appended without a newline; --newline puts one before it if needed. An empty CONTENT
    changes nothing, and makes no file.
    """
    text = given_text(content, file)
    if not text:
        show_unchanged(settings, Key.tree().join(path).path, "nothing to append: ")
        return
    separator = "\n" if newline else ""
    with settings.memory(Access.MAKE) as memory:
        result = memory.append(path, text, when=_when(expected_sha256), separator=separator)
        show_written(settings, "appended to", result, grown=True)


@click.command(cls=ContentCommand)
@click.argument("path", type=memory_path)
@content_argument
@pass_settings
def create(settings: Settings, path: str, content: str | None, file: str | None) -> None:
    """Write a file that must not exist yet.

    CONTENT is as for write.
    """
    text = given_text(content, file)
    with settings.memory(Access.MAKE) as memory:
        show_written(settings, "created", memory.create(path, text))


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.option("-r", "--recursive", is_flag=True, help='Delete a directory with all its files; "." is the whole memory.')
@yes_option
@_expected
@pass_settings
def rm(settings: Settings, path: str, recursive: bool, yes: bool, expected_sha256: str | None) -> None:
    """Delete a file, or with -r a directory. -r asks first."""
    if recursive and expected_sha256:
        raise click.UsageError("--expected-sha256 is for one file, not for a directory")
    if recursive and not path.strip("/"):
        raise click.UsageError('PATH is empty; "." is the whole memory')
    if recursive:
        require_answer("rm -r", yes)
    with settings.memory(Access.CHANGE) as memory:
        if recursive:
            _ask_about_tree(settings, memory, path, yes)
        done = _delete_tree(memory, path) if recursive else _delete(memory, path, expected_sha256)
    _show_done(settings, "deleted", done)


def _delete(memory: AgentMemory, path: str, expected_sha256: str | None) -> TreeResult:
    try:
        memory.delete(path, when=_when(expected_sha256))
    except AgentMemoryFileNotFoundError:
        if memory.list(path, recursive=False):
            raise click.UsageError(f"{path!r} is a directory; -r deletes it with all its files") from None
        raise
    return TreeResult(path, 1, 0)


def _ask_about_tree(settings: Settings, memory: AgentMemory, path: str, yes: bool) -> None:
    if yes or not (count := files_at(memory, path)):
        return  # the deletion of nothing is an error
    end = "Each becomes a version." if memory.versions.limits() else "This cannot be undone."
    ask(f"Delete {counted(count, 'file')} of {settings.agent} at {field(path)}? {end}", yes)


def _delete_tree(memory: AgentMemory, path: str) -> TreeResult:
    try:
        return memory.delete_tree(path)
    except AgentMemoryFileNotFoundError:
        memory.delete(path)
    return TreeResult(path, 1, 0)


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.argument("new_path", type=memory_path)
@pass_settings
def mv(settings: Settings, path: str, new_path: str) -> None:
    """Move a file or a directory to a name that is free."""
    with settings.memory(Access.CHANGE) as memory:
        _show_done(settings, "moved to", memory.rename(path, new_path))


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.argument("new_path", type=memory_path)
@pass_settings
def cp(settings: Settings, path: str, new_path: str) -> None:
    """Copy a file or a directory to a name that is free."""
    with settings.memory(Access.CHANGE) as memory:
        _show_done(settings, "copied to", memory.copy(path, new_path))


def given_text(content: str | None, file: str | None) -> str:
    """The content from an argument, a file of the host, or stdin; newlines are not converted.

    Raises:
        InvalidContentError: the content is not UTF-8.
    """
    if content is not None and file is not None:
        raise click.UsageError("CONTENT and --file exclude each other")
    if content not in (None, "-"):
        return str(content)
    if file in (None, "-"):
        return decoded(_stdin(), "stdin")
    return decoded(_host_file(str(file)), str(file))


def _stdin() -> bytes:
    if sys.stdin is None:
        raise click.UsageError("stdin is closed, and there is no CONTENT")
    return _bounded(sys.stdin.buffer, "stdin")


def _host_file(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:  # may be a pipe: --file <(command)
            return _bounded(file, repr(name))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"{name!r} cannot be read: {reason}") from error


def _bounded(file: BinaryIO, source: str) -> bytes:
    data = file.read(Backend.max_bytes + 1)
    if len(data) > Backend.max_bytes:
        raise FileTooLargeError(
            f"{source}: more than {Backend.max_bytes:,} bytes; nothing was written; import can copy larger files"
        )
    return data


def decoded(data: bytes, source: str) -> str:
    """Decode bytes as UTF-8; ``source`` names them in the error.

    Raises:
        InvalidContentError: the bytes are not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidContentError(f"{source}: not UTF-8 text: byte {error.start}; nothing was written") from None


def show_written(settings: Settings, done: str, result: WriteResult, *, grown: bool = False) -> None:
    """Print the result of a writing command; the size is that of the whole file, also if it has ``grown``."""
    if settings.json:
        show_json({"path": result.path, "size": result.size, "sha256": result.sha256})
    else:
        click.echo(f"{done} {result.path} ({counted(result.size, 'byte')}{' now' if grown else ''})")


def show_unchanged(settings: Settings, path: str, reason: str = "") -> None:
    """Print that a command left a file as it is."""
    if settings.json:
        show_json({"path": path, "unchanged": True})
    else:
        click.echo(printable(f"{reason}{path} is unchanged"))


def _show_done(settings: Settings, done: str, result: TreeResult) -> None:
    if settings.json:
        show_json({"path": result.path, "files": result.files, "skipped": result.skipped})
        return
    left = f"; {counted(result.skipped, 'name')} skipped: not a valid path" if result.skipped else ""
    click.echo(f"{done} {result.path or '.'} ({counted(result.files, 'file')}{left})")


def _when(expected_sha256: str | None) -> DeleteCondition:
    return ANY if expected_sha256 is None else SHA256(expected_sha256)


def files_at(memory: AgentMemory, path: str) -> int:
    """The number of files at and below a path; 0 if there are none."""
    return len(memory.list(path)) or int(path.strip("./") != "" and memory.exists(path))
