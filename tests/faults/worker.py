"""A fork server: it runs each request in a new child, a copy of a process that has imported everything.

``python -m tests.faults.worker SHIM`` answers pickled requests from its standard input on its standard output. It
has only one thread, so that forking is safe.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import chdir
from pathlib import Path
from typing import BinaryIO

from agent_memory import AgentMemory, VersionLimits
from tests.faults.judging import audit
from tests.faults.log_operations import LOG_OPERATIONS, LogOperation
from tests.faults.operations import CONTROLS, OPERATIONS, Operation
from tests.faults.plans import Fault, Loop, Report, Try
from tests.faults.shim import Shim
from tests.faults.versioned_operations import VERSIONED

_ALL: Mapping[str, Operation | LogOperation] = {**OPERATIONS, **CONTROLS, **VERSIONED, **LOG_OPERATIONS}
_ACKNOWLEDGED = b"+"
_PATIENCE = 60  # seconds, the timeout for an operation that hangs


def main() -> None:
    shim = Shim(Path(sys.argv[1]))
    replies, standard_output = os.fdopen(os.dup(1), "wb"), 2
    os.dup2(standard_output, 1)  # keeps other output out of the replies
    while request := _next(sys.stdin.buffer):
        reply = _tried(shim, request) if isinstance(request, Try) else _looped(request)
        pickle.dump(reply, replies)
        replies.flush()


def _next(requests: BinaryIO) -> Try | Loop | None:
    try:
        request: Try | Loop = pickle.load(requests)
    except EOFError:
        return None
    return request


def _tried(shim: Shim, request: Try) -> Report:
    child, output = _forked(lambda output: _try(shim, request, output))
    told = _until_the_end(output, child)
    _, status = os.waitpid(child, 0)
    if told is None:
        return Report(0, RuntimeError(f"still at work after {_PATIENCE} seconds"))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        return Report(0, RuntimeError(f"ended by signal {os.WTERMSIG(status)}"))
    if told.startswith(_ACKNOWLEDGED):
        return Report(1, None, pickle.loads(told[1:]))
    if told:
        report: Report = pickle.loads(told)
        return report
    return Report(0, None if os.WIFSIGNALED(status) else RuntimeError("the worker's child died of itself"))


def _try(shim: Shim, request: Try, output: int) -> None:
    os.chdir(request.base)
    memory = AgentMemory.open(request.url, plugins=[audit(request.base)] if request.audited else [])
    operation = _ALL[request.operation]
    plan = request.plan
    if plan.largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (plan.largest_file, plan.largest_file))
    try:
        shim.arm(plan)
        operation.run(memory)
    except BaseException as error:  # noqa: BLE001 - reported
        _tell(output, pickle.dumps(_pickled(Report(0, error, shim.disarm()))))
    else:
        _tell(output, _ACKNOWLEDGED + pickle.dumps(shim.disarm()))
        if plan.fault is Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)


def _pickled(report: Report) -> Report:
    try:
        pickle.loads(pickle.dumps(report))
    except Exception:  # noqa: BLE001 - a foreign exception may not be picklable: send its text
        text = "".join(traceback.format_exception(report.error)) if report.error else ""
        return Report(report.acknowledged, RuntimeError(text), report.calls)
    return report


def _looped(request: Loop) -> Report:
    child, output = _forked(lambda output: _loop(request, output))
    end = time.monotonic() + request.seconds
    told = b""
    while (left := end - time.monotonic()) > 0:
        if select.select([output], [], [], left)[0]:
            told += os.read(output, 65536)
    os.kill(child, signal.SIGKILL)
    told += _rest(output)
    os.waitpid(child, 0)
    return Report(len(told))


def _loop(request: Loop, output: int) -> None:
    memory = AgentMemory.open(request.url)
    for number in range(request.first, sys.maxsize):
        if request.kind == "append":
            memory.append("log.md", record(number), separator="\n")
        else:
            memory.write("log.md", record(number))
        _tell(output, _ACKNOWLEDGED)


def record(number: int) -> str:
    """A line whose completeness can be checked."""
    return f"<{number}>" + f"{number % 10}" * 3000 + f"</{number}>"


def _forked(work: Callable[[int], None]) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(writing)
        except BaseException:  # noqa: BLE001 - a child must always end here
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    return child, reading


def _until_the_end(output: int, child: int) -> bytes | None:
    """The complete output of a child; None for a child that hangs, which is killed."""
    told = b""
    while select.select([output], [], [], _PATIENCE)[0]:
        part = os.read(output, 65536)
        told += part
        if not part:
            os.close(output)
            return told
    os.kill(child, signal.SIGKILL)
    os.close(output)
    return None


def _rest(output: int) -> bytes:
    with os.fdopen(output, "rb") as pipe:
        return pipe.read()


def _tell(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]


def _warm_up() -> None:
    """Run every operation once, so that the children import nothing and always make the same calls."""
    for operation in OPERATIONS.values():
        with tempfile.TemporaryDirectory() as directory:
            plugins = [audit(Path(directory))]
            memory = AgentMemory.open(f"{Path(directory, 'root').as_uri()}?durability=process", plugins=plugins)
            for name, text in operation.start.items():
                memory.write(name, text)
            operation.run(memory)
    for operation in VERSIONED.values():
        with tempfile.TemporaryDirectory() as directory:
            memory = AgentMemory.open(
                f"{Path(directory, 'root').as_uri()}?durability=process", versions=VersionLimits()
            )
            if operation.prepare:
                operation.prepare(memory)
            operation.run(memory)
    for log_operation in LOG_OPERATIONS.values():
        with tempfile.TemporaryDirectory() as directory, chdir(directory):
            log_operation.prepare(Path(directory))
            log_operation.run(AgentMemory.open("memory://"))


if __name__ == "__main__":
    _warm_up()
    main()
