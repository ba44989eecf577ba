"""Processes of the demo: several append to one file at once, and one is killed while it writes."""

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
"""The prefix of the workers' names as actors."""
VERSION_LINES: Final = 100_000
"""Lines of a version: about a megabyte, so that a write takes some time."""
KILLED_AT: Final = 3
"""The number of versions that are written before the writer is killed."""


def line_of(worker: int, number: int) -> str:
    """The text of a worker's line with this number."""
    return f"- worker {worker}, line {number}"


def append_at_once(url: str, options: Mapping[str, object], processes: int, lines: int, agent: str, path: str) -> None:
    """Append ``lines`` lines from each of several processes. All start together when all are ready.

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
    """A text with the version number on every line, so that a mixture of two versions is visible."""
    return f"version {number}\n" * VERSION_LINES


def killed_while_writing(url: str, options: Mapping[str, object], agent: str, path: str) -> int:
    """Start a process that replaces a file again and again, and kill it in the middle of a write.

    Returns:
        The last version for which the write returned.

    Raises:
        AppendError: the process could not write.
    """
    with _uninterruptible():
        process, connection = _started(_replace, (url, options, agent, path))
    try:
        done = 0
        while True:
            report = connection.recv()
            if isinstance(report, str):
                raise AppendError(f"a process could not write: {report}")
            if report > KILLED_AT:
                return done
            done = report
    except EOFError:
        raise AppendError("a process could not write: it ended early") from None
    finally:
        process.kill()  # like `kill -9`: the process runs no cleanup
        process.join()
        connection.close()


def _replace(connection: Connection, url: str, options: Mapping[str, object], agent: str, path: str) -> None:
    """The process to be killed. It reports each version after the write.

    It reports the version to be killed at before the write, and writes it again and again until it is killed.
    """
    try:
        with (
            AuditPlugin(url, required=True, storage_options=options) as audit,
            AgentMemoryService(url, storage_options=options, plugins=[audit], actor="killed-writer") as service,
        ):
            for number in range(1, KILLED_AT + 1):
                service.write_memory_file(agent, path, version_of(number))
                connection.send(number)
            connection.send(KILLED_AT + 1)
            while True:
                service.write_memory_file(agent, path, version_of(KILLED_AT + 1))
    except Exception as error:  # noqa: BLE001 - the parent reports it
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
    """Make processes that are started here ignore an interrupt, so that the parent can end them without messages."""
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
    """A worker process. It replies when it is ready and when it is done: with an error, or with "" for none."""
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
        return  # the parent has closed the connection
    except Exception as error:  # noqa: BLE001 - the parent reports it
        connection.send(f"{type(error).__name__}: {error}")
