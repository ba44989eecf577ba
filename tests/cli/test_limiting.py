"""``agent-memory limits``, ``du``, ``agents --long`` and ``expire``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def url(run: Run, tmp_path: Path) -> tuple[str, ...]:
    """A store with files of two agents, one of them old."""
    given = ("--url", str(tmp_path / "store"), "--no-audit")
    for agent, path, text in (("ann", "a.md", "one"), ("ann", "d/b.md", "twelve bytes"), ("bob", "c.md", "x")):
        assert run(*given, "--agent", agent, "write", path, text).exit_code == 0
    old = time.time() - 40 * 86_400
    os.utime(tmp_path / "store/agent_memory/ann/d/b.md", (old, old))
    return given


def test_limits_are_shown_set_kept_and_removed(run: Run, url: tuple[str, ...]) -> None:
    assert run(*url, "limits").stdout == "there are no limits\n"
    assert run(*url, "limits", "on", "--file-bytes", "20").stdout == "at most 20 bytes a file\n"
    both = run(*url, "limits", "on", "--agent-bytes", "1000", "--agent-files", "3", "--count-versions").stdout
    assert both == "at most 20 bytes a file, 1,000 bytes an agent, with versions, 3 files an agent\n"
    assert run(*url, "limits").stdout == both
    refused = run(*url, "--agent", "ann", "write", "a.md", "x" * 21)
    assert (refused.exit_code, "a file may have 20 bytes, and this one would have 21" in refused.stderr) == (5, True)
    for name in ("e.md", "f.md"):
        refused = run(*url, "--agent", "ann", "write", name, "x")
    assert (refused.exit_code, "may have 3 files and has 3; 1 more" in refused.stderr) == (
        5,
        True,
    )
    assert json.loads(run(*url, "--json", "limits").stdout)["limits"]["agent_bytes"] == 1000
    assert json.loads(run(*url, "--json", "limits", "off").stdout) == {"limits": None}
    assert run(*url, "--agent", "ann", "write", "f.md", "x" * 50).exit_code == 0


def test_budgets_are_shown_set_kept_and_removed(run: Run, url: tuple[str, ...]) -> None:
    shown = "a warning near 200 lines of MEMORY.md, 9,000 bytes of an agent, 1 file of an agent\n"
    given = ("--warn-at", "MEMORY.md:lines=200", "--warn-at", "/:files=1,bytes=9000")
    assert run(*url, "limits", "on", *given).stdout == shown
    assert run(*url, "limits", "on", "--file-bytes", "20").stdout == f"at most 20 bytes a file; {shown}"
    assert run(*url, "limits", "on", "--warn-at", "/:off", "--warn-at", "a.md:bytes=3").stdout == (
        "at most 20 bytes a file; a warning near 200 lines of MEMORY.md, 3 bytes of a.md\n"
    )
    assert run(*url, "--agent", "ann", "write", "a.md", "x" * 9).exit_code == 0, "a budget refuses nothing"
    assert json.loads(run(*url, "--json", "limits").stdout)["limits"]["warn_at"] == {
        "MEMORY.md": {"bytes": None, "lines": 200, "files": None},
        "a.md": {"bytes": 3, "lines": None, "files": None},
    }


def test_a_configuration_sets_the_limits_of_a_store_without_limits(
    run: Run, url: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "agent-memory.toml"
    config.write_text("[limits]\nfile_bytes = 30\n[limits.warn_at]\n'MEMORY.md' = { lines = 200 }\n")
    given = (*url, "--config", str(config))
    assert run(*given, "limits").stdout == "there are no limits\n", "reading sets nothing"
    refused = run(*given, "--agent", "ann", "write", "a.md", "x" * 31)
    assert (refused.exit_code, "a file may have 30 bytes" in refused.stderr) == (5, True)
    assert run(*url, "limits").stdout == "at most 30 bytes a file; a warning near 200 lines of MEMORY.md\n"
    config.write_text("[limits]\nfile_bytes = 5\n")
    assert run(*given, "--agent", "ann", "write", "a.md", "x" * 30).exit_code == 0, "the store keeps its limits"
    config.write_text("[limits]\nfile_byte = 5\n")
    wrong = run(*given, "limits")
    assert (wrong.exit_code, "[limits]: " in wrong.stderr, "file_bytes" in wrong.stderr) == (2, True, True)


def test_a_series_of_commands_does_not_exceed_a_limit(run: Run, url: tuple[str, ...]) -> None:
    assert run(*url, "limits", "on", "--file-bytes", "30").exit_code == 0
    codes = [run(*url, "--agent", "ann", "append", "log.md", "x" * 19).exit_code for _ in range(3)]
    assert codes == [0, 5, 5]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--file-bytes", "3"], 'limits are set with "limits on"'),
        (["off", "--file-bytes", "3"], 'limits are set with "limits on"'),
        (["on"], "give a limit: --file-bytes, --agent-bytes, --agent-files or --warn-at"),
        (["--warn-at", "a:lines=3"], 'limits are set with "limits on"'),
        (["on", "--warn-at", "a"], "'a' is not like MEMORY.md:lines=200"),
        (["on", "--warn-at", "a:"], "'a:' is not like MEMORY.md:lines=200"),
        (["on", "--warn-at", ":lines=3"], "':lines=3' is not like MEMORY.md:lines=200"),
        (["on", "--warn-at", "a:words=3"], "'a:words=3' is not like MEMORY.md:lines=200"),
        (["on", "--warn-at", "a:lines=-3"], "'a:lines=-3' is not like MEMORY.md:lines=200"),
        (["on", "--warn-at", "a:lines=0"], "'a:lines=0': lines must be a positive whole number"),
        (["on", "--warn-at", "a:files=3"], "warn_at of 'a' takes bytes and lines, not files"),
        (["on", "--warn-at", "../a:lines=3"], "'../a' matches no path"),
        (["on", "--file-bytes", "0"], "0 is not in the range"),
        (["on", "--count-versions"], "count_versions needs agent_bytes"),
        (["maybe"], "'maybe' is not one of"),
    ],
)
def test_wrong_limits_change_nothing(run: Run, url: tuple[str, ...], arguments: list[str], told: str) -> None:
    result = run(*url, "limits", *arguments)
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
    assert run(*url, "limits").stdout == "there are no limits\n"


def test_du_shows_directories_and_all(run: Run, url: tuple[str, ...]) -> None:
    assert run(*url, "versions", "on").exit_code == 0
    assert run(*url, "--agent", "ann", "write", "a.md", "two").exit_code == 0
    assert run(*url, "limits", "on", "--agent-files", "9").exit_code == 0
    lines = run(*url, "--agent", "ann", "du").stdout.split("\n")
    assert lines[0].split() == ["12", "1", "file", "d/"]
    assert lines[1].split()[:3] == ["15", "2", "files"]
    assert "1 version (" in lines[2]
    assert "at most 9 files an agent" in "".join(lines)
    below = json.loads(run(*url, "--json", "--agent", "ann", "du", "d").stdout)
    assert (below["path"], below["files"], below["bytes"], below["directories"]) == ("d", 1, 12, {})
    assert run(*url, "--agent", "ann", "du", "nothing").exit_code == 3


def test_agents_long_shows_what_each_has(run: Run, url: tuple[str, ...]) -> None:
    rows = [line.split()[:4] for line in run(*url, "agents", "--long").stdout.splitlines()]
    assert rows == [["15", "ann", "2", "files"], ["1", "bob", "1", "file"]]
    found = json.loads(run(*url, "--json", "agents", "--long").stdout)["agents"]
    assert [(each["agent"], each["files"], each["bytes"], each["versions"]) for each in found] == [
        ("ann", 2, 15, 0),
        ("bob", 1, 1, 0),
    ]
    assert found[0]["newest"] - found[0]["oldest"] > 39 * 86_400


def test_expire_deletes_old_files_of_all_agents(run: Run, url: tuple[str, ...]) -> None:
    would = run(*url, "expire", "**", "--days", "30", "--dry-run")
    assert (would.exit_code, would.stdout.splitlines()[-1]) == (0, "would delete 1 file")
    assert run(*url, "expire", "**", "--days", "30").exit_code == 2, "it asks first"
    assert run(*url, "expire", "**", "--days", "30", "--yes", "--keep", "d/**").stdout == "deleted 0 files\n"
    done = json.loads(run(*url, "--json", "expire", "**", "--days", "30", "--yes", "--limit", "1").stdout)
    assert [(each["agent"], each["path"], each["size"]) for each in done["files"]] == [("ann", "d/b.md", 12)]
    assert run(*url, "expire", "**", "--days", "30", "--yes").stdout == "deleted 0 files\n"
    assert run(*url, "--agent", "ann", "ls", "-r").stdout.split()[-1] == "a.md"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["../x", "--days", "3"], 2), (["**"], 2), (["**", "--days", "0"], 2),
        (["**", "--days", "3", "--limit", "0"], 2),
        (["**", "--days", "3", "--agent", "../x"], 5), (["**", "--days", "3", "--agent", "eve"], 3),
    ],
)  # fmt: skip
def test_a_wrong_expire_deletes_nothing(run: Run, url: tuple[str, ...], arguments: list[str], code: int) -> None:
    assert run(*url, "expire", *arguments, "--yes").exit_code == code
    assert "2 files" in run(*url, "agents", "--long").stdout


@pytest.mark.parametrize("days", ["0", "-1", "1e9", "nan", "inf", "many"])
@pytest.mark.parametrize("command", [("expire", "*"), ("conversation", "compact"), ("versions", "on")])
def test_a_wrong_number_of_days_is_a_mistake_of_usage(
    run: Run, url: tuple[str, ...], command: tuple[str, ...], days: str
) -> None:
    run(*url, "write", "a.md", "x")
    refused = run(*url, *command, "--days", days, "--yes" if command[0] != "versions" else "-n1")
    assert (refused.exit_code, "Invalid value for '--days'" in refused.stderr) == (2, True)
