"""A request that arrives late, or a second time, does not take a file that has got its old name and content again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import product
from typing import Any

import pytest
from botocore.exceptions import ClientError

from agent_memory import AgentMemory, ConflictError, FileAlreadyExistsError, PartialOperationError, VersionLimits
from agent_memory.backend import Key
from agent_memory.object_store import ObjectStoreBackend, late_requests
from agent_memory.object_store.engine import NoResponse
from agent_memory.object_store.late_requests import (
    LATE_SECONDS,
    MOST_FORMER_NAMES,
    FormerName,
    LateRequests,
    TooSoonError,
    carried_at,
    etag_digest,
    etag_of_parts,
    with_former_name,
)
from agent_memory.object_store.trial.results import TrialResult
from agent_memory.object_store.write_log import MOST_BYTES, WriteId, WriteLog, WriteRecord
from agent_memory.registry import open_backend
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server
from tests.support.sizes import also, long_except

TEXT = "the only copy\n"


class LateNetwork:
    """Records the conditional requests of a backend, and sends them again."""

    def __init__(self, server: S3Server, url: str) -> None:
        self.server = server
        self.url = url
        backend: Any = open_backend(url, server.options)
        self.backend = backend
        self._sent: list[dict[str, Any]] = []
        engine = backend._bucket.store
        self.put, delete = engine.put, engine.delete

        async def recorded_delete(name: str, *, if_match: str | None = None) -> None:
            if if_match is not None:
                self._sent.append({"Key": name, "IfMatch": if_match})
            await delete(name, if_match=if_match)

        engine.delete = recorded_delete
        self.engine = engine

    def memory(self, *, another_process: bool = False, versions: VersionLimits | None = None) -> AgentMemory:
        backend: ObjectStoreBackend = self.backend.as_another_process() if another_process else self.backend
        return AgentMemory.open(backend, versions=versions)

    def lose_next_put(self) -> None:
        """Let the next conditional PUT have no answer; it arrives when all requests arrive."""

        async def lost(name: str, data: bytes, metadata: Any, *, if_match: str | None, **_: Any) -> str:
            self.engine.put = self.put
            self._sent.append({"Key": name, "IfMatch": if_match, "Body": data, "Metadata": metadata})
            raise NoResponse("lost")

        self.engine.put = lost

    def arrive(self) -> None:
        """Let all recorded requests arrive once more."""
        with closing(self.server.client("s3")) as s3:
            for request in self._sent:
                send = s3.put_object if "Body" in request else s3.delete_object
                with suppress(ClientError):
                    send(Bucket="memories", **request)


@pytest.fixture
def network(ministack: S3Server, trusted: None) -> Iterator[LateNetwork]:
    del trusted
    network = LateNetwork(ministack, ministack.new_url())
    yield network
    network.memory().close()


def there_and_back(first: AgentMemory, second: AgentMemory) -> None:
    first.rename("a", "b")
    second.rename("b", "a")


def by_a_third_name(first: AgentMemory, second: AgentMemory) -> None:
    first.rename("a", "b")
    second.rename("b", "c")
    first.rename("c", "d")
    second.rename("d", "a")


def copied_and_deleted(first: AgentMemory, second: AgentMemory) -> None:
    first.copy("a", "b")
    second.delete("a")
    first.copy("b", "a")
    second.delete("b")


def directory(first: AgentMemory, second: AgentMemory) -> None:
    first.rename("a", "d/a")
    first.copy("other", "d/other")
    second.rename("d", "e")
    first.rename("e", "d")
    second.rename("d/a", "a")


def deleted_and_created(first: AgentMemory, _: AgentMemory) -> None:
    first.delete("a")
    first.create("a", TEXT)


def deleted_and_appended(first: AgentMemory, _: AgentMemory) -> None:
    first.delete("a")
    first.append("a", TEXT)


def deleted_and_written(first: AgentMemory, _: AgentMemory) -> None:
    first.delete("a")
    first.write("a", TEXT)


def edited_after_a_rename(first: AgentMemory, second: AgentMemory) -> None:
    first.rename("a", "b")
    second.edit("b", lambda text: text + "more")
    second.edit("b", lambda text: text.removesuffix("more"))
    second.rename("b", "a")


def created_otherwise_and_edited(first: AgentMemory, second: AgentMemory) -> None:
    first.delete("a")
    first.create("a", "other")
    second.edit("a", lambda _: TEXT)


WAYS: list[Callable[[AgentMemory, AgentMemory], None]] = [
    there_and_back,
    by_a_third_name,
    copied_and_deleted,
    directory,
    deleted_and_created,
    deleted_and_appended,
    deleted_and_written,
    edited_after_a_rename,
    created_otherwise_and_edited,
]


def ways() -> Iterator[Any]:
    """Each way without and with versions; the short run takes a rename back, and a deletion with versions."""
    for way, versions in product(WAYS, (None, VersionLimits())):
        is_short = (way, versions) == (there_and_back, None) or (way is deleted_and_created and versions)
        name = f"{way.__name__}, {'versions' if versions else 'no versions'}"
        yield pytest.param(way, versions, id=name, marks=() if is_short else pytest.mark.long)


@pytest.mark.parametrize(("way", "versions"), list(ways()))
def test_a_late_delete_does_not_take_a_file_that_came_back(
    network: LateNetwork, way: Callable[[AgentMemory, AgentMemory], None], versions: VersionLimits | None
) -> None:
    first, second = network.memory(versions=versions), network.memory(another_process=True)
    first.write("a", TEXT)
    first.write("other", "other")
    way(first, second)
    network.arrive()
    assert first.read("a") == second.read("a") == TEXT


@pytest.mark.parametrize("way", ["restore", *also(["undo"])])
def test_a_late_delete_does_not_take_a_restored_file(network: LateNetwork, way: str) -> None:
    memory = network.memory(versions=VersionLimits())
    memory.write("a", TEXT)
    memory.acting_as("ann").delete("a")
    if way == "undo":
        memory.versions.undo(actor="ann")
    else:
        memory.versions.restore("a", memory.versions.list("a")[0].id)
    network.arrive()
    assert memory.read("a") == TEXT


def test_a_rename_after_a_withdrawn_one_survives_the_late_withdrawal(
    network: LateNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = network.memory()
    first.write("a", TEXT)
    read = network.backend.read

    async def changed_after(key: Key, *args: Any, **options: Any) -> Any:
        found = await read(key, *args, **options)
        await network.backend.write(key, b"changed")
        return found

    monkeypatch.setattr(network.backend, "read", changed_after)
    with pytest.raises(ConflictError):
        first.rename("a", "b")
    monkeypatch.undo()
    first.write("a", TEXT)
    first.rename("a", "b")
    network.arrive()
    assert first.read("b") == TEXT


def test_a_late_edit_does_not_take_the_place_of_a_later_one_of_this_process(network: LateNetwork) -> None:
    memory = network.memory()
    memory.write("a", "old")
    memory.edit("a", lambda _: TEXT)  # makes the first-time requests
    network.lose_next_put()
    memory.edit("a", str.upper)
    memory.edit("a", str.lower)
    assert memory.read("a") == TEXT
    network.arrive()
    assert memory.read("a") == TEXT


@pytest.mark.long
def test_a_name_that_the_content_had_twice_in_a_short_time_is_refused(network: LateNetwork) -> None:
    first, second = network.memory(), network.memory(another_process=True)
    first.write("a", TEXT)
    there_and_back(first, second)
    second.rename("a", "b")
    with pytest.raises(ConflictError, match=r"nothing was changed; try again in \d\d\d s"):
        first.rename("b", "a")
    assert (first.read("b"), first.exists("a")) == (TEXT, False)
    first.rename("b", "c")
    network.arrive()
    assert first.read("c") == TEXT


def test_a_directory_with_such_a_name_is_moved_in_part(network: LateNetwork) -> None:
    memory = network.memory()
    memory.write("a/file", TEXT)
    memory.write("a/other", "other")
    for source, target in ("ab", "ba", "ab"):
        memory.rename(source, target)
    memory.write("b/other", "changed")
    with pytest.raises(PartialOperationError, match="try again in"):
        memory.rename("b", "a")
    assert (memory.read("b/file"), memory.read("a/other")) == (TEXT, "changed")


@long_except(("no versions",), "versions", {"no versions": None, "versions": VersionLimits()})
def test_without_conditions_of_uploads_a_way_back_is_refused(
    network: LateNetwork, versions: VersionLimits | None
) -> None:
    first, second = network.memory(versions=versions), network.memory(another_process=True)
    first.write("a", TEXT)
    first.rename("a", "b")
    trial = network.backend._preconditions._trial
    trial.known = trial.known.__class__(**{**vars(trial.known), "create_upload": TrialResult.NOT_ATOMIC})
    with pytest.raises(ConflictError, match="try again in"):
        second.rename("b", "a")
    second.rename("b", "c")
    second.delete("c")
    second.create("c", TEXT)  # the caller still has the content: it is not refused
    network.arrive()
    assert not first.exists("a")


@pytest.mark.long
def test_after_the_time_of_late_requests_the_etag_is_that_of_a_put(
    network: LateNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = network.memory()
    memory.write("a", TEXT)
    before = memory.stat("a").etag
    now = network.engine.now
    memory.rename("a", "b")
    monkeypatch.setattr(network.engine, "now", lambda: now() + LATE_SECONDS + 61)
    memory.rename("b", "a")
    assert memory.stat("a").etag == before


@pytest.mark.long
def test_a_large_file_does_not_get_an_etag_that_a_late_delete_may_have(network: LateNetwork) -> None:
    network.backend.max_bytes = 1_000_000
    memory = network.memory()
    data = [b"%015d\n" % number for number in range((6 << 20) // 16)]
    memory.write_blocks("a", data, 6 << 20)
    memory.rename("a", "b")
    memory.rename("b", "c")
    memory.rename("c", "d")
    memory.rename("d", "a")  # the first upload had parts of other sizes
    memory.rename("a", "e")
    with pytest.raises(ConflictError, match="try again in"):
        memory.rename("e", "b")
    network.arrive()
    assert memory.stat("e").size == 6 << 20


def test_only_a_way_back_costs_more_requests(ministack: S3Server) -> None:
    rename = {"GET": 1, "PUT": 1, "DELETE": 1}
    with Proxy(ministack.endpoint) as proxy:
        with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
            for name in ("a", "z"):
                memory.write(name, TEXT)
                memory.rename(name, f"{name}1")
                memory.rename(f"{name}1", name)  # the first one tries the server
            memory.write("new", "x")
            for source, target in (("new", "b"), ("b", "c"), ("c", "d")):
                with proxy.counting() as forward:
                    memory.rename(source, target)
                assert forward == rename
            with proxy.counting() as back:
                memory.rename("d", "b")
    assert back == {"GET": 1, "LIST": 1, "DELETE": 1, "BEGIN UPLOAD": 1, "PUT PART": 1, "COMPLETE UPLOAD": 1}


# The parts.


def test_the_etag_of_an_upload_is_that_of_its_parts() -> None:
    assert etag_of_parts(['"d41d8cd98f00b204e9800998ecf8427e"']) == "59adb24ef3cdbe0297f05b395827453f-1"
    assert etag_of_parts(["no digest"]) == etag_of_parts(["x" * 32]) == ""


def test_former_names_survive_their_stored_form_and_no_other_text_is_read() -> None:
    names = (FormerName.of("a", '"etag"', 1e9), FormerName.of("é", "etag", 2e9))
    assert FormerName.parse(FormerName.to_text(names)) == names
    assert names[0].etag == names[1].etag == etag_digest("etag")
    for text in ("", "x", "0" * 8, "0" * 8 + ":" + "0" * 12 + ":", FormerName.to_text(names) + " ", "é"):
        assert FormerName.parse(text) == ()


def test_an_edit_keeps_former_names_until_they_are_over() -> None:
    former = FormerName.of("a", "etag", 100)
    log = WriteLog("0" * 14, (), "", (former,))
    record = WriteRecord(WriteId("0" * 8, 1, "0" * 8), 1000)
    kept, dropped = log.with_record(record, 50), log.with_record(record, 200)
    assert kept
    assert dropped
    assert (kept.former_names, dropped.former_names) == ((former,), ())
    assert WriteLog.of(kept.metadata, "etag") == kept
    assert carried_at((former,), "a", 50) == {former.etag: 101}
    assert carried_at((former,), "b", 50) == carried_at((former,), "a", 200) == {}


def test_a_content_with_too_many_names_gets_no_other_one_for_now() -> None:
    names: tuple[FormerName, ...] = ()
    for number in range(MOST_FORMER_NAMES):
        names = with_former_name(names, FormerName.of(f"{number}", "etag", 100 + number), 50)
    with pytest.raises(TooSoonError) as refused:
        with_former_name(names, FormerName.of("new", "etag", 200), 50)
    assert refused.value.seconds == 51
    assert len(with_former_name(names, FormerName.of("0", "etag", 200), 50)) == MOST_FORMER_NAMES
    assert len(with_former_name(names, FormerName.of("new", "etag", 200), 110)) < MOST_FORMER_NAMES
    log = WriteLog("0" * 14, (WriteRecord(WriteId("0" * 8, 1, "0" * 8), 1000),), "x" * 800, names)
    assert log.size <= MOST_BYTES
    assert log.with_own_name([FormerName.of(f"{n}", "e", 9) for n in range(99)]) == log, "no room"


def test_the_late_requests_of_many_processes_leave_room_for_their_records() -> None:
    elsewhere = FormerName.of("b", "etag", 1000)
    log, late = WriteLog("0" * 14, (), "", (elsewhere,)), dict[str, float]()
    for process in range(40):
        late = {etag_digest(f"{process}:{number}"): 400.0 + process for number in range(64)}
        log = log.with_own_name(FormerName.all_of("a", carried_at(log.former_names, "a", 50) | late))
        longer = log.with_record(WriteRecord(WriteId(f"{process:08x}", 1, "0" * 8), 0xFFFFFFFF), 50)
        assert longer, process
        log = longer
    assert elsewhere in log.former_names
    own = carried_at(log.former_names, "a", 50)
    assert set(own) <= set(late), "the latest ones"
    assert len(own) == 8


def test_late_requests_are_remembered_for_a_time_and_in_a_number_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    late, place = LateRequests(), ("bucket", "a")
    late.note(place, '"one"', 0)
    late.note(place, '"two"', 200)
    assert [*late.carried(place, 250)] == [etag_digest("one"), etag_digest("two")]
    assert [*late.carried(place, 400)] == [etag_digest("two")]
    monkeypatch.setattr(late_requests, "_MOST_PLACES", 3)
    for number in range(3):
        late.note(("bucket", f"{number}"), '"etag"', 300)
    assert late.carried(place, 300) == {}
    assert late.carried(("bucket", "2"), 300)
    for number in range(99):
        late.note(place, f"{number}", 300)
    assert [*late.carried(place, 300)] == [etag_digest(f"{number}") for number in range(99 - 64, 99)]


def test_an_engine_without_conditional_deletes_copies_back_and_forth(ministack: S3Server) -> None:
    server = ministack.by("obstore")
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.write("a", TEXT)
        for _ in range(3):
            for source, target in ("ab", "ba"):
                memory.copy(source, target)
                memory.delete(source)
        assert memory.read("a") == TEXT


@pytest.mark.long
def test_a_single_writer_writes_the_same_bytes_again_and_renames_back(stand_in: Callable[[str], S3Server]) -> None:
    server = stand_in("conditions ignored").for_one_writer()
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        for _ in range(3):
            memory.write("a", TEXT)
            memory.rename("a", "b")
            memory.rename("b", "a")
            memory.delete("a")
        memory.create("a", TEXT)
        assert memory.read("a") == TEXT


@pytest.mark.long
def test_a_name_with_many_late_requests_leaves_room_for_other_names(network: LateNetwork) -> None:
    memory = network.memory()
    for number in range(20):
        memory.create("a", f"{number}")
        memory.delete("a")
    memory.create("a", TEXT)
    memory.rename("a", "b")
    memory.rename("b", "c")
    assert memory.read("c") == TEXT


def test_a_copy_to_a_taken_name_is_refused(network: LateNetwork) -> None:
    memory = network.memory()
    memory.write("a", TEXT)
    memory.rename("a", "b")
    memory.create("a", "taken")
    with pytest.raises(FileAlreadyExistsError):
        memory.rename("b", "a")
    assert (memory.read("a"), memory.read("b")) == ("taken", TEXT)
