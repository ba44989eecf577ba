"""A connection that is reset after a write took effect: the write is recognised and done once."""

from __future__ import annotations

import pytest

from agent_memory import AgentMemory, FileAlreadyExistsError
from tests.object_store.proxy import Chooser, Fault, Proxy
from tests.support.servers import S3Server, by_both_engines


def once(operation: str, fault: Fault) -> Chooser:
    """A chooser that gives the fault only to the first request of an operation."""
    left: list[Fault] = [fault]

    def choose(each: str) -> Fault | None:
        return left.pop() if left and each == operation else None

    return choose


@by_both_engines
def test_a_write_whose_connection_is_reset_is_done_once(ministack: S3Server, engine: str) -> None:
    server = ministack.by(engine)
    with Proxy(server.endpoint) as proxy:
        with AgentMemory.open(server.new_url(), storage_options=server.through(proxy)) as memory:
            memory.write("log.md", "one\n")
            proxy.choose = once("PUT", "reset after it was done")
            memory.append("log.md", "two\n")
            assert memory.read("log.md") == "one\ntwo\n"
            proxy.choose = once("PUT", "reset after it was done")
            memory.create("new.md", "x")
            with pytest.raises(FileAlreadyExistsError):
                memory.create("new.md", "y")
            proxy.choose = once("DELETE", "reset after it was done")
            memory.delete("new.md")
