"""The one retry policy: an operation asks again what was not answered, until its deadline."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent_memory.backend import Deadline, deadline_or_default
from agent_memory.errors import AgentMemoryError
from agent_memory.object_store.engine import (
    InvalidResponse,
    NoResponse,
    PermanentError,
    RequestError,
    UnknownOutcome,
    Unreachable,
)

_FIRST, _LONGEST = 0.02, 2.0
_FIRST_RACE, _LONGEST_RACE = 0.01, 0.5
_MOST_GARBLED = 4
"""Answers in a row that are no HTTP, each on a connection of its own, after which an operation ends."""
_UNREACHABLE_SECONDS = 5.0
"""How long an operation goes on asking a server that never answered this process."""
_MOST_CLOSED = 4
"""How often at least, where requests may have been sent: one such answer may take longer than that."""
_TOLD = 4
"""The failure of an operation that a warning tells of."""
_log = logging.getLogger("agent_memory.object_store")
T = TypeVar("T")


class OutOfTimeError(Exception):
    """The deadline is over; the message says after how long, and what the last answer was.

    ``races``: the store answered every time, and others were faster every time.
    """

    def __init__(self, message: str, races: bool = False) -> None:
        super().__init__(message)
        self.races = races


class Attempts:
    """The requests of one operation, and how long it goes on sending them.

    Args:
        jitter: numbers in ``[0, 1)`` that spread retries.
        subject: what messages call what the operation is about.

    Attributes:
        lost: whether a write that may have taken effect was left without an answer.
        deadline: when the operation has to be over, by the event loop's clock.
        sent: whether a write was.
    """

    def __init__(self, jitter: Callable[[], float], subject: str) -> None:
        self._jitter = jitter
        self._subject = subject
        self._loop = asyncio.get_running_loop()
        self.began = self._loop.time()
        self.deadline = deadline_or_default(self.began)
        self.lost = False
        self.sent = False
        self._first_sent = self._first_lost = math.inf
        self._requests = 0
        self._failures = 0
        self._races = 0
        self._garbled = 0
        self._first_request = math.inf
        self._last = "no answer"

    def briefly(self, seconds: float) -> Attempts:
        """Requests beside the operation's, with time of their own."""
        other = Attempts(self._jitter, self._subject)
        other.deadline = Deadline(seconds, other.began + seconds)
        return other

    @property
    def seconds_ago(self) -> float:
        """How long ago the operation began."""
        return self._loop.time() - self.began

    @property
    def seconds_left(self) -> float:
        """How long the operation may still take; none if its deadline is over."""
        return max(0.0, self.deadline.at - self._loop.time())

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request that may be sent twice, again and again.

        Raises:
            OutOfTimeError: no answer until the deadline.
        """
        while True:
            try:
                return await self.once(request)
            except NoResponse as failure:
                await self.back_off(failure)

    async def write_once(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a write once, and note whether it may have taken effect without an answer; raises `NoResponse`."""
        began = self._loop.time()
        self.sent, self._first_sent = True, min(began, self._first_sent)
        try:
            return await self.once(request)
        except (NoResponse, UnknownOutcome) as failure:
            if not isinstance(failure, NoResponse) or failure.sent:
                self.lost, self._first_lost = True, min(began, self._first_lost)
            raise

    def seconds_since_effect(self, resends: bool) -> float:
        """How long ago a write without an answer was first sent; any write, if the client sends it again by itself."""
        return self._loop.time() - (self._first_sent if resends else self._first_lost)

    async def once(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request, and give it up at the deadline: the only place where one is sent; raises `NoResponse`."""
        self._requests += 1
        self._first_request = min(self._first_request, self._loop.time())
        try:
            async with asyncio.timeout_at(self.deadline.at):
                return await request()
        except TimeoutError:
            raise NoResponse("no answer in time") from None
        except (RequestError, AgentMemoryError, MemoryError, RecursionError):
            raise
        except Exception as mistake:
            raise UnknownOutcome(f"the storage client failed ({type(mistake).__name__})") from mistake

    async def back_off(self, failure: NoResponse) -> None:
        """Note a failure, and wait before the next request: twice as long each time at most, full jitter.

        Raises:
            OutOfTimeError: there is no time for another one.
            PermanentError: the server sends no HTTP, again and again; or it never answered for some seconds.
        """
        self._garbled = self._garbled + 1 if isinstance(failure, InvalidResponse) else 0
        if self._garbled >= _MOST_GARBLED:
            raise PermanentError(f"{failure}, {self._garbled} times in a row") from failure
        self._last = str(failure)
        self._failures += 1
        self._look_at(failure)
        await self._wait(max(0.0, failure.wait) + self._jitter() * _window(_FIRST, self._failures, _LONGEST))

    def _look_at(self, failure: NoResponse) -> None:
        """End at a server that is out of reach, and warn once that requests are sent again."""
        ends = self.deadline.at
        if isinstance(failure, Unreachable):
            ends = min(ends, self._first_request + _UNREACHABLE_SECONDS)
            if self._loop.time() >= ends and (not failure.sent or self._failures >= _MOST_CLOSED):
                raise PermanentError(f"{failure}, {self._requests} requests in {self.seconds_ago:.1f} s") from failure
        if self._failures == _TOLD:
            left = max(0.0, ends - self._loop.time())
            _log.warning("%s: %s; it is asked again for up to %.0f s", self._subject, failure, left)

    async def lose(self) -> None:
        """Wait after a lost race; raises as `back_off`."""
        self._races += 1
        self._last = f"{self._races} lost races"
        await self._wait(self._jitter() * _window(_FIRST_RACE, self._races, _LONGEST_RACE), races=not self._failures)

    async def wait_for_room(self) -> None:
        """Wait until entries of other writers are over; raises as `back_off`."""
        self._last = "too many processes change the file"
        await self._wait(_LONGEST * (0.5 + self._jitter() / 2))

    async def _wait(self, seconds: float, races: bool = False) -> None:
        if self._loop.time() + seconds >= self.deadline.at:
            spent = f"gave up after {self.seconds_ago:.1f} of {self.deadline.seconds:g} s, {self._requests} requests"
            raise OutOfTimeError(f"{spent}: {self._last}", races)
        await asyncio.sleep(seconds)


def _window(first: float, tries: int, longest: float) -> float:
    return min(longest, first * 2.0 ** min(tries, 32))
