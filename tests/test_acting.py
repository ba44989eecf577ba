"""Who acts, as told for a piece of code: where it holds, where it does not, and what it gives way to."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemoryService,
    InvalidPathError,
    Operation,
    Outcome,
    acting_as,
    hookimpl,
)


class Actors:
    """Remembers who acted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str | None]] = []

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:  # noqa: ARG002 - the hook's
        self.seen.append((operation.actor, operation.tool_call_id))

    @hookimpl
    def agent_memory_key_rejected(self, actor: str | None) -> None:
        self.seen.append((actor, "refused"))


def test_it_holds_inside_and_the_innermost_counts() -> None:
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


def test_a_bound_view_says_so_in_any_context() -> None:
    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors]) as memory, acting_as("context"):
        view = memory.acting_as("view", "call-2")
        view.list()
        view.subtree("d").read_only().list()
        memory.acting_as(None).list()
    assert actors.seen == [("view", "call-2"), ("view", "call-2"), (None, None)]


def test_refused_names_are_told_by_it_too() -> None:
    actors = Actors()
    with AgentMemoryService("memory://", plugins=[actors]) as service, acting_as("model"):
        for call in (lambda: service.agent("../a"), lambda: service.agent("bob").read("../a")):
            with pytest.raises(InvalidPathError):
                call()
        with pytest.raises(InvalidPathError):
            service.agent("bob").subtree("../a")
    assert actors.seen == [("model", "refused")] * 3


def test_another_thread_has_a_context_of_its_own() -> None:
    actors = Actors()
    with AgentMemory.open("memory://", plugins=[actors], actor="ops") as memory, acting_as("model"):
        for work in (memory.list, memory.acting_as("model").list):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert actors.seen == [("ops", None), ("model", None)]


@pytest.mark.asyncio
@pytest.mark.parametrize("url", ["memory://", "s3"])
async def test_tasks_and_threads_of_the_loop_keep_it_apart(url: str, request: pytest.FixtureRequest) -> None:
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
