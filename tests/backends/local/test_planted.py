"""Links, pipes, sockets and devices planted in a tree: each operation refuses or skips them, and none hangs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    AgentMemoryService,
    FileAlreadyExistsError,
    PathTraversalError,
    TreeResult,
)
from agent_memory_local import LocalBackend
from tests.backends.local.planted import (
    AS_A_TARGET,
    EVERY,
    LINKS,
    SPECIAL,
    inside,
    make_outside,
    page_of,
    plant_link,
    plant_special,
    watched,
)
from tests.support.outside import changes, state

QUESTIONS = {
    "list",
    "list one level",
    "list in",
    "exists",
    "exists in",
    "versions",
    "versions in",
    "is_directory",
    "forget",
    "forget in",
    "forget a directory in",
}  # operations whose refusal may be an empty or false answer


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    with watched(20):
        yield


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalBackend, "part_bytes", 1)


@pytest.fixture
def memory(root: Path) -> AgentMemory:
    memory = AgentMemory.open(f"{root.as_uri()}?durability=process")
    memory.write("kept.md", "kept")
    memory.write("dir/kept.md", "kept")
    return memory


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that the test must not change; the current directory is its sibling."""
    directory = make_outside(tmp_path / "outside")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    before = state(directory)
    yield directory
    assert changes(before, state(directory)) == []


def faults(memory: AgentMemory, root: Path, refusal: Callable[[str, AgentMemoryError], bool]) -> dict[str, str]:
    """The operations that did not refuse, refused with another error, or changed the root."""
    found = {}
    before = inside(root)
    for operation, action in EVERY.items():
        try:
            answer = action(memory)
        except AgentMemoryError as error:
            if not refusal(operation, error) or str(root.parent) in str(error):
                found[operation] = repr(error)
        else:
            if answer or operation not in QUESTIONS:
                found[operation] = f"answered {answer!r:.80}"
        if inside(root) != before:
            found[operation] = f"changed the tree: {sorted(inside(root).keys() ^ before.keys())}"
            before = inside(root)
    return found


def is_of_a_link(operation: str, error: AgentMemoryError) -> bool:
    taken = operation in AS_A_TARGET and isinstance(error, FileAlreadyExistsError)
    return taken or (isinstance(error, PathTraversalError) and error.rule == "symlink")


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("kind", LINKS)
def test_a_link_is_never_followed_and_never_replaced(memory: AgentMemory, root: Path, kind: str) -> None:
    plant_link(root, kind)
    assert faults(memory, root, is_of_a_link) == {}


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("kind", LINKS)
def test_listings_and_tree_operations_skip_a_link_and_count_it(
    memory: AgentMemory, root: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    plant_link(root, kind)
    links = {name: text for name, text in inside(root).items() if stat.S_ISLNK(text[0])}
    assert [str(entry) for entry in memory.list()] == ["dir/kept.md", "kept.md"]
    assert f"skipped={len(links)}" in caplog.text
    assert [str(entry) for entry in memory.list(recursive=False)] == ["dir", "kept.md"]
    assert page_of(root).skipped == len(links)
    result = memory.delete_tree("")
    assert (result.files, result.skipped) == (2, len(links))
    assert inside(root) == links


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize("kind", ["absolute, to a directory", "relative, to a file", "to itself"])
@pytest.mark.parametrize("move", ["copy", "rename", "delete_tree"])
def test_copy_rename_and_delete_of_a_directory_never_follow_a_link_in_it(
    memory: AgentMemory, root: Path, move: str, kind: str
) -> None:
    plant_link(root, kind)
    (root / "planted").rename(root / "dir" / "planted")
    text = (root / "dir" / "planted").readlink()
    actions = {
        "copy": lambda: memory.copy("dir", "new"),
        "rename": lambda: memory.rename("dir", "new"),
        "delete_tree": lambda: memory.delete_tree("dir"),
    }
    actions[move]()
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert [path.name for path in links] == ["planted"]
    assert links[0].readlink() == text
    assert links[0].parent == root / "dir" or move == "rename"
    assert memory.exists("new/kept.md") == (move != "delete_tree")


@pytest.mark.parametrize("place", ["agent_memory", "agent_memory/a"])
def test_every_operation_of_an_agent_whose_tree_is_a_link_is_refused(root: Path, outside: Path, place: str) -> None:
    service = AgentMemoryService(f"{root.as_uri()}?durability=process")
    for agent in ("a", "b"):
        service.write_memory_file(agent, "planted", "theirs")
    (root / place).rename(root / "moved")
    (root / place).symlink_to(outside if place == "agent_memory/a" else outside.parent)
    (outside.parent / "a").symlink_to(outside)
    assert faults(service.agent("a"), root, lambda _, error: isinstance(error, PathTraversalError)) == {}


@pytest.mark.usefixtures("outside")
def test_an_agent_directory_that_is_a_link_is_not_listed(root: Path, outside: Path) -> None:
    service = AgentMemoryService(root)
    service.write_memory_file("b", "planted", "theirs")
    (root / "agent_memory" / "a").symlink_to(outside)
    assert service.agent_ids() == ("b",)
    with pytest.raises(PathTraversalError):
        service.list_memory_files("a")


def test_a_service_refuses_a_root_whose_agents_directory_is_a_link(root: Path, outside: Path) -> None:
    root.mkdir()
    (root / "agent_memory").symlink_to(outside)
    with pytest.raises(PathTraversalError):
        AgentMemoryService(root).agent_ids()


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_special_file_is_refused_and_not_changed(memory: AgentMemory, root: Path, kind: str) -> None:
    plant_special(root / "planted", kind)
    assert faults(memory, root, lambda _, __: True) == {}


@pytest.mark.parametrize("kind", SPECIAL)
def test_listings_skip_special_files_and_count_them(
    memory: AgentMemory, root: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    plant_special(root / "dir" / "planted", kind)
    assert [str(entry) for entry in memory.list()] == ["dir/kept.md", "kept.md"]
    assert "skipped=1" in caplog.text
    assert memory.delete_tree("dir").skipped == 1
    assert memory.list("dir") == ()
    assert (root / "dir" / "planted").lstat().st_mode == SPECIAL[kind] | 0o600


def test_the_watchdog_detects_a_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(pytest.fail.Exception, match="hangs"), watched(0.05):
        (tmp_path / "pipe").read_text()


class _Asked:
    """Record the names of the called methods."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    @property
    def versions(self) -> _Asked:
        return _Asked()

    def __getattr__(self, name: str) -> Callable[..., TreeResult]:
        self.names.add(name)
        return lambda *_, **__: TreeResult("", 0, 0)


def test_the_tables_use_every_operation_of_a_memory() -> None:
    asked = _Asked()
    for action in EVERY.values():
        action(cast(AgentMemory, asked))
    no_operations = {
        "open", "subtree", "read_only", "acting_as", "with_timeout", "once", "versions", "close", "capabilities",
        "as_sync", "as_async", "usage",
    }  # fmt: skip
    public = {name for name in dir(AgentMemory) if not name.startswith("_")}
    assert asked.names == public - no_operations
