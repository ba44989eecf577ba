"""Versions on S3: killed before every request, and with every answer lost, the chain of a file stays consistent."""

from __future__ import annotations

from contextlib import closing

import pytest

from agent_memory import AgentMemory, AgentMemoryError, OutcomeUnknownError, VersionLimits
from agent_memory.core.versions.origin import Origin
from tests.faults.operations import Operation
from tests.faults.versioned_operations import VERSIONED, contents, wrong_versions
from tests.object_store.killing import Killed
from tests.object_store.proxy import Fault, Proxy
from tests.support.servers import Root, S3Server

pytestmark = pytest.mark.usefixtures("trusted")
versioned = pytest.mark.parametrize("operation", VERSIONED.values(), ids=VERSIONED)


def run_named(memory: AgentMemory, name: str) -> object:
    return VERSIONED[name].run(memory)


def prepared(server: S3Server, operation: Operation) -> tuple[Root, AgentMemory]:
    root = Root(server.new_url(), server.options)
    memory = AgentMemory.open(root.url, storage_options=root.options, versions=VersionLimits())
    assert operation.prepare
    operation.prepare(memory)
    return root, memory


def wrong_files(memory: AgentMemory, operation: Operation, *, is_done: bool) -> list[str]:
    """Whether the files are neither those before the operation nor those after it.

    A rename copies each file and deletes it under the old name, so it may stop with both names.
    """
    found = {entry.path: memory.read(entry.path) for entry in memory.list() if entry.path != "ready"}
    allowed = [operation.after] if is_done else list(operation.allowed)
    if found in allowed:
        return []
    if operation.name.startswith("rename") and not is_done:
        every = {**operation.start, **operation.after}
        texts = sorted(set(found.values())) == sorted(set(operation.start.values()))
        return [] if texts and all(every.get(name) == text for name, text in found.items()) else [f"{list(found)}"]
    return [f"neither old nor new: {list(found)}"]


def wrong(memory: AgentMemory, operation: Operation, *, is_done: bool) -> list[str]:
    faults = wrong_files(memory, operation, is_done=is_done)
    if operation.name.startswith("rename") and not is_done:
        faults += [
            f"versions of {path}"
            for path, allowed in operation.kept.items()
            if contents(memory, path) not in (*allowed, *(state[:1] for state in allowed))
        ]
        return faults
    return faults + wrong_versions(memory, operation, is_done=is_done)


@pytest.mark.long
@versioned
def test_a_process_killed_before_any_request_leaves_each_state_once(ministack: S3Server, operation: Operation) -> None:
    at, is_done = 0, False
    with Proxy(ministack.endpoint) as proxy:
        while not is_done:
            at += 1
            root, memory = prepared(ministack, operation)
            with memory:
                killed = Killed(proxy, Root(root.url, ministack.through(proxy)), run_named, operation.name, at)
                is_done = killed.is_done
                assert wrong(memory, operation, is_done=is_done) == [], f"before request {at}"
                assert works_again(memory, operation) == [], f"after a kill before request {at}"
    assert at > 2


def works_again(memory: AgentMemory, operation: Operation) -> list[str]:
    """Make the call again, then a change of each file."""
    try:
        operation.run(memory)
    except AgentMemoryError as error:
        if isinstance(error, OutcomeUnknownError):
            return [repr(error)]
    for entry in memory.list():
        before = contents(memory, entry.path)
        memory.write(entry.path, "later")
        if contents(memory, entry.path) != (*before, "later"):
            return [f"a later write of {entry.path} has another chain"]
    return []


@pytest.mark.long
@versioned
@pytest.mark.parametrize("fault", ["reply lost", "500 after it was done"])
def test_a_lost_answer_to_any_request_leaves_each_state_once(
    ministack: S3Server, operation: Operation, fault: Fault
) -> None:
    with Proxy(ministack.endpoint) as proxy:
        at, seen = 0, 1
        while seen > at - 1:
            at += 1
            root, memory = prepared(ministack, operation)
            options = ministack.through(proxy)
            with memory, AgentMemory.open(root.url, storage_options=options) as caller:
                caller.append("ready", "x")
                seen = 0

                def choose(_: str, at: int = at) -> Fault | None:
                    nonlocal seen
                    seen += 1
                    return fault if seen == at else None

                proxy.choose = choose
                is_done = True
                try:
                    operation.run(caller)
                except OutcomeUnknownError:
                    is_done = False
                proxy.choose = lambda _: None
                assert wrong(memory, operation, is_done=is_done) == [], f"the answer to request {at}"
                assert works_again(memory, operation) == [], f"after the answer to request {at} was lost"
        assert at > 2


def test_a_create_that_is_sent_again_after_a_deletion_makes_another_state(ministack: S3Server) -> None:
    url = ministack.new_url()
    name = f"{url.removeprefix('s3://memories/')}/file"
    first: list[str] = []
    with Proxy(ministack.endpoint) as proxy, closing(ministack.client("s3")) as s3:
        memory = AgentMemory.open(url, storage_options=ministack.through(proxy), versions=VersionLimits())
        memory.write("ready", "x")

        sent = 0

        def choose(operation: str) -> Fault | None:
            """Lose the answer to the first PUT, and delete the object before the second one."""
            nonlocal sent
            sent += operation == "PUT"
            if operation != "PUT" or sent == 1:
                return "reply lost" if operation == "PUT" else None
            first.append(s3.head_object(Bucket="memories", Key=name)["Metadata"]["agent-memory-origin"])
            s3.delete_object(Bucket="memories", Key=name)
            return None

        proxy.choose = choose
        memory.create("file", "one")
        proxy.choose = lambda _: None
        (found,) = memory.versions.list("file")
    (deleted,) = map(Origin.parse, first)
    assert deleted
    assert deleted.by
    assert found.made_by
    assert deleted.by.facts[:3] == found.made_by.facts[:3]
    assert deleted.id != found.id
