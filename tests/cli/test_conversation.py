"""The command conversation: shows the files under a conversation's names, and takes a mark back."""

from __future__ import annotations

import json

from agent_memory import AgentMemoryService
from agent_memory.tools import MemoryTool
from tests.cli.commands import Run
from tests.tools.calls import succeeded


def mark(directory: str, *names: str) -> None:
    with AgentMemoryService(".agent-memory") as service:
        memory = service.agent("default")
        tool = MemoryTool(memory.subtree(directory) if directory else memory, conversation=False)
        for name in names:
            succeeded(tool.call({"command": "create", "path": f"/memories/{name}", "file_text": "x"}))


def test_the_files_are_shown_and_the_mark_stays_without_yes(run: Run) -> None:
    mark("", "history.jsonl", "plan.md", "a/cron/jobs.json")
    result = run("conversation", "allow")
    assert result.exit_code == 2
    assert [line.split()[-1] for line in result.stdout.splitlines()[:2]] == ["a/cron/jobs.json", "history.jsonl"]
    assert "plan.md" not in result.stdout
    assert "--yes" in result.stderr
    assert run("conversation", "show").exit_code == 5


def test_yes_takes_the_mark_back(run: Run) -> None:
    mark("", "plan.md")
    mark("notes", "jobs.json")
    result = run("conversation", "allow", "--directory", "notes/deep", "--yes", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "directory": "notes/deep", "marked": ["", "notes"], "files": [], "allowed": True,
    }  # fmt: skip
    assert run("conversation", "append", "--role", "user", "hello").exit_code == 0
    assert run("conversation", "show", "--directory", "notes").exit_code == 0


def test_without_a_mark_there_is_nothing_to_do(run: Run) -> None:
    run("write", "a.md", "x")
    result = run("conversation", "allow")
    assert (result.exit_code, result.stdout) == (0, "no mark refuses a conversation here\n")


def test_a_refused_history_names_the_command(run: Run) -> None:
    mark("", "history.jsonl")
    for command in (["show"], ["search", "x"], ["append", "--role", "user", "x"]):
        result = run("conversation", *command)
        assert result.exit_code == 5
        assert "agent-memory conversation allow" in result.stderr
