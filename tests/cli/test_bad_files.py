"""Commands on many files do what they can; they name the other files and say it by their exit code."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Run
from tests.support.bad_files import BINARY, GOOD, LARGE, LOCKED, WORD, make_bad_files, unprivileged_directory

for name in ("box", "console", "progress", "table", "text", "tree", "color", "segment"):
    importlib.import_module(f"rich.{name}")  # an unprivileged user may not read where Python is installed
READ = {*GOOD, LARGE, BINARY}


@pytest.fixture
def above() -> Iterator[Path]:
    with unprivileged_directory() as path:
        make_bad_files(path / "store/agent_memory/default")
        yield path


def files_below(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and ".agent-m" not in str(path)
    }


def test_a_search_prints_the_others_and_exits_with_1(run: Run, above: Path) -> None:
    result = run("--url", str(above / "store"), "search", WORD)
    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [GOOD[0], BINARY, GOOD[1]]
    for name in (*LOCKED, LARGE):
        assert f"Note: left out {name}: " in result.stderr
    result = run("--url", str(above / "store"), "--json", "search", WORD)
    assert {each["path"] for each in json.loads(result.stdout)["left_out"]} == {*LOCKED, LARGE}


@pytest.mark.parametrize("command", [["ls", "-r"], ["tree"], ["read", "--as-tool"]])
def test_a_listing_shows_all_names_and_counts_the_others(run: Run, above: Path, command: list[str]) -> None:
    result = run("--url", str(above / "store"), *command)
    assert result.exit_code == 0
    for name in (*GOOD, *LOCKED, LARGE, BINARY):
        assert name.rpartition("/")[2] in result.stdout
    assert "4 names in storage left out" in result.stderr


def test_an_export_writes_the_others(run: Run, above: Path) -> None:
    result = run("--url", str(above / "store"), "export", str(above / "folder"))
    assert result.exit_code == 1
    assert files_below(above / "folder") == READ
    assert all(f"Failed: {name!r}: " in result.stderr for name in LOCKED)
    assert "not tried" not in result.stdout


def test_an_import_takes_the_others(run: Run, above: Path) -> None:
    folder = above / "store/agent_memory/default"
    result = run("--url", str(above / "new"), "import", str(folder))
    assert result.exit_code == 1
    assert files_below(above / "new/agent_memory/default") == READ
    for name in (*LOCKED, "pipe.md", "link.md", "b:ad.md", "closed"):
        assert f"{name!r}" in result.stderr
    assert "not tried" not in result.stdout


def test_a_copy_takes_the_others_and_all_agents(run: Run, above: Path) -> None:
    for agent in ("alone", "zoe"):
        (above / "store/agent_memory" / agent).mkdir()
        (above / "store/agent_memory" / agent / "a.md").write_text(WORD)
    (above / "store/agent_memory/alone").chmod(0)
    result = run("transfer", str(above / "store"), str(above / "new"))
    assert result.exit_code == 1
    assert files_below(above / "new/agent_memory") == {*(f"default/{name}" for name in READ), "zoe/a.md"}
    assert all(f"'default/{name}'" in result.stderr for name in LOCKED)


def test_the_doctor_looks_at_all_agents(run: Run, above: Path) -> None:
    for agent in ("alone", "zoe"):
        (above / "store/agent_memory" / agent).mkdir()
        (above / "store/agent_memory" / agent / "a.md").write_text(WORD)
    (above / "store/agent_memory/alone").chmod(0)
    result = run("--url", str(above / "store"), "--json", "doctor", "--rounds", "1")
    trees = {tree["agent"]: tree for tree in json.loads(result.stdout)["agents"]}
    assert (trees["default"]["files"], trees["default"]["skipped"], trees["zoe"]["files"]) == (29, 4, 1)


@pytest.fixture
def unreadable_record(run: Run, above: Path) -> tuple[str, str]:
    """The ``--url`` of a store whose file a.md has three states; the record of the second one cannot be read."""
    url = ("--url", str(above / "store"))
    assert run(*url, "versions", "on").exit_code == 0
    for text in ("needle 1", "needle 2", "needle 3"):
        run(*url, "write", "a.md", text)
    records = [path for path in (above / "store/.agent-memory/versions").rglob("*") if path.is_file()]
    (locked,) = (path for path in records if b"needle 2" in path.read_bytes())
    locked.chmod(0)
    return url


@pytest.mark.parametrize("path", [(), ("a.md",)])
def test_versions_counts_the_records_that_it_cannot_read(
    run: Run, unreadable_record: tuple[str, str], path: tuple[str, ...]
) -> None:
    result = run(*unreadable_record, "versions", *path)
    assert result.exit_code == 0
    assert "Note: 1 record of versions cannot be read: damaged, or no access" in result.stderr
    document = json.loads(run(*unreadable_record, "--json", "versions", *path).stdout)
    assert document["skipped"] == 1


def test_a_search_of_versions_that_cannot_read_a_record_is_incomplete(
    run: Run, unreadable_record: tuple[str, str]
) -> None:
    result = run(*unreadable_record, "versions", "--containing", WORD)
    assert result.exit_code == 1
    assert "1 record of versions cannot be read" in result.stderr
    assert "until" in result.stdout  # the version that can be read


@pytest.mark.parametrize("command", ["restore", "diff"])
def test_the_last_earlier_version_is_not_guessed_if_a_record_cannot_be_read(
    run: Run, unreadable_record: tuple[str, str], command: str
) -> None:
    result = run(*unreadable_record, command, "a.md")
    assert result.exit_code != 0
    assert "the last earlier version is not known, because 1 record of versions cannot be read" in result.stderr
    assert run(*unreadable_record, "read", "a.md").stdout.strip() == "needle 3"
