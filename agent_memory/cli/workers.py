"""Processes that append to one file at once, and one that is killed while it writes, for the demo."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final

from agent_memory.errors import AppendError
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.service import AgentMemoryService

WORKER: Final = "worker-"
"""What their names as actors begin with."""
VERSION_LINES: Final = 100_000
"""Lines of a version: about a megabyte, which takes a while to write."""
KILLED_AT: Final = 3
"""How many versions are written before the writer is killed."""


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
            workers += (_started(_work, (url, options, worker, lines, agent, path)) for worker in range(processes))
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


def version_of(number: int) -> str:
    """A text whose every line names its version, so that a mixture of two would show."""
    return f"version {number}\n" * VERSION_LINES


def killed_while_writing(url: str, options: Mapping[str, object], agent: str, path: str) -> int:
    """Start a process that replaces a file again and again, and kill it in the middle of a write.

    Returns:
        The last version whose write had returned.

    Raises:
        AppendError: the process could not write.
    """
    with _uninterruptible():
        process, connection = _started(_replace, (url, options, agent, path))
    try:
        done = 0
        while True:
            told = connection.recv()
            if isinstance(told, str):
                raise AppendError(f"a process could not write: {told}")
            if told > KILLED_AT:
                return done
            done = told
    except EOFError:
        raise AppendError("a process could not write: it ended early") from None
    finally:
        process.kill()  # as `kill -9`: nothing of the process runs any more
        process.join()
        connection.close()


def _replace(connection: Connection, url: str, options: Mapping[str, object], agent: str, path: str) -> None:
    """What that process does; tells each version once it is written, and before it writes the one to be killed at."""
    try:
        with (
            AuditPlugin(url, required=True, storage_options=options) as audit,
            AgentMemoryService(url, storage_options=options, plugins=[audit], actor="killed-writer") as service,
        ):
            number = 0
            while True:
                number += 1
                if number > KILLED_AT:
                    connection.send(number)
                service.write_memory_file(agent, path, version_of(number))
                if number <= KILLED_AT:
                    connection.send(number)
    except Exception as error:  # noqa: BLE001 - the parent tells it
        connection.send(f"{type(error).__name__}: {error}")


def _started(target: Callable[..., None], task: tuple[object, ...]) -> tuple[SpawnProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(there, *task), daemon=True)
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
