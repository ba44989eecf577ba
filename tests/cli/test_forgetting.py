"""``agent-memory forget``: the erased files, the receipt, and the refusals."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import Result

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.plugins.audit import AuditPlugin
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
KEY = b"a key of 16 bytes at least"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with AgentMemoryService(tmp_path / "store") as service:
        for path in ("a.md", "dir/b.md"):
            service.write_memory_file("bob", path, "x")
        service.write_memory_file("eve", "a.md", "x")
    return tmp_path / "store"


def files(store: Path) -> list[str]:
    return sorted(str(path.relative_to(store / "agent_memory")) for path in store.rglob("*.md"))


def test_forget_erases_an_agent(run: Run, store: Path) -> None:
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "forgot 2 files of bob\n", "")
    assert files(store) == ["eve/a.md"]
    assert "forget" in run("--url", str(store), "audit", "show").stdout


def test_without_an_audit_log_there_is_no_receipt(run: Run, store: Path) -> None:
    result = run("--url", str(store), "--no-audit", "forget", "--yes", "--agent", "bob")
    assert (result.exit_code, "no receipt" in result.stderr) == (0, True)
    assert not (store / ".agent-memory").exists()


def test_the_stores_salt_is_destroyed_even_if_another_log_gets_the_receipt(run: Run, store: Path) -> None:
    url = ("--url", str(store))
    assert run(*url, "write", "--agent", "bob", "a.md", "x").exit_code == 0
    assert list((store / ".agent-memory/salts").iterdir())
    result = run(*url, "--no-audit", "forget", "--yes", "--agent", "bob", "--log", "other/audit.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert not (store / ".agent-memory/salts").exists()
    for log in ((), ("--log", "other/audit.jsonl")):
        assert "forget" in run(*url, "audit", "show", *log).stdout
        assert run(*url, "audit", "verify", *log).exit_code == 0


@pytest.mark.parametrize(
    "options", [("--agent", "bob", "forget", "--yes", "a.md"), ("forget", "--yes", "a.md", "--agent", "bob")]
)
def test_forget_erases_a_file_of_the_agent_in_the_option(run: Run, store: Path, options: tuple[str, ...]) -> None:
    result = run("--url", str(store), *options)
    assert (result.exit_code, result.stdout) == (0, "forgot 1 file of bob\n")
    assert files(store) == ["bob/dir/b.md", "eve/a.md"]


def test_forget_that_finds_nothing_exits_with_3_and_says_what_else_may_be_meant(run: Run, store: Path) -> None:
    assert run("--url", str(store), "forget", "--yes", "--agent", "bob").exit_code == 0
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "nothing to forget: the store keeps nothing of agent 'bob'; agent 'bob' has no files;" in result.stderr
    result = run("--url", str(store), "forget", "--yes", "eve")
    assert (result.exit_code, result.stdout) == (3, "")
    told = "nothing of 'eve' of agent 'default'; there is an agent of that name: agent-memory forget --agent eve"
    assert told in result.stderr
    told = json.loads(run("--url", str(store), "--json", "forget", "--yes", "x.md", "--agent", "eve").stderr)["error"]
    assert (told["kind"], told["exit_code"]) == ("file_not_found", 3)
    assert files(store) == ["eve/a.md"]
    with AgentMemoryService(store) as service:
        assert service.forget_memory("bob").files == 0


def test_forget_of_a_mistyped_path_suggests_the_near_name(run: Run, store: Path) -> None:
    arguments = ("forget", "--yes", "dir/b.mdd", "--agent", "bob")
    result = run("--url", str(store), *arguments)
    assert result.exit_code == 3
    assert "keeps nothing of 'dir/b.mdd' of agent 'bob'; did you mean 'dir/b.md'?" in result.stderr
    assert json.loads(run("--url", str(store), "--json", *arguments).stderr)["error"]["suggestion"] == "dir/b.md"


def test_a_salt_is_destroyed_although_no_file_is_left(run: Run, store: Path) -> None:
    url = store.as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "y")
        service.agent("bob").delete_tree("")
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob")
    told = "forgot 0 files of bob, and the salt of its digests in the audit log\n"
    assert (result.exit_code, result.stdout) == (0, told)
    assert run("--url", str(store), "forget", "--yes", "--agent", "bob").exit_code == 3


@pytest.mark.parametrize(
    ("answer", "options", "code", "left"),
    [
        ("n\n", [], 1, ["bob/a.md", "bob/dir/b.md", "eve/a.md"]),
        ("\n", [], 1, ["bob/a.md", "bob/dir/b.md", "eve/a.md"]),
        ("y\n", [], 0, ["eve/a.md"]),
        ("", ["--yes"], 0, ["eve/a.md"]),
        ("", ["-y", "--json"], 0, ["eve/a.md"]),
    ],
)
def test_forget_asks_for_confirmation_in_a_terminal(
    spawn: Spawn, store: Path, answer: str, options: list[str], code: int, left: list[str]
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    done = spawn("--url", str(store), "forget", "--agent", "bob", *options, stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, files(store)) == (code, left)
    assert (b"Erase agent 'bob' for good: 2 current files, and all that is kept" in done.stderr) is bool(answer)
    assert (b"nothing was changed" in done.stderr) is (code == 1)


def test_without_a_terminal_forget_erases_only_with_the_option_yes(run: Run, store: Path) -> None:
    result = run("--url", str(store), "forget", "--agent", "bob")
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)
    assert len(files(store)) == 3


def test_forget_erases_a_file_and_writes_a_receipt(run: Run, store: Path) -> None:
    with AuditPlugin("log/audit.jsonl", required=True):
        pass
    result = run(
        "--url",
        str(store),
        "--json",
        "--actor",
        "ops",
        "forget",
        "--yes",
        "dir/b.md",
        "--agent",
        "bob",
        "--log",
        "log/audit.jsonl",
    )
    facts = {"agent": "bob", "path": "dir/b.md", "files": 1, "skipped": 0}
    facts |= {"versions": 0, "other_names": {}, "dry_run": False}
    assert json.loads(result.stdout) == {**facts, "salt": False, "versions_searched": True}
    assert files(store) == ["bob/a.md", "eve/a.md"]
    shown = json.loads(run("--json", "audit", "show", "--log", "log/audit.jsonl").stdout)["records"][-1]
    assert (shown["operation"], shown["actor"], shown["path"], shown["files"]) == ("forget", "ops", "dir/b.md", 1)
    assert run("audit", "verify", "--log", "log/audit.jsonl").exit_code == 0


def test_the_receipt_is_written_to_the_stores_log(run: Run, store: Path) -> None:
    url = store.as_uri()
    with AuditPlugin(url) as audit, AgentMemoryService(url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "y")
    salts = store / ".agent-memory" / "salts"
    assert [path.name for path in salts.iterdir()] == ["bob.salt"]
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob")
    assert (result.exit_code, result.stderr) == (0, "")
    assert not salts.exists()
    assert "forget" in run("--url", str(store), "audit", "show").stdout
    assert "forget" in run("--url", str(store), "audit", "blame", "a.md", "--agent", "bob").stdout
    assert run("--url", str(store), "audit", "verify").exit_code == 0


def test_forget_with_a_keyed_log_needs_the_key_before_it_erases_anything(run: Run, store: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    with AuditPlugin("k.jsonl", key=KEY) as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob", "--log", "k.jsonl")
    assert (result.exit_code, "--key-file" in result.stderr) == (2, True)
    assert len(files(store)) == 3
    assert (
        run("--url", str(store), "forget", "--yes", "--agent", "bob", "--log", "k.jsonl", "--key-file", "key").exit_code
        == 0
    )
    assert run("audit", "verify", "--log", "k.jsonl", "--key-file", "key").exit_code == 0
    assert files(store) == ["eve/a.md"]


def test_a_configured_log_gets_the_receipt_and_reports_a_salt_that_cannot_be_destroyed(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"audit": {"target": "log/audit.jsonl"}}')
    assert run("--url", str(store), "write", "a.md", "x").exit_code == 0
    result = run("--url", str(store), "forget", "--yes", "a.md")
    assert (result.exit_code, result.stderr) == (0, "")
    assert run("--url", str(store), "write", "a.md", "x").exit_code == 0
    (tmp_path / "log/audit.jsonl.salts").rename(tmp_path / "elsewhere")
    (tmp_path / "log/audit.jsonl.salts").symlink_to(tmp_path / "elsewhere")
    result = run("--url", str(store), "forget", "--yes", "a.md")
    assert result.exit_code == 1
    assert "required plugin 'AuditPlugin' could not report it" in result.stderr


@pytest.mark.parametrize("named", ["configured", "--log"])
def test_the_stores_own_log_gets_one_receipt_if_it_is_named_too(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    url = ("--url", str(store))
    if named == "configured":
        monkeypatch.setenv("AGENT_MEMORY_PLUGINS", json.dumps({"audit": {"target": store.as_uri()}}))
    assert run(*url, "write", "a.md", "x").exit_code == 0
    log = () if named == "configured" else ("--log", store.as_uri())
    result = run(*url, "forget", "--yes", "a.md", *log)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = json.loads(run(*url, "--json", "audit", "show").stdout)["records"]
    assert [record["operation"] for record in shown].count("forget") == 1
    assert run(*url, "audit", "verify").exit_code == 0


def test_names_that_are_no_keys_are_reported(run: Run, store: Path) -> None:
    (store / "agent_memory" / "bob" / "what?.md").write_text("x")
    result = run("--url", str(store), "forget", "--yes", "--agent", "bob")
    assert (result.exit_code, "1 name not erased" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "code"),
    [(["--agent", "bob", ""], 2), (["../eve"], 5), (["--agent", "b/ob"], 5), ([], 2), (["bob", "a.md"], 2)],
)
def test_invalid_arguments_are_refused(run: Run, store: Path, args: list[str], code: int) -> None:
    assert run("--url", str(store), "forget", "--yes", *args).exit_code == code
    assert len(files(store)) == 3


def test_audit_show_finds_the_records_of_a_content_by_its_digest(run: Run, tmp_path: Path) -> None:
    with AuditPlugin("audit.jsonl") as audit, AgentMemoryService("memory://", plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "one")
        service.append_to_memory_file("bob", "a.md", "two")
        service.write_memory_file("eve", "a.md", "two")
    (tmp_path / "two").write_text("two")
    shown = json.loads(
        run("--json", "audit", "show", "--log", "audit.jsonl", "--agent", "bob", "--content", "two").stdout
    )
    assert [(record["agent"], record["operation"]) for record in shown["records"]] == [("bob", "append")]


def test_searching_the_log_for_a_content_creates_no_salt(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("two")
    result = run("audit", "show", "--log", "none/audit.jsonl", "--agent", "typo", "--content", "two")
    assert (result.exit_code, "no salt of this agent" in result.stderr) == (1, True)
    result = run("audit", "show", "--log", "none/audit.jsonl", "--content", "two")
    assert (result.exit_code, "--content needs --agent" in result.stderr) == (2, True)
    assert not (tmp_path / "none").exists()


@pytest.mark.long
def test_a_server_without_versions_is_told(run: Run, ministack: S3Server) -> None:
    """By forget and by redact: then the server's own versions were not looked for."""
    with Proxy(ministack.endpoint) as proxy:
        url = ministack.new_url()
        proxy.instead = _without_versions
        given = [f"-o{name}={value}" for name, value in ministack.through(proxy).items()]
        with AgentMemoryService(url, storage_options=ministack.options, versions=VersionLimits()) as service:
            service.write_memory_file("bob", "a.md", "x")
            service.write_memory_file("bob", "a.md", "y")
            (_, earlier) = service.agent("bob").versions.list("a.md")
        told = "no earlier versions were looked for: the server says that it has none"
        store = ("--url", url, *given, "--agent", "bob")
        redacted = run(*store, "redact", "a.md", earlier.id, "--reason", "a key", "--yes")
        assert (redacted.exit_code, told in redacted.stderr) == (0, True)
        forgotten = run(*store, "forget", "a.md", "--yes")
        assert (forgotten.exit_code, told in forgotten.stderr) == (0, True)
        run(*store, "write", "b.md", "x")
        assert json.loads(run(*store, "--json", "forget", "--yes").stdout)["versions_searched"] is False


def _without_versions(request: web.Request) -> web.Response | None:
    if {"versions", "versioning"}.isdisjoint(request.query):
        return None
    return web.Response(status=501, text="<Error><Code>NotImplemented</Code></Error>", content_type="application/xml")


def test_a_dry_run_and_the_result_name_the_versions_under_other_names(run: Run, tmp_path: Path) -> None:
    def stored(*words: str) -> Result:
        return run("--url", "kept", "--no-audit", *words)

    stored("versions", "on")
    stored("write", "a.md", "one")
    stored("write", "a.md", "two")
    stored("mv", "a.md", "b.md")
    shutil.copy2(tmp_path / "kept/agent_memory/default/b.md", tmp_path / "kept/agent_memory/default/copy.md")
    stored("write", "copy.md", "three")
    planned = stored("forget", "b.md", "--dry-run")
    told = "1 file and 2 earlier versions (1 under a.md, 1 under copy.md) of default\n"
    assert (planned.exit_code, planned.stdout) == (0, f"would forget {told}"), planned.stderr
    assert stored("read", "b.md").stdout == "two"
    assert stored("forget", "b.md", "--yes").stdout == f"forgot {told}"
    assert stored("read", "copy.md").stdout == "three"
    assert json.loads(stored("--json", "versions").stdout)["versions"] == []


def test_a_dry_run_for_nothing_fails_as_the_call_would(run: Run) -> None:
    run("write", "there.md", "x")
    for words in (("--dry-run",), ("--yes",)):
        result = run("forget", "nosuch.md", *words)
        assert (result.exit_code, result.stdout) == (3, "")
        assert "nothing to forget: the store keeps nothing of 'nosuch.md'" in result.stderr


def test_a_deleted_file_is_forgotten(run: Run) -> None:
    def stored(*words: str) -> Result:
        return run("--url", "kept", "--no-audit", *words)

    stored("versions", "on")
    stored("write", "a.md", "one")
    stored("rm", "a.md", "--yes")
    result = stored("forget", "a.md", "--yes")
    assert (result.exit_code, result.stdout) == (0, "forgot 0 files and 1 earlier version of default\n"), result.stderr
    assert stored("forget", "a.md", "--yes").exit_code == 3
