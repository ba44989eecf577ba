"""Turns to change a file between event loops of one process, whose writers would else race as two processes do.

A race has no order: a loop that knows what it wrote last sends one request for each append, and another, which has to
look again after each race it lost, would never win one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Self
from weakref import ref

from agent_memory._fork import renewed_in_child
from agent_memory._uncopied import Uncopied

_STILL_SECONDS = 1.0
"""How long another loop may stand still before whoever waits for it goes on without."""


class Turn(AbstractAsyncContextManager["Turn"]):
    """Of one task to change a file; see `TurnsBetweenLoops`."""

    __slots__ = ("_held", "_name", "_turns", "_until")

    def __init__(self, turns: TurnsBetweenLoops, name: Hashable, until: float) -> None:
        self._turns = turns
        self._name = name
        self._until = until

    async def __aenter__(self) -> Self:
        self._held = self._turns.take(self._name) or await self._waited()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._turns.leave(self._name, self._held)

    async def again(self) -> None:
        """Wait for another turn, if somebody did not wait for the end of this one."""
        if not self._turns.has(self._name, self._held):
            self._held = self._turns.take(self._name) or await self._waited()

    async def _waited(self) -> Hold:
        left = self._until - asyncio.get_running_loop().time()
        return await self._turns.wait(self._name, max(0.0, left / 2))


class Hold:
    """What a task has while it waits for its turn, and while it has it."""

    __slots__ = ("__weakref__", "_loop", "_told")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def ask(self, answer: Callable[[], object]) -> None:
        """Have its loop answer, from any thread, if it runs."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(answer)

    def expect(self) -> asyncio.Future[None]:
        """What is done when the turn has come."""
        self._told = self._loop.create_future()
        return self._told

    def tell(self) -> bool:
        """Say, from any thread, that the turn has come; False if there is no loop any more to hear of it."""
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:
            return not self._loop.is_closed()
        return True

    def _hear(self) -> None:
        if not self._told.done():
            self._told.set_result(None)


class _Place:
    """Whose turn it is, and who waits, in the order of asking. Weak, for nothing here may keep a loop."""

    __slots__ = ("holder", "waiting")

    def __init__(self, holder: ref[Hold]) -> None:
        self.holder = holder
        self.waiting: deque[ref[Hold]] = deque()


class TurnsBetweenLoops(Uncopied):
    """First come, first served, but nobody waits for a loop that stands still, nor for another for all of its time."""

    def __init__(self) -> None:
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """After a fork: the threads are gone, and their turns."""
        self._lock = threading.RLock()  # a coroutine that is cleared away while it is held may give up its turn
        self._places: dict[Hashable, _Place] = {}

    def turn(self, name: Hashable, until: float) -> Turn:
        """Wait for one's turn, for half of the time until ``until`` by the loop's clock; then go on without."""
        return Turn(self, name, until)

    def take(self, name: Hashable) -> Hold | None:
        """The turn, if nobody has it."""
        hold = Hold()
        mine = _Place(ref(hold))
        return hold if self._places.setdefault(name, mine) is mine else None

    async def wait(self, name: Hashable, seconds: float) -> Hold:
        """Wait for the turn, at most so long, or for a loop that stands still; then take it from whoever has it."""
        hold = Hold()
        told = hold.expect()
        if self._is_free(name, hold):
            return hold
        try:
            if not await self._came(name, hold, told, asyncio.get_running_loop().time() + seconds):
                self._seize(name, hold)
        except BaseException:
            self.leave(name, hold)
            raise
        return hold

    async def _came(self, name: Hashable, hold: Hold, told: asyncio.Future[None], until: float) -> bool:
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            answers: list[None] = []
            self._ask(name, hold, partial(answers.append, None))
            await asyncio.wait((told,), timeout=min(_STILL_SECONDS, left))
            if told.done() or not answers:
                break
        return told.done()

    def _ask(self, name: Hashable, hold: Hold, answer: Callable[[], object]) -> None:
        """Ask the loop of whoever has the turn whether it runs; not oneself, who was not told of it."""
        place = self._places.get(name)
        if place is not None and (holder := place.holder()) not in (hold, None):
            holder.ask(answer)

    def has(self, name: Hashable, hold: Hold) -> bool:
        """Whether it still is this one's turn."""
        return (place := self._places.get(name)) is not None and place.holder() is hold

    def leave(self, name: Hashable, hold: Hold) -> None:
        """Let the next one have the turn; nothing, if it has been taken meanwhile."""
        with self._lock:
            if (place := self._places.get(name)) is None:
                return
            if place.holder() in (hold, None):  # None: of what is being cleared away
                self._pass_on(name, place)
            elif (mine := ref(hold)) in place.waiting:
                place.waiting.remove(mine)

    def _is_free(self, name: Hashable, hold: Hold) -> bool:
        mine = ref(hold)
        with self._lock:
            place = self._places.setdefault(name, _Place(mine))
            if place.holder() is None and not place.waiting:  # an interrupt came before it could be given back
                place.holder = mine
            if place.holder is mine:
                return True
            place.waiting.append(mine)
            return False

    def _seize(self, name: Hashable, hold: Hold) -> None:
        mine = ref(hold)
        with self._lock:
            place = self._places.setdefault(name, _Place(mine))
            if mine in place.waiting:
                place.waiting.remove(mine)
            place.holder = mine

    def _pass_on(self, name: Hashable, place: _Place) -> None:
        while place.waiting:
            place.holder = place.waiting.popleft()
            if (hold := place.holder()) is not None and hold.tell():
                return
        if self._places.get(name) is place:
            del self._places[name]


_all = renewed_in_child(TurnsBetweenLoops.forget)
