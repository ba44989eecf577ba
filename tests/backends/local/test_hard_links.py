"""Files with more than one name: refused unless allowed, and never changed in place.

A second name may lie outside the root, where this package must not change it. The only exception is its own: a creator
killed between ``link`` and ``unlink`` leaves a temporary name beside the file, and the next reader removes it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_memory import PRESENT, SHA256, AgentMemory, FileOperationError
from agent_memory_local import LocalBackend
from tests.backends.local.planted import scan_all
from tests.support.outside import SECRET

Action = Callable[[AgentMemory], object]

TEMPORARY = ".0123456789abcdef.agent-memory-tmp"
CHANGES_OR_SHOWS: dict[str, Action] = {
    "read": lambda m: m.read("linked.md"),
    "read bytes": lambda m: m.read_bytes("linked.md"),
    "scan": lambda m: scan_all(m, "linked.md"),
    "append": lambda m: m.append("linked.md", "x"),
    "append if there": lambda m: m.append("linked.md", "x", when=PRESENT),
    "edit": lambda m: m.edit("linked.md", str.upper),
    "write if unchanged": lambda m: m.write("linked.md", "x", when=SHA256("0" * 64)),
    "copy": lambda m: m.copy("linked.md", "new.md"),
}


@pytest.fixture
def outside(tmp_path: Path, memory: AgentMemory) -> Path:  # noqa: ARG001 - creates the root
    """A file outside the tree; its second name is ``linked.md`` in the tree."""
    path = tmp_path / "outside.md"
    path.write_text(SECRET)
    os.link(path, tmp_path / "root" / "linked.md")
    return path


def allowing(root: Path) -> AgentMemory:
    return AgentMemory.open(f"{root.as_uri()}?allow_hard_links=true")


@pytest.mark.parametrize("action", CHANGES_OR_SHOWS.values(), ids=CHANGES_OR_SHOWS)
def test_a_file_with_a_second_name_is_neither_read_nor_changed(
    memory: AgentMemory, root: Path, outside: Path, action: Action
) -> None:
    with pytest.raises(FileOperationError, match="link") as refused:
        action(memory)
    assert SECRET[:6] not in str(refused.value)
    assert str(root.parent) not in str(refused.value)
    assert outside.read_text() == SECRET
    assert (outside.stat().st_nlink, sorted(os.listdir(root))) == (2, ["kept.md", "linked.md"])  # noqa: PTH208 - names


def test_a_refused_file_is_still_listed(memory: AgentMemory, outside: Path) -> None:
    assert [str(entry) for entry in memory.list()] == ["kept.md", "linked.md"]
    assert outside.read_text() == SECRET


def test_replacing_a_file_does_not_change_its_second_name(memory: AgentMemory, root: Path, outside: Path) -> None:
    memory.write("linked.md", "ours")
    assert memory.read("linked.md") == "ours"
    assert (root / "linked.md").stat().st_nlink == 1
    assert outside.read_text() == SECRET


@pytest.mark.parametrize("delete", ["delete", "delete_tree"])
def test_deleting_a_file_does_not_change_its_second_name(memory: AgentMemory, outside: Path, delete: str) -> None:
    if delete == "delete":
        memory.delete("linked.md")
    else:
        assert memory.delete_tree("").files == 2
    assert not memory.exists("linked.md")
    assert (outside.read_text(), outside.stat().st_nlink) == (SECRET, 1)


def test_hard_links_are_read_if_allowed(outside: Path, root: Path) -> None:
    memory = allowing(root)
    assert memory.read("linked.md") == outside.read_text()
    assert scan_all(memory, "linked.md").startswith(SECRET.encode()[-10:])
    assert memory.stat("linked.md").size == len(SECRET)


@pytest.mark.parametrize("separator", ["", "\n"])
def test_an_append_to_an_allowed_hard_link_makes_a_new_file(outside: Path, root: Path, separator: str) -> None:
    memory = allowing(root)
    appended = f"{SECRET}{separator}more"
    assert memory.append("linked.md", "more", separator=separator).size == len(appended)
    assert memory.read("linked.md") == appended
    assert (outside.read_text(), outside.stat().st_nlink) == (SECRET, 1)


@pytest.mark.parametrize("value", [True, False])
def test_hard_links_can_be_allowed_by_an_argument(outside: Path, root: Path, value: bool) -> None:
    options: dict[str, Any] = {"allow_hard_links": value}
    memory = AgentMemory.open(LocalBackend(root, **options))
    if value:
        memory.edit("linked.md", str.lower)
        assert memory.read("linked.md") == SECRET.lower()
    else:
        with pytest.raises(FileOperationError):
            memory.read("linked.md")
    assert outside.read_text() == SECRET


def test_the_option_allow_hard_links_takes_only_true_or_false(root: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="allow_hard_links"):
        AgentMemory.open(f"{root.as_uri()}?allow_hard_links=perhaps")


AFTER_A_KILLED_CREATOR: dict[str, tuple[Action, str]] = {
    "read": (lambda m: m.read("new.md"), "ours"),
    "scan": (lambda m: scan_all(m, "new.md"), "ours"),
    "append": (lambda m: m.append("new.md", "+"), "ours+"),
    "edit": (lambda m: m.edit("new.md", str.upper), "OURS"),
    "write": (lambda m: m.write("new.md", "other"), "other"),
}


@pytest.mark.parametrize("name", AFTER_A_KILLED_CREATOR)
def test_the_next_operation_removes_the_temporary_name_of_a_killed_creator(
    memory: AgentMemory, root: Path, name: str
) -> None:
    action, text = AFTER_A_KILLED_CREATOR[name]
    (root / TEMPORARY).write_text("ours")
    os.link(root / TEMPORARY, root / "new.md")
    action(memory)
    assert memory.read("new.md") == text
    assert (root / "new.md").stat().st_nlink == 1
    assert not (root / TEMPORARY).exists() or name == "write"  # a write does not open the old file


def test_a_reader_that_removes_temporary_names_does_not_disturb_a_running_creator(
    memory: AgentMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``O_TMPFILE`` a running creator, too, is between ``link`` and ``unlink`` for a moment."""
    real_open, real_link = os.open, os.link
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.append(memory.read("new.md")))

    def open_without_tmpfile(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", 1):
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    def link(*names: str, **options: Any) -> None:
        real_link(*names, **options)
        reader.start()
        reader.join(0.3)  # the reader may also wait for the creator

    monkeypatch.setattr(os, "open", open_without_tmpfile)
    monkeypatch.setattr(os, "link", link)
    memory.create("new.md", "x")
    reader.join(10)
    assert seen == ["x"]
    assert sorted(path.name for path in root.iterdir()) == ["kept.md", "new.md"]
    assert (root / "new.md").stat().st_nlink == 1


def test_a_temporary_name_of_another_file_is_not_removed(memory: AgentMemory, root: Path) -> None:
    """The temporary file may belong to a running writer."""
    (root / TEMPORARY).write_text("half of what somebody wri")
    assert memory.read("kept.md") == "kept"
    assert memory.append("kept.md", "+").size == 5
    assert (root / TEMPORARY).read_text() == "half of what somebody wri"


def test_a_temporary_name_does_not_allow_a_second_name_outside_the_root(
    memory: AgentMemory, root: Path, outside: Path
) -> None:
    os.link(outside, root / TEMPORARY)
    with pytest.raises(FileOperationError):
        memory.read("linked.md")
    (root / TEMPORARY).unlink(missing_ok=True)
    (root / TEMPORARY).write_text("of another file")
    with pytest.raises(FileOperationError):
        memory.read("linked.md")
    assert (root / TEMPORARY).read_text() == "of another file"
    assert outside.read_text() == SECRET


@pytest.mark.parametrize("name", ["0123456789abcdef.agent-memory-tmp", ".x.agent-memory-tmp", "other.md"])
def test_a_name_that_only_resembles_a_temporary_name_is_not_removed(memory: AgentMemory, root: Path, name: str) -> None:
    (root / "new.md").write_text("ours")
    os.link(root / "new.md", root / name)
    with pytest.raises(FileOperationError):
        memory.read("new.md")
    assert (root / name).exists()
