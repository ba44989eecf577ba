"""The event loop of callers on which requests run without a hop: one of a process at a time, besides fsspec's I/O loop.

See ``docs/decisions/023-no-hop-by-obstore.md``.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from weakref import ref

import fsspec.asyn

from agent_memory.backend import Uncopied
from agent_memory.object_store import TurnsBetweenLoops, Writer

_CLOCK_SECONDS = 1.0


class Home(Uncopied):
    """The loop that came first, until it is closed or gone.

    Attributes:
        writer: who writes there. The next loop takes it over, for what the last one had under way nobody waits for.
        turns: of that loop, and of fsspec's, for a file.
    """

    def __init__(self) -> None:
        self.writer = Writer()
        self.turns = TurnsBetweenLoops()
        self.forget()

    def forget(self) -> None:
        """After a fork: the loop is the parent's."""
        self._claiming = threading.RLock()
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None

    def is_here(self) -> bool:
        """Whether the running loop is home."""
        return self._loop() is asyncio.get_running_loop()

    def claim(self) -> bool:
        """Whether the running loop is home now."""
        if self.is_here():
            return True
        with self._claiming:
            home, here = self._loop(), asyncio.get_running_loop()
            if (home is None or home.is_closed()) and _can_be_home(here):
                self._loop = ref(here)
        return self.is_here()


def _can_be_home(loop: asyncio.AbstractEventLoop) -> bool:
    """Not fsspec's, which needs no hop; nor one with a clock of its own, by which no deadline of ours holds."""
    return loop is not fsspec.asyn.get_loop() and abs(loop.time() - time.monotonic()) < _CLOCK_SECONDS


HOME = Home()
os.register_at_fork(after_in_child=HOME.forget)
