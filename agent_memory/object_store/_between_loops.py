"""Turns to change a file between event loops of one process, whose writers would else race as two processes do.

A race has no order: a loop that knows what it wrote last sends one request for each append, and another, which has to
look again after each race it lost, would never win one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable
from weakref import ref

from agent_memory._fork import renewed_in_child


class Turn:
    """What a task holds while it waits for its turn, and while it has it."""

    __slots__ = ("__weakref__", "_loop", "_told")

    def expect(self) -> asyncio.Future[None]:
        """What is done when the turn has come."""
        self._loop = asyncio.get_running_loop()
        self._told = self._loop.create_future()
        return self._told

    def tell(self) -> bool:
        """Say, from any thread, that the turn has come; False if there is no loop any more to hear of it."""
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            return False
        return True

    def _hear(self) -> None:
        if not self._told.done():
            self._told.set_result(None)


class _Place:
    """Whose turn it is, and who waits, in the order of asking. Weak, for nothing here may keep a loop."""

    __slots__ = ("holder", "waiting")

    def __init__(self, holder: ref[Turn]) -> None:
        self.holder = holder
        self.waiting: deque[ref[Turn]] = deque()


class TurnsBetweenLoops:
    """First come, first served, but nobody waits for a loop that stands still: then it goes on without."""

    def __init__(self) -> None:
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """After a fork: the threads are gone, and their turns."""
        self._lock = threading.RLock()  # a coroutine that is cleared away while it is held may give up its turn
        self._places: dict[Hashable, _Place] = {}

    def take(self, name: Hashable) -> Turn | None:
        """The turn, if nobody has it."""
        turn = Turn()
        mine = _Place(ref(turn))
        return turn if self._places.setdefault(name, mine) is mine else None

    async def wait(self, name: Hashable, seconds: float) -> Turn:
        """Wait for the turn, at most so long; then take it from whoever has it."""
        turn = Turn()
        told = turn.expect()
        if self._is_free(name, turn):
            return turn
        try:
            async with asyncio.timeout(seconds):
                await told
        except TimeoutError:
            self._seize(name, turn)
        except BaseException:
            self.leave(name, turn)
            raise
        return turn

    def leave(self, name: Hashable, turn: Turn) -> None:
        """Let the next one have the turn; nothing, if it has been taken meanwhile."""
        with self._lock:
            if (place := self._places.get(name)) is None:
                return
            if place.holder() in (turn, None):  # None: of what is being cleared away
                self._pass_on(name, place)
            elif (mine := ref(turn)) in place.waiting:
                place.waiting.remove(mine)

    def _is_free(self, name: Hashable, turn: Turn) -> bool:
        mine = ref(turn)
        with self._lock:
            place = self._places.setdefault(name, _Place(mine))
            if place.holder is mine:
                return True
            place.waiting.append(mine)
            return False

    def _seize(self, name: Hashable, turn: Turn) -> None:
        mine = ref(turn)
        with self._lock:
            place = self._places.setdefault(name, _Place(mine))
            if mine in place.waiting:
                place.waiting.remove(mine)
            place.holder = mine

    def _pass_on(self, name: Hashable, place: _Place) -> None:
        while place.waiting:
            place.holder = place.waiting.popleft()
            if (turn := place.holder()) is not None and turn.tell():
                return
        self._places.pop(name, None)


_all = renewed_in_child(TurnsBetweenLoops.forget)
