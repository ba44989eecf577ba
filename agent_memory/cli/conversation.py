"""The command group conversation: show, append to, search and allow the conversation of a directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta

import click

from agent_memory.cli.arguments import Days, ask, max_results_option, memory_path, require_answer, yes_option
from agent_memory.cli.files import ContentCommand, content_argument, given_text, show_unchanged
from agent_memory.cli.output import Exit, counted, moment, note, printable, row, show_json
from agent_memory.cli.settings import Access, Command, Group, Settings, pass_settings, usage_errors
from agent_memory.conversation.memory import HISTORY, ConversationMemory
from agent_memory.conversation.messages import Message, Skipped
from agent_memory.conversation.search import Match, formatted
from agent_memory.conversation.shapes import NO_TIME
from agent_memory.conversation.tools import MAX_RESULTS, RESULTS, since
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.key.quoting import field
from agent_memory.tools._protected import files_of_conversations, marks_above, take_back_marks

_LAST = 20
_INDENT = "\n    "


@click.group(cls=Group)
def conversation() -> None:
    """Show, append to, search and compact a conversation of the agent; allow one where a tool was told of none."""


_in_directory = click.option(
    "--directory",
    type=memory_path,
    default="",
    metavar="DIR",
    help="The directory of the conversation.  [default: the top]",
)


@contextmanager
def _conversation(settings: Settings, access: Access, directory: str) -> Iterator[ConversationMemory]:
    """The conversation in a directory of the memory of ``--agent``, which only an append creates."""
    with settings.memory(access) as memory:
        if directory and access is not Access.MAKE and not memory.is_directory(directory):
            raise _no_directory(directory)
        yield ConversationMemory(memory.subtree(directory) if directory else memory, system_messages=True)


def _no_directory(directory: str) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError("no such directory", path=directory)


@conversation.command(cls=Command)
@click.option("-n", "last", type=click.IntRange(min=0), metavar="N", help=f"The last N messages.  [default: {_LAST}]")
@click.option("--all", "everything", is_flag=True, help="All messages.")
@_in_directory
@pass_settings
def show(settings: Settings, last: int | None, everything: bool, directory: str) -> None:
    """Print the last messages, oldest first.

    The format is TIME [CHANNEL / SENDER] ROLE: TEXT, or with --json one JSON object per line, with the stored fields.
    Lines without a message are skipped and counted on stderr.
    """
    if everything and last is not None:
        raise click.UsageError("-n and --all exclude each other")
    skipped, shown = Skipped(), False
    with _conversation(settings, Access.READ, directory) as memory:
        messages = memory.iter_history(skipped) if everything else _last(memory, last, skipped)
        for message in messages:
            shown = True
            settings.show(message.to_mapping(), _line(message))
    _mention(settings, skipped)
    if not (shown or last == 0 or skipped.count or settings.json):
        place = directory or "the top of its memory"
        note(f"agent {settings.agent!r} has no messages at {place}; --directory selects another directory")


def _last(memory: ConversationMemory, last: int | None, skipped: Skipped) -> Iterable[Message]:
    messages = memory.load_history(_LAST if last is None else last)
    skipped.count, skipped.preview = messages.skipped, messages.preview
    return messages


def _line(message: Message) -> str:
    """A message as one line. Further lines of its text are indented, so that they do not look like messages."""
    where = f"[{field(message.channel or 'unknown')} / {field(message.sender_id or 'unknown')}]"
    when = "no time" if message.timestamp == NO_TIME else message.timestamp.isoformat(timespec="seconds")
    text = printable(f"{when} {where} {field(message.role.upper())}: {message.content}")
    return text.rstrip().replace("\n", _INDENT)


def _mention(settings: Settings, skipped: Skipped) -> None:
    if not skipped.count:
        return
    if settings.json:
        show_json({"skipped": skipped.count, "preview": skipped.preview}, err=True)
    else:
        lines = counted(skipped.count, "line")
        note(f"{HISTORY}: {lines} without a message skipped; one begins: {skipped.preview}")


@conversation.command(cls=ContentCommand)
@content_argument
@click.option("--role", required=True, help="The role of the sender: user, assistant, ...")
@click.option("--channel", help="The channel of the message.")
@click.option("--sender", help="The sender in the channel.")
@_in_directory
@pass_settings
def append(
    settings: Settings,
    content: str | None,
    file: str | None,
    role: str,
    channel: str | None,
    sender: str | None,
    directory: str,
) -> None:
    """Append one message with the current time.

    The text is CONTENT, or the file of --file, or without both (or with "-") stdin.
    """
    message = Message(role, given_text(content, file), channel=channel, sender_id=sender)
    if not message.content:
        show_unchanged(settings, HISTORY, "nothing to append: ")
        return
    with _conversation(settings, Access.MAKE, directory) as memory:
        memory.append_message(message)
    settings.show(message.to_mapping(), f"appended to {HISTORY}")


@conversation.command(cls=ContentCommand)
@click.argument("query")
@click.option(
    "--days", type=click.IntRange(min=0), default=0, metavar="N", help="Only messages of the last N days; 0 is all."
)
@max_results_option("The earliest matches", RESULTS, MAX_RESULTS)
@_in_directory
@pass_settings
def search(settings: Settings, query: str, days: int, max_results: int, directory: str) -> None:
    """Find the earliest messages that contain a text, ignoring case.

    Prints the answer that the tool search_history gives a model: messages of users and assistants, each with the
    message before and after it. Exits with 1 if nothing is found, as grep does.
    """
    if not (query := query.strip()):
        raise click.UsageError("QUERY is blank")
    with _conversation(settings, Access.READ, directory) as memory:
        matches = memory.search(query, since=since(days), max_results=max_results)
    if settings.json:
        show_json({"matches": [_document(match) for match in matches], "skipped": matches.skipped})
    else:
        click.echo(printable(formatted(matches) or f"No matches found for '{query}'."))
        if matches.skipped:
            note(f"{HISTORY}: {counted(matches.skipped, 'line')} without a message skipped")
    click.get_current_context().exit(Exit.OK if matches else Exit.FAILED)


def _document(match: Match) -> dict[str, object]:
    around = {"before": match.before, "hit": match.hit, "after": match.after}
    return {name: message and message.to_mapping() for name, message in around.items()}


@conversation.command(cls=Command)
@click.option("--keep-last", type=click.IntRange(1), metavar="N", help="Keep the last N messages.")
@click.option(
    "--days",
    type=Days(),
    metavar="D",
    help="Keep the messages of the last D days.",
)
@click.option(
    "--archive-to", type=memory_path, metavar="PATH", help="Add the lines to this file before they are removed."
)
@_in_directory
@yes_option
@pass_settings
def compact(
    settings: Settings, keep_last: int | None, days: float | None, archive_to: str | None, directory: str, yes: bool
) -> None:
    """Remove the oldest messages, and move them to an archive if --archive-to names one.

    With both --keep-last and --days both hold. The last message always stays. PATH is relative to --directory.
    """
    if keep_last is None and days is None:
        raise click.UsageError("give --keep-last, --days, or both")
    require_answer("conversation compact", yes)
    with _conversation(settings, Access.CHANGE, directory) as memory, usage_errors():
        place = f"moved to {archive_to}" if archive_to else "deleted"
        ask(f"Compact {HISTORY} of agent {settings.agent}, so that the oldest messages are {place}?", yes)
        age = None if days is None else timedelta(days=days)
        result = memory.compact(keep_last=keep_last, older_than=age, archive_to=archive_to)
    moved = f", archived in {field(archive_to)}" if archive_to and result.archived else ""
    facts = {name: value for name, value in asdict(result).items() if value or name != "skipped"}
    settings.show(facts, f"removed {counted(result.removed, 'line')}{moved}; {result.kept:,} stay")
    if result.skipped:
        note(f"{HISTORY}: {counted(result.skipped, 'line')} without a message among those that stay")


@conversation.command(cls=Command)
@_in_directory
@click.option("-y", "--yes", is_flag=True, help="Take the marks back; without it the files are only shown.")
@pass_settings
def allow(settings: Settings, directory: str, yes: bool) -> None:
    """Show the files that a model may have written under the names of a conversation, and allow a conversation.

    A tool with conversation=False marks its directory as holding no conversation. Look at the files first: a
    conversation would take them for its history and its jobs. Stop such tools before; they put the mark again.
    """
    with settings.memory(Access.CHANGE) as memory:
        view = memory.subtree(directory) if directory else memory
        marked, files = marks_above(view), files_of_conversations(view)
        if not marked and directory and not memory.is_directory(directory):
            raise _no_directory(directory)
        if marked and yes:
            take_back_marks(view, marked)
    allowed = yes or not marked
    if settings.json:
        shown = [{"path": entry.path, "size": entry.size} for entry in files]
        show_json({"directory": directory, "marked": marked, "files": shown, "allowed": allowed})
    else:
        for entry in files:
            click.echo(row(f"{entry.size:>9,}", moment(entry.modified), field(entry.path)))
        names = ", ".join(field(path) if path else "the whole memory" for path in marked)
        click.echo(f"marked as holding no conversation: {names}" if marked else "no mark refuses a conversation here")
        if marked and yes:
            note("the marks are taken back; other processes notice it within a minute")
    if not allowed:
        raise click.UsageError("nothing was changed; --yes lets a conversation use these files")
