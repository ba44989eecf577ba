"""Giving up what is waited for, each at its own time, with one timer of the event loop for all of it.

Nearly every request is answered long before its deadline, and a timer of its own for each, which is a handle, a copied
context and a place in the loop's heap until that is cleared, was a quarter of the Python that a write takes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar, cast
from weakref import WeakKeyDictionary, ref

_GRAIN_SECONDS = 0.01
"""How long to wait between two looks at all that is waited for: what is over at about the same time is one look."""
T = TypeVar("T")


async def until(at: float, request: Callable[[], Awaitable[T]]) -> T:
    """Await what a call gives, or raise `TimeoutError` at a time of the event loop's clock, at most 10 ms later.

    Otherwise as `asyncio.timeout_at`.
    """
    loop = asyncio.get_running_loop()
    limits = _limits_of(loop)
    limits.look_at(at)
    with _Limit(cast(asyncio.Task[object], asyncio.current_task(loop))) as limit:
        limits.ends[limit] = at
        try:
            return await request()
        finally:
            limits.ends.pop(limit, None)


class _Limit:
    """Cancels a task at the end of its time, which is a `TimeoutError` there unless others have cancelled it too."""

    __slots__ = ("_cancelling", "_over", "_task")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self._cancelling = task.cancelling()
        self._over = False

    def end(self) -> None:
        self._over = True
        self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError


class _Limits:
    """Of one event loop; kept alive by whoever waits, and by the loop while it has a look to take.

    Attributes:
        ends: when what is waited for is to be given up.
    """

    def __init__(self) -> None:
        self.ends: dict[_Limit, float] = {}
        self._next_look = math.inf

    def look_at(self, at: float) -> None:
        """Have the loop look what is over at a time, or before."""
        if at < self._next_look:
            asyncio.get_running_loop().call_at(at, self._look, at)
            self._next_look = at

    def _look(self, at: float) -> None:
        if at != self._next_look:
            return  # an earlier look has taken its place
        self._next_look = math.inf
        try:
            now = asyncio.get_running_loop().time()
            for limit in [limit for limit, end in self.ends.items() if end <= now]:
                limit.end()
                del self.ends[limit]
        finally:  # a signal's handler may raise anywhere, and others wait
            if self.ends:
                self.look_at(max(min(self.ends.values()), asyncio.get_running_loop().time() + _GRAIN_SECONDS))


_limits: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Limits]] = WeakKeyDictionary()
"""Weak both ways: who waits in a loop that was closed keeps the loop, so nothing here may keep who waits."""


def _limits_of(loop: asyncio.AbstractEventLoop) -> _Limits:
    known = _limits.get(loop)
    if known is None or (limits := known()) is None:
        limits = _Limits()
        _limits[loop] = ref(limits)
    return limits
