"""Conditions checked within the append itself, on every backend: a separator, and that the file exists."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from agent_memory import PRESENT, SHA256, AgentMemory, AgentMemoryFileNotFoundError, AppendError, InvalidContentError
from tests.support.servers import ATOMIC, Root, S3Server


@pytest.fixture
def memory(root: Root) -> Iterator[AgentMemory]:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        yield memory


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "x"), ("a", "a\nx"), ("a\n", "a\nx"), ("a\n\n", "a\n\nx"), ("\n", "\nx"), ("a\r", "a\r\nx")],
)
def test_append_adds_the_separator_unless_the_file_is_empty_or_ends_with_it(
    memory: AgentMemory, before: str, after: str
) -> None:
    memory.write("log.md", before)
    memory.append("log.md", "x", separator="\n")
    assert memory.read("log.md") == after


def test_any_bytes_are_appended(memory: AgentMemory) -> None:
    memory.append("log", b"\xff", separator=b"\0")
    memory.append("log", b"\xfe", separator=b"\0", when=PRESENT)
    assert memory.read_bytes("log") == b"\xff\0\xfe"
    memory.append("log", "text")
    with pytest.raises(InvalidContentError):
        memory.append("log", 5)  # type: ignore[arg-type]


def test_a_new_file_does_not_begin_with_the_separator(memory: AgentMemory) -> None:
    memory.append("log.md", "x", separator="--")
    memory.append("log.md", "y", separator="--")
    assert memory.read("log.md") == "x--y"


def test_the_digest_covers_the_content_without_the_separator(memory: AgentMemory) -> None:
    memory.write("log.md", "a")
    written = memory.append("log.md", "x", separator="\n")
    assert (written.size, written.sha256) == (3, sha256(b"x").hexdigest())


def test_an_append_with_must_exist_creates_no_file(memory: AgentMemory) -> None:
    with pytest.raises(AgentMemoryFileNotFoundError):
        memory.append("log.md", "x", when=PRESENT)
    assert memory.list() == ()
    memory.write("log.md", "a")
    memory.append("log.md", "x", when=PRESENT)
    assert memory.read("log.md") == "ax"


def test_an_append_may_have_both_an_expected_digest_and_a_separator(memory: AgentMemory) -> None:
    memory.write("log.md", "a")
    memory.append("log.md", "x", separator="\n", when=SHA256(sha256(b"a").hexdigest()))
    assert memory.read("log.md") == "a\nx"


def test_a_separator_that_cannot_be_encoded_leaves_the_file_unchanged(memory: AgentMemory) -> None:
    memory.write("log.md", "a")
    with pytest.raises(InvalidContentError):
        memory.append("log.md", "x", separator="\ud800")
    assert memory.read("log.md") == "a"


@pytest.mark.parametrize("root", ATOMIC, indirect=True)
def test_concurrent_appends_with_a_separator_each_get_their_own_line(memory: AgentMemory) -> None:
    barrier = threading.Barrier(8)

    def append(number: int) -> None:
        barrier.wait()
        for line in range(5):
            memory.append("log.md", f"{number}-{line}", separator="\n")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))
    lines = memory.read("log.md").split("\n")
    assert sorted(lines) == sorted(f"{number}-{line}" for number in range(8) for line in range(5))


def test_a_storage_failure_raises_an_append_error_on_s3_too(ministack: S3Server) -> None:
    with (
        AgentMemory.open("s3://no-such-bucket/x", storage_options=ministack.options) as memory,
        pytest.raises(AppendError),
    ):
        memory.append("log.md", "x")
