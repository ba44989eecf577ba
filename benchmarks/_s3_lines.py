"""Count the lines that survive when processes append to one object, for each way to append: a part of `s3.py`."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from _s3_clients import Bare, Bench, hop, open_and_append

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemoryService

WRITERS, LINES_OF_WRITER = 4, 25


async def lines_of_ours(options: Mapping[str, Any], bucket: str, lines: list[str], ready: Callable[[], object]) -> int:
    async with AsyncAgentMemoryService(f"s3://{bucket}", storage_options=options) as service:
        memory = service.agent("lines")
        await memory.read("log")
        ready()
        done = await asyncio.gather(*(memory.append("log", line) for line in lines), return_exceptions=True)
    return sum(isinstance(each, Exception) for each in done)


async def lines_of_bare(options: Mapping[str, Any], bucket: str, lines: list[str], ready: Callable[[], object]) -> int:
    bare, name = Bare(bucket, options), "agent_memory/lines/log"
    await hop(bare.get(name))
    ready()
    done = await asyncio.gather(*(hop(bare.append_blindly(name, line)) for line in lines), return_exceptions=True)
    return sum(isinstance(each, Exception) for each in done)


async def lines_of_open(options: Mapping[str, Any], bucket: str, lines: list[str], ready: Callable[[], object]) -> int:
    bare, name = Bare(bucket, options), "agent_memory/lines/log"
    await hop(bare.get(name))

    def append(line: str) -> bool:
        try:
            open_and_append(bare.fs, f"{bucket}/{name}", line)
        except Exception:  # noqa: BLE001 - any exception counts as a reported failure
            return True
        return False

    ready()
    with ThreadPoolExecutor(len(lines)) as pool:
        return sum(pool.map(append, lines))


LINES_OF = {
    "agent-memory": lines_of_ours,
    "GET+PUT, no condition": lines_of_bare,
    's3fs open("ab")': lines_of_open,
}


def write_lines(way: str, options: Mapping[str, Any], bucket: str, number: int, ready: Any, refused: Any) -> None:
    """Append the lines of one process, and count those that raised an exception."""
    lines = [f"line {line} of writer {number}\n" for line in range(LINES_OF_WRITER)]
    failed = asyncio.run(LINES_OF[way](options, bucket, lines, ready.wait))
    with refused.get_lock():
        refused.value += failed


def kept_lines(way: str, options: Mapping[str, Any], memory: AgentMemory, bucket: str) -> None:
    """Run all writers, and print how many of their lines are in the file at the end."""
    memory.write("log", "")
    spawn = multiprocessing.get_context("spawn")
    ready, refused = spawn.Barrier(WRITERS + 1, timeout=60), spawn.Value("i", 0)
    given = [(way, options, bucket, number, ready, refused) for number in range(WRITERS)]
    processes = [spawn.Process(target=write_lines, args=each) for each in given]
    for process in processes:
        process.start()
    ready.wait()
    started = time.perf_counter()
    for process in processes:
        process.join()
    took = time.perf_counter() - started
    found = len(set(memory.read("log").splitlines()))
    print(
        f"  {way:<42}{found:>4} of {WRITERS * LINES_OF_WRITER} kept, {refused.value} refused, {took:.1f} s", flush=True
    )


def lines_kept(bench: Bench) -> None:
    print(f"lines kept, {WRITERS} processes with {LINES_OF_WRITER} at once")
    with AgentMemoryService(f"s3://{bench.bucket}", storage_options=bench.options) as service:
        for way in LINES_OF:
            kept_lines(way, bench.options, service.agent("lines"), bench.bucket)
