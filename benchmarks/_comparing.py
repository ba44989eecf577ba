"""Compare sync calls in one run: medians of interleaved rounds, as ratios to the plain call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

ROUNDS = 15
Call = Callable[[], object]


def microseconds(call: Call, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6


def compare(row: str, plain: Call, ours: Call, others: dict[str, Call] | None = None, calls: int = 300) -> None:
    """Print one row: the time of each call, and its ratio to the plain call."""
    contenders = {"plain": plain, "agent-memory": ours, **(others or {})}
    for call in contenders.values():
        call()
    rounds = [{name: microseconds(call, calls) for name, call in contenders.items()} for _ in range(ROUNDS)]
    shown = [f"{row:<34}", f"plain {statistics.median(r['plain'] for r in rounds):9.1f} µs"]
    for name in contenders:
        if name != "plain":
            cost = statistics.median(r[name] for r in rounds)
            ratio = statistics.median(r[name] / r["plain"] for r in rounds)
            shown.append(f"{name} {cost:9.1f} µs = {ratio:5.2f}x")
    print("   ".join(shown), flush=True)
