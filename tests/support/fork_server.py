"""A program that forks Python programs for `tests.support.forked`, with the needed modules already imported.

Each forked process has its own descriptors, environment, directory, arguments and ``__main__``. At its end it waits for
its threads, calls the functions of `atexit` and flushes its output, as the interpreter does; it only does not free its
objects. What the interpreter fixes at its start, such as the encoding, is that of this program.
"""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import os
import pickle
import select
import signal
import socket
import sys
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

_STANDARD = (0, 1, 2)


@dataclass(frozen=True)
class Job:
    """A program to run.

    Attributes:
        name: the path of the script, or ``-c``.
        text: its source.
        args: its arguments.
        cwd: its directory.
        environment: its environment variables.
        modules: the modules to import before the fork.
        streams: those of the standard descriptors that are open.
    """

    name: str
    text: str
    args: list[str]
    cwd: str
    environment: dict[str, str]
    modules: list[str]
    streams: list[int]


def send(requests: socket.socket, job: Job, streams: Sequence[int]) -> socket.socket:
    """Ask the server for a job; the returned socket brings the number of its process, then its exit code.

    ``streams`` are the descriptors for those of ``job.streams``.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(requests, [b"j"], [theirs.fileno()])
    data = pickle.dumps(job)
    socket.send_fds(ours, [len(data).to_bytes(8, "big")], streams)
    ours.sendall(data)
    return ours


def reported(connection: socket.socket) -> int:
    """Receive the next number that the server reports."""
    return int(array.array("i", receive(connection, 4))[0])


def receive(connection: socket.socket, size: int) -> bytes:
    """Receive exactly so many bytes."""
    data = b""
    while len(data) < size:
        block = connection.recv(size - len(data))
        if not block:
            raise EOFError
        data += block
    return data


def serve(requests: socket.socket) -> tuple[Job, list[int]]:
    """Fork a process for each job, and report its exit code; return only in the forked processes.

    Each message of ``requests`` brings the socket of one job.
    """
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, job_socket = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                _report(job_socket, os.waitstatus_to_exitcode(status))
                job_socket.close()
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
            if not message:
                os._exit(0)
            job_socket = socket.socket(fileno=descriptors[0])
            job, streams = _job(job_socket)
            pid = os.fork()
            if not pid:
                return job, streams
            for descriptor in streams:
                os.close(descriptor)
            _report(job_socket, pid)
            ended = os.pidfd_open(pid)
            running[ended] = pid, job_socket
            poll.register(ended, select.POLLIN)


def _job(connection: socket.socket) -> tuple[Job, list[int]]:
    """Receive a job with the descriptors for its streams, and import its modules."""
    size, descriptors, _, _ = socket.recv_fds(connection, 8, len(_STANDARD))
    job: Job = pickle.loads(receive(connection, int.from_bytes(size, "big")))
    for module in job.modules:
        if module not in sys.modules:
            importlib.import_module(module)
            gc.collect()
            gc.freeze()
    assert threading.active_count() == 1, threading.enumerate()
    return job, descriptors


def _report(connection: socket.socket, number: int) -> None:
    """Send a number; the test may have gone."""
    with suppress(OSError):
        connection.sendall(array.array("i", [number]).tobytes())


def become(job: Job, streams: list[int]) -> dict[str, object]:
    """Turn this process into that of the job; return the variables of its main module."""
    _take_streams(dict(zip(job.streams, streams, strict=True)))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job.environment)
    os.chdir(job.cwd)
    sys.argv[:] = [job.name, *job.args]
    sys.path[0] = "" if job.name == "-c" else os.path.dirname(job.name)  # noqa: PTH120 - as the interpreter does
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if job.name != "-c":
        main.__file__ = job.name
    return main.__dict__


def _take_streams(given: dict[int, int]) -> None:
    """Make the given descriptors the standard ones, close all others, and open Python's streams again."""
    encoding, errors = sys.stdout.encoding, sys.stdin.errors or "strict"
    for number in _STANDARD:
        os.dup2(given[number], number) if number in given else os.close(number)
    os.closerange(len(_STANDARD), os.sysconf("SC_OPEN_MAX"))
    sys.stdin = sys.__stdin__ = _opened(0, "r", encoding, errors)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _opened(1, "w", encoding, errors)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _opened(2, "w", encoding, "backslashreplace")  # type: ignore[misc]


def _opened(number: int, mode: str, encoding: str, errors: str) -> io.TextIOWrapper | None:
    """A standard stream as the interpreter opens it; None if its descriptor is closed."""
    try:
        binary = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - a descriptor, for the whole process
    except OSError:
        return None
    is_terminal = number == 2 or os.isatty(number)  # stderr is always written line by line
    newline = None if mode == "r" else "\n"
    return io.TextIOWrapper(binary, encoding, errors, newline, line_buffering=is_terminal)


def run(job: Job, streams: list[int]) -> int:
    """Run a job to the end of its threads; return the exit code."""
    try:
        exec(compile(job.text, job.name, "exec"), become(job, streams))
        code: object = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:  # noqa: BLE001 - the interpreter prints any exception
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            code = 120
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os._exit(run(*serve(socket.socket(fileno=int(sys.argv[1])))) & 0xFF)
