"""import, export and copy: byte for byte, no file renamed, omitted without a message, or written outside the folder."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from agent_memory import AgentMemoryService
from agent_memory.cli.folder import Blocks, Folder
from agent_memory.cli.transfer import Put, TransferResult, Untransferred, line_of, transfer_all
from agent_memory.errors import (
    AgentMemoryError,
    FileAlreadyExistsError,
    InvalidPathError,
    UnsupportedOperationError,
    WriteError,
)

Run = Callable[..., Result]
TREE = {
    "README.md": b"# Read me\r\n",
    "docs/caf\u00e9.md": "\u30e1\u30e2".encode(),
    "docs/deep/er/.hidden": b"",
    "docs/raw.bin": bytes(range(256)),
    **{f"many/{number // 20}/{number}.txt": f"file {number}\n".encode() for number in range(200)},
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for name, data in TREE.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder


def stored(agent: str = "default", url: str = ".agent-memory") -> dict[str, bytes]:
    with AgentMemoryService(url) as service:
        memory = service.agent(agent)
        return {entry.path: memory.read_bytes(entry.path) for entry in memory.list()}


def on_disk(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def documented(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["exit_code"] == result.exit_code
    return document


@pytest.mark.parametrize("url", [".agent-memory", "memory://import-export"])
def test_a_tree_is_imported_and_exported_byte_for_byte(run: Run, source: Path, tmp_path: Path, url: str) -> None:
    assert run("--url", url, "import", str(source)).exit_code == 0
    assert stored(url=url) == TREE
    assert run("--url", url, "export", "made/target").exit_code == 0
    assert on_disk(tmp_path / "made/target") == TREE


def test_a_file_larger_than_one_read_is_exported_and_compared_in_blocks(run: Run, tmp_path: Path) -> None:
    assert run("write", "large.bin", given=b"begin").exit_code == 0
    with (tmp_path / ".agent-memory/agent_memory/default/large.bin").open("ab") as file:
        file.truncate(60_000_000)
        file.write(b"end")
    for outcome in ("exported 1 file", "0 files"):
        result = run("export", "target")
        assert result.exit_code == 0
        assert outcome in result.stdout
    out = (tmp_path / "target/large.bin").read_bytes()
    assert (len(out), out[:5], out[-3:]) == (60_000_003, b"begin", b"end")


@pytest.mark.usefixtures("source")
def test_equal_files_are_not_written_again(run: Run) -> None:
    first, second = (documented(run("import", "source", "--json")) for _ in range(2))
    assert (first["written"], first["equal"]) == (len(TREE), 0)
    assert (second["written"], second["equal"]) == (0, len(TREE))
    first, second = (documented(run("export", "target", "--json")) for _ in range(2))
    assert (first["written"], first["equal"]) == (len(TREE), 0)
    assert (second["written"], second["equal"]) == (0, len(TREE))


def test_files_with_other_content_are_replaced_only_with_overwrite(run: Run, source: Path, tmp_path: Path) -> None:
    run("write", "README.md", "mine, longer than theirs")
    run("write", "many/0/1.txt", "FILE 1\n")
    result = run("import", str(source))
    assert result.exit_code == 4
    assert "Different: 'README.md'" in result.stderr
    assert stored() == {**TREE, "README.md": b"mine, longer than theirs", "many/0/1.txt": b"FILE 1\n"}

    (tmp_path / "target").mkdir()
    (tmp_path / "target/README.md").write_text("another")
    assert run("export", "target").exit_code == 4
    assert (tmp_path / "target/README.md").read_text() == "another"

    assert run("import", str(source), "--overwrite").exit_code == 0
    assert run("export", "target", "--overwrite").exit_code == 0
    assert stored() == on_disk(tmp_path / "target") == TREE


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_file_that_an_export_replaces_keeps_its_owner_and_its_permissions(
    run: Run, tmp_path: Path, mode: int
) -> None:
    run("write", "a.md", "new")
    target = tmp_path / "target/a.md"
    target.parent.mkdir()
    target.write_text("old")
    theirs = (1234, 2345) if os.getuid() == 0 else (os.getuid(), os.getgid())
    os.chown(target, *theirs)
    target.chmod(mode)
    assert run("export", "target", "--overwrite").exit_code == 0
    found = target.stat()
    assert target.read_text() == "new"
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (mode, *theirs)


def test_refused_names_are_reported_with_a_suggestion_but_never_renamed(run: Run, source: Path) -> None:
    (source / "12:30 meeting.md").write_text("x")
    (source / "docs/aux").write_text("x")
    document = documented(run("import", str(source), "--json"))
    assert document["exit_code"] == 5
    left = {each["path"]: each for each in document["left"]}
    assert left["12:30 meeting.md"]["suggestion"] == "12-30 meeting.md"
    assert left["docs/aux"]["rule"] == "device"
    assert stored() == TREE
    assert "12-30 meeting.md" in run("import", str(source)).stderr


def test_a_name_that_is_no_text_is_reported(run: Run, source: Path) -> None:
    (source / os.fsdecode(b"caf\xe9.md")).write_text("x")
    result = run("import", str(source))
    assert result.exit_code == 5
    assert "surrogate" in result.stderr
    assert documented(run("import", str(source), "--json"))["left"][0]["rule"] == "surrogate"


def test_links_and_special_files_are_reported_and_not_followed(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.md").write_text("secret")
    (source / "file-link.md").symlink_to(tmp_path / "outside/secret.md")
    (source / "directory-link").symlink_to(tmp_path / "outside")
    os.mkfifo(source / "pipe")
    result = run("import", str(source))
    assert result.exit_code == 1
    for name in ("file-link.md", "directory-link", "pipe"):
        assert f"'{name}'" in result.stderr
    assert stored() == TREE


def test_entries_without_a_counterpart_in_the_store_are_mentioned(run: Run, source: Path) -> None:
    (source / "empty/also").mkdir(parents=True)
    (source / ".agent-memory/agent_memory/ann").mkdir(parents=True)
    (source / ".agent-memory/agent_memory/ann/a.md").write_text("x")
    (source / "/".join("d" * 40)).mkdir(parents=True)
    document = documented(run("import", str(source), "--json"))
    assert document["exit_code"] == 5
    assert [each["rule"] for each in document["left"]] == ["too-deep"]
    assert "1 empty directory" in document["notes"][0]
    assert ".agent-memory" in document["notes"][1]


def test_a_large_file_that_a_plugin_must_see_is_omitted_and_the_others_imported(
    run: Run, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"redaction": {}}')
    os.truncate(source / "README.md", 51_000_000)
    document = documented(run("import", str(source), "--json"))
    assert [(each["path"], each["kind"]) for each in document["left"]] == [("README.md", "operation_denied")]
    assert "the plugin 'RedactionPlugin' cannot be given the content" in document["left"][0]["message"]
    assert document["written"] == len(TREE) - 1


@pytest.mark.usefixtures("empty_store")
@pytest.mark.parametrize("command", ["import", "export"])
def test_a_folder_that_cannot_be_opened_prints_one_line(run: Run, tmp_path: Path, command: str) -> None:
    run("write", "a.md", "x")
    (tmp_path / "file").write_text("x")
    result = run(command, "file")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the folder 'file'")


@pytest.mark.usefixtures("source")
def test_export_does_not_write_through_a_link(run: Run, tmp_path: Path) -> None:
    run("import", "source")
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (outside / "file").write_text("untouched")
    (target / "docs").symlink_to(outside)
    (target / "README.md").symlink_to(outside / "file")
    for arguments in ((), ("--overwrite",)):
        result = run("export", "target", *arguments)
        assert result.exit_code == 5
        assert "'README.md': symbolic links are not followed" in result.stderr
        assert on_disk(outside) == {"file": b"untouched"}
    assert (target / "README.md").is_symlink()


@pytest.mark.usefixtures("source")
def test_export_does_not_replace_a_blocking_entry(run: Run, tmp_path: Path) -> None:
    run("import", "source")
    target = tmp_path / "target"
    (target / "README.md").mkdir(parents=True)
    (target / "docs").write_text("a file")
    os.mkfifo(target / "many")
    result = run("export", "target", "--overwrite")
    assert result.exit_code == 4
    assert (target / "README.md").is_dir()
    assert (target / "docs").read_text() == "a file"


def test_a_socket_that_blocks_an_export_is_reported(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("write", "a.md", "x")
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path / "target")  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a.md")
        assert run("--url", "../.agent-memory", "export", ".").exit_code == 4


@pytest.mark.usefixtures("source")
def test_an_export_leaves_no_temporary_files_and_respects_the_umask(run: Run, tmp_path: Path) -> None:
    run("import", "source")
    before = os.umask(0o027)
    try:
        run("export", "target")
    finally:
        os.umask(before)
    assert on_disk(tmp_path / "target") == TREE
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "target").rglob("*.txt")} == {0o640}


def test_a_directory_replaced_by_a_link_is_not_entered(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "a").mkdir(parents=True)
    (folder / "a/x.md").write_text("inside")
    outside.mkdir()
    (outside / "x.md").write_text("outside")
    with Folder(str(folder)) as opened:
        assert opened.find().files == ["a/x.md"]
        (folder / "a").rename(folder / "b")
        (folder / "a").symlink_to(outside)
        with pytest.raises(InvalidPathError), opened.reading("a/x.md"):
            pytest.fail("the file outside was opened")
        with pytest.raises(InvalidPathError):
            opened.put("a/y.md", 1, lambda: [b"x"], overwrite=True)
        (folder / "b/x.md").unlink()
        (folder / "b/x.md").symlink_to(outside / "x.md")
        with pytest.raises(AgentMemoryError), opened.reading("b/x.md"):
            pytest.fail("the file outside was opened")
    assert on_disk(outside) == {"x.md": b"outside"}


def test_an_export_reports_names_that_are_no_keys(run: Run, tmp_path: Path) -> None:
    run("write", "a.md", "x")
    (tmp_path / ".agent-memory/agent_memory/default/what?.md").write_text("an editor's")
    result = run("export", "target")
    assert result.exit_code == 5
    assert "1 name in storage left out" in result.stderr
    assert on_disk(tmp_path / "target") == {"a.md": b"x"}


def test_transfer_copies_all_agents_and_skips_equal_files(run: Run, source: Path) -> None:
    run("--agent", "ann", "import", str(source))
    run("--agent", "bob", "write", "b.md", "x")
    document = documented(run("transfer", ".agent-memory", "memory://copied", "--json"))
    assert (document["written"], document["exit_code"]) == (len(TREE) + 1, 0)
    assert stored("ann", "memory://copied") == TREE
    assert stored("bob", "memory://copied") == {"b.md": b"x"}
    assert documented(run("transfer", ".agent-memory", "memory://copied", "--json"))["equal"] == len(TREE) + 1


def test_a_transfer_of_a_tree_without_agents_is_an_error_that_names_the_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/notes.md").write_text("x")
    result = run("transfer", "project", "other")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no agent has files in 'project'; 'import' copies a tree without agents" in result.stderr
    assert not (tmp_path / "other/agent_memory").exists()


def test_a_dry_run_of_transfer_compares_two_stores_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    run("--url", "one", "--agent", "ann", "write", "a.md", "same")
    run("transfer", "one", "two")
    run("--url", "one", "--agent", "ann", "write", "d/b.md", "new")
    run("--url", "one", "--agent", "bob", "write", "c.md", "new")
    run("--url", "two", "--agent", "ann", "write", "only here.md", "x")
    before = on_disk(tmp_path / "two")
    result = run("transfer", "one", "two", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout == "would write ann/d/b.md\nwould write bob/c.md\nwould transfer 2 files, 1 were there already\n"
    )
    assert documented(run("transfer", "one", "two", "--dry-run", "--json"))["written"] == 2
    assert on_disk(tmp_path / "two") == before
    run("--url", "two", "--agent", "ann", "write", "a.md", "other")
    assert run("transfer", "one", "two", "--dry-run").exit_code == 4
    assert "would write ann/a.md\n" in run("transfer", "one", "two", "--dry-run", "--overwrite").stdout


def test_a_dry_run_of_transfer_to_a_missing_store_makes_none(run: Run, tmp_path: Path) -> None:
    run("--url", "one", "write", "a.md", "x")
    assert run("transfer", "one", "two", "--dry-run").stdout.endswith("would transfer 1 file, 0 were there already\n")
    assert not (tmp_path / "two").exists()


def test_a_dry_run_of_transfer_asks_no_guard_and_records_no_change(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("--url", "one", "--agent", "ann", "write", "a.md", "x")
    monkeypatch.setenv(
        "AGENT_MEMORY_PLUGINS", '{"readonly": {"patterns": ["**"]}, "audit": {"target": "configured.jsonl"}}'
    )
    document = documented(run("transfer", "one", "two", "--dry-run", "--json"))
    assert (document["would_write"], document["exit_code"]) == (["ann/a.md"], 0)
    kinds = {json.loads(line).get("operation") for line in Path("configured.jsonl").read_text().splitlines()}
    assert "list" in kinds
    assert not kinds & {"write", "create", "append"}
    document = documented(run("transfer", "one", "two", "--json"))
    assert (document["written"], document["exit_code"]) == (0, 5)


def test_transfer_overwrites_only_with_its_option(run: Run) -> None:
    run("--url", "one", "write", "a.md", "one")
    run("--url", "two", "write", "a.md", "two")
    assert run("transfer", "one", "two").exit_code == 4
    assert stored(url="two") == {"a.md": b"two"}
    assert run("transfer", "one", "two", "--overwrite").exit_code == 0
    assert stored(url="two") == {"a.md": b"one"}


def test_transfer_reports_entries_that_are_no_agents(run: Run, tmp_path: Path) -> None:
    run("write", "a.md", "x")
    agents = tmp_path / ".agent-memory/agent_memory"
    (agents / "no agent").mkdir()
    (agents / "no agent/a.md").write_text("x")
    (agents / "stray.md").write_text("x")
    (tmp_path / "other/agent_memory/default").mkdir(parents=True)
    (tmp_path / "other/agent_memory/default/what?.md").write_text("in the target, so not left out")
    document = documented(run("transfer", ".agent-memory", "other", "--json"))
    assert document["written"] == 1
    assert sorted(each["path"] for each in document["left"]) == ["no agent", "stray.md"]


def test_transfer_passes_each_option_to_its_store(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("write", "a.md", "x")
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", '{"endpoint_url": "http://127.0.0.1:1"}')
    assert run("transfer", ".agent-memory", "two", "--to-option", "durability=process").exit_code == 0
    assert run("transfer", ".agent-memory", "two", "--from-option", "durability=none").exit_code == 2


def test_a_store_without_atomic_creates_refuses_the_whole_import(run: Run, source: Path, tmp_path: Path) -> None:
    url = f"simplecache::file://{tmp_path}/plain"
    result = run("--url", url, "import", str(source))
    assert result.exit_code == 6
    assert result.stderr.count("Error: ") == 1


def test_files_that_a_store_does_not_support_are_left_and_named() -> None:
    def read(name: str, put: Put) -> bool:
        return put(1, lambda: [name.encode()])

    def write(name: str, size: int, blocks: Blocks) -> bool:
        assert [*blocks()] == [name.encode()]
        path = name.removeprefix("bob/")
        if path.startswith("large"):
            raise UnsupportedOperationError("too large for this server", path=path)
        return size == 1

    result = transfer_all("Transferring", ["bob/a.md", "bob/large.log", "bob/z.md"], read, write)
    assert (sorted(result.written), result.untried, result.code) == (["bob/a.md", "bob/z.md"], 0, 6)
    assert [line_of(left) for left in result.left] == ["'bob/large.log': 'large.log': too large for this server"]
    many = [f"large-{number}.log" for number in range(50)]
    assert len(transfer_all("Transferring", [*many, "z.md"], read, write).written) == 1
    with pytest.raises(UnsupportedOperationError):
        transfer_all("Transferring", ["large.log", "large-2.log"], read, write)


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([FileAlreadyExistsError()], 4),
        ([FileAlreadyExistsError(), InvalidPathError("no")], 5),
        ([InvalidPathError("no"), UnsupportedOperationError()], 6),
        ([UnsupportedOperationError(), WriteError()], 1),
        ([], 0),
    ],
)
def test_the_exit_code_of_a_transfer_is_that_of_its_worst_file(errors: list[Exception], code: int) -> None:
    assert TransferResult(left=[Untransferred("a.md", error) for error in errors]).code == code


@pytest.mark.parametrize(
    "folder", ["agent_memory/bob", "agent_memory", ".agent-memory/versions", "../link/agent_memory/bob"]
)
def test_an_export_into_the_store_itself_is_refused(run: Run, tmp_path: Path, folder: str) -> None:
    with AgentMemoryService("store") as service:
        for agent in ("ann", "bob"):
            service.agent(agent).write("a.md", agent)
    (tmp_path / "link").symlink_to("store")
    refused = run("--url", "store", "--agent", "ann", "export", f"store/{folder}", "--overwrite")
    assert refused.exit_code == 1
    assert "inside the store itself" in refused.stderr
    assert stored("bob", "store") == {"a.md": b"bob"}
    assert run("--url", "store", "--agent", "ann", "export", "store/elsewhere").exit_code == 0


COMPOSED, DECOMPOSED = "caf\u00e9/\u00fc.md", "cafe\u0301/u\u0308.md"


def test_a_name_in_form_d_is_stored_in_form_c_and_counted(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in (DECOMPOSED, "cafe\u0301/a.md", "b.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    result = run("import", str(folder))
    assert (result.exit_code, result.stderr) == (
        0, "Note: 2 names in Unicode form D, as macOS writes it, stored in form C\n",
    )  # fmt: skip
    with AgentMemoryService(".agent-memory") as service:
        memory = service.agent("default")
        assert [entry.path for entry in memory.list()] == ["b.md", "caf\u00e9/a.md", COMPOSED]
        assert memory.read(COMPOSED) == DECOMPOSED
    assert run("import", str(folder)).stdout == "imported 0 files, 3 were there already\n"
    result = run("--json", "import", str(folder), "--exclude", "caf\u00e9")
    assert json.loads(result.stdout)["left_out"] == {"cafe\u0301/": "--exclude"}


@pytest.mark.parametrize("option", [[], ["--overwrite"], ["--dry-run"]])
def test_of_two_files_that_become_one_name_the_other_one_is_reported(
    run: Run, tmp_path: Path, option: list[str]
) -> None:
    folder = tmp_path / "folder"
    for name in (COMPOSED, DECOMPOSED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    result = run("import", str(folder), *option)
    assert result.exit_code == 4
    assert "has another file with this name in Unicode form C" in result.stderr
    if "--dry-run" not in option:
        with AgentMemoryService(".agent-memory") as service:
            assert service.agent("default").read(COMPOSED) == COMPOSED
    assert (folder / DECOMPOSED).read_text() == DECOMPOSED
