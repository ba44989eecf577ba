"""The user's editor, started without a shell on a private file with a fixed name."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import click

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
