"""``acting_as`` sets the actor for a block of code: its scope, and what takes precedence over it."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable
from uuid import UUID

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    InvalidPathError,
    Operation,
    Outcome,
    acting_as,
    hookimpl,
)


class Actors:
    """A plugin that records the actor of each operation."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str | None]] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        self.seen.append((operation.actor, operation.tool_call_id))

    @hookimpl
    def agent_memory_key_rejected(self, actor: str | None) -> None:
        self.seen.append((actor, "refused"))


def test_acting_as_applies_inside_its_block_and_the_innermost_block_wins() -> None:
    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors], actor="ops") as memory:
        memory.list()
        with acting_as("outer", "call-1"):
            memory.list()
            with acting_as("inner"):
                memory.subtree("d").list()
            memory.list()
        memory.list()
    outer = ("outer", "call-1")
    assert actors.seen == [("ops", None), outer, ("inner", None), outer, ("ops", None)]


def test_a_view_with_its_own_actor_ignores_the_context() -> None:
    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors]) as memory, acting_as("context"):
        view = memory.acting_as("view", "call-2")
        view.list()
        view.subtree("d").read_only().list()
        memory.acting_as(None).list()
    assert actors.seen == [("view", "call-2"), ("view", "call-2"), (None, None)]


def test_refused_names_are_reported_with_the_actor_too() -> None:
    actors = Actors()
    with AgentMemoryService("memory://", plugins=[actors]) as service, acting_as("model"):
        for call in (lambda: service.agent("../a"), lambda: service.agent("bob").read("../a")):
            with pytest.raises(InvalidPathError):
                call()
        with pytest.raises(InvalidPathError):
            service.agent("bob").subtree("../a")
    assert actors.seen == [("model", "refused")] * 3


def test_another_thread_does_not_inherit_the_actor() -> None:
    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors], actor="ops") as memory, acting_as("model"):
        for work in (memory.list, memory.acting_as("model").list):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert actors.seen == [("ops", None), ("model", None)]


@pytest.mark.asyncio
@pytest.mark.parametrize("url", ["memory://", "s3"])
async def test_concurrent_tasks_and_their_threads_keep_their_own_actors(
    url: str, request: pytest.FixtureRequest
) -> None:
    actors = Actors()
    options = {}
    if url == "s3":
        server = request.getfixturevalue("ministack")
        url, options = server.new_url(), server.options
    async with AsyncAgentMemoryService(url, storage_options=options, plugins=[actors]) as service:

        async def act(name: str) -> None:
            with acting_as(name):
                await service.agent("bob").list()
                await asyncio.gather(service.agent("bob").list(), asyncio.create_task(service.agent("bob").list()))
                await asyncio.to_thread(AgentMemory.open("memory://", plugins=[actors]).list)

        await asyncio.gather(act("one"), act("two"))
    assert sorted(actors.seen, key=str) == [("one", None)] * 4 + [("two", None)] * 4


DOORS: dict[str, Callable[[object], object]] = {
    "acting_as": lambda value: acting_as(value).__enter__(),  # type: ignore[arg-type]
    "acting_as, tool_call_id": lambda value: acting_as("a", value).__enter__(),  # type: ignore[arg-type]
    "a view": lambda value: AgentMemory.open("memory://").acting_as(value),  # type: ignore[arg-type]
    "a view, tool_call_id": lambda value: AgentMemory.open("memory://").acting_as("a", value),  # type: ignore[arg-type]
    "an async view": lambda value: AsyncAgentMemory.open("memory://").acting_as(value),  # type: ignore[arg-type]
    "open": lambda value: AgentMemory.open("memory://", actor=value),  # type: ignore[arg-type]
    "open, async": lambda value: AsyncAgentMemory.open("memory://", actor=value),  # type: ignore[arg-type]
    "a service": lambda value: AgentMemoryService("memory://", actor=value),  # type: ignore[arg-type]
    "an async service": lambda value: AsyncAgentMemoryService("memory://", actor=value),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("value", [42, 0, b"", b"job", True, UUID(int=1), ["a"]], ids=repr)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_an_actor_that_is_not_a_str_is_refused_where_it_is_given(
    door: Callable[[object], object], value: object
) -> None:
    with pytest.raises(TypeError, match=rf"must be a str or None, not {type(value).__name__}"):
        door(value)


def test_a_member_of_a_str_enumeration_acts_under_its_value() -> None:
    class Actor(str, enum.Enum):  # noqa: UP042  # StrEnum formats as its value and would hide the error
        JOB = "job"

    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors], actor=Actor.JOB) as memory:
        memory.list()
    ((actor, _),) = actors.seen
    assert f"actor={actor}" == "actor=job"
