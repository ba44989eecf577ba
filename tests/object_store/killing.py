"""A process that makes one call on S3 and is killed before one of its requests."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

from agent_memory import AgentMemory
from tests.object_store.proxy import Fault, Proxy
from tests.support.servers import Root

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the workers are other processes
Call = Callable[[AgentMemory, str], object]


def call_when_told(parent: Connection, root: Root, call: Call, name: str) -> None:
    with AgentMemory.open(root.url, storage_options=root.options) as memory:
        memory.once("ready").append("ready", "x")  # makes the first-time requests
        parent.send("ready")
        parent.recv()
        call(memory.with_timeout(5), name)
        parent.send("done")


class Killed:
    """A process that makes a call and is killed before its request number ``at``.

    Args:
        proxy: its way to the server.
        root: the root of its memory.
        call: a function of a module; it gets the memory and ``name``.
        name: what it calls.
        at: the number of the request, from 1.
    """

    def __init__(self, proxy: Proxy, root: Root, call: Call, name: str, at: int) -> None:
        context = multiprocessing.get_context("spawn")
        ours, its = context.Pipe()
        process = context.Process(target=call_when_told, args=(its, root, call, name))
        process.start()
        its.close()
        try:
            assert ours.recv() == "ready"
            seen = 0

            def choose(_: str) -> Fault | None:
                nonlocal seen
                seen += 1
                if seen >= at:
                    os.kill(process.pid or 0, signal.SIGKILL)
                    return "reset"
                return None

            proxy.choose = choose
            ours.send("go")
            try:
                self.is_done = ours.recv() == "done"
            except EOFError:
                self.is_done = False
        finally:
            process.kill()
            process.join()
            proxy.choose = lambda _: None
