"""A precondition is kept only if it holds in a race, and for a file that was deleted; else what needs it is refused."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    SHA256,
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AppendError,
    ConflictError,
    UnsupportedOperationError,
    WriteError,
)
from tests.object_store.proxy import Fault, Proxy, Treatment
from tests.object_store.stand_ins import standing_in
from tests.support.places import in_a_versioned_bucket
from tests.support.processes import in_processes
from tests.support.servers import S3Server, by_both_engines, by_s3fs_or_both
from tests.support.sizes import also

StandIn = Callable[[str], S3Server]
Work = Callable[[AgentMemory, int], object]
_WRITERS, _CHANGES = 4, 5
LARGE = 5 << 20
WORKS: dict[str, Work] = {
    "append": lambda memory, number: memory.append("log.md", f"{number}\n"),
    "edit": lambda memory, number: memory.edit("log.md", lambda text: f"{text}{number}\n", missing=""),
    "create": lambda memory, number: memory.create(f"{number % _CHANGES}.md", f"{number}\n"),
}


def changed(writer: int, barrier: Any, url: str, options: dict[str, object], work: str) -> tuple[set[int], set[str]]:
    """The changes that a writer was told are made, and the reasons of the refusals of the others."""
    made, refused = set(), set()
    with AgentMemory.open(url, storage_options=options) as memory:
        memory.list()  # connects
        for number in range(writer * _CHANGES, (writer + 1) * _CHANGES):
            barrier.wait()
            try:
                WORKS[work](memory, number)
                made.add(number)
            except UnsupportedOperationError as error:
                refused.add(str(error))
            except FileExistsError:
                pass
    return made, refused


@pytest.mark.long
@by_both_engines
@pytest.mark.parametrize("work", WORKS)
def test_no_acknowledged_change_is_lost_by_a_server_that_keeps_conditions_in_two_steps(
    ministack: S3Server, stand_in: StandIn, engine: str, work: str
) -> None:
    url, server = ministack.new_url(), stand_in("conditions in two steps").by(engine)
    ends = in_processes(_WRITERS, changed, url, server.options, work)
    with AgentMemory.open(url, storage_options=ministack.options) as memory:
        stored = {int(line) for entry in memory.list() for line in memory.read(entry.path).splitlines()}
    assert {number for made, _ in ends for number in made} - stored == set()
    reasons = {reason for _, refused in ends for reason in refused}
    assert reasons
    assert all("but not in a race" in reason and "allow_single_writer" in reason for reason in reasons)


@by_s3fs_or_both
@pytest.mark.parametrize(
    ("name", "promises"),
    [
        ("swap in two steps", (True, False, False)),
        ("delete in two steps", (True, True, False)),
        ("losers answered by 500", (True, True, False)),
        ("losers answered by 500, swap in two steps", (True, False, False)),
        ("losers answered by 500, delete in two steps", (True, True, False)),
        pytest.param("create in two steps", (False, True, True), marks=pytest.mark.long),
        pytest.param("uploads in two steps", (True, True, True), marks=pytest.mark.long),
    ],
)
def test_the_capabilities_are_those_that_hold_in_a_race(
    stand_in: StandIn, name: str, promises: tuple[bool, bool, bool], engine: str
) -> None:
    server = stand_in(name).by(engine)
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.write("a.md", "x")
        calls: tuple[Callable[[], object], ...] = (
            lambda: memory.create("b.md", "x"),
            lambda: memory.edit("a.md", lambda text: text + "y"),
            lambda: memory.rename("a.md", "c.md"),
        )
        if engine == "obstore":
            promises = (*promises[:2], False)
        needs = (promises[0], promises[1], promises[0] and promises[2])
        for call, is_kept in zip(calls, needs, strict=True):
            if is_kept:
                call()
            else:
                with pytest.raises(UnsupportedOperationError, match=r"in a race|no conditional delete"):
                    call()
        stated = memory.capabilities
        assert (stated.atomic_create, stated.compare_and_swap, stated.conditional_delete) == promises


def test_a_deletion_that_answered_in_no_race_is_not_promised(stand_in: StandIn) -> None:
    server = stand_in("delete in two steps, refused when busy")
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        etag = memory.write("a.md", "x").etag
        assert etag is not None
        with pytest.raises((UnsupportedOperationError, WriteError)):
            memory.with_timeout(8).delete("a.md", when=etag)
        assert memory.read("a.md") == "x"


def test_a_deletion_is_not_promised_if_two_callers_would_both_make_it(stand_in: StandIn) -> None:
    server = stand_in("DELETE made on a missing key")
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        etag = memory.write("a.md", "x").etag
        assert etag is not None
        with pytest.raises(UnsupportedOperationError, match="two callers could delete one file"):
            memory.delete("a.md", when=etag)
        assert not memory.capabilities.conditional_delete
        assert memory.capabilities.compare_and_swap
        memory.delete("a.md")


@pytest.mark.parametrize("fault", ["500", "reply lost"])
def test_a_directory_of_new_files_is_deleted_though_an_answer_fails(ministack: S3Server, fault: Fault) -> None:
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            etag = memory.write("tried.md", "x").etag
            assert etag
            memory.delete("tried.md", when=etag)
            for number in range(5):
                memory.write(f"d/{number}.md", "x")
            left = [1]
            proxy.choose = lambda operation: fault if operation == "DELETE" and left and left.pop() else None
            assert memory.delete_tree("d").files == 5
            assert not left
            assert memory.list() == ()


@by_s3fs_or_both
def test_a_deleted_text_does_not_come_back_from_the_cache_of_a_writer(
    ministack: S3Server, stand_in: StandIn, engine: str
) -> None:
    server = stand_in("If-Match ignored on a missing key").by(engine)
    url = ministack.new_url()
    with (
        AgentMemory.open(url, storage_options=server.options) as writer,
        AgentMemory.open(url, storage_options=ministack.options) as other,
    ):
        writer.write("a.md", "secret\n")
        kept = writer.stat("a.md").etag
        assert kept is not None
        other.forget("a.md")
        calls: tuple[Callable[[], object], ...] = (
            lambda: writer.append("a.md", "more\n"),
            lambda: writer.edit("a.md", str.upper),
            lambda: writer.write("a.md", "again\n", when=kept),
            lambda: writer.write("a.md", "again\n", when=SHA256(hashlib.sha256(b"secret\n").hexdigest())),
        )
        for call in calls:
            with pytest.raises((UnsupportedOperationError, ConflictError, AgentMemoryFileNotFoundError)) as raised:
                call()
            if isinstance(raised.value, UnsupportedOperationError):
                assert "ignores the precondition if the file was deleted" in str(raised.value)
        assert not writer.capabilities.compare_and_swap
        assert writer.capabilities.atomic_create
        assert other.list() == ()


def test_a_single_writer_brings_no_deleted_text_back(stand_in: StandIn) -> None:
    server = stand_in("If-Match ignored on a missing key").for_one_writer()
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.append("a.md", "secret\n")
        kept = memory.stat("a.md").etag
        assert kept is not None
        memory.delete("a.md")
        with pytest.raises(ConflictError):
            memory.write("a.md", "again\n", when=kept)
        memory.append("a.md", "more\n")
        assert memory.read("a.md") == "more\n"


@pytest.mark.parametrize("treatment", ["ignored if missing", *also(["in two steps"])])
def test_large_files_are_sent_whole_if_completed_uploads_are_not_safe(
    ministack: S3Server, treatment: Treatment
) -> None:
    with Proxy(ministack.endpoint) as proxy:
        proxy.treatments = {"complete": treatment}
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            memory.write("log.md", "x" * LARGE)
            memory.append("log.md", "1")
            before = proxy.sent
            memory.append("log.md", "2")
            assert proxy.sent - before > LARGE


@pytest.mark.long
@by_both_engines
def test_a_server_that_allows_one_write_a_second_is_tried_and_works(
    ministack: S3Server, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    with standing_in(ministack, "one write a second") as proxy, caplog.at_level(logging.WARNING):
        options = ministack.by(engine).through(proxy)
        with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
            with proxy.counting() as requests:
                memory.append("a.md", "x\n")
            memory.append("a.md", "y\n")
            memory.edit("a.md", str.upper)
            assert memory.read("a.md") == "X\nY\n"
            assert memory.capabilities.compare_and_swap
    assert "are not shown to hold in a race" in caplog.text
    assert requests["PUT"] < 200


@by_s3fs_or_both
def test_a_server_that_stores_the_framing_of_a_request_is_refused(stand_in: StandIn, engine: str) -> None:
    server = stand_in("framing stored as content").by(engine)
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        for _ in range(2):
            with pytest.raises(WriteError, match="returns other bytes than it was sent"):
                memory.create("a.md", "x")
        assert memory.list() == ()


@by_s3fs_or_both
def test_a_server_that_drops_metadata_is_refused(stand_in: StandIn, engine: str) -> None:
    server = stand_in("metadata dropped").by(engine)
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        for change in (memory.create, memory.append):
            with pytest.raises((WriteError, AppendError), match="does not keep the metadata of objects"):
                change("a.md", "x")
        assert memory.list() == ()


@pytest.mark.long
@by_both_engines
@pytest.mark.parametrize("treatment", ["kept", "in two steps"])
def test_a_third_of_the_answers_is_lost_and_the_verdict_is_the_same(
    ministack: S3Server, engine: str, treatment: Treatment
) -> None:
    numbers = itertools.count()
    with Proxy(ministack.endpoint) as proxy:
        proxy.treatments = {"create": treatment}
        proxy.choose = lambda operation: "reply lost" if operation == "PUT" and not next(numbers) % 3 else None
        options = ministack.by(engine).through(proxy)
        with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
            if treatment == "kept":
                memory.create("a.md", "x")
            else:
                with pytest.raises(UnsupportedOperationError, match="not in a race"):
                    memory.create("a.md", "x")


@pytest.mark.long
@by_both_engines
def test_ceph_keeps_the_preconditions_of_writes_in_races(ceph: S3Server, engine: str) -> None:
    server = ceph.by(engine)
    for _ in range(5):
        with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
            memory.create("a.md", "x")
            memory.append("a.md", "y")
            memory.edit("a.md", str.upper)
            stated = memory.capabilities
            assert (stated.atomic_create, stated.compare_and_swap, stated.conditional_delete) == (True, True, False)


@pytest.mark.long
@by_both_engines
def test_ceph_in_a_versioned_bucket_is_refused_in_words(ceph: S3Server, engine: str) -> None:
    url, options, _ = in_a_versioned_bucket(ceph.by(engine))
    with AgentMemory.open(url, storage_options=options) as memory:
        memory.write("a.md", "x")
        sha256 = hashlib.sha256(b"x").hexdigest()
        calls: tuple[tuple[Callable[[], object], str], ...] = (
            (lambda: memory.create("b.md", "x"), "ignores preconditions"),
            (lambda: memory.append("a.md", "y"), "ignores preconditions"),
            (lambda: memory.edit("a.md", str.upper), "refuses preconditions that hold"),
            (lambda: memory.rename("a.md", "b.md"), "preconditions|conditional"),
            (
                lambda: memory.delete("a.md", when=SHA256(sha256)),
                "precondition|conditional",
            ),
        )
        for call, reason in calls:
            with pytest.raises(UnsupportedOperationError, match=reason):
                call()
        assert [(each.path, memory.read(each.path)) for each in memory.list()] == [("a.md", "x")]
        stated = memory.capabilities
        assert (stated.atomic_create, stated.compare_and_swap, stated.conditional_delete) == (False, False, False)
