"""Messages if nothing is found: a mistyped agent or directory is not shown as an empty memory without a note."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemory, AgentMemoryService
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.plugins.audit import AuditPlugin

Run = Callable[..., Result]


@pytest.fixture
def bot() -> None:
    """A store with an agent that has notes and a conversation in two directories."""
    with AgentMemoryService("store") as service:
        memory = service.agent("bot")
        memory.write("notes/a.md", "a")
        ConversationMemory(memory.subtree("conversation")).append_message(Message("user", "We drink tea."))


@pytest.mark.usefixtures("bot")
@pytest.mark.parametrize("command", [("ls",), ("ls", "-r"), ("tree",)])
def test_the_note_for_an_agent_without_files_names_the_agents_with_files(run: Run, command: tuple[str, ...]) -> None:
    result = run("--url", "store", "--agent", "bto", *command)
    assert (result.exit_code, result.stderr) == (0, "Note: agent 'bto' has no files; there are files of bot\n")
    assert run("--url", "store", "--agent", "bot", *command).stderr == ""
    assert run("--url", "store", "--agent", "bto", "--json", *command).stderr == ""


def test_a_tree_without_agents_is_reported(run: Run) -> None:
    with AgentMemory.open("store") as memory:
        memory.write("notes/a.md", "a")
    told = run("--url", "store", "ls").stderr
    assert told.endswith("no agent has any; a tree without agents (AgentMemory.open) is not shown\n")


@pytest.mark.usefixtures("bot")
def test_history_commands_work_on_a_conversation_in_a_directory(run: Run) -> None:
    where = ("--url", "store", "--agent", "bot", "conversation")
    assert "--directory selects another directory" in run(*where, "show").stderr
    assert "We drink tea." in run(*where, "show", "--directory", "conversation").stdout
    assert "We drink tea." in run(*where, "search", "tea", "--directory", "conversation").stdout
    assert run(*where, "append", "--role", "user", "--directory", "conversation", "More.").exit_code == 0
    assert "More." in run(*where, "show", "--directory", "/memories/conversation").stdout


def test_verify_reports_all_writers_without_checkpoints_in_one_line(run: Run) -> None:
    for _ in range(3):
        with AuditPlugin(Path("log.jsonl").absolute()) as audit:
            with AgentMemoryService("memory://", plugins=[audit]) as service:
                service.write_memory_file("bob", "a.md", "x")
    lines = run("audit", "verify", "--log", "log.jsonl").stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["unanchored", "6 records of 3 writers"]


def test_a_store_with_only_an_audit_log_exists(run: Run) -> None:
    run("--url", "memory://only-a-log", "ls")
    assert run("--url", "store", "write", "a.md", "x").exit_code == 0
    assert run("--url", "store", "--agent", "default", "forget", "--yes").exit_code == 0
    assert "forget" in run("--url", "store", "audit", "show").stdout
