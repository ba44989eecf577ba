"""What a change ends is kept, on every backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    ConflictError,
    FileAlreadyExistsError,
    InvalidContentError,
    ReadError,
)
from agent_memory.backend import Backend, Key
from agent_memory.core.call import Call
from agent_memory.core.flows import Effect
from agent_memory.core.versions.keep import VersionedStore
from agent_memory.runtime.run import Run, step
from tests.core.versions.helpers import ON, contents, digest, opened, operations, records, who
from tests.support.servers import Root

CHANGES: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda m: m.write("d/a.md", "new\n"),
    "write_bytes": lambda m: m.write("d/a.md", b"new\n"),
    "write, SHA256": lambda m: m.write("d/a.md", "new\n", when=SHA256(digest("old\n"))),
    "write, idempotency key": lambda m: m.once("k").write("d/a.md", "new\n"),
    "edit": lambda m: m.edit("d/a.md", lambda text: text.replace("old", "new")),
    "edit, idempotency key": lambda m: m.once("k").edit("d/a.md", lambda _: "new\n"),
    "write_blocks": lambda m: m.write_blocks("d/a.md", [b"new\n"], 4),
    "edit that deletes": lambda m: m.edit("d/a.md", lambda _: None),
    "delete": lambda m: m.delete("d/a.md"),
    "delete, SHA256": lambda m: m.delete("d/a.md", when=SHA256(digest("old\n"))),
    "delete_tree": lambda m: m.delete_tree("d"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_change_ends_is_kept_with_both_operations(memory: AgentMemory, name: str) -> None:
    memory.acting_as("bob", "call-1").create("d/a.md", "old\n")
    before = time.time()
    CHANGES[name](memory)
    kept = memory.versions.list("d/a.md")[-1]
    assert memory.versions.read("d/a.md", kept.id) == "old\n"
    kind = name.partition(",")[0].removesuffix(" that deletes").removesuffix("_bytes").replace("write_blocks", "write")
    assert kept.made_by
    assert kept.ended_by
    assert kept.made_by.facts[:3] == ("create", "bob", "call-1")
    assert kept.ended_by.facts[:3] == (kind, "ann", None)
    assert before <= kept.ended_by.time <= time.time()
    assert (kept.path, kept.size, kept.previous, kept.number) == ("d/a.md", 4, None, 0)
    present = [each for each in memory.versions.list("d/a.md") if each.ended_by is None]
    assert len(present) == memory.exists("d/a.md")
    if present:
        assert (present[0].previous, present[0].number) == (kept.id, 1)
        assert who(present[0].made_by) == who(kept.ended_by)


def test_the_states_of_a_file_are_a_chain(memory: AgentMemory) -> None:
    texts = ["a", "b", "a", "", "b", "a"]
    for text in texts:
        memory.write("f", text)
    found = memory.versions.list("f")
    assert contents(memory, "f") == texts
    assert [each.number for each in found] == [5, 4, 3, 2, 1, 0]
    assert [each.previous for each in found] == [*(each.id for each in found[1:]), None]
    assert [who(each.made_by) for each in found[:-1]] == [who(each.ended_by) for each in found[1:]]
    assert memory.versions.list("f", limit=2) == found[:2]
    assert memory.versions.list("f", limit=1) == found[:1]


def test_an_append_makes_no_version_and_is_part_of_the_next_one(memory: AgentMemory) -> None:
    memory.append("log", "one\n")
    memory.acting_as("bob").append("log", "two\n")
    assert operations(memory.versions.list("log")) == [("append", None)]
    memory.write("log", "rewritten\n")
    memory.append("log", "three\n")
    memory.delete("log")
    assert contents(memory, "log") == ["one\ntwo\n", "rewritten\nthree\n"]
    assert operations(memory.versions.list("log")) == [("write", "delete"), ("append", "write")]


def test_an_edit_that_changes_nothing_makes_no_version(memory: AgentMemory) -> None:
    memory.write("a", "x")
    memory.edit("a", lambda text: text)
    assert len(memory.versions.list("a")) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda m: m.write("a", "new", when=SHA256("0" * 64)), ConflictError),
        (lambda m: m.delete("a", when=SHA256("0" * 64)), ConflictError),
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
    assert operations(memory.versions.list("a")) == [("write", None)]
    assert records(root) == []


def test_bytes_of_any_kind_are_kept(memory: AgentMemory) -> None:
    data = [b"", b"\xff\x00\n", b"\n00000042\n", b'{"v": 1}\n00000008\n', b"x" * 100_000]
    for each in data:
        memory.write("a", each)
    memory.delete("a")
    found = memory.versions.list("a")[::-1]
    assert [memory.versions.read_bytes("a", each.id) for each in found] == data
    assert [each.size for each in found] == [len(each) for each in data]
    with pytest.raises(ReadError, match="read_bytes"):
        memory.versions.read("a", found[1].id)


def test_a_long_path_and_long_actors_have_room(root: Root) -> None:
    path = "/".join(["é" * 100] * 3)
    memory = opened(root).acting_as("\U0001f680" * 1000, " x  y " * 500)
    memory.write(path, "one")
    memory.write(path, "two")
    memory.delete(path)
    assert contents(memory, path) == ["one", "two"]
    made = memory.versions.list(path)[0].made_by
    assert made
    assert ("\U0001f680" * 1000).startswith((made.actor or "-").partition("…")[0])
    assert (" x  y " * 500).startswith((made.tool_call_id or "-").partition("…")[0])


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
    assert operations(memory.versions.list("a"))[1:] == [(None, "write"), (None, "write")]


def test_the_versions_of_agents_are_separate(root: Root) -> None:
    with AgentMemoryService(root.url, storage_options=root.options, versions=ON) as service:
        for agent in ("ann", "bob"):
            service.write_memory_file(agent, "a.md", f"{agent} 1")
            service.write_memory_file(agent, "a.md", f"{agent} 2")
        assert contents(service.agent("ann"), "a.md") == ["ann 1", "ann 2"]
        notes = service.agent("ann").subtree("notes")
        notes.write("b", "1")
        notes.write("b", "2")
        assert [each.path for each in notes.versions.list("b")] == ["b", "b"]
        service.forget_memory("ann")
        assert service.agent("ann").versions.list("a.md") == ()
        assert contents(service.agent("bob"), "a.md") == ["bob 1", "bob 2"]


def test_a_leftover_of_a_change_that_was_not_made_is_no_version(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = memory._tree.backend
    memory.write("a", "one")
    real = backend.write

    def killed(key: Key, *rest: Any) -> Any:
        if key.path == "a":
            raise KeyboardInterrupt
        return real(key, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(backend, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            memory.write("a", "never")
    assert operations(memory.versions.list("a")) == [("write", None)]
    memory.append("a", "+")
    memory.acting_as("bob").write("a", "two")
    kept = memory.versions.list("a")[1]
    assert (memory.versions.read("a", kept.id), kept.ended_by and kept.ended_by.actor) == ("one+", "bob")
    assert len(memory.versions.list("a")) == 2


def test_an_archiving_flow_gets_a_store_that_keeps_versions_and_its_call_stays_as_it_was(memory: AgentMemory) -> None:
    seen: list[tuple[type, bool]] = []

    async def flow(store: Backend, run: Run, call: Call) -> Effect:
        seen.append((type(store), run is memory._run))
        assert call.run is memory._run  # so its hooks run as those of any other call
        return Effect()

    tree = memory._tree
    step(tree.operate(memory._run, "write", "a", tree.archiving(flow)))
    memory.versions.set_limits(None)
    step(tree.operate(memory._run, "write", "a", tree.archiving(flow)))
    assert seen == [(VersionedStore, False), (type(tree.backend), True)]
