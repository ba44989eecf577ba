"""The command edit: replace a text that occurs once, or open an editor; changes by other writers are kept."""

from __future__ import annotations

import hashlib

import click

from agent_memory.cli.editor import EditedFile
from agent_memory.cli.files import decoded, show_unchanged, show_written
from agent_memory.cli.output import Explained
from agent_memory.cli.paths import memory_path
from agent_memory.cli.settings import Access, Command, Settings, pass_settings
from agent_memory.core.precondition import SHA256
from agent_memory.errors import AgentMemoryError
from agent_memory.memory import AgentMemory, WriteResult

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
