"""The flows of directories, file by file, on a backend that moves no directory in one step."""

from __future__ import annotations

import pytest

from agent_memory import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    PartialOperationError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.backend import ANY, DeletedTree, Page, ReadWhen
from agent_memory.core import tree_flows
from agent_memory.key import Key
from agent_memory_memory import MemoryBackend
from tests.core.stepping import SteppedStore

TOP = Key.tree()


class FileByFile(MemoryBackend):
    """It has the five verbs alone, and fails to delete what a test names."""

    append = move_file = move_tree = delete_tree = erase = write_in_parts = None  # type: ignore[assignment]
    failing: frozenset[str] = frozenset()
    pages = 0

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if key.path in self.failing:
            raise WriteError("the storage failed", path=key.path)
        super().delete(key, when)


@pytest.fixture
def backend() -> FileByFile:
    return FileByFile()


@pytest.fixture
def store(backend: FileByFile) -> SteppedStore:
    store = SteppedStore(backend)
    for name in ("d/a.md", "d/deep/b.md", "e.md"):
        store.write(TOP.join(name), name.encode())
    return store


def names(store: SteppedStore) -> list[str]:
    return [entry.path for entry in store.run(tree_flows.list_all, TOP).entries]


@pytest.mark.parametrize(("flow", "left"), [(tree_flows.rename, []), (tree_flows.copy, ["d/a.md", "d/deep/b.md"])])
def test_a_directory_goes_with_all_its_files(store: SteppedStore, flow: tree_flows.Transfer, left: list[str]) -> None:
    effect = store.run(flow, TOP.join("d"), TOP.join("new/place"))
    assert names(store) == [*left, "e.md", "new/place/a.md", "new/place/deep/b.md"]
    assert effect.files == 2
    assert store.read(TOP.join("new/place/deep/b.md")).data == b"d/deep/b.md"


@pytest.mark.parametrize("flow", [tree_flows.rename, tree_flows.copy])
@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("d", "d/deep/under", InvalidPathError),
        ("d", "e.md", FileAlreadyExistsError),
        ("e.md", "d/a.md", FileAlreadyExistsError),
        ("nothing", "new", AgentMemoryFileNotFoundError),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_changes(
    store: SteppedStore, flow: tree_flows.Transfer, source: str, target: str, error: type[Exception]
) -> None:
    before = names(store)
    with pytest.raises(error):
        store.run(flow, TOP.join(source), TOP.join(target))
    assert names(store) == before


def test_a_rename_whose_source_cannot_be_deleted_withdraws_its_copy(store: SteppedStore, backend: FileByFile) -> None:
    backend.failing = frozenset({"e.md"})
    with pytest.raises(WriteError):
        store.run(tree_flows.rename, TOP.join("e.md"), TOP.join("f.md"))
    assert "f.md" not in names(store)
    assert "e.md" in names(store)


def test_a_rename_whose_source_changes_meanwhile_leaves_the_new_content(
    store: SteppedStore, backend: FileByFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = backend.delete

    def changed(key: Key, when: ReadWhen = ANY) -> None:
        if key.path == "e.md":
            backend.write(key, b"theirs")
        delete(key, when)

    monkeypatch.setattr(backend, "delete", changed)
    with pytest.raises(ConflictError, match="it stays at its old name"):
        store.run(tree_flows.rename, TOP.join("e.md"), TOP.join("f.md"))
    assert store.read(TOP.join("e.md")).data == b"theirs"
    assert "f.md" not in names(store)


def test_a_directory_of_which_a_part_cannot_be_deleted_says_which_files_are_left(
    store: SteppedStore, backend: FileByFile
) -> None:
    backend.failing = frozenset({"d/a.md"})
    with pytest.raises(PartialOperationError) as failed:
        store.run(tree_flows.delete_tree, TOP.join("d"), missing_ok=False)
    assert (failed.value.done, failed.value.left) == (("d/deep/b.md",), ("d/a.md",))
    assert names(store) == ["d/a.md", "e.md"]


def test_a_directory_that_is_not_there_is_deleted_only_where_that_is_fine(store: SteppedStore) -> None:
    with pytest.raises(AgentMemoryFileNotFoundError):
        store.run(tree_flows.delete_tree, TOP.join("nothing"), missing_ok=False)
    assert store.run(tree_flows.delete_tree, TOP.join("nothing"), missing_ok=True).files == 0


def test_forget_is_refused_where_the_backend_promises_nothing(store: SteppedStore) -> None:
    with pytest.raises(UnsupportedOperationError, match="keeps nothing of a deleted file"):
        store.run(tree_flows.forget, TOP.join("d"))
    assert len(names(store)) == 3


def test_a_listing_that_does_not_advance_ends(
    store: SteppedStore, backend: FileByFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = backend.list(TOP)
    monkeypatch.setattr(backend, "list", lambda *_, **__: Page(listed.entries, (), "the same marker"))
    with pytest.raises(ReadError, match="does not advance"):
        store.run(tree_flows.list_all, TOP)


class FailsToErase(MemoryBackend):
    """It fails to erase what a test names."""

    failing: frozenset[str] = frozenset()

    def erase(self, prefix: Key) -> DeletedTree:
        if prefix.path in self.failing:
            raise WriteError("the storage failed", path=prefix.path)
        return super().erase(prefix)


def test_an_erasure_that_fails_at_the_first_file_does_not_say_that_a_part_was_erased() -> None:
    async def every(_: Key) -> bool:
        return True

    backend = FailsToErase()
    store = SteppedStore(backend)
    for name in ("a.md", "b.md"):
        store.write(TOP.join(name), b"x")
    backend.failing = frozenset({"a.md", "b.md"})
    with pytest.raises(WriteError) as failed:
        store.run(tree_flows.forget_each, TOP, every)
    assert not isinstance(failed.value, PartialOperationError)
    backend.failing = frozenset({"b.md"})
    with pytest.raises(PartialOperationError, match="a part was erased"):
        store.run(tree_flows.forget_each, TOP, every)
