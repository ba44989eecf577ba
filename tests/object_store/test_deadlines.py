"""Deadlines of a shared look-up: each waiting operation keeps its own deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain

import pytest

from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline
from agent_memory.errors import FileOperationError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.object_store.retry import Attempts, OutOfTimeError
from tests.object_store.test_settling import Scene, Scripted, done, lost_after, never, then
from tests.simulation.loop import VirtualLoop


class Untrusted(Scripted):
    async def is_trusted(self) -> bool:
        return False


@pytest.mark.parametrize(("in_flight", "races"), [(0.9, True), (1.1, False)])
def test_a_request_that_the_deadline_ends_at_once_does_not_hide_the_lost_races(in_flight: float, races: bool) -> None:
    async def play() -> OutOfTimeError:
        loop = asyncio.get_running_loop()
        with deadline_scope(Deadline(5.0, loop.time() + 5.0)):
            attempts = Attempts(lambda: 1.0, "the store")
            await attempts.back_off_after_race()
            await asyncio.sleep(attempts.seconds_left - in_flight)
            with pytest.raises(OutOfTimeError) as ended:
                await attempts.until_answered(lambda: asyncio.sleep(60))
        return ended.value

    error = VirtualLoop().run(play())  # type: ignore[abstract]  # the missing methods are never called
    assert error.races is races
    assert ("1 lost races" if races else "no answer in time") in str(error)


Change = Callable[[ObjectStoreBackend, Key], Awaitable[object]]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param(Scripted, lambda backend, key: backend.write(key, b"x"), id="what is in the directory"),
        pytest.param(Untrusted, lambda backend, key: backend.append(key, b"x"), id="whether preconditions are kept"),
    ],
)
def test_a_later_caller_with_a_shorter_deadline_fails_at_its_own_deadline(kind: type[Scripted], change: Change) -> None:
    scene = Scene()
    client = kind(scene.store)
    backend = ObjectStoreBackend(client)
    client.answers = never("HEAD", "PUT")

    async def ended_after(key: Key, seconds: float) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with deadline_scope(Deadline(seconds, began + seconds)), pytest.raises(FileOperationError):
            await change(backend, key)
        return loop.time() - began

    async def both() -> tuple[float, float]:
        return await asyncio.gather(
            ended_after(Key.tree().join("d/one.md"), 20.0), ended_after(Key.tree().join("d/other.md"), 2.0)
        )

    long, short = scene.play(both)
    assert short <= 2.0 < long <= 20.0


def test_an_append_is_unknown_if_neither_its_answer_nor_its_directory_is_known() -> None:
    scene, key = Scene(), Key.tree().join("d/log.md")
    (one, client), (two, _) = scene.writer(), scene.writer()

    async def play() -> None:
        await two.append(key, b"base\n")
        client.answers = chain(then(done, lost_after, lambda: two.delete(key), done, done), never("HEAD"))
        await one.append(key, b"mine\n")

    with pytest.raises(OutcomeUnknownError, match="could not be found out"):
        scene.play(play)
