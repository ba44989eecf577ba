"""The price of confinement, locks and hooks on local disk, beside plain `pathlib`, in one run, as ratios.

    python benchmarks/local.py [directory]

Each line is the median of interleaved rounds of the plain call and of ours, on the same 1 KB file, all hooks and
logging at their defaults. "durable" is beside the bare sequence temp + write + fsync + rename + fsync(directory).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent_memory import AgentMemoryService
from agent_memory.key import Key, _parse

ROUNDS, CALLS = 15, 300
TEXT = "x" * 1023 + "\n"


def microseconds(call: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6


def compare(name: str, plain: Callable[[], object], ours: Callable[[], object], calls: int = CALLS) -> None:
    pairs = [(microseconds(plain, calls), microseconds(ours, calls)) for _ in range(ROUNDS)]
    base, mine = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(mine / base for base, mine in pairs)
    print(f"{name:<28} plain {base:9.1f} µs   agent-memory {mine:9.1f} µs   ratio {ratio:5.2f}")


def append_plainly(path: Path) -> None:
    with path.open("a") as file:
        file.write("one line of a log\n")


def replace_durably(path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(TEXT)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def keys() -> None:
    names = [f"notes/2026/file-{number}.md" for number in range(100_000)]
    _parse.cache_clear()
    fresh = iter(names)
    cold = microseconds(lambda: Key.tree().join(next(fresh)), len(names))
    warm = microseconds(lambda: Key.tree().join(names[-1]), len(names))
    print(f"key, first time {cold:.2f} µs, from the cache {warm:.2f} µs")


def main(directory: str) -> None:
    plain, root = Path(directory) / "plain", Path(directory) / "root"
    plain.mkdir()
    scratch = AgentMemoryService(f"{root.as_uri()}?durability=process").agent("bench")
    durable = AgentMemoryService(root).agent("bench")
    keys()
    for depth in (1, 3, 6):
        path = "/".join(["d"] * (depth - 1) + ["file.md"])
        (plain / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / path).write_text(TEXT)
        scratch.write(path, TEXT)
        compare(f"read, depth {depth}", (plain / path).read_text, lambda path=path: scratch.read(path))
    compare(
        "append, process", lambda: append_plainly(plain / "log"), lambda: scratch.append("log", "one line of a log\n")
    )
    compare("write, durable", lambda: replace_durably(plain / "whole"), lambda: durable.write("whole", TEXT), 30)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch_directory:
        main(scratch_directory)
