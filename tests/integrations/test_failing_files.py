"""What one file cannot do stops no other file of the same call, in every adapter whose calls take many files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, OperationDenied, PartialOperationError, hookimpl
from agent_memory.hookspecs import Operation, Plugin
from tests.support.servers import Root


class Denying(Plugin):
    """Denies operations on some files, once it is told to."""

    def __init__(self) -> None:
        self.paths: Collection[str] = ()

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.path in self.paths:
            raise OperationDenied("not this file", path=operation.path)


Calls = Callable[[AsyncAgentMemory], Awaitable[Any]]


@pytest.fixture(params=["sync", "async"])
def opened(request: pytest.FixtureRequest, root: Root) -> tuple[Any, Denying, Callable[[Any], Any]]:
    denying = Denying()
    kind: Any = AgentMemory if request.param == "sync" else AsyncAgentMemory
    memory = kind.open(root.url, storage_options=root.options, plugins=[denying])

    def run(result: Any) -> Any:
        return asyncio.run(result) if asyncio.iscoroutine(result) or hasattr(result, "__await__") else result

    return memory, denying, run


def test_many_reads_name_all_files_that_failed(opened: Any) -> None:
    memory, denying, run = opened
    for name in "abcd":
        run(memory.write(name, name))
    assert run(memory.read_many(list("abx"), missing_ok=True)) == {"a": "a", "b": "b"}
    denying.paths = "b"
    with pytest.raises(OperationDenied, match=r"^'b': not this file"):
        run(memory.read_many(list("abcd")))
    denying.paths = "bd"
    with pytest.raises(
        PartialOperationError, match=r"^3 of 5 files failed: 'b', 'x', 'd'; the first error: 'b': "
    ) as raised:
        run(memory.read_many(list("abxcd")))
    assert (raised.value.done, raised.value.left) == (("a", "c"), ("b", "x", "d"))
    with pytest.raises(PartialOperationError, match=r"^2 of 5 files failed: 'b', 'd'; "):
        run(memory.read_many(list("abxcd"), missing_ok=True, bytes=True))


def test_a_byte_store_deletes_and_sets_all_other_keys(opened: Any) -> None:
    pytest.importorskip("langchain_core.stores")
    from agent_memory.integrations.langchain import AgentMemoryByteStore

    memory, denying, run = opened
    store: Any = AgentMemoryByteStore(memory)
    sync = isinstance(memory, AgentMemory)
    mset, mget, mdelete = (
        (store.mset, store.mget, store.mdelete) if sync else (store.amset, store.amget, store.amdelete)
    )
    run(mset([(name, b"1") for name in "abcd"]))
    denying.paths = "ac"
    calls: list[Callable[[], Any]] = [lambda: mset([(name, b"2") for name in "abcd"]), lambda: mdelete(list("abcd"))]
    for call in calls:
        with pytest.raises(PartialOperationError, match=r"^2 of 4 files failed: 'a', 'c'; ") as raised:
            run(call())
        assert raised.value.left == ("a", "c")
        denying.paths = ()
        found = run(mget(list("abcd")))
        denying.paths = "ac"
        assert found in ([b"1", b"2", b"1", b"2"], [b"1", None, b"1", None])
    denying.paths = "a"
    with pytest.raises(OperationDenied, match=r"^'a': "):
        run(mdelete(list("abcd")))
    denying.paths = ()
    assert run(mget(list("abcd"))) == [b"1", None, None, None]


def test_a_batch_of_a_store_of_items_makes_all_other_puts(opened: Any) -> None:
    base = pytest.importorskip("langgraph.store.base")
    from agent_memory.integrations.langgraph import AgentMemoryStore

    memory, denying, run = opened
    store: Any = AgentMemoryStore(memory)
    batch = store.batch if isinstance(memory, AgentMemory) else store.abatch
    run(batch([base.PutOp(("n",), name, {"x": 1}) for name in "abcd"]))
    denying.paths = ("n/a.json", "n/b.json")
    ops = [base.GetOp(("n",), "a"), *(base.PutOp(("n",), name, {"x": 2}) for name in "bcd")]
    with pytest.raises(PartialOperationError, match=r"^2 of 4 files failed: 'n/a\.json', 'n/b\.json'; "):
        run(batch(ops))
    denying.paths = ()
    assert [item.value["x"] for item in run(batch([base.GetOp(("n",), name) for name in "abcd"]))] == [1, 1, 2, 2]
    run(memory.write("n/a.json", "damaged"))
    with pytest.raises(OSError, match="the file holds no item"):
        run(batch([base.GetOp(("n",), "a"), base.PutOp(("n",), "d", {"x": 3})]))
    assert run(batch([base.GetOp(("n",), "d")]))[0].value["x"] == 3
