"""The commands that change files: write, append, create, edit, rm, mv, cp."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import click

from agent_memory.backend import ANY, Backend
from agent_memory.cli.arguments import ask, memory_path, require_answer, yes_option
from agent_memory.cli.output import Explained, counted
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.cli.signals import ended_by
from agent_memory.core.precondition import SHA256, DeleteCondition
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileTooLargeError, InvalidContentError
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.memory import AgentMemory, TreeResult, WriteResult

F = TypeVar("F", bound=Callable[..., Any])
_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
_CONTENT_WITH_DASHES = re.compile(r"-+\s|-{3}")
USUAL_EDITORS: Final = ("sensible-editor", "vim", "nano", "vi")
"""Editors to look for, in this order, if neither ``$VISUAL`` nor ``$EDITOR`` names one."""
_EDITOR_VARIABLES: Final = ("VISUAL", "EDITOR")
_EDITED_NAME: Final = "memory.md"
_MOST_PLACES = 10


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


_expected_option = click.option(
    "--expected-sha256", metavar="HEX", callback=_checked_sha256, help="Only if the current content has this SHA-256."
)


def content_argument(command: F) -> F:
    """Add CONTENT and --file to a command; `given_text` reads them."""
    command = click.option("--file", "file", metavar="F", help="Take the content from a file of the host.")(command)
    return click.argument("content", required=False)(command)


@click.command(cls=ContentCommand)
@click.argument("path", type=memory_path)
@content_argument
@_expected_option
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
@_expected_option
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
@_expected_option
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
    size = f"{counted(result.size, 'byte')}{' now' if grown else ''}"
    document = {"path": result.path, "size": result.size, "sha256": result.sha256}
    settings.show(document, f"{done} {result.path} ({size})")


def show_unchanged(settings: Settings, path: str, reason: str = "") -> None:
    """Print that a command left a file as it is."""
    settings.show({"path": path, "unchanged": True}, f"{reason}{path} is unchanged")


def _show_done(settings: Settings, done: str, result: TreeResult) -> None:
    left = f"; {counted(result.skipped, 'name')} skipped: not a valid path" if result.skipped else ""
    document = {"path": result.path, "files": result.files, "skipped": result.skipped}
    settings.show(document, f"{done} {result.path or '.'} ({counted(result.files, 'file')}{left})")


def _when(expected_sha256: str | None) -> DeleteCondition:
    return ANY if expected_sha256 is None else SHA256(expected_sha256)


def files_at(memory: AgentMemory, path: str) -> int:
    """The number of files at and below a path; 0 if there are none."""
    return len(memory.list(path)) or int(path.strip("./") != "" and memory.exists(path))


@click.command(cls=Command)
@click.argument("path", type=memory_path)
@click.option("--replace", nargs=2, metavar="OLD NEW", help="Replace OLD, which must occur exactly once, with NEW.")
@pass_settings
def edit(settings: Settings, path: str, replace: tuple[str, str] | None) -> None:
    """Change a file in your editor ($VISUAL, $EDITOR), or with --replace.

    If another writer changes the file before the write, --replace works on the new text. The text from the editor is
    kept in a temporary file, and the command prints the path of that file.
    """
    if replace and not replace[0]:
        raise click.UsageError("--replace: OLD is empty")
    with settings.memory(Access.CHANGE) as memory:
        if replace:
            old, new = replace
            show_written(settings, "edited", memory.edit(path, lambda text: replaced_once(path, text, old, new)))
        elif result := _edited_by_hand(memory, path):
            show_written(settings, "edited", result)
        else:
            show_unchanged(settings, path)


def replaced_once(path: str, text: str, old: str, new: str) -> str:
    """The text with its one occurrence of ``old`` replaced.

    Raises:
        click.ClickException: there is none, or more than one; the message has their line numbers.
    """
    places = _places(text, old)
    if not places:
        raise click.ClickException(f"{path!r}: nothing was changed: the text to replace does not occur")
    if len(places) > 1:
        lines = dict.fromkeys(str(text.count("\n", 0, place) + 1) for place in places[:_MOST_PLACES])
        where = f"{len(places)} times, on line {', '.join(lines)}{', ...' if len(places) > _MOST_PLACES else ''}"
        raise click.ClickException(f"{path!r}: nothing was changed: the text to replace occurs {where}")
    return text[: places[0]] + new + text[places[0] + len(old) :]


def _places(text: str, old: str) -> list[int]:
    """The positions of a text, with overlaps: ``aaa`` contains ``aa`` twice."""
    places, at = [], text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + 1)
    return places


def _edited_by_hand(memory: AgentMemory, path: str) -> WriteResult | None:
    """Let the user edit a private copy, and write it if it was changed; it is kept if the write fails."""
    before = memory.read_bytes(path)
    decoded(before, path)
    copy = _private_copy(before)
    try:
        _run_editor(copy)
        after = _edited(copy)
        result = None if after == before else _write_edited(memory, path, before, after)
    except BaseException as error:
        if not _holds_changes(copy, before):
            _remove(copy)
            raise
        if isinstance(error, AgentMemoryError | click.ClickException):
            raise Explained(error, f"your text is kept in {copy}", {"kept": str(copy)}) from error
        click.echo(f"Your text is kept in {copy}", err=True)
        raise
    _remove(copy)
    return result


def _write_edited(memory: AgentMemory, path: str, before: bytes, after: bytes) -> WriteResult:
    text = decoded(after, "the edited text")
    return memory.write(path, text, when=SHA256(hashlib.sha256(before).hexdigest()))


def _private_copy(data: bytes) -> Path:
    """A copy of a content for an editor, in its own directory; only this user may read it.

    The file name is fixed: an agent chooses the names in a memory, and editors choose which programs to run by the
    file name.
    """
    path = Path(tempfile.mkdtemp(prefix="agent-memory-")) / _EDITED_NAME
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    return path


def _edited(copy: Path) -> bytes:
    try:
        return copy.read_bytes()
    except OSError as error:
        raise click.ClickException(f"the edited text cannot be read: {error.strerror}") from None


def _holds_changes(copy: Path, before: bytes) -> bool:
    """Whether the copy holds changes that would be lost if it was removed."""
    try:
        return copy.read_bytes() != before
    except OSError:
        return False


def _remove(copy: Path) -> None:
    """Remove the copy, and all files that the editor put beside it."""
    shutil.rmtree(copy.parent, ignore_errors=True)


def _run_editor(copy: Path) -> None:
    """Run the editor until it ends.

    Raises:
        click.ClickException: there is no editor, it does not start, or its exit code is not 0.
    """
    command = _editor()
    try:
        process = subprocess.Popen([*command, str(copy)])  # noqa: S603 - the editor of the user, no shell
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"the editor {command[0]!r} cannot be started: {reason}") from None
    if code := _exit_code(process):
        raise click.ClickException(f"the editor {command[0]!r} ended with {code}")


def _editor() -> list[str]:
    """The editor's command, split into words as a shell does, without expansion."""
    for variable in _EDITOR_VARIABLES:
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            message = f"the editor's command in $VISUAL or $EDITOR cannot be parsed: {error}"
            raise click.ClickException(message) from None
        if words:
            return words
    found = next(filter(None, map(shutil.which, USUAL_EDITORS)), None)
    if found is None:
        raise click.ClickException("no editor was found: set $EDITOR")
    return [found]


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait until the editor ends. The editor handles an interrupt from the terminal, as with git."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if ended_by():
                process.terminate()
                process.wait()
                raise
