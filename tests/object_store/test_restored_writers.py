"""Writers that were restored from one image of a process recognise their own writes, and no others."""

from __future__ import annotations

import asyncio

import pytest

from agent_memory import AgentMemory, AgentMemoryService
from agent_memory.backend import ABSENT, ETag, _deadline
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.errors import AgentMemoryError, FileAlreadyExistsError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.object_store import write_log as write_log_module
from agent_memory.object_store.write_log import WriteLog
from tests.object_store.proxy import Proxy
from tests.object_store.test_settling import KEY, Scene, Scripted, done, lost_after, then
from tests.simulation.clones import restored
from tests.simulation.network import EPOCH
from tests.support.servers import S3Server, by_both_engines


class Clones(Scene):
    """A store, and writers restored from one image."""

    def __init__(self) -> None:
        super().__init__()
        self.image, _ = self.writer()

    def clone(self) -> tuple[ObjectStoreBackend, Scripted]:
        client = Scripted(self.store)
        return restored(self.image, client), client

    @property
    def log(self) -> WriteLog:
        found = self.store.objects[KEY.storage]
        return WriteLog.of(found.metadata, found.etag)

    @property
    def slots(self) -> list[str]:
        return [record.id.slot for record in self.log.records]


def test_one_of_two_clones_creates_a_file() -> None:
    scene = Clones()
    (one, _), (two, _) = scene.clone(), scene.clone()
    scene.play(lambda: one.write(KEY, b"one\n", ABSENT))
    with pytest.raises(FileAlreadyExistsError):
        scene.play(lambda: two.write(KEY, b"two\n", ABSENT))
    assert scene.text == b"one\n"


def test_the_appends_of_clones_are_all_stored() -> None:
    scene = Clones()
    clones = [scene.clone()[0] for _ in range(4)]

    async def play() -> None:
        await asyncio.gather(*(each(clone, number) for number, clone in enumerate(clones)))

    async def each(clone: ObjectStoreBackend, number: int) -> None:
        for line in range(25):
            await clone.append(KEY, b"%d:%d\n" % (number, line))

    scene.play(play, 600)
    assert sorted(scene.text.split()) == sorted(b"%d:%d" % (n, line) for n in range(4) for line in range(25))


def test_a_clone_that_meets_a_record_of_another_one_takes_a_slot_of_its_own() -> None:
    scene = Clones()
    scene.play(lambda: scene.image.append(KEY, b"image\n"))
    (one, _), (two, _) = scene.clone(), scene.clone()
    scene.play(lambda: one.append(KEY, b"one\n"))
    scene.play(lambda: two.append(KEY, b"two\n"))
    assert len(scene.slots) == 2
    assert len(set(scene.slots)) == 1, "the record of the other clone stays in the common slot"
    scene.play(lambda: two.append(KEY, b"two\n"))
    scene.play(lambda: one.append(KEY, b"one\n"))
    scene.play(lambda: one.append(KEY, b"one\n"))
    assert len(set(scene.slots)) >= 2
    before = scene.slots
    for _ in range(100):
        scene.play(lambda: two.append(KEY, b"two\n"))
    assert len(scene.slots) <= len(before) + 1, "a writer with a slot of its own replaces its records"


def test_many_appends_of_one_process_leave_one_record() -> None:
    scene = Scene()
    one, _ = scene.writer()

    async def play() -> None:
        for number in range(400):
            await one.append(KEY, b"x")
            if number % 2:  # a write that changes nothing, in between
                with pytest.raises(AgentMemoryError):
                    await one.write(KEY, b"x", ETag('"another"'))
                with pytest.raises(FileAlreadyExistsError):
                    await one.write(KEY, b"x", ABSENT)

    scene.play(play, 3600)
    assert len(WriteLog.of(scene.store.objects[KEY.storage].metadata, "").records) == 1
    assert scene.text == b"x" * 400


def test_a_finished_write_that_is_forgotten_stays_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_log_module, "MOST_FINISHED", 4)
    scene = Scene()
    one, _ = scene.writer()

    async def play() -> list[int]:
        counts = []
        for _ in range(300):
            for name in (KEY, *(Key.tree().join(f"{other}.md") for other in range(5))):
                with deadline_scope(Deadline(30, asyncio.get_running_loop().time() + 30)):
                    await one.append(name, b"x")
            found = scene.store.objects[KEY.storage]
            counts.append(len(WriteLog.of(found.metadata, "").records))
            await asyncio.sleep(1)
        return counts

    counts = scene.play(play)
    assert max(counts) > 1, "no record is forgotten: the test shows nothing"
    assert max(counts) < 60


def test_a_restored_writer_asks_for_the_time_before_its_first_write() -> None:
    scene = Clones()
    scene.play(lambda: scene.image.append(KEY, b"image\n"))
    clone, client = scene.clone()
    client.wake(86_400.0, is_noticed=True)
    scene.play(lambda: clone.append(KEY, b"clone\n"))
    assert client.requests == ["HEAD", "PUT"]
    assert scene.log.records[-1].until > EPOCH
    scene.play(lambda: clone.append(KEY, b"again\n"))
    assert client.requests == ["HEAD", "PUT", "PUT"]


def test_an_append_whose_record_was_dropped_is_of_unknown_outcome() -> None:
    """The clock of the host is a day behind, and no answer tells it before one is lost."""
    scene = Clones()
    scene.play(lambda: scene.image.append(KEY, b"image\n"))
    (clone, client), (two, _) = scene.clone(), scene.writer()
    client.wake(86_400.0, is_noticed=False)
    client.answers = then(lost_after, lambda: two.append(KEY, b"other\n"), done)
    with pytest.raises(OutcomeUnknownError):
        scene.play(lambda: clone.append(KEY, b"mine\n"))
    assert scene.text == b"image\nmine\nother\n"


def test_a_swap_whose_record_was_dropped_is_of_unknown_outcome() -> None:
    scene = Clones()
    version = scene.play(lambda: scene.image.write(KEY, b"image\n"))
    (clone, client), (two, _) = scene.clone(), scene.writer()
    client.wake(86_400.0, is_noticed=False)
    client.answers = then(lost_after, lambda: two.append(KEY, b"other\n"), done)
    with pytest.raises(OutcomeUnknownError):
        scene.play(lambda: clone.write(KEY, b"mine\n", version))
    assert scene.text == b"mine\nother\n"


@by_both_engines
def test_a_host_whose_clock_was_set_costs_one_request(
    ministack: S3Server, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ministack.by(engine)
    with (
        Proxy(server.endpoint) as proxy,
        AgentMemory.open(server.new_url(), storage_options=server.through(proxy)) as memory,
    ):
        memory.append("log.md", "before\n")
        measured = _deadline._clocks_apart()
        monkeypatch.setattr(_deadline, "_clocks_apart", lambda: measured + 3600)
        with proxy.counting() as requests:
            memory.append("log.md", "after\n")
        assert requests == {"GET": 1, "HEAD": 1, "PUT": 1}  # also the settings of the store
        with proxy.counting() as requests:
            memory.append("log.md", "again\n")
        assert requests == {"PUT": 1}
        with proxy.counting() as requests:
            monkeypatch.setattr(_deadline, "_clocks_apart", lambda: measured)
            memory.create("new.md", "")
            memory.append("new.md", "again\n")
        assert requests["HEAD"] == 1


def test_settings_are_read_again_when_the_hosts_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with AgentMemoryService("memory://restored") as image, AgentMemoryService("memory://restored") as other:
        memory = image.agent("ann")
        memory.write("a.md", "one")
        other.agent("ann").versions.set_limits(VersionLimits())
        measured = _deadline._clocks_apart()
        monkeypatch.setattr(_deadline, "_clocks_apart", lambda: measured + 3600)
        memory.write("a.md", "two")
        assert len(memory.versions.list("a.md")) == 2
