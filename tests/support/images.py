"""Restores one image of a process's memory several times, as snapshots of machines do.

An image is a process that has prepared something and has one thread left. Each clone of it is made by a bare ``clone``
system call, so Python's handlers of a fork do not run: no clone learns that it is one. Each is process 1 of a process
namespace of its own, as the image is; without the permission for that, the clones have different process ids. A clone
has the memory of the image, but no connection and no file of it: sockets are dead, and files are opened again.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import multiprocessing
import os
import platform
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import fsspec.asyn

from agent_memory_s3._connection import Connection

_SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_NEW_PIDS = 0x20000000
_SECONDS = 300
CAN_CLONE = _SYS_CLONE is not None and sys.platform == "linux"
Prepare = Callable[..., Any]
Work = Callable[..., object]
_context = multiprocessing.get_context("spawn")


def from_image(directory: Path, count: int, prepare: Prepare, work: Work, *args: object) -> list[Any]:
    """The results of ``work(number, prepared)`` in ``count`` clones of one image, which all start at once.

    ``prepare(*args)`` runs before the image is taken. The results must be JSON. Raises the first failure.
    """
    holder = _context.Process(target=_hold, args=(directory, count, prepare, work, args))
    holder.start()
    holder.join()
    answers = [json.loads((directory / f"{number}.json").read_text()) for number in range(count)]
    failures = [failure for _, failure in answers if failure]
    assert not failures, failures[0]
    return [result for result, _ in answers]


def _hold(directory: Path, count: int, prepare: Prepare, work: Work, args: tuple[object, ...]) -> None:
    if (image := _cloned()) == 0:
        _finish(lambda: _image(directory, count, prepare, work, args))
    ends = time.monotonic() + _SECONDS
    while os.waitpid(image, os.WNOHANG)[0] == 0:
        if time.monotonic() > ends:
            os.kill(image, signal.SIGKILL)  # the kernel ends the clones with it: it is process 1 of their namespaces
        time.sleep(0.02)


def _image(directory: Path, count: int, prepare: Prepare, work: Work, args: tuple[object, ...]) -> None:
    prepared = prepare(*args)
    _end_io_loop()
    assert threading.active_count() == 1, f"only the calling thread is in a clone: {threading.enumerate()}"
    gc.collect()
    ready, start = os.pipe()
    clones = []
    for number in range(count):
        if (clone := _cloned()) == 0:
            os.close(start)
            _finish(lambda: _run(directory, number, ready, work, prepared))  # noqa: B023 - it runs now
        clones.append(clone)
    os.close(start)
    for clone in clones:
        os.waitpid(clone, 0)


def _run(directory: Path, number: int, ready: int, work: Work, prepared: object) -> None:
    _wake()
    os.read(ready, 1)  # until all clones exist
    try:
        answer: tuple[object, str] = work(number, prepared), ""
    except BaseException:  # noqa: BLE001 - the test reports it
        answer = None, f"clone {number}: {traceback.format_exc()}"
    (directory / f"{number}.json").write_text(json.dumps(answer))


def _finish(function: Callable[[], None]) -> NoReturn:
    """Run a function and end the process without the cleanup of the interpreter, as a killed machine ends."""
    try:
        function()
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        os._exit(0)


def _cloned() -> int:
    """The id of a new clone; 0 in the clone. `ctypes.PyDLL` holds the interpreter's lock during the call."""
    syscall = ctypes.PyDLL(None, use_errno=True).syscall
    for flags in (_NEW_PIDS | signal.SIGCHLD, int(signal.SIGCHLD)):
        pid: int = syscall(_SYS_CLONE, ctypes.c_ulong(flags), None, None, None, None)
        if pid >= 0:
            return pid
    raise OSError(ctypes.get_errno(), "a process cannot be cloned")


def _end_io_loop() -> None:
    """End the threads of fsspec's I/O loop, which would not be in a clone."""
    if (loop := fsspec.asyn.loop[0]) is not None and (thread := fsspec.asyn.iothread[0]) is not None:
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _wake() -> None:
    """Cut the connections of the image, open its files again, and give the clone an I/O loop."""
    for path in [*Path("/proc/self/fd").iterdir()]:
        descriptor = int(path.name)
        if descriptor > 2:
            with suppress(OSError):  # the descriptor of the listing itself is closed
                _renew(descriptor)
    fsspec.asyn.loop[0] = fsspec.asyn.iothread[0] = None
    for connection in [found for found in gc.get_objects() if isinstance(found, Connection)]:
        connection._open()  # the loop of its connections is gone; in a machine it is there, and each connection fails


def _renew(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        fresh = os.open(os.devnull, os.O_RDWR)
    elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        flags = os.O_RDONLY if stat.S_ISDIR(mode) else os.O_RDWR
        fresh = os.open(f"/proc/self/fd/{descriptor}", flags)
    else:
        return
    os.dup2(fresh, descriptor, inheritable=False)
    os.close(fresh)
