"""Progress of a command that takes minutes: a bar on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent_memory.cli.output import note, progress

_LINE_SECONDS = 10.0


@contextmanager
def reported(title: str, total: int) -> Iterator[Callable[[], object]]:
    """`progress`; if stderr is not a terminal, a line on stderr at most every ten seconds."""
    done, last = 0, time.monotonic()

    with progress(title, total) as advance_bar:

        def advance() -> None:
            nonlocal done, last
            done += 1
            advance_bar()
            if not sys.stderr.isatty() and time.monotonic() - last >= _LINE_SECONDS:
                last = time.monotonic()
                note(f"{title}: {done} of {total}")

        yield advance
