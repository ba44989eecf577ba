"""The reported outcome of a write whose answer is lost, in schedules whose answers the test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, TypeVar, cast

import pytest

from agent_memory.backend import ABSENT, ANY, ETag
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.errors import (
    AppendError,
    ConflictError,
    FileAlreadyExistsError,
    FileTooLargeError,
    OutcomeUnknownError,
    WriteError,
)
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend, Writer
from agent_memory.object_store.engine import NoResponse, PreconditionFailed
from agent_memory.object_store.write_log import MOST_BYTES, WriteId, WriteLog, WriteRecord
from tests.simulation import ComposingClient, Faults, SimulatedStore
from tests.simulation.loop import VirtualLoop

T = TypeVar("T")
KEY = Key.tree().join("log.md")
CALM = Faults(0, 0, 0, 0, 0, 0, 0)
Answer = Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]


class Scripted(ComposingClient):
    """A client that passes each request to a function, which may run it or not, and decides its answer."""

    def __init__(self, store: SimulatedStore, *, slow: float = 0.0) -> None:
        super().__init__(store, Random(1), CALM)
        self._skew = slow
        self.requests: list[str] = []
        self.answers: Iterator[Answer] = iter(())

    async def get(self, *args: Any, **options: Any) -> Any:
        return await self._passed("GET", super().get, *args, **options)

    async def head(self, *args: Any, **options: Any) -> Any:
        return await self._passed("HEAD", super().head, *args, **options)

    async def put(self, *args: Any, **options: Any) -> Any:
        return await self._passed("PUT", super().put, *args, **options)

    async def delete(self, *args: Any, **options: Any) -> Any:
        return await self._passed("DELETE", super().delete, *args, **options)

    async def _passed(self, operation: str, request: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        self.requests.append(operation)
        answer = next(self.answers, None)
        return await (answer(operation, lambda: request(*args, **options)) if answer else request(*args, **options))


async def done(_: str, request: Callable[[], Awaitable[Any]]) -> Any:
    return await request()


async def lost_after(_: str, request: Callable[[], Awaitable[Any]]) -> Any:
    await request()
    raise NoResponse("lost")


async def lost_before(_: str, request: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG001
    raise NoResponse("lost")


async def throttled(_: str, request: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG001
    raise NoResponse("SlowDown", sent=False, wait=0.5)


def refused(lost: Answer) -> Answer:
    """A server's error before or after the check of the precondition, which a create fails in both cases."""

    async def answer(operation: str, request: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await lost(operation, request)
        except PreconditionFailed:
            raise NoResponse("InternalError") from None

    return answer


def never(*operations: str) -> Iterator[Answer]:
    """Never answer the given operations."""

    async def answer(operation: str, request: Callable[[], Awaitable[Any]]) -> Any:
        return await (lost_before if operation in operations else done)(operation, request)

    while True:
        yield answer


def then(*steps: Answer | Callable[[], Awaitable[object]]) -> Iterator[Answer]:
    """Answers to successive requests; other writers' actions between two answers run before the later one."""
    before: list[Callable[[], Awaitable[object]]] = []
    for step in steps:
        if step in (done, lost_after, lost_before, throttled) or step.__name__ == "answer":
            yield _after(list(before), cast(Answer, step))
            before.clear()
        else:
            before.append(step)  # type: ignore[arg-type]


def _after(before: list[Callable[[], Awaitable[object]]], answer: Answer) -> Answer:
    async def both(operation: str, request: Callable[[], Awaitable[Any]]) -> Any:
        for other in before:
            await other()
        return await answer(operation, request)

    return both


class Scene:
    """A store with several writers, each like a separate process."""

    def __init__(self) -> None:
        self.store = SimulatedStore()

    def writer(self, **options: Any) -> tuple[ObjectStoreBackend, Scripted]:
        client = Scripted(self.store, **options)
        return ObjectStoreBackend(client, writer=Writer(), jitter=Random(1).random), client

    @property
    def text(self) -> bytes:
        return self.store.objects[KEY.storage].data

    def play(self, play: Callable[[], Awaitable[T]], seconds: float = 30.0) -> T:
        async def in_time() -> T:
            with deadline_scope(Deadline(seconds, asyncio.get_running_loop().time() + seconds)):
                return await play()

        return VirtualLoop().run(in_time())  # type: ignore[abstract]  # the missing methods are never called


def test_a_create_whose_answer_is_lost_is_recognised_as_its_own() -> None:
    scene = Scene()
    one, client = scene.writer()
    client.answers = then(lost_after)
    scene.play(lambda: one.write(Key.tree().join("log.md"), b"mine\n", ABSENT))
    assert scene.text == b"mine\n"
    assert client.requests == ["PUT", "PUT", "HEAD"]


@pytest.mark.parametrize(
    ("others", "end"),
    [
        pytest.param(lambda two: two.append(KEY, b"other\n"), b"base\nmine\nother\n", id="appended to: there once"),
        pytest.param(lambda two: two.write(KEY, b"new\n"), b"new\nmine\n", id="overwritten: sent again"),
    ],
)
def test_an_append_whose_answer_is_lost_is_stored_once(
    others: Callable[[ObjectStoreBackend], Awaitable[object]], end: bytes
) -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.append(KEY, b"base\n")
        client.answers = then(done, lost_after, lambda: others(two), done)
        await one.append(KEY, b"mine\n")

    scene.play(play)
    assert scene.text == end


def test_a_conditional_write_that_may_have_been_overwritten_is_unknown() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"base\n")
        etag = (await one.read(KEY)).etag
        client.answers = then(lost_after, lambda: two.write(KEY, b"new\n"), done)
        await one.write(KEY, b"mine\n", etag)

    with pytest.raises(OutcomeUnknownError, match="could not be found out"):
        scene.play(play)


def test_a_repeated_write_is_not_mistaken_for_the_write_that_it_overwrote() -> None:
    """Each request of an unconditional write begins a new chain: a repetition overwrites changes in between."""
    scene = Scene()
    (one, first), (two, second), (three, _) = scene.writer(), scene.writer(), scene.writer()

    async def swap() -> None:
        etag = (await two.read(KEY)).etag
        second.answers = then(lost_after)
        await two.write(KEY, b"swapped\n", etag)

    async def play() -> None:
        swapping: asyncio.Future[None] | None = None

        async def in_between() -> None:
            nonlocal swapping
            await three.append(KEY, b"three\n")
            swapping = asyncio.ensure_future(swap())
            await asyncio.sleep(0.2)  # applied with a lost answer; waits for its retry

        first.answers = then(lost_after, in_between, done)
        second.requests.clear()
        await one.write(KEY, b"one\n")
        assert swapping
        await swapping

    try:
        scene.play(play)
    except ConflictError:
        assert b"swapped\n" not in scene.store.ever, "a change that happened was told as none"
    except OutcomeUnknownError:
        pass


def test_an_append_that_only_sent_reads_is_not_of_unknown_outcome() -> None:
    scene = Scene()
    one, client = scene.writer()
    client.answers = never("GET")
    with pytest.raises(AppendError, match="gave up after"):
        scene.play(lambda: one.append(KEY, b"mine\n"), 5)
    assert set(client.requests) == {"GET"}


def test_a_throttled_write_is_reported_as_not_done() -> None:
    scene = Scene()
    one, client = scene.writer()
    client.answers = iter([throttled] * 1000)
    with pytest.raises(WriteError, match="SlowDown"):
        scene.play(lambda: one.write(KEY, b"mine\n"), 5)


def test_a_refused_create_raises_already_exists_even_if_the_next_answer_is_lost() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"theirs\n")
        client.answers = then(done, lost_before, done)
        await one.write(KEY, b"mine\n", ABSENT)

    with pytest.raises(FileAlreadyExistsError):
        scene.play(play)
    assert client.requests == ["PUT", "HEAD", "HEAD"]


def test_a_create_over_an_old_file_raises_already_exists_even_if_an_answer_is_lost() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"theirs\n")
        await asyncio.sleep(1000)
        await two.append(KEY, b"just now\n")
        with deadline_scope(Deadline(30, asyncio.get_running_loop().time() + 30)):
            client.answers = then(lost_before, done, done)
            await one.write(KEY, b"mine\n", ABSENT)

    with pytest.raises(FileAlreadyExistsError):
        scene.play(play, 2000)


@pytest.mark.parametrize("lost", [lost_before, lost_after], ids=["before", "after"])
@pytest.mark.parametrize("seconds", [3, 4])
def test_a_create_over_a_recent_file_raises_already_exists_even_if_an_answer_is_lost(
    seconds: int, lost: Answer
) -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(slow=-1.0), scene.writer()

    async def play() -> None:
        await asyncio.sleep(1.9)
        await two.write(KEY, b"theirs\n")
        await asyncio.sleep(seconds)
        client.answers = then(refused(lost), done, done)
        await one.write(KEY, b"mine\n", ABSENT)

    with pytest.raises(FileAlreadyExistsError):
        scene.play(play)


def test_a_throttled_create_is_judged_by_the_time_of_its_first_effective_request() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        client.answers = then(throttled, throttled, throttled, throttled, throttled, throttled, lost_before, done, done)
        creating = asyncio.ensure_future(one.write(KEY, b"mine\n", ABSENT))
        await two.write(KEY, b"theirs\n")
        await creating

    with pytest.raises(FileAlreadyExistsError):
        scene.play(play)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("slow", [-1.0, 0.0, 1.0])
def test_a_create_that_may_have_been_overwritten_is_unknown_for_any_clock_skew(seconds: float, slow: float) -> None:
    """The create took effect; the file that it finds was written later, but within the clock's resolution of 1 s."""
    scene = Scene()
    (one, client), (two, _) = scene.writer(slow=slow), scene.writer()

    async def play() -> None:
        await asyncio.sleep(seconds)
        client.answers = then(lost_after, lambda: two.write(KEY, b"theirs\n"), done, done)
        await one.write(KEY, b"mine\n", ABSENT)

    with pytest.raises(OutcomeUnknownError, match="could not be found out"):
        scene.play(play)


def test_a_write_is_unknown_if_its_file_was_deleted_and_a_create_arrived_late() -> None:
    """The new file's chain tells when its request was sent, which was before the write, not when it arrived."""
    scene = Scene()
    (one, client), (two, _), (three, late) = scene.writer(), scene.writer(), scene.writer()

    async def play() -> None:
        arrived = asyncio.Event()

        async def answer(_: str, request: Callable[[], Awaitable[Any]]) -> Any:
            await arrived.wait()
            return await request()

        late.answers = iter([answer])
        creating = asyncio.ensure_future(three.write(KEY, b"late\n", ABSENT))
        await two.write(KEY, b"base\n")
        await asyncio.sleep(10)
        etag = (await one.read(KEY)).etag

        async def in_between() -> None:
            await two.delete(KEY)
            arrived.set()
            await creating

        client.answers = then(lost_after, in_between, done)
        await one.write(KEY, b"mine\n", etag)

    with pytest.raises(OutcomeUnknownError, match="could not be found out"):
        scene.play(play)


async def _repeated_create(
    scene: Scene, one: ObjectStoreBackend, two: ObjectStoreBackend
) -> tuple[ETag, Callable[[], Awaitable[None]]]:
    """An etag after an append; and a deletion of the file, after which the network repeats its create."""
    await two.write(KEY, b"base\n", ABSENT)
    created = scene.store.objects[KEY.storage]
    await one.append(KEY, b"more\n")

    async def in_between() -> None:
        if KEY.storage in scene.store.objects:
            await two.delete(KEY)
        scene.store.put(KEY.storage, created.data, created.metadata, None, absent=True)

    return (await one.read(KEY)).etag, in_between


def test_a_write_is_unknown_if_its_file_was_deleted_and_a_repeated_create_arrived() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        etag, in_between = await _repeated_create(scene, one, two)
        client.answers = then(lost_after, in_between, done)
        await one.write(KEY, b"mine\n", etag)

    with pytest.raises(OutcomeUnknownError, match="could not be found out"):
        scene.play(play)


def test_a_delete_is_unknown_if_a_repeated_create_arrived_afterwards() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        etag, in_between = await _repeated_create(scene, one, two)
        client.answers = then(lost_after, in_between, done)
        await one.delete(KEY, etag)

    with pytest.raises(OutcomeUnknownError, match="a new one since the deletion"):
        scene.play(play)
    assert scene.text == b"base\n"


@pytest.mark.parametrize("fate", [lost_before, lost_after], ids=["lost before", "lost after"])
@pytest.mark.parametrize("content", [b"secret\n", b"new\n"], ids=["the same content", "another content"])
@pytest.mark.parametrize("way", ["overwritten", "created again", "swapped"])
@pytest.mark.parametrize("seconds", [3600, 0], ids=["an hour ago", "now"])
def test_a_delete_without_an_answer_is_not_done_if_its_state_ended_before(
    fate: Answer, content: bytes, way: str, seconds: int
) -> None:
    """The etag comes from a read, so its chain is known; the deletion itself has not read the object."""
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"secret\n")
        etag = (await one.read(KEY)).etag
        await asyncio.sleep(10)
        if way == "created again":
            await two.delete(KEY)
        await two.write(KEY, content, (await two.read(KEY)).etag if way == "swapped" else ANY)
        await asyncio.sleep(seconds)
        client.answers = then(fate, done, done, done)
        try:
            await one.delete(KEY, etag)
        except (ConflictError, OutcomeUnknownError):
            assert scene.text == content
        else:
            assert KEY.storage not in scene.store.objects

    scene.play(play)


@pytest.mark.parametrize("content", [b"more\n", b"another\n"], ids=["the same content", "another content"])
def test_a_delete_on_an_etag_of_a_listing_whose_answer_is_lost_deletes_no_new_file(content: bytes) -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"more\n")
        (listed,) = (await one.list(Key.tree())).entries

        async def create_again() -> None:
            await two.write(KEY, content, ABSENT)

        client.answers = then(lost_after, create_again, done)
        assert listed.etag
        await one.delete(KEY, listed.etag)

    with pytest.raises(OutcomeUnknownError, match="a new one since the deletion"):
        scene.play(play)
    assert scene.text == content


def test_a_delete_on_an_etag_of_a_listing_is_sent_again_if_it_was_lost_before_an_old_file() -> None:
    scene = Scene()
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.write(KEY, b"old\n")
        (listed,) = (await one.list(Key.tree())).entries
        await asyncio.sleep(60)
        client.answers = then(lost_before, done, done)
        assert listed.etag
        await one.delete(KEY, listed.etag)

    scene.play(play, 300)
    assert KEY.storage not in scene.store.objects


def test_a_delete_whose_answer_is_lost_is_done() -> None:
    scene = Scene()
    one, client = scene.writer()

    async def play() -> None:
        await one.write(KEY, b"mine\n")
        client.requests.clear()
        client.answers = then(done, lost_after, done)
        await one.delete(KEY)

    scene.play(play)
    assert scene.store.objects == {}
    assert client.requests == ["HEAD", "DELETE", "HEAD"]


def test_a_delete_that_may_still_be_in_progress_is_unknown() -> None:
    scene = Scene()
    one, client = scene.writer()

    async def play() -> None:
        await one.write(KEY, b"mine\n")
        client.answers = never("DELETE")
        await one.delete(KEY)

    with pytest.raises(OutcomeUnknownError):
        scene.play(play, 5)


def test_a_cached_version_does_not_refuse_an_append_that_fits() -> None:
    scene = Scene()
    (one, _), (two, _) = scene.writer(), scene.writer()
    one.max_bytes = 10

    async def play() -> None:
        await one.append(KEY, b"12345678")
        await two.write(KEY, b"")
        await one.append(KEY, b"123456")
        with pytest.raises(FileTooLargeError):
            await one.append(KEY, b"123456")

    scene.play(play)
    assert scene.text == b"123456"


def test_a_full_write_log_waits_until_the_oldest_writer_is_done() -> None:
    scene = Scene()

    async def play() -> None:
        for _ in range(200):
            backend, _client = scene.writer()
            with deadline_scope(Deadline(60, asyncio.get_running_loop().time() + 60)):
                await backend.append(KEY, b"x")
            await asyncio.sleep(0.2)  # the rate at which a shell starts processes

    scene.play(play)
    assert scene.text == b"x" * 200


def test_the_metadata_never_exceed_their_byte_limit() -> None:
    log = WriteLog.new(1.7e9)
    longer: WriteLog | None = log
    count = 0
    while longer := log.with_record(WriteRecord(WriteId(f"{count:08x}", 1, "0" * 8), 1_700_000_100), 1.7e9):
        log, count = longer, count + 1
        (name, value), *others = log.metadata.items()
        assert not others
        assert len(name) + len(value) <= MOST_BYTES
        assert WriteLog.of(log.metadata, "") == log
    assert count >= 60
    assert log.with_record(WriteRecord(WriteId("f" * 8, 1, "0" * 8), 1_700_000_200), 1_700_000_100.5)
