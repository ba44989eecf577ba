"""The one retry policy: an operation repeats its unanswered requests until its deadline; for writes see `Write`.

`Cleanup` removes the leftovers of a failed operation from the server, even if the operation was cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Final, TypeVar

from agent_memory.backend.helpers import Deadline, deadline_or_default
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
"""After this many answers in a row that are not HTTP, each on a new connection, an operation fails."""
_UNREACHABLE_SECONDS = 5.0
"""The time in which an operation retries if the server never answered this process."""
_LEAST_CLOSED = 4
"""The least failures before it gives up, if requests may have been sent: one request may take longer than that time."""
_BRIEF_SECONDS = 1.0
"""If races were lost before, a request that the deadline ends within this time does not count as unanswered."""
_WARN_AT = 4
"""The failure at which an operation logs a warning."""
_CLEANUP_SECONDS: Final = 5.0
_log = logging.getLogger("agent_memory.object_store")
T = TypeVar("T")


class OutOfTimeError(Exception):
    """The deadline is over; the message has the seconds, the number of requests, and the last failure.

    ``races``: the store answered every request, and the operation lost every race against other writers.
    """

    def __init__(self, message: str, races: bool = False) -> None:
        super().__init__(message)
        self.races = races


class Attempts:
    """The requests of one operation, repeated until its deadline.

    Args:
        jitter: returns random numbers in ``[0, 1)``, which spread retries.
        subject: the file or bucket of the operation, for log messages.

    Attributes:
        lost: whether a write that may have taken effect got no answer.
        deadline: the end of the operation, by the event loop's clock.
        sent: whether a write was sent.
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
        """Return requests for the same subject with their own time limit."""
        other = Attempts(self._jitter, self._subject)
        other.deadline = Deadline(seconds, other.began + seconds)
        return other

    def afresh(self) -> Attempts:
        """More requests of the same operation, whose back-off starts again; its deadline stays."""
        other = copy(self)
        other._failures = other._races = other._garbled = 0
        return other

    @property
    def seconds_ago(self) -> float:
        """The seconds since the operation began."""
        return self._loop.time() - self.began

    @property
    def seconds_left(self) -> float:
        """The seconds until the deadline; 0 if it is over."""
        return max(0.0, self.deadline.at - self._loop.time())

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request until it is answered; a repetition must do no harm.

        Raises:
            OutOfTimeError, PermanentError: as `back_off`.
        """
        while True:
            try:
                return await self.once(request)
            except NoResponse as failure:
                await self.back_off(failure)

    async def write_once(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a write once, and set `lost` if it may have taken effect without an answer; raises `NoResponse`."""
        began = self._loop.time()
        self.sent, self._first_sent = True, min(began, self._first_sent)
        try:
            return await self.once(request)
        except (NoResponse, UnknownOutcome) as failure:
            if not isinstance(failure, NoResponse) or failure.sent:
                self.lost, self._first_lost = True, min(began, self._first_lost)
            raise

    def seconds_since_effect(self, resends: bool) -> float:
        """Seconds since the first unanswered write was sent; since the first write, if the client resends by itself."""
        return self._loop.time() - (self._first_sent if resends else self._first_lost)

    async def once(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request once, and cancel it at the deadline; raises `NoResponse`. Every request passes here."""
        self._requests += 1
        began = self._loop.time()
        self._first_request = min(self._first_request, began)
        try:
            async with asyncio.timeout_at(self.deadline.at):
                return await request()
        except TimeoutError:
            raise NoResponse("no answer in time", cut=self._loop.time() - began < _BRIEF_SECONDS) from None
        except (RequestError, AgentMemoryError, MemoryError, RecursionError):
            raise
        except Exception as mistake:
            raise UnknownOutcome(f"the storage client failed ({type(mistake).__name__})") from mistake

    async def back_off(self, failure: NoResponse) -> None:
        """Note a failure, and wait before the next request: exponential back-off with full jitter, 2 seconds at most.

        A wait that the store demands is added.

        Raises:
            OutOfTimeError: the deadline leaves no time for another request.
            PermanentError: several answers in a row were not HTTP; or the server never answered for some seconds.
        """
        self._garbled = self._garbled + 1 if isinstance(failure, InvalidResponse) else 0
        if self._garbled >= _MOST_GARBLED:
            raise PermanentError(f"{failure}, {self._garbled} times in a row") from failure
        if failure.cut and self._races and not self._failures:
            await self._wait(0.0, races=True)  # the lost races took the time
        self._last = str(failure)
        self._failures += 1
        self._check_reach(failure)
        await self._wait(max(0.0, failure.wait) + self._jitter() * _window(_FIRST, self._failures, _LONGEST))

    def _check_reach(self, failure: NoResponse) -> None:
        """Raise `PermanentError` if the server cannot be reached; log one warning that requests are repeated."""
        ends = self.deadline.at
        if isinstance(failure, Unreachable):
            ends = min(ends, self._first_request + _UNREACHABLE_SECONDS)
            if self._loop.time() >= ends and (not failure.sent or self._failures >= _LEAST_CLOSED):
                raise PermanentError(f"{failure}, {self._requests} requests in {self.seconds_ago:.1f} s") from failure
        if self._failures == _WARN_AT:
            left = max(0.0, ends - self._loop.time())
            _log.warning("%s: %s; retrying for up to %.0f s", self._subject, failure, left)

    async def back_off_after_race(self) -> None:
        """Wait after a lost race; raises `OutOfTimeError`."""
        self._races += 1
        self._last = f"{self._races} lost races"
        await self._wait(self._jitter() * _window(_FIRST_RACE, self._races, _LONGEST_RACE), races=not self._failures)

    async def wait_for_room(self) -> None:
        """Wait for records of other writers to expire; raises `OutOfTimeError`."""
        self._last = "too many processes write this file"
        await self._wait(_LONGEST * (0.5 + self._jitter() / 2))

    async def _wait(self, seconds: float, races: bool = False) -> None:
        if self._loop.time() + seconds >= self.deadline.at:
            spent = f"gave up after {self.seconds_ago:.1f} of {self.deadline.seconds:g} s, {self._requests} requests"
            raise OutOfTimeError(f"{spent}: {self._last}", races)
        await asyncio.sleep(seconds)


def _window(first: float, tries: int, longest: float) -> float:
    return min(longest, first * 2.0 ** min(tries, 32))


class Cleanup:
    """Requests that remove something, each with its own time limit. Belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: Callable[[], Awaitable[object]], attempts: Attempts) -> None:
        """Send a request until it is answered, for 5 seconds at most, because the operation's deadline may be over.

        The caller waits no longer than its own deadline. A request that fails raises nothing.
        """
        task = asyncio.ensure_future(_answered(request, attempts.briefly(_CLEANUP_SECONDS)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=attempts.seconds_left)

    @asynccontextmanager
    async def on_failure(self, request: Callable[[], Awaitable[object]], attempts: Attempts) -> AsyncIterator[None]:
        """Call `run` if the body fails or is cancelled; not if its coroutine is closed, after its event loop."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            await self.run(request, attempts)
            raise

    async def aclose(self) -> None:
        """Wait for the unfinished requests, for 5 seconds at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLEANUP_SECONDS)


async def _answered(request: Callable[[], Awaitable[object]], attempts: Attempts) -> None:
    with suppress(Exception):  # the caller has an error of its own to raise
        await attempts.until_answered(request)
