"""Content over the size of one call."""

from __future__ import annotations

import pytest

from agent_memory import SHA256, AgentMemory, FileTooLargeError, OperationDenied
from agent_memory.plugins.redaction import RedactionPlugin
from tests.core.versions.helpers import opened_with_small_calls
from tests.support.servers import ATOMIC, Root

pytestmark = pytest.mark.parametrize("root", ATOMIC, indirect=True)  # moto cannot append to a large file


def test_content_larger_than_one_call_is_kept(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root)
    first, second = (bytes([number]) * 11_000_000 for number in (1, 2))
    memory.write_blocks("a", [first], len(first))
    memory.append("a", "end")
    memory.write_blocks("a", [second], len(second))
    memory.delete("a")
    sizes = [each.size for each in memory.versions.list("a")]
    assert sizes == [11_000_000, 11_000_003]
    with AgentMemory.open(large_root.url, storage_options=large_root.options) as reader:
        for version, content in zip(memory.versions.list("a"), (second, first + b"end"), strict=True):
            assert reader.versions.read_bytes("a", version.id) == content


def test_a_large_file_is_copied_and_moved_whole_and_not_edited(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root)
    content = b"large\n" * 2_000_000
    memory.write_blocks("a", [content], len(content))
    memory.copy("a", "copied")
    memory.rename("a", "moved")
    with pytest.raises(FileTooLargeError):
        memory.edit("moved", lambda text: text + "lost")
    with pytest.raises(FileTooLargeError):
        memory.append("moved", "x", when=SHA256("0" * 64))
    with AgentMemory.open(large_root.url, storage_options=large_root.options) as reader:
        assert {entry.path: reader.read_bytes(entry.path) == content for entry in reader.list()} == {
            "copied": True,
            "moved": True,
        }


def test_a_large_file_is_replaced_and_restored(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root)
    content = b"large\n" * 2_000_000
    memory.write_blocks("a", [content], len(content))
    memory.append("a", "end")
    memory.write("a", "small")
    large = memory.versions.list("a")[1]
    memory.versions.restore("a", large.id)
    memory.delete("a")
    memory.versions.restore("a", large.id)
    assert [each.size for each in memory.versions.list("a")] == [len(content) + 3] * 2 + [5, len(content) + 3]
    with AgentMemory.open(large_root.url, storage_options=large_root.options) as reader:
        assert reader.read_bytes("a") == content + b"end"


def test_a_guard_of_sizes_may_refuse_to_restore_a_large_file(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root, [RedactionPlugin()])
    content = b"large\n" * 2_000_000
    with AgentMemory.open(large_root.url, storage_options=large_root.options) as other:
        other.write_blocks("a", [content], len(content))
    memory.delete("a")
    with pytest.raises(OperationDenied, match="cannot be given the content"):
        memory.versions.restore("a", memory.versions.list("a")[0].id)
    assert not memory.exists("a")


def test_an_undo_leaves_a_large_file_that_another_program_may_have_changed(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root)
    content = b"large\n" * 2_000_000
    memory.write_blocks("a", [content], len(content))
    done = memory.versions.undo(since=0)
    assert done.done == ()
    assert [(each.path, each.reason) for each in done.left] == [
        ("a", "too large to tell whether another program changed it since")
    ]
    assert memory.stat("a").size == len(content)
