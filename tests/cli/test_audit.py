"""``agent-memory audit``: findings, output and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory import AgentMemory, AgentMemoryFileNotFoundError, AgentMemoryService, OperationDenied
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.readonly import ReadOnlyPlugin
from tests.cli.commands import rows

Run = Callable[..., Result]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a service with a few operations, with checkpoints beside it; the store is ``store``."""
    with (
        AuditPlugin(tmp_path / "audit.jsonl", checkpoints=tmp_path / "heads.jsonl") as audit,
        AgentMemoryService(tmp_path / "store", plugins=[audit], actor="ops") as service,
    ):
        bob = service.agent("bob").acting_as("bob's model")
        bob.write("notes/a.md", "one")
        bob.append("notes/a.md", "two")
        bob.rename("notes/a.md", "notes/b.md")
        bob.rename("notes", "old")
        with pytest.raises(AgentMemoryFileNotFoundError):
            bob.delete("old/nothing.md")
        service.write_memory_file("eve", "notes/a.md", "eve's")
    return tmp_path / "audit.jsonl"


def test_an_unchanged_log_is_intact(run: Run, log: Path) -> None:
    result = run("audit", "verify", "--log", str(log), "--checkpoints", "heads.jsonl")
    assert (result.exit_code, result.stdout) == (0, "7 records of 1 writer: nothing found\n")
    result = run("audit", "verify", "--log", str(log))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("audit.jsonl:1 to audit.jsonl:7: unanchored: ")


def test_verify_reports_a_manipulation_with_its_line(run: Run, log: Path) -> None:
    log.write_text(log.read_text().replace("notes/b.md", "notes/c.md"))
    result = run("audit", "verify", "--log", str(log), "--checkpoints", "heads.jsonl")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith("audit.jsonl:4: edited: ")
    result = run("--json", "audit", "verify", "--log", str(log))
    document = json.loads(result.stdout)
    assert (document["intact"], document["findings"][0]["kind"]) == (False, "edited")


def test_verify_separates_the_checkpoints_of_several_logs_in_one_file(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        with (
            AuditPlugin(tmp_path / "a.jsonl", checkpoints="heads.jsonl") as first,
            AuditPlugin(tmp_path / "b.jsonl", checkpoints="heads.jsonl") as second,
            AgentMemoryService("memory://", plugins=[first, second]) as service,
        ):
            service.write_memory_file("bob", "a.md", "x")
    whole = Path("b.jsonl").read_bytes().splitlines(keepends=True)
    verify = ("audit", "verify", "--checkpoints", "heads.jsonl", "--log")
    for name in ("a.jsonl", "b.jsonl"):
        result = run(*verify, name)
        assert (result.exit_code, result.stdout) == (0, "4 records of 2 writers: nothing found\n")
    identity = Path("b.jsonl.identity")
    own = identity.read_text()
    identity.unlink()  # a copy of the log
    assert run(*verify, "b.jsonl").exit_code == 0

    identity.write_text(own)
    Path("b.jsonl").write_bytes(b"".join(whole[:2]))
    result = run(*verify, "b.jsonl")
    writer = json.loads(whole[2])["writer"]
    told = f"the log: missing: all records of writer {writer} of log {own.strip()}: a checkpoint names record 2"
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, told)

    Path("b.jsonl").write_bytes(b"".join(whole))
    identity.write_text(Path("a.jsonl.identity").read_text())
    assert "foreign" in run(*verify, "b.jsonl").stdout
    with AuditPlugin("c.jsonl") as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
    assert run(*verify, "c.jsonl").stdout.count("missing: all records of writer") == 4


def test_the_log_of_the_store_is_found_without_an_option(run: Run, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
    result = run("--url", "store", "audit", "verify")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 records of 1 writer: 1 unanchored")
    assert "write" in run("--url", "store", "audit", "show").stdout


@pytest.mark.usefixtures("empty_store")
def test_verify_reports_that_the_store_has_no_log(run: Run) -> None:
    result = run("audit", "verify")
    assert (result.exit_code, "there is no audit log in this store" in result.stderr) == (1, True)


def test_an_invalid_checkpoint_file_is_a_usage_error(run: Run, log: Path) -> None:
    Path("heads.jsonl").write_text("{}\n{}\n")
    result = run("audit", "verify", "--log", str(log), "--checkpoints", "heads.jsonl")
    assert (result.exit_code, "line 1 is not a checkpoint" in result.stderr) == (2, True)


def test_a_keyed_log_needs_its_key(run: Run, tmp_path: Path) -> None:
    key = b"a key of 16 bytes at least"
    (tmp_path / "key").write_bytes(key)
    with (
        AuditPlugin(tmp_path / "k.jsonl", key=key) as audit,
        AgentMemoryService("memory://", plugins=[audit]) as service,
    ):
        service.write_memory_file("bob", "a.md", "x")
    result = run("audit", "verify", "--log", "k.jsonl")
    assert (result.exit_code, "key" in result.stderr) == (2, True)
    assert run("audit", "verify", "--log", "k.jsonl", "--key-file", "key").exit_code == 0


def shown(result: Result) -> list[tuple[str, str]]:
    assert result.exit_code == 0
    return [(each["agent"], each["operation"]) for each in json.loads(result.stdout)["records"] if "operation" in each]


def test_show_filters_by_agent_actor_path_and_time(run: Run, log: Path) -> None:
    show = ("--json", "audit", "show", "--log", str(log))
    assert len(shown(run(*show))) == 6
    assert shown(run(*show, "--agent", "eve")) == [("eve", "write")]
    assert shown(run(*show, "--actor", "ops")) == [("eve", "write")]
    assert shown(run(*show, "--path", "notes/b.md")) == [("bob", "rename")]
    assert [kind for _, kind in shown(run(*show, "--agent", "bob", "--path", "notes"))] == [
        "write", "append", "rename", "rename",
    ]  # fmt: skip
    assert shown(run(*show, "--since", "2100-01-01")) == []
    assert len(shown(run(*show, "--until", "2100-01-01 09:12"))) == 6
    assert run(*show, "--until", "soon").exit_code == 2


def test_show_marks_a_repeated_call_that_changed_nothing(run: Run, tmp_path: Path) -> None:
    with (
        AuditPlugin(tmp_path / "audit.jsonl") as audit,
        AgentMemoryService(tmp_path / "store", plugins=[audit], actor="ops") as service,
    ):
        for _ in range(2):
            service.agent("bob").once("run-7/step-3").append("log.md", "deployed\n")
    first, second = rows(run("audit", "show", "--log", str(tmp_path / "audit.jsonl")))
    assert "  ok  9 bytes" in first
    assert "repeated" not in first
    assert "  ok  repeated" in second


def test_show_filters_by_tool_call(run: Run, tmp_path: Path) -> None:
    with AgentMemoryService("memory://", plugins=[AuditPlugin(tmp_path / "calls.jsonl")]) as service:
        for number in range(3):
            service.agent("bob").acting_as("model", f"call-{number}").write(f"{number}.md", "x")
    result = run("--json", "audit", "show", "--log", "calls.jsonl", "--tool-call", "call-1")
    assert [each["path"] for each in json.loads(result.stdout)["records"]] == ["1.md"]
    shown = run("audit", "show", "--log", "calls.jsonl", "--tool-call", "call-1").stdout
    assert shown.rstrip().endswith("  call call-1")
    none = run("audit", "show", "--log", "calls.jsonl", "--tool-call", "call-9")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr.startswith("Note: no such record; --agent, --actor and ")


def test_a_record_is_one_printable_row(run: Run, log: Path) -> None:
    lines = rows(run("audit", "show", "--log", str(log), "--agent", "bob"))
    assert len(lines) == 5
    time, rest = lines[0][:19], lines[0][19:]
    assert time[4] == time[7] == "-"
    assert rest.startswith('  bob  "bob\'s model"  write  notes/a.md  ok  3 bytes  ')


def test_blame_lists_the_operations_that_changed_a_file(run: Run, log: Path) -> None:
    def kinds(*args: str) -> list[str]:
        return [kind for _, kind in shown(run("--json", "audit", "blame", "--log", str(log), *args))]

    assert kinds("notes/a.md", "--agent", "bob") == ["write", "append", "rename", "rename"]
    assert kinds("old/b.md", "--agent", "bob") == ["rename"]
    assert kinds("old/nothing.md", "--agent", "bob") == ["rename"]  # omits the delete that found no file
    assert kinds("notes/a.md", "--agent", "eve") == ["write"]
    assert run("audit", "blame", "notes/a.md", "--log", str(log)).exit_code == 3


def test_blame_omits_denied_operations_and_show_lists_them(run: Run) -> None:
    with (
        AuditPlugin("d.jsonl") as audit,
        AgentMemoryService("memory://", plugins=[audit, ReadOnlyPlugin("policies/**")]) as service,
        pytest.raises(OperationDenied),
    ):
        service.write_memory_file("default", "policies/a.md", "x")
    assert run("audit", "blame", "policies/a.md", "--log", "d.jsonl").stdout == ""
    assert "  write  policies/a.md  denied\n" in run("audit", "show", "--log", "d.jsonl").stdout


def test_blame_marks_an_operation_that_began_but_did_not_end(run: Run, tmp_path: Path) -> None:
    with AuditPlugin("i.jsonl", intent=True) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("default", "a.md", "x")
        service.write_memory_file("default", "a.md", "y")
    log = tmp_path / "i.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    lines = run("audit", "blame", "a.md", "--log", "i.jsonl").stdout.splitlines()
    assert ["begun" in line for line in lines] == [False, True]


def test_lines_that_are_no_records_are_omitted_and_counted(run: Run, log: Path) -> None:
    with log.open("a") as file:
        file.write("\x1b[2J not a record\n")
    result = run("audit", "show", "--log", str(log))
    assert result.exit_code == 0
    assert "1 line skipped that no writer of the log wrote" in result.stderr
    assert "\x1b" not in result.stdout


def test_an_edited_record_is_marked(run: Run, log: Path) -> None:
    log.write_text(log.read_text().replace('"notes/b.md"', '"notes/c.md"'))
    result = run("audit", "show", "--log", str(log), "--agent", "bob")
    assert ["(not as written)" in line for line in rows(result)] == [False, False, True, False, False]
    assert "1 record not as written" in result.stderr
    found = json.loads(run("--json", "audit", "blame", "notes/a.md", "--agent", "bob", "--log", str(log)).stdout)
    assert [record.get("edited", False) for record in found["records"]] == [False, False, True, False]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"target":"notes/b.md"', '"target":["x"]'),
        ('"actor":"bob', '"actor":5,"x":"bob'),
        ('"time":"20', '"time":"2x'),
        ('"time":"20', '"time":7,"x":"20'),
        ('"outcome":"ok"', '"outcome":{}'),
        ('"path":"notes/a.md"', '"path":"notes/a.md'),
        ('"path":"notes/a.md"', '"path":"notes/\x1b[2J"'),
    ],
)
def test_a_damaged_log_can_still_be_shown(run: Run, log: Path, old: str, new: str) -> None:
    text = log.read_text()
    assert old in text
    log.write_text(text.replace(old, new))
    for command in (["show"], ["show", "--since", "2020-01-01"], ["blame", "notes/a.md", "--agent", "bob"]):
        result = run("audit", *command, "--log", str(log))
        assert result.exit_code == (3 if command[0] == "blame" and not result.stdout else 0), result.output
        assert "see audit verify" in result.stderr
        assert "\x1b" not in result.stdout


def test_the_last_records_are_read_from_the_end_of_the_log(run: Run, log: Path) -> None:
    whole = rows(run("audit", "show", "--log", str(log)))
    for last in (1, 2, len(whole), len(whole) + 1):
        assert rows(run("audit", "show", "--log", str(log), "-n", str(last))) == whole[-last:]
    of_bob = rows(run("audit", "show", "--log", str(log), "--agent", "bob"))
    assert rows(run("audit", "show", "--log", str(log), "--agent", "bob", "-n", "2")) == of_bob[-2:]


def test_the_last_records_of_several_segments_are_in_the_order_of_the_log(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    with AgentMemory.open(
        "memory://", plugins=[AuditPlugin(target, required=True, max_segment_bytes=10_000)]
    ) as memory:
        for number in range(40):
            memory.write(f"{number}.md", "x")
    assert len(list(tmp_path.glob("log*.jsonl"))) > 1
    shown = rows(run("audit", "show", "--log", str(target)))
    assert len(shown) == 40
    assert rows(run("audit", "show", "--log", str(target), "-n", "30")) == shown[-30:]


def changed(tmp_path: Path, run: Run) -> Path:
    """The only part of the log of a store in which one command wrote a file."""
    assert run("--url", "store", "--agent", "bob", "write", "a.md", "one").exit_code == 0
    [part] = (tmp_path / "store/.agent-memory/audit").glob("*.jsonl")
    return part


def test_a_closed_log_is_shown_since_then_and_its_archive_verifies(run: Run, tmp_path: Path) -> None:
    changed(tmp_path, run)
    result = run("--url", "store", "audit", "close", "--archive", "archive", "--reason", "moved")
    assert (result.exit_code, result.stdout) == (0, "closed: the log begins anew after 2 records; 1 part removed\n")
    assert run("--url", "store", "audit", "show").stdout.endswith("closed  -  -  reason moved\n")
    result = run("--url", "store", "audit", "verify")
    assert (result.exit_code, "since the log was begun anew" in result.stdout) == (0, True)
    archive = f"file://{tmp_path}/archive"
    assert run("audit", "verify", "--archived", "--no-salts", "--log", archive).exit_code == 0
    result = run("--url", "store", "audit", "prune", "--before", "2000-01-01")
    assert result.stdout == "nothing to remove: no part of the log has only records from before that time\n"
    assert run("--url", "store", "audit", "merge").stdout == "nothing to merge\n"


def test_a_log_with_findings_is_only_restarted_and_with_a_reason(run: Run, tmp_path: Path) -> None:
    part = changed(tmp_path, run)
    assert "is intact" in run("--url", "store", "audit", "restart", "--reason", "none").stderr
    part.write_text(part.read_text().replace("bob", "eve"))
    for command in (("close",), ("prune", "--before", "2100-01-01")):
        result = run("--url", "store", "audit", *command)
        assert (result.exit_code, "nothing was removed" in result.stderr) == (5, True)
    assert run("--url", "store", "audit", "restart", "--reason", " ").exit_code == 2
    assert run("--url", "store", "audit", "restart", "--reason", "a test").exit_code == 0
    result = run("--url", "store", "audit", "verify")
    assert (result.exit_code, result.stdout.splitlines()[1].startswith("known: ")) == (0, True)
    assert result.stdout.splitlines()[0].endswith(": a test")
    part.write_text(part.read_text().replace("eve", "zoe"))
    assert run("--url", "store", "audit", "verify").exit_code == 1


def test_the_checkpoint_of_a_base_goes_to_the_named_file(run: Run, tmp_path: Path) -> None:
    with (
        AuditPlugin(f"file://{tmp_path}/store", checkpoints=tmp_path / "heads.jsonl") as audit,
        AgentMemoryService(tmp_path / "store", plugins=[audit]) as service,
    ):
        service.write_memory_file("bob", "a.md", "one")
    assert run("--url", "store", "audit", "close", "--checkpoints", "heads.jsonl").exit_code == 0
    result = run("--url", "store", "audit", "verify", "--checkpoints", "heads.jsonl")
    assert (result.exit_code, result.stdout.endswith(": nothing found\n")) == (0, True)


def test_files_are_compared_with_the_log(run: Run, tmp_path: Path) -> None:
    changed(tmp_path, run)
    result = run("--url", "store", "audit", "verify", "--files")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "1 file compared: all as the records tell")
    (tmp_path / "store/agent_memory/bob/a.md").write_text("two")
    result = run("--url", "store", "audit", "verify", "--files")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "bob/a.md: changed: its first 3 bytes are not those of the record",
        "1 file compared: 1 changed",
    ]
    document = json.loads(run("--json", "--url", "store", "audit", "verify", "--files").stdout)
    assert (document["intact"], document["files"]["intact"]) == (True, False)
    result = run("--url", "store", "audit", "verify", "--files", "--after", "bob/a.md")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "0 files compared: nothing to compare")
    assert run("--url", "store", "audit", "verify", "--after", "bob/a.md").exit_code == 2


def test_names_that_no_record_can_have_are_counted(run: Run, tmp_path: Path) -> None:
    changed(tmp_path, run)
    for name in ("bob/a\nb.md", "Not an id!/a.md"):
        file = tmp_path / "store/agent_memory" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("of another program")
    result = run("--url", "store", "audit", "verify", "--files")
    assert result.stdout.splitlines()[-2:] == [
        "2 names passed over: no agent and no record can have such a name",
        "1 file compared: all as the records tell",
    ]


@pytest.fixture
def digested(tmp_path: Path) -> Path:
    """The log of the store ``store``, whose records name agents and paths by digests."""
    url = (tmp_path / "store").as_uri()
    with AuditPlugin(url, paths="digest") as audit, AgentMemoryService(url, plugins=[audit], actor="ops") as service:
        bob = service.agent("bob")
        bob.write("notes/a.md", "one")
        bob.rename("notes/a.md", "notes/b.md")
        bob.rename("notes", "old")
        service.write_memory_file("eve", "notes/a.md", "eve's")
    return tmp_path / "store"


@pytest.mark.usefixtures("digested")
def test_show_and_blame_find_digested_names_of_an_agent(run: Run) -> None:
    show = ("--json", "--url", "store", "audit", "show")
    everything = run(*show).stdout
    assert "bob" not in everything
    assert "notes" not in everything
    assert shown(run(*show, "--agent", "bob")) == [("bob", "write"), ("bob", "rename"), ("bob", "rename")]
    below = json.loads(run(*show, "--agent", "bob", "--path", "notes").stdout)["records"]
    assert [each["path"].startswith("notes") for each in below] == [True, True, True]
    assert shown(run(*show, "--agent", "bob", "--path", "notes/b.md")) == [("bob", "rename")]
    assert run(*show, "--agent", "bob", "--path", "eve").exit_code == 3
    assert run(*show, "--path", "notes").exit_code == 3
    Path("content").write_text("one")
    assert shown(run(*show, "--agent", "bob", "--content", "content")) == [("bob", "write")]
    assert shown(run(*show, "--agent", "nobody")) == []
    blamed = run("--json", "--url", "store", "audit", "blame", "--agent", "bob", "old/b.md")
    [moved] = json.loads(blamed.stdout)["records"]
    assert (moved["agent"], moved["target"]) == ("bob", "old")
    assert "  write  notes/a.md  ok" in run("--url", "store", "audit", "blame", "--agent", "eve", "notes/a.md").stdout


def test_verify_holds_files_against_digested_names(run: Run, digested: Path) -> None:
    verify = ("--url", "store", "audit", "verify", "--files")
    result = run(*verify)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "2 files compared: all as the records tell")
    (digested / "agent_memory/bob/old/b.md").write_text("ONE")
    (digested / "agent_memory/eve/notes/a.md").unlink()
    result = run(*verify)
    assert result.exit_code == 1
    assert "bob/old/b.md: changed: " in result.stdout
    assert "\neve/~" in result.stdout


@pytest.mark.parametrize("path", [(), ("old",)])
def test_forget_names_nothing_in_a_log_of_digests(run: Run, digested: Path, path: tuple[str, ...]) -> None:
    result = run("--url", "store", "forget", "--agent", "bob", *path, "--yes")
    assert (result.exit_code, result.stdout.startswith("forgot 1 file of bob, and the salt")) == (0, True)
    for file in (digested / ".agent-memory").rglob("*"):
        assert b"old" not in (file.read_bytes() if file.is_file() else b"")
        assert path or b"bob" not in bytes(file) + (file.read_bytes() if file.is_file() else b"")
    assert run("--url", "store", "audit", "verify", "--files").exit_code == 0
    again = run("--url", "store", "forget", "--agent", "bob", *(path or ("old",)), "--yes")
    assert again.exit_code == 3


def test_the_configuration_turns_digests_on(run: Run) -> None:
    Path("digest.toml").write_text('[plugins.audit]\ntarget = "c.jsonl"\npaths = "digest"\n')
    run("--config", "digest.toml", "write", "phone.md", given="x")
    assert '"agent":"~' in Path("c.jsonl").read_text()
    assert "phone" not in Path("c.jsonl").read_text()
    Path("digest.toml").write_text('[plugins.audit]\ntarget = "c.jsonl"\npaths = "hash"\n')
    result = run("--config", "digest.toml", "write", "phone.md", given="x")
    assert result.exit_code == 2
    assert "[plugins.audit]: paths must be one of 'names', 'digest', not 'hash'" in result.stderr
