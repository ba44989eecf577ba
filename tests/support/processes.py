"""Run a function in many processes at once, started together by a barrier.

They are forks of one process that has imported much, but has no threads and no state of the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SECONDS = 900
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["agent_memory", "agent_memory_local", "agent_memory_s3", "aiobotocore.session", "hypothesis", "pytest"]
)


def in_processes(count: int, work: Callable[..., object], *args: object) -> list[Any]:
    """The results of ``work(number, barrier, *args)`` in ``count`` processes; raises the first failure."""
    barrier, results = _context.Barrier(count), _context.Queue()
    common, environment = (barrier, results, work, args), dict(os.environ)
    workers = [_context.Process(target=_run, args=(*common, n, environment)) for n in range(count)]
    for worker in workers:
        worker.start()
    try:
        answers = [_answer(results) for _ in workers]
    finally:
        for worker in workers:
            worker.join(10)
            worker.kill()
    failures = [failure for _, _, failure in answers if failure]
    assert not failures, failures[0]
    return [result for _, result, _ in sorted(answers, key=lambda answer: answer[0])]


@contextmanager
def started(count: int, work: Callable[..., object], *args: object) -> Iterator[list[int]]:
    """The ids of ``count`` processes that run ``work(number, barrier, *args)``, which the caller ends."""
    common, environment = (_context.Barrier(count), _context.Queue(), work, args), dict(os.environ)
    workers = [_context.Process(target=_run, args=(*common, n, environment)) for n in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield [worker.pid for worker in workers if worker.pid]
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _answer(results: Any) -> tuple[int, object, str]:
    try:
        answer: tuple[int, object, str] = results.get(timeout=_SECONDS)
    except queue.Empty:
        return -1, None, "a worker did not answer"
    return answer


def _run(
    barrier: Any,
    results: Any,
    work: Callable[..., object],
    args: tuple[object, ...],
    number: int,
    environment: dict[str, str],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        barrier.wait(120)
        results.put((number, work(number, barrier, *args), ""))
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        barrier.abort()
        results.put((number, None, f"worker {number}: {type(error).__name__}: {error}"))
