"""ls, tree and agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def files(run: Run) -> None:
    for path, content in {"a.md": "12345", "notes/b.md": "", "notes/deep/c.md": "123"}.items():
        run("write", path, content)


@pytest.mark.usefixtures("files")
def test_ls_shows_one_level_with_sizes(run: Run) -> None:
    lines = run("ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["5", "-"]
    assert [line.split()[-1] for line in lines] == ["a.md", "notes/"]


@pytest.mark.usefixtures("files")
def test_ls_r_shows_all_files_below(run: Run) -> None:
    assert [line.split()[-1] for line in run("ls", "-r", "notes/").stdout.splitlines()] == [
        "notes/b.md",
        "notes/deep/c.md",
    ]


@pytest.mark.usefixtures("files")
def test_ls_of_a_file_shows_the_file(run: Run) -> None:
    assert run("ls", "notes/b.md").stdout.split()[-1] == "notes/b.md"


@pytest.mark.usefixtures("files")
def test_ls_prints_json(run: Run) -> None:
    document = json.loads(run("ls", "--json").stdout)
    assert document["skipped"] == 0
    file, directory = document["entries"]
    assert (file["path"], file["size"]) == ("a.md", 5)
    assert datetime.fromisoformat(file["modified"]).tzinfo
    assert directory == {"path": "notes", "directory": True}


def test_an_empty_memory_lists_nothing(run: Run, empty_store: Path) -> None:
    for command in (["ls"], ["ls", "."], ["agents"]):
        told = "" if command == ["agents"] else "Note: agent 'default' has no files; no agent has any\n"
        result = run(*command)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", told)
    assert list(empty_store.iterdir()) == []


@pytest.mark.usefixtures("files")
def test_tree_draws_every_directory_once(run: Run) -> None:
    drawn = run("tree").stdout
    assert [drawn.count(name) for name in ("a.md", "notes/", "deep/", "c.md")] == [1, 1, 1, 1]
    assert "3 files, 8 bytes" in drawn
    assert json.loads(run("tree", "--json").stdout)["size"] == 8


def test_tree_prints_a_name_that_looks_like_markup_unchanged(run: Run) -> None:
    run("write", "[red]x[blink] (smile).md", "x")
    assert "[red]x[blink] " in run("tree", "--agent", "default").stdout
    run("write", "plain/[bold].md", "x")
    assert "[bold].md" in run("tree").stdout


def test_agents_lists_the_agents_with_files(run: Run) -> None:
    run("--agent", "bob", "write", "a.md", "x")
    run("--agent", "ann", "write", "a.md", "x")
    assert run("agents").stdout == "ann\nbob\n"
    assert json.loads(run("agents", "--json").stdout)["agents"] == ["ann", "bob"]


def test_names_that_are_no_keys_are_mentioned(run: Run, tmp_path: Path) -> None:
    run("write", "a.md", "x")
    (tmp_path / ".agent-memory/agent_memory/default/what?.md").write_text("an editor's")
    for command in ("ls", "tree"):
        result = run(command)
        assert result.exit_code == 0
        assert "what" not in result.stdout
        assert "1 name in storage left out" in result.stderr
        assert json.loads(run(command, "--json").stdout)["skipped"] == 1
