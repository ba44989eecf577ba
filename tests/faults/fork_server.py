"""The tests' end of the worker."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.plans import Loop, Report, Try

_ROOT = Path(__file__).parents[2]


class Worker:
    """Run requests one after the other, each in a new process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def do(self, request: Try | Loop) -> Report:
        """Run a request and return its report; raises `EOFError` if the worker itself died."""
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump(request, self._process.stdin)
        self._process.stdin.flush()
        report: Report = pickle.load(self._process.stdout)
        return report


@contextmanager
def serving(shim: Path) -> Iterator[Worker]:
    """A worker that runs until the end of the context."""
    command = [sys.executable, "-m", "tests.faults.worker", str(shim)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Worker(process)
        assert process.stdin
        process.stdin.close()
