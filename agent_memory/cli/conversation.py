"""The command group conversation: takes back the marks by which a conversation is refused."""

from __future__ import annotations

import click

from agent_memory.cli.output import moment, note, show_json
from agent_memory.cli.paths import memory_path
from agent_memory.cli.settings import Access, Command, Group, Settings, pass_settings
from agent_memory.conversation.marks import files_of_conversations, marks_above, take_back_marks
from agent_memory.key.quoting import field


@click.group(cls=Group)
def conversation() -> None:
    """Allow a conversation where a tool was told that there is none."""


@conversation.command(cls=Command)
@click.option("--directory", type=memory_path, default="", metavar="DIR", help="The directory of the conversation.")
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
        if marked and yes:
            take_back_marks(view, marked)
    allowed = yes or not marked
    if settings.json:
        shown = [{"path": entry.path, "size": entry.size} for entry in files]
        show_json({"directory": directory, "marked": marked, "files": shown, "allowed": allowed})
    else:
        for entry in files:
            click.echo(f"{entry.size:>9,}  {moment(entry.modified)}  {field(entry.path)}")
        names = ", ".join(field(path) if path else "the whole memory" for path in marked)
        click.echo(f"marked as holding no conversation: {names}" if marked else "no mark refuses a conversation here")
        if marked and yes:
            note("the marks are taken back; other processes notice it within a minute")
    if not allowed:
        raise click.UsageError("nothing was changed; --yes lets a conversation use these files")
