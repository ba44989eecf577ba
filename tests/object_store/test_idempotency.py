"""Calls with an idempotency key on S3: killed before every request, and repeated behind a network that fails."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from agent_memory import AgentMemory, AgentMemoryService, FileOperationError, OutcomeUnknownError
from tests.object_store.killing import Killed
from tests.object_store.proxy import Proxy, at_random
from tests.object_store.test_faulty_network import FAULTS, SHARE
from tests.support.processes import in_processes
from tests.support.servers import Root, S3Server, by_both_engines

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the workers are other processes

pytestmark = pytest.mark.long
OLD = "old\n"
CALLS: dict[str, tuple[Callable[[AgentMemory], object], str | None]] = {
    "append": (lambda m: m.once("k").append("file", "line\n"), "old\nline\n"),
    "write": (lambda m: m.once("k").write("file", "new\n"), "new\n"),
    "edit": (lambda m: m.once("k").edit("file", lambda text: text + "+\n"), "old\n+\n"),
    "create": (lambda m: m.once("k").create("new", "new\n"), OLD),
    "delete": (lambda m: m.once("k").delete("file"), None),
}


def made(memory: AgentMemory, name: str) -> object:
    return CALLS[name][0](memory)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_killed_before_any_request_is_made_once_or_its_end_is_unknown(ministack: S3Server, name: str) -> None:
    call, after = CALLS[name]
    ends: list[str] = []
    with Proxy(ministack.endpoint) as proxy:
        seconds = 2.0
        while not ends or ends[-1] != "done":
            at = len(ends) + 1
            url = ministack.new_url()
            with AgentMemory.open(url, storage_options=ministack.options) as memory:
                memory.write("file", OLD)
                killed = Killed(proxy, Root(url, ministack.through(proxy)), made, name, at)
                before = content(memory)
                try:
                    call(memory.with_timeout(seconds))
                except OutcomeUnknownError:
                    assert content(memory) == before in (OLD, after)
                    ends.append("unknown")
                except FileOperationError:  # a busy machine needs more time
                    assert seconds < 60
                    seconds *= 4
                else:
                    assert content(memory) == after
                    ends.append("done" if killed.is_done else "repeated")
    assert ends[0] == "repeated", "killed before its first request, the call is made by the other process"
    assert "unknown" in ends
    assert ends[-1] == "done"


def content(memory: AgentMemory) -> str | None:
    return memory.read("file") if memory.exists("file") else None


def repeat_all(number: int, _: object, root: Root, calls: int) -> list[tuple[object, ...]]:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        memory = service.agent("team")
        order = range(calls) if number % 2 else reversed(range(calls))
        results = [memory.once(f"{call}").append("log.txt", f"{call}\n") for call in order]
        return sorted((result.path, result.size, result.sha256) for result in results)


@by_both_engines
@pytest.mark.parametrize(("processes", "calls"), [(3, 8), (8, 50)])
def test_calls_that_many_processes_repeat_on_a_network_that_fails_are_made_once(
    ministack: S3Server, engine: str, processes: int, calls: int
) -> None:
    url = ministack.new_url()
    with Proxy(ministack.endpoint) as proxy:
        proxy.choose = at_random(SHARE, 1, FAULTS)
        results = in_processes(processes, repeat_all, Root(url, ministack.by(engine).through(proxy)), calls)
    with AgentMemoryService(url, storage_options=ministack.options) as service:
        lines = service.read_memory_file("team", "log.txt").splitlines()
    assert Counter(lines) == Counter(f"{call}" for call in range(calls))
    assert results == [results[0]] * processes
