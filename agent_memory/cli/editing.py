"""The command edit: replace a text that occurs once, or open an editor; changes by other writers are kept."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import click

from agent_memory.cli.arguments import memory_path
from agent_memory.cli.files import decoded, show_unchanged, show_written
from agent_memory.cli.output import Explained
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.core.precondition import SHA256
from agent_memory.errors import AgentMemoryError
from agent_memory.memory import AgentMemory, WriteResult

USUAL: Final = ("sensible-editor", "vim", "nano", "vi")
"""Editors to look for, in this order, if neither ``$VISUAL`` nor ``$EDITOR`` names one."""
_VARIABLES: Final = ("VISUAL", "EDITOR")
_NAME: Final = "memory.md"


class EditedFile:
    """A copy of a content for an editor, in its own directory; only this user may read it.

    The file name is fixed: an agent chooses the names in a memory, and editors choose which programs to run by the
    file name.
    """

    def __init__(self, data: bytes) -> None:
        self._before = data
        self._path = Path(tempfile.mkdtemp(prefix="agent-memory-")) / _NAME
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)

    def __str__(self) -> str:
        return str(self._path)

    def edit(self) -> None:
        """Run the editor until it ends.

        Raises:
            click.ClickException: there is no editor, it does not start, or its exit code is not 0.
        """
        command = _command()
        try:
            process = subprocess.Popen([*command, str(self._path)])  # noqa: S603 - the editor of the user, no shell
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise click.ClickException(f"the editor {command[0]!r} cannot be started: {reason}") from None
        if code := _exit_code(process):
            raise click.ClickException(f"the editor {command[0]!r} ended with {code}")

    def changed(self) -> bytes | None:
        """The new content, or None if it is unchanged.

        Raises:
            click.ClickException: the file cannot be read.
        """
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise click.ClickException(f"the edited text cannot be read: {error.strerror}") from None
        return None if data == self._before else data

    def has_changes(self) -> bool:
        """Whether the file holds changes that would be lost if it was removed."""
        try:
            return self.changed() is not None
        except click.ClickException:
            return False

    def remove(self) -> None:
        """Remove the file, and all files that the editor put beside it."""
        shutil.rmtree(self._path.parent, ignore_errors=True)


def _command() -> list[str]:
    """The editor's command, split into words as a shell does, without expansion."""
    for variable in _VARIABLES:
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            message = f"the editor's command in $VISUAL or $EDITOR cannot be parsed: {error}"
            raise click.ClickException(message) from None
        if words:
            return words
    found = next(filter(None, map(shutil.which, USUAL)), None)
    if found is None:
        raise click.ClickException("no editor was found: set $EDITOR")
    return [found]


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait until the editor ends. The editor handles an interrupt from the terminal, as with git."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


_MOST_PLACES = 10


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
    if len(places) != 1:
        raise click.ClickException(f"{path!r}: nothing was changed: {_occurrences(text, places)}")
    return text[: places[0]] + new + text[places[0] + len(old) :]


def _places(text: str, old: str) -> list[int]:
    """The positions of a text, with overlaps: ``aaa`` contains ``aa`` twice."""
    places = []
    at = text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + 1)
    return places


def _occurrences(text: str, places: list[int]) -> str:
    if not places:
        return "the text to replace does not occur"
    lines = dict.fromkeys(text.count("\n", 0, place) + 1 for place in places[:_MOST_PLACES])
    more = ", ..." if len(places) > _MOST_PLACES else ""
    return f"the text to replace occurs {len(places)} times, on line {', '.join(map(str, lines))}{more}"


def _edited_by_hand(memory: AgentMemory, path: str) -> WriteResult | None:
    before = memory.read_bytes(path)
    decoded(before, path)
    file = EditedFile(before)
    try:
        file.edit()
        after = file.changed()
        result = None if after is None else _written(memory, path, before, after)
    except BaseException as error:
        if not file.has_changes():
            file.remove()
            raise
        if isinstance(error, AgentMemoryError | click.ClickException):
            raise Explained(error, f"your text is kept in {file}", {"kept": str(file)}) from error
        click.echo(f"Your text is kept in {file}", err=True)
        raise
    file.remove()
    return result


def _written(memory: AgentMemory, path: str, before: bytes, after: bytes) -> WriteResult:
    text = decoded(after, "the edited text")
    return memory.write(path, text, when=SHA256(hashlib.sha256(before).hexdigest()))
