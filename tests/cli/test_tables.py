"""Tables fit 80 columns where there is no terminal; a longer path is not cut and has a line of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result
from rich.cells import cell_len

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.cli.output import COLUMNS, row

Run = Callable[..., Result]
NAMES = ("\u65e5" * 60 + ".md", "n" * 90 + ".md", "w" * 45 + ".md", "a.md")
PATHS = [f"{directory}{name}" for directory in ("", "deep/" * 5) for name in NAMES]
ACTOR = "a-long-name-of-an-actor-of-a-model@example.com"
COMMANDS = {
    "ls -r": True, "ls deep/deep": False, "tree": False, "versions": True, "versions a.md": False, "audit show": True,
    "audit blame a.md": False, "conversation allow --yes": False, "doctor --rounds 1": False, "plugins": False,
    "agents": False,
}  # fmt: skip
"""Commands that print a table, and whether it has the path of each file."""


@pytest.fixture
def stored(run: Run) -> Run:
    def on_store(*words: str) -> Result:
        return run("--url", "store", "--actor", ACTOR, *words)

    with AgentMemoryService("store", versions=VersionLimits()) as service:
        service.write_memory_file("default", "deep/history.jsonl", "")
    for path in PATHS:
        for content in ("x", "y"):
            assert on_store("write", path, content).exit_code == 0
    return on_store


def test_tables_fit_and_no_path_is_cut(stored: Run) -> None:
    for command, has_paths in COMMANDS.items():
        result = stored(*command.split())
        assert result.exit_code == 0, result.stderr
        lines = result.stdout.splitlines()
        table = [line for line in lines if not line.startswith(("Verdict: ", "Limit: ", "Backends", "Store: "))]
        for line in table:
            assert cell_len(line) <= COLUMNS or any(line.split()[-1].endswith(name) for name in NAMES[:2]), line
            assert cell_len(line) <= COLUMNS or "  " not in line.strip(" \u2502\u251c\u2500\u2514"), (
                "only a path is longer"
            )
        if has_paths:
            assert {word for line in lines for word in line.split()} >= set(PATHS), command
        if command == "tree":
            assert all(name in result.stdout for name in NAMES)


def test_a_row_is_broken_between_its_facts() -> None:
    assert row("a", "b") == "a  b"
    assert row("a" * 40, "b" * 38, "c") == "a" * 40 + "  " + "b" * 38 + "\n    c"
    assert row("a", "p" * 100, "b") == "a\n    " + "p" * 100 + "\n    b"
    assert row("p" * 100) == "p" * 100
