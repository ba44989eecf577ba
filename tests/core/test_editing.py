"""The flow of an edit, each step of time decided by the test: races with writers, creators and deleters."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemoryFileNotFoundError, ConflictError, FileAlreadyExistsError
from agent_memory.backend import ABSENT, ANY, ETag, NewOrigin, ReadWhen, WriteWhen
from agent_memory.core.editing import EditHooks, edit
from agent_memory.core.flows import sha256
from agent_memory.core.precondition import SHA256
from agent_memory.errors import OperationDenied
from agent_memory.key import Key
from agent_memory_memory import MemoryBackend
from tests.core.stepping import KEY, Contended, SteppedStore


async def unfiltered(data: bytes) -> bytes:
    return data


async def permitted() -> None:
    return


async def denied() -> None:
    raise OperationDenied("nothing is deleted here")


HOOKS = EditHooks(unfiltered, permitted)


def nothing(_: bytes) -> None:
    return None


class CreatedMeanwhile(MemoryBackend):
    """Another writer creates the file before the first create."""

    created = False

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is ABSENT and not self.created:
            self.created = True
            super().write(key, b"theirs")
        return super().write(key, data, when, origin)


class ChangedMeanwhile(MemoryBackend):
    """Another writer replaces the file before the first delete, or deletes it."""

    def __init__(self, new: bytes | None) -> None:
        super().__init__()
        self.new = new
        self.changed = False

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        if not self.changed:
            self.changed = True
            super().delete(key)
            if self.new is not None:
                super().write(key, self.new)
        super().delete(key, when)


def test_the_function_gets_the_content_of_each_attempt() -> None:
    store, contents = SteppedStore(Contended(races=2)), []
    store.write(KEY, b"first")

    def change(content: bytes) -> bytes:
        contents.append(content)
        return content.upper()

    effect = store.run(edit, KEY, change, HOOKS)
    assert contents == [b"first", b"theirs 2\n", b"theirs 3\n"]
    assert store.read(KEY).data == b"THEIRS 3\n"
    assert (effect.attempts, effect.before_sha256) == (3, sha256(b"theirs 3\n"))


def test_a_conflict_that_the_function_raises_ends_the_edit() -> None:
    store = SteppedStore(Contended(races=0))
    store.write(KEY, b"first")

    def change(content: bytes) -> bytes:
        raise ConflictError(f"not {content.decode()}")

    with pytest.raises(ConflictError, match="not first"):
        store.run(edit, KEY, change, HOOKS)
    assert store.clock.delays == []


def test_equal_content_is_not_written() -> None:
    backend = Contended(races=0)
    store = SteppedStore(backend)
    store.write(KEY, b"first")
    effect = store.run(edit, KEY, bytes.lower, HOOKS)
    assert (backend.writes, effect.sha256) == (1, sha256(b"first"))


def test_a_missing_file_is_created_from_the_given_content() -> None:
    store = SteppedStore(MemoryBackend())
    effect = store.run(edit, KEY, bytes.upper, HOOKS, ANY, missing=b"new")
    assert (store.read(KEY).data, effect.before_sha256) == (b"NEW", None)


def test_a_missing_file_is_created_even_if_the_function_changes_nothing() -> None:
    store = SteppedStore(MemoryBackend())
    store.run(edit, KEY, bytes.lower, HOOKS, ANY, missing=b"")
    assert store.read(KEY).data == b""


def test_without_content_for_a_missing_file_the_edit_is_refused() -> None:
    store = SteppedStore(MemoryBackend())
    with pytest.raises(AgentMemoryFileNotFoundError):
        store.run(edit, KEY, bytes.upper, HOOKS)


def test_with_an_expected_state_a_missing_file_is_not_created() -> None:
    store = SteppedStore(MemoryBackend())
    with pytest.raises(AgentMemoryFileNotFoundError):
        store.run(edit, KEY, bytes.upper, HOOKS, SHA256(sha256(b"")))


def test_a_creator_that_loses_a_race_edits_the_file_of_the_winner() -> None:
    store = SteppedStore(CreatedMeanwhile())
    effect = store.run(edit, KEY, bytes.upper, HOOKS, ANY, missing=b"mine")
    assert (store.read(KEY).data, effect.attempts) == (b"THEIRS", 2)


@pytest.mark.parametrize("taken", ["d", "d/a.md/below"])
def test_a_name_that_no_file_can_have_ends_the_edit_at_once(taken: str) -> None:
    store = SteppedStore(MemoryBackend())
    store.write(KEY, b"a file below")
    with pytest.raises(FileAlreadyExistsError):
        store.run(edit, Key.tree().join(taken), bytes.upper, HOOKS, ANY, missing=b"")
    assert store.clock.delays == []


def test_a_function_that_returns_none_deletes_the_file() -> None:
    store = SteppedStore(MemoryBackend())
    store.write(KEY, b"first")
    effect = store.run(edit, KEY, nothing, HOOKS)
    assert (effect.files, effect.size, effect.sha256, effect.before_sha256) == (1, None, None, sha256(b"first"))
    with pytest.raises(AgentMemoryFileNotFoundError):
        store.read(KEY)


def test_nothing_is_deleted_if_there_is_no_file() -> None:
    store = SteppedStore(MemoryBackend())
    assert store.run(edit, KEY, nothing, HOOKS, ANY, missing=b"").files == 0


def test_a_guard_refuses_the_deletion() -> None:
    store = SteppedStore(MemoryBackend())
    store.write(KEY, b"first")
    with pytest.raises(OperationDenied):
        store.run(edit, KEY, nothing, EditHooks(unfiltered, denied))
    assert store.read(KEY).data == b"first"


def test_a_deletion_that_loses_a_race_is_decided_again_on_the_new_content() -> None:
    store = SteppedStore(ChangedMeanwhile(b"theirs"))
    store.write(KEY, b"first")
    store.run(edit, KEY, lambda content: None if content == b"first" else content.upper(), HOOKS)
    assert store.read(KEY).data == b"THEIRS"


def test_a_file_that_another_writer_deleted_first_is_missing_in_the_next_attempt() -> None:
    store = SteppedStore(ChangedMeanwhile(None))
    store.write(KEY, b"first")
    assert store.run(edit, KEY, nothing, HOOKS, ANY, missing=b"").files == 0
