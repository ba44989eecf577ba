"""Redaction erases the content of one earlier version everywhere in the store, and says what it left."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AgentMemoryService,
    AsyncAgentMemory,
    ConflictError,
    FileOperationError,
    InvalidContentError,
    OperationDenied,
    OutcomeUnknownError,
    PartialOperationError,
    UnsupportedOperationError,
    VersionLimits,
    WriteError,
)
from agent_memory.audit import log_at, verify
from agent_memory.core.versions import keep
from agent_memory.core.versions.record import records_of
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.runtime.run import step
from tests.core.versions.helpers import ON, contents, opened, opened_with_small_calls, records
from tests.core.versions.hostile import Storage
from tests.support.places import Place, guessable
from tests.support.servers import Root

SECRET = "sk-12345678"


def test_a_tombstone_stays_in_the_place_of_the_content(memory: AgentMemory) -> None:
    for text in ("first", SECRET, "third"):
        memory.write("a", text)
    third, secret, first = memory.versions.list("a")
    assert third.made_by
    before = time.time()
    result = memory.acting_as("admin", "call-1").versions.redact("a", secret.id, reason="a key")
    assert (result.path, result.version, result.still_in) == ("a", secret.id, ())
    found = memory.versions.list("a")
    assert found[0] == third
    assert found[2] == first
    tombstone = found[1]
    assert replace(tombstone, redacted_by=None, reason=None) == replace(secret, size=0)
    assert tombstone.redacted_by
    assert tombstone.redacted_by.facts[:3] == ("redact", "admin", "call-1")
    assert before <= tombstone.redacted_by.time <= time.time()
    assert tombstone.reason == "a key"
    assert memory.versions.list() == found[1:]
    for call in (memory.versions.read, memory.versions.restore, memory.versions.diff):
        with pytest.raises(AgentMemoryFileNotFoundError, match="was redacted"):
            call("a", secret.id)
    assert memory.versions.redact("a", secret.id, reason="again") == result
    assert memory.versions.list("a")[1] == tombstone
    assert memory.read("a") == "third"
    assert (
        memory.versions.undo(since=third.made_by.time, dry_run=True).left[0].reason == "the version before was redacted"
    )


def test_nothing_below_the_root_has_the_content_or_a_digest_of_it(place: Place) -> None:
    with (
        AuditPlugin(place.url, required=True, storage_options=place.options) as audit,
        AgentMemoryService(
            place.url, storage_options=place.options, plugins=[audit], versions=ON, actor="ann"
        ) as service,
    ):
        bob = service.agent("bob")
        bob.write("first.md", "before\n")
        bob.once("k1").write("first.md", SECRET)
        bob.rename("first.md", "second.md")
        bob.edit("second.md", lambda _: "after\n")
        bob.append("second.md", "more\n")
        service.write_memory_file("eve", "b.md", "eve's own")
        assert guessable(place.contents(), SECRET.encode()) != []
        secret = bob.versions.list("second.md")[1]
        assert bob.versions.read("second.md", secret.id) == SECRET
        assert bob.versions.redact("second.md", secret.id, reason="a key").still_in == ()
        assert guessable(place.contents(), SECRET.encode()) == []
        assert guessable(place.contents(), b"eve's own") != []
        assert contents_without(bob, "second.md", secret.id) == ["before\n", "after\nmore\n"]
        bob.write("second.md", "anew\n")
    verdict = verify(log_at(place.url, place.options))
    assert {finding.kind for finding in verdict.findings} == {"unanchored"}
    log = log_at(place.url, place.options)
    lines = b"".join(block for part in log.parts() for block in log.blocks(part)).splitlines()
    receipt = next(record for line in lines if (record := json.loads(line)).get("operation") == "redact")
    assert (receipt["actor"], receipt["path"], receipt["outcome"], receipt["salt"]) == (
        "ann",
        "second.md",
        "ok",
        "destroyed",
    )


def contents_without(memory: AgentMemory, path: str, version: str) -> list[str]:
    found = [each for each in memory.versions.list(path) if each.id != version]
    return [memory.read(path) if not each.ended_by else memory.versions.read(path, each.id) for each in found][::-1]


def test_where_the_content_still_is_is_told(place: Place) -> None:
    with AgentMemory.open(place.url, storage_options=place.options, versions=ON) as memory:
        memory.write("a", SECRET)
        memory.write("a", f"with {SECRET} inside")
        memory.write("a", "without")
        memory.write("a", "appended ")
        memory.append("a", SECRET)
        memory.copy("a", "copied")
        present, without, inside, secret = memory.versions.list("a")
        assert [each.id for each in memory.versions.redact("a", secret.id, reason="x").still_in] == [
            present.id,
            inside.id,
        ]
        assert memory.versions.redact("a", inside.id, reason="x").still_in == ()
        memory.write("a", "clean")
        assert memory.versions.redact("a", present.id, reason="x").still_in == ()
        assert memory.read("copied") == f"appended {SECRET}"
        memory.delete("copied")
        memory.versions.redact("copied", memory.versions.list("copied")[0].id, reason="x")
        assert guessable(place.contents(), SECRET.encode()) == []
        assert [each.id for each in memory.versions.list("a") if not each.redacted_by][1:] == [without.id]


def test_after_each_copy_is_redacted_and_forgotten_no_byte_is_left(place: Place) -> None:
    with (
        AuditPlugin(place.url, required=True, storage_options=place.options) as audit,
        AgentMemoryService(place.url, storage_options=place.options, plugins=[audit], versions=ON) as service,
    ):
        bob = service.agent("bob")
        bob.write("a.md", "before\n")
        bob.append("a.md", SECRET)
        bob.append("a.md", "\nafter\n")
        bob.copy("a.md", "copied.md")
        bob.write("a.md", "without\n")
        bob.rename("a.md", "b.md")
        service.write_memory_file("eve", "b.md", "eve's own")
        redacted = bob.versions.list("b.md")[1]
        assert bob.versions.redact("b.md", redacted.id, reason="a key").still_in == ()
        assert SECRET in bob.read("copied.md")
        bob.write("copied.md", "without\n")
        bob.versions.redact("copied.md", bob.versions.list("copied.md")[1].id, reason="a key")
        assert guessable(place.contents(), SECRET.encode()) == []
        bob.once("k1").write("again.md", SECRET)
        bob.write("again.md", "without\n")
        service.forget_memory("bob")
        assert guessable(place.contents(), SECRET.encode()) == []
        assert guessable(place.contents(), b"eve's own") != []
    assert {finding.kind for finding in verify(log_at(place.url, place.options)).findings} == {"unanchored"}


@pytest.mark.parametrize("old_name", [True, False])
def test_all_names_of_a_file_are_erased(place: Place, old_name: bool) -> None:
    """The redacted state, a leftover of a change that was not made, and the file lie under different names."""
    with AgentMemory.open(place.url, storage_options=place.options, versions=ON) as memory:
        memory.write("f", SECRET)
        leave_record(memory, "f")
        memory.rename("f", "g")
        memory.rename("g", "h")
        memory.write("h", "clean")
        present, secret = memory.versions.list("h")
        memory.append("h", SECRET)
        result = memory.versions.redact(
            "f" if old_name else "h", memory.versions.list("f")[0].id if old_name else secret.id, reason="x"
        )
        assert [(each.path, each.id) for each in result.still_in] == [("h", present.id)]
        memory.write("h", "clean")
        memory.versions.redact("h", present.id, reason="x")
        assert guessable(place.contents(), SECRET.encode()) == []


def leave_record(memory: AgentMemory, path: str) -> None:
    """Keep the state of a file as a change does that ends before it is made."""
    kept = keep.VersionedStore._replace

    async def stop(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keep.VersionedStore, "_write", refuse)
            return await kept(*arguments)

    async def refuse(*_: object) -> None:
        raise OutcomeUnknownError("stopped")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keep.VersionedStore, "_replace", stop)
        with pytest.raises(OutcomeUnknownError):
            memory.write(path, "never")


@pytest.mark.parametrize("refused", ["erase", "write"])
def test_a_redaction_that_did_not_end_is_finished_by_a_repeated_call(
    place: Place, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    with (
        AuditPlugin(place.url, required=True, storage_options=place.options) as audit,
        AgentMemory.open(place.url, storage_options=place.options, plugins=[audit], versions=ON) as memory,
    ):
        memory.write("a", "one")
        memory.write("a", SECRET)
        memory.write("a", "three")
        secret = memory.versions.list("a")[1]
        backend: Any = memory._tree.backend
        verb, calls = getattr(backend, refused), itertools.count()

        def refuse(*arguments: Any, **options: Any) -> Any:
            if next(calls) == 1:  # the second one: part of the work is done
                raise WriteError("not permitted")
            return verb(*arguments, **options)

        with monkeypatch.context() as patched, suppress(FileOperationError):  # not raised where one call erases all
            patched.setattr(backend, refused, refuse)
            memory.versions.redact("a", secret.id, reason="a key")
        unfinished = memory.versions.list("a")[1]
        assert unfinished.id == secret.id
        memory.versions.redact("a", secret.id, reason="a key")
        found = memory.versions.list("a")[1]
        assert (found.reason, found.redacted_by and found.redacted_by.operation) == ("a key", "redact")
        assert guessable(place.contents(), SECRET.encode()) == []


def test_a_version_that_was_kept_twice_is_erased_twice(memory: AgentMemory, root: Root) -> None:
    memory.write("a", SECRET)
    memory.write("a", "two")
    version = memory.versions.list("a")[1]
    backend: Any = memory._tree.backend
    name = records_of(None).join(records(root)[0].path)

    async def double() -> None:
        snapshot = await memory._run.call(backend.read, name)
        await memory._run.call(
            backend.write, records_of(None).join(name.path[:-10] + "0" * 8 + name.path[-2:]), snapshot.data
        )

    step(double())
    assert len(records(root)) == 2
    memory.versions.redact("a", version.id, reason="x")
    assert len(records(root)) == 1
    assert memory.versions.list("a")[1].redacted_by


def test_the_present_file_is_not_redacted(memory: AgentMemory) -> None:
    memory.write("a", SECRET)
    with pytest.raises(ConflictError, match="replace or delete its content first"):
        memory.versions.redact("a", memory.versions.list("a")[0].id, reason="x")
    assert memory.read("a") == SECRET


@pytest.mark.parametrize("reason", ["", "x" * 501, "a\nb", None, b"x"])
def test_a_bad_reason_is_refused(memory: AgentMemory, reason: Any) -> None:
    memory.write("a", "1")
    memory.write("a", "2")
    with pytest.raises(InvalidContentError, match="reason must be"):
        memory.versions.redact("a", memory.versions.list("a")[1].id, reason=reason)
    assert contents(memory, "a") == ["1", "2"]


def test_an_unknown_version_and_a_read_only_view_are_refused(memory: AgentMemory, root: Root) -> None:
    memory.write("a", "1")
    memory.write("a", "2")
    with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
        memory.versions.redact("a", "0" * 16, reason="x")
    with pytest.raises(OperationDenied, match="read-only"):
        memory.read_only().versions.redact("a", memory.versions.list("a")[1].id, reason="x")
    with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
        opened(Root(f"{root.url}-other", root.options), None).versions.redact("a", "0" * 16, reason="x")
    assert contents(memory, "a") == ["1", "2"]


def test_a_part_that_is_refused_leaves_no_tombstone(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.write("a", SECRET)
    memory.write("a", "two")
    version = memory.versions.list("a")[1]
    backend: Any = memory._tree.backend

    def refuse(*_: object) -> None:
        raise WriteError("not permitted")

    for verb in ("erase_earlier", "erase"):
        with monkeypatch.context() as patched:
            patched.setattr(backend, verb, refuse)
            with pytest.raises(WriteError):
                memory.versions.redact("a", version.id, reason="x")
        assert memory.versions.list("a")[1] == version


def test_a_large_content_is_found_where_another_version_begins_with_it(large_root: Root) -> None:
    memory = opened_with_small_calls(large_root)
    first, other = (bytes([number]) * 11_000_000 for number in (1, 2))
    memory.write_blocks("a", [first], len(first))
    memory.write_blocks("a", [first + b"end"], len(first) + 3)
    memory.write_blocks("a", [other], len(other))
    present, longer, shorter = memory.versions.list("a")
    assert [each.id for each in memory.versions.redact("a", shorter.id, reason="x").still_in] == [longer.id]
    assert memory.versions.redact("a", longer.id, reason="x").still_in == ()
    assert memory.versions.list("a")[0] == present


@pytest.mark.asyncio
async def test_the_async_twin_redacts_too(root: Root) -> None:
    memory = AsyncAgentMemory.open(root.url, storage_options=root.options, versions=VersionLimits())
    await memory.write("a", SECRET)
    await memory.write("a", "two")
    secret = (await memory.versions.list("a"))[1]
    assert (await memory.versions.redact("a", secret.id, reason="x")).version == secret.id
    assert (await memory.versions.list("a"))[1].reason == "x"


def test_a_storage_that_may_keep_copies_redacts_nothing(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path / "root", versions=ON) as memory:
        memory.write("a", "1")
        memory.write("a", "2")
        version = memory.versions.list("a")[1].id
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("agent_memory.core.versions.redact.erases", lambda _: False)
            with pytest.raises(UnsupportedOperationError, match="keeps nothing"):
                memory.versions.redact("a", version, reason="x")
        assert contents(memory, "a") == ["1", "2"]


def test_a_redaction_that_fails_after_something_was_erased_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = AgentMemory.open("memory://", versions=ON)
    for text in ("one", SECRET, "three"):
        memory.write("a", text)
    secret = memory.versions.list("a")[1]
    backend: Any = memory._tree.backend
    write, calls = backend.write, itertools.count()

    def refuse(*arguments: Any, **options: Any) -> Any:
        if next(calls) == 1:  # the first one marks the redaction as begun
            raise WriteError("not permitted")
        return write(*arguments, **options)

    monkeypatch.setattr(backend, "write", refuse)
    with pytest.raises(PartialOperationError, match=r"a part was erased, then this failed: .*not permitted"):
        memory.versions.redact("a", secret.id, reason="a key")
    monkeypatch.undo()
    memory.versions.redact("a", secret.id, reason="a key")
    assert memory.versions.list("a")[1].redacted_by


def test_the_current_files_with_the_content_are_named_whatever_their_names(tmp_path: Path) -> None:
    """A copy by another program has no record, and the rename of a directory leaves one mark for all its files."""
    root = tmp_path / "store"
    root.mkdir()
    storage = Storage(root)
    with AgentMemory.open(storage.url, versions=ON) as memory:
        memory.write("d/a", SECRET)
        storage.copy("d/a", "copied")
        memory.write("d/a", f"{SECRET} and more")
        memory.rename("d", "e")
        memory.write("unreadable", "x" * len(SECRET))
        secret = memory.versions.list("d/a")[-1]
        (root / "linked").hardlink_to(root / "unreadable")
        result = memory.versions.redact("d/a", secret, reason="x")
        assert {(each.path, each.id == secret.id) for each in result.still_in} == {("e/a", False), ("copied", True)}
        assert {name for name, data in storage.contents() if SECRET.encode() in data} == {"e/a", "copied"}
