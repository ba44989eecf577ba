"""The flows of single files, each step of time decided by the test: races, back-off, deadlines, expected content."""

from __future__ import annotations

import math

import pytest

from agent_memory import (
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    InvalidContentError,
    ReadError,
)
from agent_memory.backend import ANY, PRESENT
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core import flows
from agent_memory.core.precondition import SHA256, WriteCondition
from agent_memory.key import Key
from agent_memory_memory import MemoryBackend
from tests.core.stepping import KEY, Contended, SteppedStore

OTHER = SHA256(flows.sha256(b"other"))


def test_an_append_that_loses_races_is_tried_again_on_the_new_content() -> None:
    store = SteppedStore(Contended(races=3))
    store.write(KEY, b"first\n")
    effect = store.run(flows.append, KEY, b"mine\n")
    assert store.read(KEY).data == b"theirs 4\nmine\n"
    assert (effect.attempts, effect.size, effect.sha256) == (4, len(b"theirs 4\nmine\n"), flows.sha256(b"mine\n"))


def test_the_delays_between_attempts_double_up_to_half_a_second() -> None:
    store = SteppedStore(Contended(races=9))
    store.write(KEY, b"")
    store.run(flows.append, KEY, b"mine")
    assert store.clock.delays == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("seconds", [0.01, 1.0, 10.0])
def test_attempts_end_at_the_deadline_with_the_conflict(seconds: float) -> None:
    store = SteppedStore(Contended(races=math.inf))
    store.write(KEY, b"")
    with deadline_scope(Deadline(seconds, seconds)), pytest.raises(ConflictError, match="another writer was faster"):
        store.run(flows.append, KEY, b"mine")
    assert store.clock.time < seconds
    assert b"mine" not in store.read(KEY).data


def test_an_append_that_requires_the_file_is_refused_without_it() -> None:
    store = SteppedStore(Contended(races=0))
    with pytest.raises(AgentMemoryFileNotFoundError):
        store.run(flows.append, KEY, b"mine", when=PRESENT)
    assert store.run(flows.exists, KEY).entries == ()


def test_an_append_to_a_directory_ends_and_says_so() -> None:
    store = SteppedStore(Contended(races=0))
    store.write(KEY, b"a file below")
    with pytest.raises(FileAlreadyExistsError):
        store.run(flows.append, Key.tree().join("d"), b"mine")


@pytest.mark.parametrize(
    ("when", "before"),
    [(ANY, None), (PRESENT, None), (SHA256(flows.sha256(b"old")), flows.sha256(b"old"))],
    ids=["any", "present", "digest"],
)
def test_a_write_tells_the_digest_of_the_old_content_if_it_is_known(when: WriteCondition, before: str | None) -> None:
    store = SteppedStore(Contended(races=0))
    store.write(KEY, b"old")
    effect = store.run(flows.write, KEY, b"new", when)
    assert (effect.size, effect.sha256, effect.before_sha256) == (3, flows.sha256(b"new"), before)
    assert effect.etag == store.read(KEY).etag


def test_an_append_on_an_expected_content_is_tried_once() -> None:
    backend = Contended(races=0)
    store = SteppedStore(backend)
    store.write(KEY, b"other")
    store.run(flows.append, KEY, b" and more", when=OTHER)
    assert store.read(KEY).data == b"other and more"
    with pytest.raises(ConflictError, match="not the expected content"):
        store.run(flows.append, KEY, b"!", when=OTHER)
    backend.races = 1
    with pytest.raises(ConflictError, match="faster"):
        store.run(flows.append, KEY, b"!", when=SHA256(flows.sha256(b"other and more")))
    assert store.clock.delays == []


def test_an_append_that_makes_the_file_too_large_writes_nothing() -> None:
    backend = Contended(races=0)
    backend.max_bytes = 10
    store = SteppedStore(backend)
    store.write(KEY, b"12345678")
    with pytest.raises(FileTooLargeError):
        store.run(flows.append, KEY, b"90!")
    assert store.read(KEY).data == b"12345678"


def test_an_expected_content_that_is_not_there_leaves_the_file_as_it_is() -> None:
    store = SteppedStore(MemoryBackend())
    store.write(KEY, b"this")
    with pytest.raises(ConflictError, match="not the expected content"):
        store.run(flows.write, KEY, b"new", OTHER)
    with pytest.raises(ConflictError, match="not the expected content"):
        store.run(flows.delete, KEY, OTHER)
    assert store.read(KEY).data == b"this"


def test_bytes_that_are_no_text_are_named_by_their_place() -> None:
    store = SteppedStore(MemoryBackend())
    store.write(KEY, b"ok \xff")
    with pytest.raises(ReadError, match="not UTF-8 text: byte 3"):
        store.run(flows.read_text, KEY)
    assert store.run(flows.read, KEY).data == b"ok \xff"


@pytest.mark.parametrize(
    ("content", "said"), [(b"x", "a str, not bytes"), ("a\ud800", "position 1"), (None, "NoneType")]
)
def test_content_that_is_no_text_is_refused(content: object, said: str) -> None:
    with pytest.raises(InvalidContentError, match=said):
        flows.text_bytes(content)
