"""Processes that append to one file at once, for the demo."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from agent_memory.errors import AppendError
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.service import AgentMemoryService

WORKER: Final = "worker-"
"""What their names as actors begin with."""


def line_of(worker: int, number: int) -> str:
    """The line that a worker appends as its ``number``-th."""
    return f"- worker {worker}, line {number}"


def append_at_once(url: str, options: Mapping[str, object], processes: int, lines: int, agent: str, path: str) -> None:
    """Append ``lines`` lines from each of several processes, which start together when all of them are ready.

    Raises:
        AppendError: a process could not append.
    """
    workers: list[tuple[SpawnProcess, Connection]] = []
    try:
        with _uninterruptible():
            workers += (_started((url, options, worker, lines, agent, path)) for worker in range(processes))
        for _, connection in workers:
            _reply(connection)
        for _, connection in workers:
            connection.send("go")
        for _, connection in workers:
            _reply(connection)
    finally:
        for process, connection in workers:
            connection.close()
            process.terminate()
            process.join()


def _started(task: tuple[str, Mapping[str, object], int, int, str, str]) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, *task), daemon=True)
    process.start()
    there.close()
    return process, here


@contextmanager
def _uninterruptible() -> Iterator[None]:
    """Let processes that are started ignore an interrupt: it is the parent's to end them, in silence."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _reply(connection: Connection) -> None:
    try:
        fault = connection.recv()
    except EOFError:
        fault = "it ended early"
    if fault:
        raise AppendError(f"a process could not append: {fault}")


def _work(
    connection: Connection, url: str, options: Mapping[str, object], worker: int, lines: int, agent: str, path: str
) -> None:
    """What each process does; replies with the fault, or with "" for none, once ready and once done."""
    try:
        with (
            AuditPlugin(url, required=True, storage_options=options) as audit,
            AgentMemoryService(url, storage_options=options, plugins=[audit], actor=f"{WORKER}{worker}") as service,
        ):
            memory = service.agent(agent)
            connection.send("")
            connection.recv()
            for number in range(lines):
                memory.append(path, line_of(worker, number) + "\n")
        connection.send("")
    except EOFError:
        return  # the parent has given up
    except Exception as error:  # noqa: BLE001 - the parent tells it
        connection.send(f"{type(error).__name__}: {error}")
