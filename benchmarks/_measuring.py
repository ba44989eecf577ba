"""Measure rounds of calls in one run: wall clock, CPU and requests per call, as ratios to the first way."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

FILES = 64
ROUNDS = 41
Round = Callable[[], Awaitable[object]]
Call = Callable[[int], Awaitable[object]]


async def nothing() -> None:
    """Do nothing; the preparation of most rounds."""


class Way(NamedTuple):
    """One way to do a row's operation: a timed round, and the untimed preparation before each round."""

    round: Round
    before: Round = nothing


class Cost(NamedTuple):
    """Milliseconds per call."""

    wall: float
    cpu: float


def in_turn(call: Call, calls: int = FILES) -> Round:
    async def run() -> None:
        for number in range(calls):
            await call(number)

    return run


def at_once(call: Call, calls: int = FILES) -> Round:
    async def run() -> None:
        await asyncio.gather(*(call(number) for number in range(calls)))

    return run


def blocking(call: Callable[[int], object], calls: int = FILES) -> Round:
    async def run() -> None:
        for number in range(calls):
            call(number)

    return run


def in_threads(pool: ThreadPoolExecutor, call: Callable[[int], object]) -> Round:
    async def run() -> None:
        list(pool.map(call, range(FILES)))

    return run


class Requests:
    """Count the requests of botocore's clients during a round."""

    def __init__(self) -> None:
        self.clients: list[Any] = []
        self._seen = 0

    async def of(self, round_: Round) -> int:
        """Run one round and return the number of its requests."""
        self._seen = 0
        for client in self.clients:
            client.meta.events.register("before-send.s3", self._count)
        await round_()
        for client in self.clients:
            client.meta.events.unregister("before-send.s3", self._count)
        return self._seen

    def _count(self, **_: object) -> None:
        self._seen += 1


class Table:
    """Measure rows and print them."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self.requests = Requests()
        self._rounds = rounds
        print(f"{'':<44}{'requests':>9}{'wall ms':>10}{'ratio':>8}{'CPU ms':>10}{'ratio':>8}", flush=True)

    async def row(
        self,
        row: str,
        ways: Mapping[str, Way],
        calls: int = FILES,
        rounds: int | None = None,
        also: tuple[str, str] | None = None,
    ) -> None:
        """Measure the ways in alternating order, reversed in every other round; print each beside the first way.

        ``also`` names two ways; the first is also printed beside the second.
        """
        sent = {}
        for name, way in ways.items():
            await way.before()
            await way.round()  # warm-up
            await way.before()
            sent[name] = await self.requests.of(way.round) / calls
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(rounds or self._rounds):
            for name in ways if number % 2 else reversed(list(ways)):
                await ways[name].before()
                costs[name].append(await _cost(ways[name].round, calls))
        print(row)
        plain = costs[next(iter(ways))]
        for name, cost in costs.items():
            figures = _beside(cost, plain, "wall") + _beside(cost, plain, "cpu")
            requests = f"{sent[name]:.2f}" if sent[name] else "-"
            print(f"  {name:<42}{requests:>9}{figures}", flush=True)
        if also:
            one, other = (costs[name] for name in also)
            figures = _beside(one, other, "wall") + _beside(one, other, "cpu")
            print(f"  {' / '.join(also):<42}{'':>9}{figures}", flush=True)


async def _cost(round_: Round, calls: int) -> Cost:
    gc.collect()  # so that no way pays for the garbage of another
    wall, cpu = time.perf_counter(), time.process_time()
    await round_()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(wall / calls * 1e3, cpu / calls * 1e3)


def _beside(costs: list[Cost], plain: list[Cost], clock: str) -> str:
    own, its = ([getattr(cost, clock) for cost in each] for each in (costs, plain))
    ratio = statistics.median(mine / other for mine, other in zip(own, its, strict=True))
    return f"{statistics.median(own):>10.3f}" + (f"{ratio:>7.2f}x" if costs is not plain else " " * 8)
