"""The event loop of callers on which requests run without a hop: one of a process at a time, besides fsspec's I/O loop.

See ``docs/decisions/023-no-hop-by-obstore.md``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from weakref import ref

from agent_memory.object_store import Writer


class Home:
    """The loop that came first, until it is closed or gone.

    Attributes:
        writer: who writes there. The next loop takes it over, for what the last one had under way nobody waits for.
    """

    def __init__(self) -> None:
        self.writer = Writer()
        self.forget()

    def forget(self) -> None:
        """After a fork: the loop is the parent's."""
        self._claiming = threading.Lock()
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None

    def is_here(self) -> bool:
        """Whether the running loop is home."""
        return self._loop() is asyncio.get_running_loop()

    def claim(self) -> bool:
        """Whether the running loop is home now."""
        if self.is_here():
            return True
        with self._claiming:
            home = self._loop()
            if home is None or home.is_closed():
                self._loop = ref(asyncio.get_running_loop())
        return self.is_here()


HOME = Home()
os.register_at_fork(after_in_child=HOME.forget)
