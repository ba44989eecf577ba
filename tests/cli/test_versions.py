"""The commands versions, diff and restore."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from agent_memory import AgentMemory, FileVersion
from agent_memory.cli.app import app
from agent_memory.memory import FileVersions
from agent_memory_local import LocalBackend
from tests.cli.commands import rows

Run = Callable[..., Result]


@pytest.fixture
def stored(run: Run) -> Run:
    """A store that keeps versions, with three of one file."""

    def on_store(*words: str, **options: object) -> Result:
        return run("--url", "root", "--actor", "ann", *words, **options)

    assert on_store("versions", "on").stdout == "versions are on: 100 of each file, 30 days, 1,073,741,824 bytes\n"
    on_store("write", "notes/a.md", "one\ntwo\n")
    on_store("write", "notes/a.md", "one\n2\n")
    on_store("append", "notes/a.md", "three\n")
    on_store("write", "notes/a.md", "all is lost\n")
    return on_store


def ids(run: Run, path: str = "notes/a.md") -> list[str]:
    return [line.split()[0] for line in rows(run("versions", path))]


def test_versions_are_listed_newest_first(stored: Run) -> None:
    result = stored("versions", "notes/a.md")
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    lines = rows(result)
    assert len(lines) == 3
    assert re.fullmatch(rf"[0-9a-f]{{16}} +12  {moment} write ann  present", lines[0])
    made = f"{moment} write ann  6 bytes appended"
    assert re.fullmatch(rf"[0-9a-f]{{16}} +12  {made}  until {moment} write ann", lines[1])
    stored("mv", "notes", "old")
    assert rows(stored("versions", "old/a.md"))[1].endswith("  as notes/a.md")
    short = stored("versions", "old/a.md", "-n", "1")
    first = lines[0].split()[0]
    assert (short.stdout.count("\n"), f"1 version; --after {first} shows the next ones" in short.stderr) == (1, True)
    assert len(rows(stored("versions", "old/a.md", "--after", first))) == 2


def test_a_note_names_the_next_versions_only_if_there_are_any(stored: Run) -> None:
    last = ids(stored)[-1]
    for options in (["-n", "3"], ["--containing", "one", "-n", "2"]):
        result = stored("versions", "notes/a.md", *options)
        assert (len(rows(result)), result.stderr) == (int(options[-1]), "")
    assert "--after" in stored("versions", "notes/a.md", "--containing", "one", "-n", "1").stderr
    after = stored("versions", "notes/a.md", "--after", last)
    assert (after.exit_code, after.stderr) == (0, f"Note: no earlier version of notes/a.md after {last}\n")
    nothing = stored("versions", "notes/a.md", "--containing", "nowhere")
    assert (nothing.exit_code, nothing.stderr) == (1, "Note: no kept version of notes/a.md contains this text\n")


def test_without_a_path_the_versions_of_all_files_are_listed(stored: Run) -> None:
    stored("write", "b.md", "x")
    stored("rm", "b.md")
    lines = rows(stored("versions"))
    assert [line.split("  ")[-1] for line in lines] == ["b.md", "notes/a.md", "notes/a.md"]
    assert "--after" in stored("versions", "-n", "1").stderr
    assert stored("--agent", "other", "versions").stderr.endswith("no earlier version of agent 'other'\n")


def test_only_versions_that_contain_a_text_are_listed(stored: Run) -> None:
    _, second, first = ids(stored)
    stored("write", "b.md", "two\n")
    stored("rm", "b.md")
    found = rows(stored("versions", "--containing", "two"))
    assert [line.split("  ")[-1] for line in found] == ["b.md", "notes/a.md"]
    assert [line.split()[0] for line in rows(stored("versions", "notes/a.md", "--containing", "2"))] == [second]
    present = stored("versions", "--containing", "all")  # `search` finds the current file
    assert (present.exit_code, present.stdout) == (1, "")
    assert stored("versions", "notes/a.md", "--containing", "all").stdout.splitlines()[0].endswith("  present")
    assert rows(stored("versions", "-n", "1", "--containing", "two")) == found[:1]
    assert first in found[1]
    none = stored("versions", "--containing", "TWO")
    assert (none.exit_code, none.stdout, none.stderr) == (
        1,
        "",
        "Note: no kept version of agent 'default' contains this text\n",
    )
    assert json.loads(stored("--json", "versions", "--containing", "TWO").stdout)["versions"] == []
    refused = stored("versions", "on", "--containing", "two")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_redacted_version_contains_nothing(stored: Run) -> None:
    first = ids(stored)[2]
    stored("redact", "notes/a.md", first, "--reason", "test", "--yes")
    assert stored("versions", "--containing", "two").exit_code == 1
    assert first in stored("versions").stdout


def test_a_version_that_is_too_large_to_be_searched_is_named(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("write", "b.md", "x" * 60_000)
    stored("rm", "b.md")
    monkeypatch.setattr(LocalBackend, "max_bytes", 50_000)
    found = stored("versions", "--containing", "two")
    assert (found.exit_code, len(rows(found))) == (1, 1)
    assert "of b.md is too large to be searched: 60,000 bytes" in found.stderr
    none = stored("versions", "--containing", "TWO")
    assert (none.exit_code, "no kept version" in none.stderr) == (1, False)


def test_a_version_that_goes_during_a_search_is_passed_over(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stored("write", "b.md", "two\n")
    stored("rm", "b.md")
    read = FileVersions.read_bytes

    def read_late(versions: FileVersions, path: str, version: FileVersion | str) -> bytes:
        if path == "notes/a.md":
            AgentMemory(versions._tree).forget("notes/a.md")
        return read(versions, path, version)

    monkeypatch.setattr(FileVersions, "read_bytes", read_late)
    found = stored("versions", "--containing", "two")
    assert (found.exit_code, [line.split("  ")[-1] for line in rows(found)]) == (0, ["b.md"])


def test_a_text_that_is_not_utf8_is_looked_for_by_its_bytes(stored: Run) -> None:
    assert stored("versions", "--containing", "\udce9").exit_code == 1


def test_the_changes_of_an_actor_are_undone(stored: Run) -> None:
    good = ids(stored)[1]
    stored("--actor", "bob", "write", "notes/a.md", "by bob\n")
    stored("--actor", "bob", "append", "log.md", "by bob\n")
    stored("--actor", "ann", "append", "log.md", "by ann\n")
    stored("--actor", "bob", "write", "left.md", "by bob\n")
    stored("--actor", "ann", "write", "left.md", "by ann\n")
    planned = stored("undo", "--by", "bob", "--dry-run")
    lost = ids(stored)[1]
    assert planned.stdout.splitlines() == [
        "would be cut: log.md by 7 appended bytes", f"would be restored: notes/a.md to version {lost}",
    ]  # fmt: skip
    result = stored("undo", "--yes", "--by", "bob")
    assert result.stdout.splitlines() == [line.removeprefix("would be ") for line in planned.stdout.splitlines()]
    assert (result.exit_code, result.stderr) == (1, "Note: left left.md: changed since by 'ann'\n")
    assert stored("read", "log.md").stdout == "by ann\n"
    assert stored("read", "notes/a.md").stdout == "all is lost\n"
    assert stored("undo", "--yes", "--by", "nobody").stdout == "nothing to undo of agent 'default'\n"
    assert stored("undo", "--yes").exit_code == 2
    document = json.loads(stored("--json", "undo", "--by", "bob", "--dry-run").stdout)
    assert (document["dry_run"], document["done"]) == (True, [])
    assert {"path": "left.md", "reason": "changed since by 'ann'"} in document["left"]
    assert good in ids(stored)
    assert stored("undo", "--yes", "--by", "bob", "--log", "no-such-log.jsonl").exit_code == 1


def test_the_printed_times_are_those_that_undo_takes(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        printed = " ".join(stored("versions", "notes/a.md").stdout.splitlines()[0].split()[2:4])
        stored("write", "new.md", "x")
        assert "would be deleted: new.md" in stored("undo", "--since", printed, "--dry-run").stdout
    time.tzset()
    later = "2100-01-01"
    for moment in (later, f"{later} 00:00", f"{later}T00:00:00.500Z", f"{later} 00:00:00+02:00"):
        result = stored("undo", "--yes", "--since", moment)
        assert (result.stdout, result.stderr) == ("nothing to undo of agent 'default'\n", ""), moment
    result = stored("undo", "--yes", "--since", "yesterday")
    assert (result.exit_code, "2026-03-01 09:12:07Z" in result.stderr) == (2, True)


def test_a_version_is_redacted(stored: Run) -> None:
    _, good, first = ids(stored)
    assert stored("redact", "notes/a.md", first, "--reason", "a key").exit_code == 2
    assert stored("redact", "notes/a.md", first, "--yes").exit_code == 2
    stored("write", "notes/a.md", "with one\ntwo\n inside")
    result = stored("redact", "notes/a.md", first, "--reason", "a key", "--yes")
    assert result.stdout == f"redacted version {first} of notes/a.md\n"
    assert "the current file notes/a.md still contains this content" in result.stderr
    assert rows(stored("versions", "notes/a.md"))[-1].split()[1] == "redacted"
    assert stored("read", "notes/a.md").stdout == "with one\ntwo\n inside"
    assert stored("redact", "notes/a.md", first, "--reason", "again", "--yes").stderr == ""
    assert stored("read", "notes/a.md", "--version", first).exit_code == 3
    document = json.loads(stored("--json", "redact", "notes/a.md", good, "--reason", "x", "--yes").stdout)
    facts = {"agent": "default", "path": "notes/a.md", "redacted": good, "still_in": [], "other_names": []}
    assert document == {**facts, "versions_searched": True, "skipped": 0}
    shown = json.loads(stored("--json", "versions", "notes/a.md").stdout)["versions"][-1]
    assert (shown["reason"], shown["redacted_by"]["actor"], shown["size"]) == ("a key", "ann", 0)
    assert stored("audit", "verify").exit_code == 0


@pytest.mark.parametrize(("value", "coloured"), [("", True), ("1", False)])
def test_colours_are_switched_off_by_the_variable(
    stored: Run, monkeypatch: pytest.MonkeyPatch, value: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    shown = CliRunner().invoke(app, ["--url", "root", "diff", "notes/a.md", ids(stored)[1]], color=True)
    assert (shown.exit_code, "\x1b[31m-one" in shown.stdout) == (0, coloured)


def test_a_wrecked_file_is_found_and_brought_back(stored: Run) -> None:
    _, good, first = ids(stored)
    assert stored("diff", "notes/a.md", good).stdout.endswith("-one\n-2\n-three\n+all is lost\n")
    assert "-two\n+2\n" in stored("diff", "notes/a.md", first, good).stdout
    assert stored("restore", "notes/a.md", good).stdout == "restored notes/a.md (12 bytes)\n"
    assert stored("read", "notes/a.md").stdout == "one\n2\nthree\n"
    stored("rm", "notes/a.md")
    assert stored("read", "notes/a.md").exit_code == 3
    assert stored("read", "notes/a.md", "--version", good).stdout == "one\n2\nthree\n"
    stored("restore", "notes/a.md", good)
    assert stored("read", "notes/a.md").stdout == "one\n2\nthree\n"
    shown = stored("audit", "show").stdout
    assert shown.count("restore") == 2
    assert stored("audit", "verify").exit_code == 0


def test_documents_have_all_facts(stored: Run) -> None:
    document = json.loads(stored("--json", "versions", "notes/a.md").stdout)
    assert document["path"] == "notes/a.md"
    present, good, first = document["versions"]
    assert (present["ended_by"], present["previous"], present["number"]) == (None, good["id"], 2)
    assert good["made_by"].items() >= {"operation": "write", "actor": "ann", "tool_call_id": None}.items()
    assert (first["path"], first["size"], first["previous"]) == ("notes/a.md", 8, None)
    assert "-two" in json.loads(stored("--json", "diff", "notes/a.md", first["id"], good["id"]).stdout)["diff"]
    assert json.loads(stored("--json", "restore", "notes/a.md", first["id"]).stdout)["size"] == 8
    assert json.loads(stored("--json", "versions", "off").stdout) == {"versions": False}


def test_versions_are_turned_off_and_stay(stored: Run) -> None:
    assert stored("versions", "off").stdout == "versions are off: nothing more is kept, and what is kept stays\n"
    stored("write", "notes/a.md", "not kept\n")
    stored("write", "notes/a.md", "last\n")
    assert len(ids(stored)) == 3
    assert stored("versions", "on", "--keep", "3", "--days", "0.5", "--bytes", "1000").stdout == (
        "versions are on: 3 of each file, 0.5 days, 1,000 bytes\n"
    )
    assert stored("versions", "on", "--keep", "4").stdout == "versions are on: 4 of each file, 0.5 days, 1,000 bytes\n"
    assert stored("versions", "status").stdout == stored("versions", "on").stdout
    document = json.loads(stored("--json", "versions", "status").stdout)
    assert document == {"versions": True, "keep": 4, "days": 0.5, "max_bytes": 1000}


def test_old_versions_are_pruned(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stored("prune").stdout == "pruned 0 versions of default\n"
    stored("versions", "on", "--keep", "1")
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    assert stored("prune").stdout == "pruned 1 version of default\n"
    assert len(ids(stored)) == 2


def test_a_file_may_be_named_on(stored: Run) -> None:
    stored("write", "on", "x")
    assert len(ids(stored, "./on")) == 1


def test_without_an_id_the_last_earlier_version_is_compared_and_restored(stored: Run) -> None:
    _, earlier, _ = ids(stored)
    assert stored("diff", "notes/a.md").stdout == stored("diff", "notes/a.md", earlier).stdout != ""
    assert json.loads(stored("--json", "diff", "notes/a.md").stdout)["old"] == earlier
    assert stored("restore", "notes/a.md").exit_code == 0
    assert stored("read", "notes/a.md").stdout == "one\n2\nthree\n"
    assert stored("restore", "notes/a.md").exit_code == 0, "takes the first one back"
    assert stored("read", "notes/a.md").stdout == "all is lost\n"
    stored("rm", "notes/a.md")
    assert stored("restore", "notes/a.md").exit_code == 0, "of a deleted file it is the deleted content"
    assert stored("read", "notes/a.md").stdout == "all is lost\n"
    stored("write", "new.md", "x")
    for command in ("diff", "restore"):
        result = stored(command, "new.md")
        assert (result.exit_code, "no earlier version of this file is kept" in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["versions", "--after", "x"], 3, "no version 'x'"),
        (["versions", "missing.md"], 3, "no such file, and no version of it is kept"),
        (["versions", "a.md", "--keep", "3"], 2, "go with"),
        (["versions", "on", "--keep", "0"], 2, "--keep"),
        (["versions", "on", "--days", "0"], 2, "--days"),
        (["versions", "../x"], 5, "refused"),
        (["versions", "a.md", "-n", "0"], 2, "-n"),
        (["diff", "notes/a.md", "x"], 3, "no version 'x'"),
        (["restore", "notes/a.md", "0000000000000000"], 3, "no version"),
        (["restore", "notes", "0000000000000000"], 3, "no version"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(stored: Run, words: list[str], code: int, told: str) -> None:
    result = stored(*words)
    assert (result.exit_code, result.stdout, told in result.stderr) == (code, "", True), result.stderr
    assert stored("read", "notes/a.md").stdout == "all is lost\n"
    stored("write", "new.md", "x")
    for command in ("diff", "restore"):
        result = stored(command, "new.md")
        assert (result.exit_code, "no earlier version of this file is kept" in result.stderr) == (3, True)


def test_without_versions_there_is_only_the_present_one(run: Run) -> None:
    run("--url", "root", "write", "a.md", "one")
    run("--url", "root", "write", "a.md", "two")
    lines = run("--url", "root", "versions", "a.md").stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("unknown  present")
    for words in (["versions"], ["versions", "a.md"]):
        assert "this store keeps no versions" in run("--url", "root", *words).stderr
    assert run("--url", "root", "versions", "status").stdout.startswith("versions are off")


def test_restore_and_undo_say_that_what_they_replaced_is_not_kept(stored: Run) -> None:
    stored("versions", "off")
    for command in (["undo", "--by", "ann", "--yes"], ["restore", "notes/a.md"]):
        assert "so what was replaced is not kept" in stored(*command).stderr
    stored("versions", "on")
    stored("write", "notes/a.md", "present")
    assert "not kept" not in stored("restore", "notes/a.md").stderr


def test_an_error_about_a_version_names_the_list(stored: Run) -> None:
    wrong = "0" * 16
    calls = (["diff"], ["restore"], ["read", "--version"], ["redact", "--reason", "x", "--yes"])
    for command, *options in calls:
        result = stored(command, "notes/a.md", *options, wrong)
        assert (result.exit_code, result.stdout) == (3, "")
        assert f"no version '{wrong}'; see agent-memory versions notes/a.md\n" in result.stderr
        assert "see agent-memory" not in stored(command, "nosuch.md", *options, wrong).stderr
    stored("rm", "notes/a.md")
    assert "no such file; see agent-memory versions notes/a.md\n" in stored("diff", "notes/a.md").stderr
