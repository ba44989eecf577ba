"""Files held against records of operations that overlap: each result that they may have had is no finding."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_memory.audit.names import PathsOption
from agent_memory.core.blocking import BlockingStore
from agent_memory.hookspecs import Operation, OperationKind, Outcome
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from tests.audit.test_files import Held, quick

__all__ = ["quick"]
_BEGIN = 1_700_000_000.0
_ids = itertools.count()


class TimedWriter:
    """A process that records operations at given times."""

    def __init__(self, audit: AuditPlugin) -> None:
        self._audit = audit

    def did(
        self, kind: OperationKind, path: str, start: float, end: float, text: str | None = None, **facts: Any
    ) -> None:
        target, status = facts.pop("target", None), facts.pop("status", "ok")
        data = (text or "").encode()
        operation = Operation(f"{next(_ids):016}", _BEGIN + start, kind, "bob", path, target, len(data), "ops")
        digest = hashlib.sha256(data).hexdigest() if text is not None and status == "ok" else None
        size = facts.pop("size", len(data)) if text is not None else None
        self._audit.agent_memory_after_operation(
            operation, Outcome(status=status, duration=end - start, size=size, sha256=digest)
        )


class Overlapping(Held):
    """A store whose files are put in their places beside the records."""

    @contextmanager
    def writers(self, paths: PathsOption = "names") -> Iterator[tuple[TimedWriter, TimedWriter]]:
        """Two writers, the second one with an option of its own."""
        with AuditPlugin(self.url, required=True) as first, AuditPlugin(self.url, required=True, paths=paths) as second:
            yield TimedWriter(first), TimedWriter(second)

    def has(self, **files: str | None) -> list[tuple[str, str, str]]:
        """The findings if the tree has these files."""
        with closing(BlockingStore(open_backend(self.url))) as store:
            for name, text in files.items():
                key = Key.agent("bob").join(name)
                if text is not None:
                    store.write(key, text.encode())
                elif self._is_there(store, key):
                    store.delete(key)
        return self.told()

    @staticmethod
    def _is_there(store: BlockingStore, key: Key) -> bool:
        return key in [entry.key for entry in store.list(Key.agent("bob")).entries]


@pytest.fixture
def held(tmp_path: Path) -> Overlapping:
    return Overlapping(f"file://{tmp_path}/root", {}, tmp_path)


def test_a_write_of_the_new_name_during_a_rename_may_be_the_last_one(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("write", "x", -100.0, -99.9, "old")
        one.did("rename", "x", 10.0, 10.4, target="y")
        other.did("write", "y", 10.1, 10.3, "new")
    assert held.has(y="new") == []
    assert held.has(y="old") == []
    assert held.has(y="forged") == [("changed", "bob", "y")]


def test_a_write_of_the_old_name_during_a_rename_may_be_at_either_name(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("write", "x", -100.0, -99.9, "old")
        one.did("rename", "x", 10.0, 10.4, target="y")
        other.did("write", "x", 10.1, 10.2, "new")
    assert held.has(x=None, y="new") == []
    assert held.has(x="new", y="old") == [("unvouched", "bob", "y")]
    assert held.has(x="forged", y="new") == [("changed", "bob", "x")]
    assert held.has(x="new", y=None) == [("missing", "bob", "y")]


def test_an_operation_without_a_known_outcome_may_be_the_last_one(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("write", "x", 10.0, 10.1, "unknown", status="unknown")
        other.did("write", "x", 9.9, 10.2, "known")
    assert held.has(x="known") == []
    assert held.has(x="unknown") == [("unvouched", "bob", "x")]
    with held.writers() as (one, _):
        one.did("write", "x", 20.0, 20.1, "later")
    assert held.has(x="later") == []
    assert held.has(x="unknown") == [("changed", "bob", "x")]


@pytest.mark.parametrize("kind", ["delete", "delete_tree", "forget"])
def test_a_removal_may_have_removed_a_file_whose_record_follows(held: Overlapping, kind: OperationKind) -> None:
    path = "d/x" if kind == "delete" else "d"
    with held.writers() as (one, other):
        one.did(kind, path, 10.0, 10.4)
        other.did("write", "d/x", 10.1, 10.5, "new")
        other.did("append", "d/log", 10.1, 10.5, "line")
        other.did("write", "e", 10.1, 10.5, "beside")
    assert held.has(**{"d/x": "new", "d/log": "line", "e": "beside"}) == []
    missing = [] if kind != "delete" else [("missing", "bob", "d/log")]
    assert held.has(**{"d/x": None, "d/log": None}) == missing
    assert held.has(**{"d/x": "new", "d/log": "line", "e": None}) == [("missing", "bob", "e")]


def test_a_removal_that_is_recorded_by_name_may_have_removed_a_file_that_is_recorded_by_digest(
    held: Overlapping,
) -> None:
    with held.writers("digest") as (one, other):
        one.did("write", "f", 1.0, 1.1, "f")
        one.did("delete_tree", "d", 10.0, 10.4)
        other.did("write", "d/x", 10.1, 10.5, "new")
    assert held.has(f="f") == []
    assert held.has(**{"d/x": "new"}) == []


def test_a_file_that_was_written_after_a_removal_is_missed(held: Overlapping) -> None:
    with held.writers() as (one, _):
        one.did("delete_tree", "d", 10.0, 10.4)
        one.did("write", "d/x", 10.5, 10.6, "new")
    assert held.has(**{"d/x": "new"}) == []
    assert held.has(**{"d/x": None}) == [("missing", "bob", "d/x")]


@pytest.mark.parametrize("moves", [1, 2])
def test_the_end_of_a_file_that_was_moved_is_missed(held: Overlapping, moves: int) -> None:
    with held.writers() as (one, _):
        one.did("write", "0", 10.0, 10.1, "first\n")
        one.did("append", "0", 10.2, 10.3, "last\n", size=11)
        for number in range(moves):
            one.did("rename", str(number), 11.0 + number, 11.1 + number, target=str(number + 1))
    assert held.has(**{str(moves): "first\nlast\n"}) == []
    assert held.has(**{str(moves): "first\n"}) == [("changed", "bob", str(moves))]


def test_a_file_without_a_name_is_missed_after_any_name(held: Overlapping) -> None:
    held.paths = "digest"
    with held.service() as service:
        for name in ("a", "\u00e9"):
            service.write_memory_file("bob", name, "x")
    held.change("bob", "a", lambda _: None)
    held.change("bob", "\u00e9", lambda _: None)
    assert [kind for kind, *_ in held.told(after=("bob", "\u00e8"))] == ["missing", "missing"]


def test_a_state_that_was_moved_twice_has_its_place_after_the_first_move(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("write", "x", 0.1, 0.2, "a long content")
        one.did("append", "x", 0.21, 0.22, "+", size=15)
        one.did("write", "y", 0.3, 0.4, "newer")
        other.did("rename", "x", 0.35, 0.5, target="y")
        other.did("rename", "y", 0.65, 0.7, target="z")
    for text in ("a long content+", "newer"):
        assert held.has(z=text) == []
    for text in ("a long content", "NEWER"):
        assert held.has(z=text) == [("changed", "bob", "z")]


@pytest.mark.parametrize("text", ["a", "ab"])
def test_a_file_that_was_created_again_by_an_append_keeps_its_beginning_when_it_is_moved(
    held: Overlapping, text: str
) -> None:
    with held.writers() as (one, other):
        one.did("write", "x", 0.1, 0.2, "before")
        one.did("delete", "x", 0.3, 0.4)
        for size in range(1, len(text) + 1):
            one.did("append", "x", size, size + 0.1, text[size - 1], size=size)
        one.did("write", "z", 3.9, 3.95, "at the target")
        other.did("rename", "x", 4.0, 4.1, target="z")
    for each in (text, "at the target"):
        assert held.has(z=each) == []
    for each in ("", "before"):
        assert held.has(z=each) == [("changed", "bob", "z")]


def test_a_file_without_a_recorded_write_is_moved_to_a_name_that_had_one(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("append", "x", 0.1, 0.2, "new", size=3)
        one.did("write", "y", 1.0, 1.1, "old content")
        other.did("delete", "y", 1.2, 1.3)
        other.did("copy", "x", 1.4, 1.5, target="y")
    assert held.has(x="new", y="new") == []
    assert held.has(x="new", y="NEW") == [("changed", "bob", "y")]


def test_a_directory_in_the_place_of_a_former_file_moves_without_that_file(held: Overlapping) -> None:
    with held.writers() as (one, other):
        one.did("write", "a", 0.1, 0.2, "a file")
        other.did("delete", "a", 0.3, 0.4)
        other.did("write", "a/b", 0.5, 0.6, "below")
        one.did("rename", "a", 0.7, 0.8, target="f")
    assert held.has(**{"f/b": "below"}) == []
    assert held.has(**{"f/b": None}) != []
