"""Earlier versions of files: what is kept, what is found again, and what is erased, on every backend."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    Entry,
    FileAlreadyExistsError,
    FileVersion,
    InvalidContentError,
    MadeBy,
    Operation,
    OperationDenied,
    ReadError,
    UnsupportedOperationError,
    Versions,
    hookimpl,
)
from agent_memory.backend import Key
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import LAST_BYTES, Name, records_of
from agent_memory.core.versions.retention import expired
from agent_memory.core.versions.settings import FOLLOW_SECONDS, SETTINGS
from agent_memory.registry import open_backend
from agent_memory.runtime.run import step
from agent_memory.testing.recording import RecordingPlugin
from tests.support.processes import in_processes
from tests.support.servers import Root, S3Server

ON = Versions()


def opened(root: Root, versions: Versions | None = ON, **options: Any) -> AgentMemory:
    return AgentMemory.open(root.url, storage_options=root.options, versions=versions, **options)


@pytest.fixture
def memory(root: Root) -> AgentMemory:
    return opened(root, actor="ann")


def contents(memory: AgentMemory, path: str) -> list[str]:
    """The contents of a file's versions, oldest first, with the present one."""
    found = memory.versions(path)
    return [memory.read(path) if each.ended_by is None else memory.read_version(path, each.id) for each in found][::-1]


def operations(versions: tuple[FileVersion, ...]) -> list[tuple[str | None, str | None]]:
    return [
        (each.made_by.operation if each.made_by else None, each.ended_by.operation if each.ended_by else None)
        for each in versions
    ]


CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda m: m.write("d/a.md", "new\n"),
    "write_bytes": lambda m: m.write_bytes("d/a.md", b"new\n"),
    "write, expected_sha256": lambda m: m.write("d/a.md", "new\n", expected_sha256=digest("old\n")),
    "write, idempotency key": lambda m: m.write("d/a.md", "new\n", idempotency_key="k"),
    "edit": lambda m: m.edit("d/a.md", lambda text: text.replace("old", "new")),
    "edit, idempotency key": lambda m: m.edit("d/a.md", lambda _: "new\n", idempotency_key="k"),
    "write_blocks": lambda m: m.write_blocks("d/a.md", [b"new\n"], 4),
    "edit that deletes": lambda m: m.edit("d/a.md", lambda _: None),
    "delete": lambda m: m.delete("d/a.md"),
    "delete, expected_sha256": lambda m: m.delete("d/a.md", expected_sha256=digest("old\n")),
    "delete_tree": lambda m: m.delete_tree("d"),
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_ends_is_kept_with_both_operations(memory: AgentMemory, name: str) -> None:
    memory.acting_as("bob", "call-1").create("d/a.md", "old\n")
    before = time.time()
    CHANGES[name](memory)
    kept = memory.versions("d/a.md")[-1]
    assert memory.read_version("d/a.md", kept.id) == "old\n"
    kind = name.partition(",")[0].removesuffix(" that deletes").removesuffix("_bytes").replace("write_blocks", "write")
    assert kept.made_by
    assert kept.ended_by
    assert kept.made_by[:3] == ("create", "bob", "call-1")
    assert kept.ended_by[:3] == (kind, "ann", None)
    assert before <= kept.ended_by.time <= time.time()
    assert (kept.path, kept.size, kept.previous, kept.number) == ("d/a.md", 4, None, 0)
    present = [each for each in memory.versions("d/a.md") if each.ended_by is None]
    assert len(present) == memory.exists("d/a.md")
    if present:
        assert (present[0].previous, present[0].number) == (kept.id, 1)
        assert present[0].made_by == kept.ended_by


def test_the_states_of_a_file_are_a_chain(memory: AgentMemory) -> None:
    texts = ["a", "b", "a", "", "b", "a"]
    for text in texts:
        memory.write("f", text)
    found = memory.versions("f")
    assert contents(memory, "f") == texts
    assert [each.number for each in found] == [5, 4, 3, 2, 1, 0]
    assert [each.previous for each in found] == [*(each.id for each in found[1:]), None]
    assert [each.made_by for each in found[:-1]] == [each.ended_by for each in found[1:]]
    assert memory.versions("f", limit=2) == found[:2]
    assert memory.versions("f", limit=1) == found[:1]


def test_an_append_makes_no_version_and_is_part_of_the_next_one(memory: AgentMemory) -> None:
    memory.append("log", "one\n")
    memory.acting_as("bob").append("log", "two\n")
    assert operations(memory.versions("log")) == [("append", None)]
    memory.write("log", "rewritten\n")
    memory.append("log", "three\n")
    memory.delete("log")
    assert contents(memory, "log") == ["one\ntwo\n", "rewritten\nthree\n"]
    assert operations(memory.versions("log")) == [("write", "delete"), ("append", "write")]


def test_an_edit_that_changes_nothing_makes_no_version(memory: AgentMemory) -> None:
    memory.write("a", "x")
    memory.edit("a", lambda text: text)
    assert len(memory.versions("a")) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: m.write("a", "new", expected_sha256="0" * 64), ConflictError),
        (lambda m: m.delete("a", expected_sha256="0" * 64), ConflictError),
        (lambda m: m.create("a", "new"), FileAlreadyExistsError),
        (lambda m: m.write("a/b", "new"), FileAlreadyExistsError),
        (lambda m: m.edit("a", lambda _: "\ud800"), InvalidContentError),
        (lambda m: m.delete("missing"), AgentMemoryFileNotFoundError),
        (lambda m: m.write_blocks("a", [b"new"], 4), InvalidContentError),
    ],
)
def test_a_refused_change_leaves_no_version(
    memory: AgentMemory, root: Root, change: Callable[[AgentMemory], object], error: type[Exception]
) -> None:
    memory.write("a", "old")
    with pytest.raises(error):
        change(memory)
    assert operations(memory.versions("a")) == [("write", None)]
    assert records(root) == []


def records(root: Root) -> list[Key]:
    """The names of all records of a tree without agents."""
    backend: Any = open_backend(root.url, root.options)
    with AgentMemory.open(backend) as memory:
        run = memory._run

        async def listed() -> Any:
            return await run.call(backend.list, records_of(None))

        return [entry.key for entry in step(listed()).entries]


def test_a_deleted_name_that_is_used_again_has_a_new_history(memory: AgentMemory) -> None:
    memory.write("a", "first")
    memory.delete("a")
    time.sleep(0.002)
    memory.create("a", "second")
    memory.write("a", "third")
    assert contents(memory, "a") == ["first", "second", "third"]
    assert [(each.number, each.previous is None) for each in memory.versions("a")] == [(1, False), (0, True), (0, True)]


@pytest.mark.parametrize("moved", ["a/f.md", "a"], ids=["file", "directory"])
def test_a_history_stays_with_a_file_that_gets_another_name(memory: AgentMemory, moved: str) -> None:
    memory.write("a/f.md", "one")
    memory.write("a/f.md", "two")
    memory.rename(moved, "b/g.md" if moved == "a/f.md" else "b")
    name = "b/g.md" if moved == "a/f.md" else "b/f.md"
    assert operations(memory.versions(name)) == [("write", None), ("write", "write")]
    memory.write(name, "three")
    memory.rename(name, "c.md")
    memory.delete("c.md")
    assert contents(memory, "c.md") == ["one", "two", "three"]
    assert [each.path for each in memory.versions("c.md")] == ["c.md", name, "a/f.md"]
    assert [each.number for each in memory.versions("c.md")] == [2, 1, 0]


def test_a_history_does_not_go_to_a_file_that_takes_the_old_name(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.delete("a")
    memory.write("a", "other")
    memory.write("a", "moved")
    memory.rename("a", "b")
    memory.write("a", "new")
    assert contents(memory, "b") == ["other", "moved"]
    assert contents(memory, "a")[-1] == "new"


def test_a_copy_begins_a_history(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    memory.copy("a", "b")
    assert operations(memory.versions("b")) == [("copy", None)]
    assert memory.versions("b")[0].id != memory.versions("a")[0].id


def test_a_version_is_restored_as_a_new_one(memory: AgentMemory) -> None:
    memory.write("a", "good")
    memory.write("a", "bad")
    good = memory.versions("a")[1]
    result = memory.restore("a", good.id)
    assert (result.path, result.size, result.sha256) == ("a", 4, digest("good"))
    assert contents(memory, "a") == ["good", "bad", "good"]
    assert operations(memory.versions("a"))[:2] == [("restore", None), ("write", "restore")]
    memory.delete("a")
    memory.restore("a", good.id)
    assert memory.read("a") == "good"


def test_plugins_see_a_restored_content_and_may_refuse_it(root: Root) -> None:
    class Guard:
        @hookimpl
        def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:
            if operation.kind == "restore" and b"bad" in content:
                raise OperationDenied("refused")

    seen = RecordingPlugin()
    memory = opened(root, plugins=[Guard(), seen])
    for text in ("bad", "fine", "last"):
        memory.write("a", text)
    _, fine, bad = memory.versions("a")
    with pytest.raises(OperationDenied):
        memory.restore("a", bad.id)
    memory.restore("a", fine.id)
    assert contents(memory, "a") == ["bad", "fine", "last", "fine"]
    assert {"versions", "restore", "read_version"} <= {operation.kind for operation, _ in seen.after}


def test_each_call_is_one_operation_and_a_read_only_view_only_reads(root: Root) -> None:
    seen = RecordingPlugin()
    memory = opened(root, plugins=[seen], actor="ann")
    memory.write("a", "one\n")
    memory.write("a", "two\n")
    one = memory.versions("a")[1].id
    calls: dict[str, tuple[Callable[[AgentMemory], object], list[str]]] = {
        "versions": (lambda m: m.versions("a"), ["versions"]),
        "read_version": (lambda m: m.read_version("a", one), ["read_version"]),
        "read_version_bytes": (lambda m: m.read_version_bytes("a", one), ["read_version"]),
        "diff": (lambda m: m.diff("a", one), ["read_version", "read"]),
        "restore": (lambda m: m.restore("a", one), ["restore"]),
        "keep_versions": (lambda m: m.keep_versions(ON), ["set_versions"]),
        "prune_versions": (lambda m: m.prune_versions(), ["prune"]),
    }
    for name, (call, kinds) in calls.items():
        seen.before.clear()
        seen.after.clear()
        call(memory)
        assert [operation for operation, _ in seen.after] == seen.before
        assert [(operation.kind, operation.actor) for operation in seen.before] == [(kind, "ann") for kind in kinds]
        assert {outcome.status for _, outcome in seen.after} == {"ok"}
        if name in ("restore", "keep_versions", "prune_versions"):
            with pytest.raises(OperationDenied, match="read-only"):
                call(memory.read_only())
        else:
            call(memory.read_only())
    assert memory.read("a") == "one\n"


def test_differences_are_shown_line_by_line(memory: AgentMemory) -> None:
    memory.write("a", "one\ntwo\n")
    memory.write("a", "one\n2")
    memory.write("a", "one\n3\n")
    _, second, first = memory.versions("a")
    assert memory.diff("a", first.id, second.id) == (
        f"--- a@{first.id}\n+++ a@{second.id}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n"
    )
    assert memory.diff("a", first.id).endswith("\n one\n-two\n+3\n")
    assert memory.diff("a", first.id, first.id) == ""


def test_an_unknown_version_is_not_found(memory: AgentMemory, root: Root) -> None:
    memory.write("a", "x")
    memory.write("b", "x")
    memory.write("b", "y")
    for version in ("0" * 16, "", "../x", memory.versions("b")[1].id):
        for call in (memory.read_version, memory.restore, memory.diff):
            with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
                call("a", version)
    with pytest.raises(AgentMemoryFileNotFoundError, match="this store keeps none"):
        opened(Root(f"{root.url}-other", root.options), None).read_version("a", "0" * 16)
    assert memory.read("a") == "x"


def test_bytes_of_any_kind_are_kept(memory: AgentMemory) -> None:
    data = [b"", b"\xff\x00\n", b"\n00000042\n", b'{"v": 1}\n00000008\n', b"x" * 100_000]
    for each in data:
        memory.write_bytes("a", each)
    memory.delete("a")
    found = memory.versions("a")[::-1]
    assert [memory.read_version_bytes("a", each.id) for each in found] == data
    assert [each.size for each in found] == [len(each) for each in data]
    with pytest.raises(ReadError, match="read_bytes"):
        memory.read_version("a", found[1].id)


def test_a_long_path_and_long_actors_have_room(root: Root) -> None:
    path = "/".join(["é" * 100] * 3)
    memory = opened(root).acting_as("\U0001f680" * 1000, " x  y " * 500)
    memory.write(path, "one")
    memory.write(path, "two")
    memory.delete(path)
    assert contents(memory, path) == ["one", "two"]
    made = memory.versions(path)[0].made_by
    assert made
    assert ("\U0001f680" * 1000).startswith(made.actor or "-")
    assert (" x  y " * 500).startswith(made.tool_call_id or "-")


def test_content_larger_than_one_call_is_kept(root: Root) -> None:
    backend: Any = open_backend(root.url, root.options)
    backend.max_bytes, backend.part_bytes = 6_000_000, 5 << 20
    memory = AgentMemory.open(backend, versions=ON)
    first, second = (bytes([number]) * 11_000_000 for number in (1, 2))
    memory.write_blocks("a", [first], len(first))
    memory.append("a", "end")
    memory.write_blocks("a", [second], len(second))
    memory.delete("a")
    sizes = [each.size for each in memory.versions("a")]
    assert sizes == [11_000_000, 11_000_003]
    with AgentMemory.open(root.url, storage_options=root.options) as reader:
        for version, content in zip(memory.versions("a"), (second, first + b"end"), strict=True):
            assert reader.read_version_bytes("a", version.id) == content


def test_a_file_from_before_and_a_file_changed_by_another_program_are_kept(root: Root) -> None:
    with opened(root, None) as old:
        old.write("a", "from before")
    memory = opened(root)
    memory.write("a", "ours")
    with AgentMemory.open(root.url, storage_options=root.options) as other:
        backend: Any = other._tree.backend

        async def write() -> None:
            await other._run.call(backend.write, Key.tree().join("a"), b"of another program")

        step(write())
    memory.write("a", "last")
    assert contents(memory, "a") == ["from before", "of another program", "last"]
    assert operations(memory.versions("a"))[1:] == [(None, "write"), (None, "write")]


def test_the_maker_of_a_file_from_before_stays_unknown_after_a_rename(root: Root) -> None:
    with opened(root, None) as old:
        old.write("a", "from before")
    memory = opened(root)
    memory.rename("a", "b")
    assert [each.made_by for each in memory.versions("b")] == [None]
    memory.write("b", "ours")
    assert operations(memory.versions("b")) == [("write", None), (None, "write")]


def test_a_process_that_was_not_told_keeps_versions(root: Root) -> None:
    opened(root).write("a", "one")
    with opened(root, None) as other:
        other.write("a", "two")
        other.delete("a")
    assert contents(opened(root, None), "a") == ["one", "two"]


def test_turned_off_nothing_more_is_kept_and_what_was_kept_stays(root: Root) -> None:
    memory = opened(root, None)
    assert memory.versions("a") == ()
    memory.keep_versions(replace(ON, keep=7))
    memory.write("a", "one")
    memory.write("a", "two")
    memory.keep_versions(None)
    memory.write("a", "three")
    assert [memory.read_version("a", each.id) for each in memory.versions("a")[1:]] == ["one"]
    memory.keep_versions(ON)
    memory.write("a", "four")
    assert contents(memory, "a") == ["one", "three", "four"]


def test_a_process_follows_the_settings_within_a_minute(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(root, None)
    memory.write("a", "one")
    opened(root, None).keep_versions(ON)
    now = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: now() + FOLLOW_SECONDS)
    memory.write("a", "two")
    assert contents(memory, "a") == ["one", "two"]


def test_damaged_settings_refuse_changes_and_keep_the_file(root: Root) -> None:
    memory = opened(root)
    memory.write("a", "one")
    other = opened(root, None)
    backend: Any = other._tree.backend

    async def damage() -> None:
        await other._run.call(backend.write, SETTINGS, b"{}")

    step(damage())
    with pytest.raises(ReadError, match="settings of versions are damaged"):
        other.write("a", "two")
    assert other.read("a") == "one"


@pytest.mark.parametrize(
    "limits", [{"keep": 0}, {"keep": 1.5}, {"days": -1}, {"days": float("inf")}, {"max_bytes": True}]
)
def test_a_limit_that_is_no_positive_number_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a positive number"):
        Versions(**limits)


def test_a_backend_without_conditional_changes_keeps_no_versions(ministack: S3Server, tmp_path: Path) -> None:
    server = ministack.by("obstore")
    for root in (Root(server.new_url(), server.options), Root(f"simplecache::file://{tmp_path}", {})):
        with pytest.raises(UnsupportedOperationError, match=r"keeps versions|no conditional"):
            opened(root).write("a", "x")
        memory = opened(root, None)
        with pytest.raises(UnsupportedOperationError):
            memory.keep_versions(ON)
        memory.write("a", "x")
        assert memory.versions("a") == (FileVersion("", "a", None, None, 1, None, 0),)


def test_a_disk_without_extended_attributes_keeps_no_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    memory = AgentMemory.open(tmp_path / "root")
    memory.write("a", "one")
    monkeypatch.setattr("os.setxattr", refuse)
    for versioned in (memory, AgentMemory.open(tmp_path / "root", versions=ON)):
        with pytest.raises(UnsupportedOperationError, match="no extended attributes"):
            versioned.keep_versions(ON)
    with pytest.raises(UnsupportedOperationError):
        AgentMemory.open(tmp_path / "root", versions=ON).write("a", "two")
    memory.write("a", "three")
    assert memory.versions("a") == (FileVersion("", "a", None, None, 5, None, 0),)


def test_the_versions_of_agents_are_separate(root: Root) -> None:
    with AgentMemoryService(root.url, storage_options=root.options, versions=ON) as service:
        for agent in ("ann", "bob"):
            service.write_memory_file(agent, "a.md", f"{agent} 1")
            service.write_memory_file(agent, "a.md", f"{agent} 2")
        assert contents(service.agent("ann"), "a.md") == ["ann 1", "ann 2"]
        notes = service.agent("ann").subtree("notes")
        notes.write("b", "1")
        notes.write("b", "2")
        assert [each.path for each in notes.versions("b")] == ["b", "b"]
        service.forget_memory("ann")
        assert service.agent("ann").versions("a.md") == ()
        assert contents(service.agent("bob"), "a.md") == ["bob 1", "bob 2"]


def test_forgotten_files_have_no_versions(memory: AgentMemory, root: Root) -> None:
    for path in ("a", "d/b", "d/c"):
        memory.write(path, "one")
        memory.write(path, "two")
    memory.rename("d/b", "e")
    memory.write("e", "x" * LAST_BYTES)
    memory.write("e", "three")
    memory.forget("d")
    assert contents(memory, "e") == ["two", "x" * LAST_BYTES, "three"]
    memory.forget("e")
    assert memory.versions("d/c") == memory.versions("e") == ()
    assert contents(memory, "a") == ["one", "two"]
    memory.forget("")
    assert records(root) == []


def listed(*ages: float, size: int = 10, path: str = "f") -> list[Entry]:
    """Records of one file, newest first, that ended so many seconds ago."""
    origin, found = Origin.first(None, 0, b""), []
    for age in reversed(ages):
        name = Name(origin.history, origin.number, origin.id, "0" * 8)
        found.append(Entry(Key.internal("versions/-").join(f"{path}/{name}"), size, 1e9 - age))
        origin = origin.next(None, 0, b"")
    return found[::-1]


@pytest.mark.parametrize(
    ("ages", "limits", "kept"),
    [
        ([4000, 5000, 6000], {}, 3),
        ([4000, 5000, 6000], {"keep": 2}, 2),
        ([4000, 5000, 6000], {"keep": 1}, 1),
        ([10, 20, 30, 4000], {"keep": 1}, 3),
        ([10 * 86400, 20 * 86400, 31 * 86400], {}, 2),
        ([40 * 86400, 50 * 86400], {}, 1),
        ([4000, 5000, 6000], {"max_bytes": 30}, 2),
        ([4000, 5000, 6000], {"max_bytes": 1}, 1),
        ([10, 20, 6000], {"max_bytes": 1}, 2),
        ([4000], {"max_bytes": 1, "keep": 1, "days": 0.01}, 1),
    ],
)
def test_the_limits_keep_the_newest_and_the_young(ages: list[float], limits: dict[str, Any], kept: int) -> None:
    entries = listed(*ages)
    gone = expired([*entries, *listed(1, path="other")], Versions(**limits), 1e9)
    assert [entry for entry in entries if entry not in gone] == entries[:kept]
    assert not set(gone) - set(entries)


def test_a_call_prunes_all_and_a_change_a_few(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(root, Versions(keep=2))
    for number in range(8):
        memory.write("a", f"{number}")
    assert memory.prune_versions() == 0
    now = time.time
    monkeypatch.setattr("agent_memory.core.operation.time.time", lambda: now() + 4000)
    later = opened(root, Versions(keep=2))
    later.write("a", "8")
    assert len(later.versions("a")) == 7
    assert later.prune_versions() == 4
    assert contents(later, "a") == ["6", "7", "8"]
    assert later.prune_versions() == 0


@pytest.mark.asyncio
async def test_the_async_twin_has_the_same_calls(root: Root) -> None:
    memory = AsyncAgentMemory.open(root.url, storage_options=root.options, versions=ON)
    await memory.write("a", "one\n")
    await memory.write("a", "two\n")
    newest, oldest = await memory.versions("a")
    assert await memory.versions("a", limit=1) == (newest,)
    assert (await memory.read_version("a", oldest.id), await memory.read_version_bytes("a", oldest.id)) == (
        "one\n",
        b"one\n",
    )
    assert (await memory.diff("a", oldest.id)).endswith("-one\n+two\n")
    await memory.restore("a", oldest.id)
    assert await memory.read("a") == "one\n"
    await asyncio.gather(*(memory.edit("a", lambda text: text + "+") for _ in range(8)))
    assert [each.size for each in await memory.versions("a")] == [12, 11, 10, 9, 8, 7, 6, 5, 4, 4, 4]
    assert await memory.prune_versions() == 0
    await memory.keep_versions(None)
    await memory.write("a", "three")
    assert len(await memory.versions("a")) == 11


def test_a_leftover_of_a_change_that_was_not_made_is_no_version(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = memory._tree.backend
    memory.write("a", "one")
    real = backend.write_with_origin

    def killed(key: Key, *rest: Any) -> Any:
        if key.path == "a":
            raise KeyboardInterrupt
        return real(key, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(backend, "write_with_origin", killed)
        with pytest.raises(KeyboardInterrupt):
            memory.write("a", "never")
    assert operations(memory.versions("a")) == [("write", None)]
    memory.append("a", "+")
    memory.acting_as("bob").write("a", "two")
    kept = memory.versions("a")[1]
    assert (memory.read_version("a", kept.id), kept.ended_by and kept.ended_by.actor) == ("one+", "bob")
    assert len(memory.versions("a")) == 2


def _added(new: str, old: str) -> str:
    return old + new


def race(number: int, barrier: Any, root: Root, rounds: int) -> list[str]:
    """Change shared files at random; return the contents that this process wrote."""
    chosen = random.Random(number)
    written = []
    with AgentMemory.open(root.url, storage_options=root.options, actor=f"p{number}") as memory:
        barrier.wait(120)
        for turn in range(rounds):
            path = chosen.choice(["a", "b"])
            text = f"{number}:{turn}\n"
            match chosen.randrange(4):
                case 0:
                    memory.write(path, text)
                    written.append(text)
                case 1:
                    memory.append(path, text)
                    written.append(text)
                case 2:
                    memory.edit(path, partial(_added, text), missing="")
                    written.append(text)
                case _:
                    with suppress(AgentMemoryFileNotFoundError):
                        memory.delete(path)
    return written


def test_racing_processes_lose_no_state(root: Root, pytestconfig: pytest.Config) -> None:
    if root.url.startswith("memory:"):
        pytest.skip("processes do not share it")
    processes, rounds = (8, 100) if pytestconfig.getoption("--long") else (4, 12)
    opened(root).keep_versions(ON)
    written = in_processes(processes, race, root, rounds)
    memory = opened(root, None)
    everything: list[str] = []
    for path in ("a", "b"):
        found = memory.versions(path)
        everything += contents(memory, path)
        for newer, older in itertools.pairwise(found):
            if newer.number:
                assert (newer.previous, newer.number, newer.made_by) == (older.id, older.number + 1, older.ended_by)
            else:
                assert older.ended_by
                assert older.ended_by.operation == "delete"
    kept = {line for content in everything for line in content.splitlines(keepends=True)}
    assert kept == {text for each in written for text in each}


def test_an_origin_is_short_printable_text() -> None:
    by = MadeBy("write", "\U0001f680" * 1000, "a b\n\x00" * 1000, 1.5)
    origin = Origin.first(by, 3, b"one").next(by, 3, b"two")
    text = origin.to_text()
    assert len(text) <= 800
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert Origin.parse(text) == origin
    assert origin.is_of(b"two")
    assert origin.is_of(b"two and more")
    assert not origin.is_of(b"tw")
    assert not origin.is_of(b"one")


VALID = Origin.first(MadeBy("write", "ann", None, 1.5), 3, b"one").to_text()


@pytest.mark.parametrize(
    "text", [None, "", "x", "[]", "{}", "[1,2,3]", "null", "1", "[" * 100_000, VALID.replace("ann", "a" * 800)]
)
def test_a_text_of_another_program_is_no_origin(text: str | None) -> None:
    assert Origin.parse(text) is None


@pytest.mark.parametrize("value", [None, True, -1, 10**10, 1e400, 1.5, "", "x" * 16, "A" * 16, "../x", [], {}])
@pytest.mark.parametrize("field", range(12))
def test_a_changed_field_of_an_origin_is_refused_or_harmless(field: int, value: object) -> None:
    fields = json.loads(VALID)
    fields[field] = value
    origin = Origin.parse(json.dumps(fields))
    if origin is not None:
        name = str(Name(origin.history, origin.number, origin.id, "0" * 8))
        assert Name.parse(name)
        assert Key.tree().join(name).path == name
        assert Origin.parse(origin.to_text()) == origin
        assert len(origin.next(origin.by, 1, b"x").to_text()) <= 800


def test_names_of_records_sort_newest_first() -> None:
    origin = Origin.first(None, 0, b"")
    names = []
    for _ in range(12):
        names.append(str(Name(origin.history, origin.number, origin.id, "0" * 8)))
        origin = origin.next(None, 0, b"")
    assert names == sorted(names, reverse=True)
    assert len({len(name) for name in names}) == 1
    assert [Name.parse(name) for name in names][3] == Name(origin.history, 3, names[3].split("-")[2], "0" * 8)
    assert Name.parse("x") is None
