"""Compare the cost of agent-memory on S3 with bare s3fs, boto3 and the appends of peers: one server, one run.

    python benchmarks/s3.py [--long | --away MS] [--endpoint URL]

Starts ministack (``pip install ministack``) on a free port, or uses a running server. Every figure is the median of
interleaved rounds of 64 calls, one on each of 64 files of 1 KB, in turn or all at once. A ratio is the median of the
rounds' ratios to the row's first line. CPU is the time of all threads of the client. It is the better measure: the wall
clock includes the time of the server, which is most of it on an emulator. All clients have 64 connections, already
open; hooks and logging are at their defaults. "requests" is the counted number of requests per call.

"bare" is ``fs._call_s3(...)`` with the same requests as ours, including preconditions and metadata, on fsspec's I/O
loop, which an async caller reaches by `asyncio.wrap_future`. "no metadata" is the same without the writer's entry in
the metadata of our requests. "sync" compares `AgentMemory` with `fsspec.asyn.sync` of the same coroutines, which is the
same as ``fs.call_s3``.

- read, write, create, stat: one GET, PUT, PUT (``If-None-Match: *``), HEAD.
- list: one LIST, of an agent's 10 files and of a whole page of 1,000.
- append, version known: a process appends to the version that it wrote last: one PUT (``If-Match``).
- append, version unknown: the first append of a process to a file: GET and PUT (``If-Match``).
- append, others write too: another client has overwritten the file before every append: GET and PUT.
- by obstore: obstore's own coroutines with the same preconditions and metadata, on fsspec's I/O loop as for "bare",
  compared with ours by ``engine="obstore"``, ours by s3fs, and bare obstore on the caller's own loop, as in a program
  that uses obstore directly. The requests of obstore are not counted here, but in ``tests/object_store/test_bill.py``.
- appends of peers: "GET+PUT" reads, then writes without a precondition, as session stores and S3 backends of agent
  frameworks do, here with the same session as "bare". "boto3" is the same with boto3; ``open("ab")`` is s3fs's.
- lines kept: four processes append 25 lines each, all at once, to one object. "refused" counts raised exceptions.

``--away`` measures single requests and obstore with answers that arrive this many milliseconds later, like those of a
distant region, on open connections: the wall clock shows the latency for a caller. CPU is the same as without.

``--long`` adds "among": the files of 10,000 agents, 10 each, in one bucket, compared with a bucket of one agent. Every
round draws another agent. "list" is only informative: the time of a LIST in a large bucket depends on the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from _measuring import FILES, Call, Round, Way, at_once, blocking, in_threads, in_turn
from _s3_away import away
from _s3_clients import (
    DATA,
    LINE,
    POOL,
    STAMP,
    TEXT,
    Bare,
    Bench,
    bare_name,
    client_of,
    hop,
    ministack,
    new_name,
    open_and_append,
    our_path,
    wait,
)
from _s3_lines import lines_kept
from _s3_obstore import beside_obstore

from agent_memory import AsyncAgentMemory, AsyncAgentMemoryService
from agent_memory.object_store.states import RecentWrites
from agent_memory_s3 import S3Backend

LONG_ROUNDS, AWAY_ROUNDS = 75, 9
AGENTS, FILES_OF_AGENT = 10_000, 10


async def both_ways(bench: Bench, row: str, ways: Mapping[str, Call], calls: int = FILES) -> None:
    for way, round_ in (("in turn", in_turn), (f"{calls} at once", at_once)):
        await bench.table.row(f"{row}, {way}", {name: Way(round_(call, calls)) for name, call in ways.items()}, calls)


async def single_requests(bench: Bench) -> None:
    bare, ours, new = bench.bare, bench.ours, bench.new
    await both_ways(
        bench, "read", {"bare": lambda n: hop(bare.get(bare_name(n))), "agent-memory": lambda n: ours.read(our_path(n))}
    )
    writes: dict[str, Call] = {
        "bare": lambda n: hop(bare.put(bare_name(n), DATA, Metadata=STAMP)),
        "agent-memory": lambda n: ours.write(our_path(n), TEXT),
        "no metadata": lambda n: hop(bare.put(bare_name(n), DATA)),
    }
    await both_ways(bench, "write", writes)
    creates: dict[str, Call] = {
        "bare": lambda _: hop(bare.put(bare_name(next(new) + FILES), DATA, Metadata=STAMP, IfNoneMatch="*")),
        "agent-memory": lambda _: ours.create(our_path(next(new) + FILES), TEXT),
    }
    await both_ways(bench, "create", creates)
    await both_ways(
        bench,
        "stat",
        {"bare": lambda n: hop(bare.head(bare_name(n))), "agent-memory": lambda n: ours.stat(our_path(n))},
    )


async def listings(bench: Bench) -> None:
    bare, ours = bench.bare, bench.ours
    for files, calls in ((FILES_OF_AGENT, FILES), (1000, FILES // 16)):
        await asyncio.gather(*(ours.create(f"list-{files}/{number}.md", "x") for number in range(files)))
        assert len(await ours.list(f"list-{files}")) == files
        ways: dict[str, Call] = {
            "bare": lambda _, files=files: hop(bare.list(f"agent_memory/bench/list-{files}/")),  # type: ignore[misc]
            "agent-memory": lambda _, files=files: ours.list(f"list-{files}"),  # type: ignore[misc]
        }
        await both_ways(bench, f"list {files} files", ways, calls)


async def appends(bench: Bench) -> None:
    bare, ours = bench.bare, bench.ours
    known: dict[str, Call] = {
        "bare": lambda n: hop(bare.append_to_known(bare_name(n), Metadata=STAMP)),
        "agent-memory": lambda n: ours.append(our_path(n), LINE),
    }
    for way, round_ in (("in turn", in_turn), (f"{FILES} at once", at_once)):
        await bench.write_anew()
        await bench.table.row(
            f"append, version known, {way}", {name: Way(round_(call)) for name, call in known.items()}
        )
        plain = Way(round_(lambda n: hop(bare.append(bare_name(n), Metadata=STAMP))))
        our_round = round_(lambda n: ours.append(our_path(n), LINE))
        await bench.table.row(
            f"append, version unknown, {way}", {"bare": plain, "agent-memory": Way(our_round, bench.forget)}
        )
        await _met(bench)
        await bench.table.row(
            f"append, others write too, {way}", {"bare": plain, "agent-memory": Way(our_round, bench.overwrite)}
        )


async def _met(bench: Bench) -> None:
    """Let our client detect, once per file, that another client writes its files."""
    for _ in range(2):
        await at_once(lambda n: bench.ours.append(our_path(n), LINE))()
        await bench.overwrite()


async def sync_calls(bench: Bench) -> None:
    bare, ours = bench.bare, bench.sync
    rows: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
        "read": (lambda n: wait(bare.get, bare_name(n)), lambda n: ours.read(our_path(n))),
        "write": (
            lambda n: wait(bare.put, bare_name(n), DATA, Metadata=STAMP),
            lambda n: ours.write(our_path(n), TEXT),
        ),
        "append, version known": (
            lambda n: wait(bare.append_to_known, bare_name(n), Metadata=STAMP),
            lambda n: ours.append(our_path(n), LINE),
        ),
        "stat": (lambda n: wait(bare.head, bare_name(n)), lambda n: ours.stat(our_path(n))),
    }
    await bench.write_anew()
    for row, (plain, call) in rows.items():
        ways = {"bare, sync": Way(blocking(plain)), "agent-memory, sync": Way(blocking(call))}
        await bench.table.row(f"{row}, sync, in turn", ways)


def boto3_get(client: Any, bucket: str, name: str) -> bytes:
    data: bytes = client.get_object(Bucket=bucket, Key=name)["Body"].read()
    return data


async def beside_boto3(bench: Bench) -> None:
    if not (client := bench.boto3):
        return
    bare, ours, bucket = bench.bare, bench.ours, bench.bucket
    rows: dict[str, tuple[Callable[[int], object], Call, Call]] = {
        "read": (
            lambda n: boto3_get(client, bucket, bare_name(n)),
            lambda n: hop(bare.get(bare_name(n))),
            lambda n: ours.read(our_path(n)),
        ),
        "write": (
            lambda n: client.put_object(Bucket=bucket, Key=bare_name(n), Body=DATA),
            lambda n: hop(bare.put(bare_name(n), DATA)),
            lambda n: ours.write(our_path(n), TEXT),
        ),
    }
    with ThreadPoolExecutor(FILES) as pool:
        for row, (its, plain, call) in rows.items():
            ways = {"boto3": Way(blocking(its)), "s3fs": Way(in_turn(plain)), "agent-memory": Way(in_turn(call))}
            await bench.table.row(f"{row} beside boto3, in turn", ways)
            ways = {
                "boto3, threads": Way(in_threads(pool, its)),
                "s3fs": Way(at_once(plain)),
                "agent-memory": Way(at_once(call)),
            }
            await bench.table.row(f"{row} beside boto3, {FILES} at once", ways)


async def beside_peers(bench: Bench) -> None:
    bare, ours, fs, bucket, client = bench.bare, bench.ours, bench.bare.fs, bench.bucket, bench.boto3

    def by_boto3(number: int) -> None:
        name = bare_name(number)
        client.put_object(Bucket=bucket, Key=name, Body=boto3_get(client, bucket, name) + LINE.encode())

    def by_open(number: int) -> None:
        open_and_append(fs, f"{bucket}/{bare_name(number)}")

    def blindly(number: int) -> Awaitable[object]:
        return hop(bare.append_blindly(bare_name(number)))

    def by_ours(number: int) -> Awaitable[object]:
        return ours.append(our_path(number), LINE)

    with ThreadPoolExecutor(FILES) as pool:
        for way, round_ in (("in turn", in_turn), (f"{FILES} at once", at_once)):
            alone = round_ is in_turn
            await bench.write_anew()
            ways = {
                "GET+PUT, no condition": Way(round_(blindly)),
                "agent-memory, version known": Way(round_(by_ours)),
                "agent-memory, version unknown": Way(round_(by_ours), bench.forget),
                's3fs open("ab")': Way(blocking(by_open) if alone else in_threads(pool, by_open)),
            }
            if client:
                ways["boto3 GET+PUT, no condition"] = Way(blocking(by_boto3) if alone else in_threads(pool, by_boto3))
            await bench.table.row(f"appends of peers, {way}", ways)


class Root:
    """A separate bucket with the files of a number of agents."""

    def __init__(self, options: Mapping[str, Any], agents: int) -> None:
        self._agents = agents
        bucket = new_name()
        self._bare = Bare(bucket, options)
        self._bare.make_bucket()
        self.backend = S3Backend(bucket, "", {**options, **POOL})
        self._service = AsyncAgentMemoryService(self.backend)
        self.memory: AsyncAgentMemory = self._service.agent("agent-0")

    async def fill(self) -> None:
        """Create the files with plain PUTs, 64 at once, with the same content as files that we write."""
        numbers = iter(range(self._agents * FILES_OF_AGENT))

        async def work() -> None:
            for number in numbers:
                agent, file = divmod(number, FILES_OF_AGENT)
                await self._bare.put(f"agent_memory/agent-{agent}/notes/{file}.md", DATA, Metadata=STAMP)

        await asyncio.gather(*(hop(work()) for _ in range(FILES)))
        await self.memory.append("notes/0.md", LINE)  # so that the test of the server's preconditions is done

    async def draw(self) -> None:
        """Select an agent with nothing cached."""
        self.backend._recent_writes = RecentWrites()
        self.memory = self._service.agent(f"agent-{random.randrange(self._agents)}")

    async def draw_and_append(self) -> None:
        """Select an agent and append to each of its files."""
        await self.draw()
        await in_turn(lambda n: self.memory.append(f"notes/{n}.md", LINE), FILES_OF_AGENT)()

    async def aclose(self) -> None:
        await self._service.aclose()


async def among_many(bench: Bench) -> None:
    roots = {"one agent": Root(bench.options, 1), f"among {AGENTS:,}": Root(bench.options, AGENTS)}
    for name, root in roots.items():
        started = time.perf_counter()
        await root.fill()
        print(f"{name}: the files made in {time.perf_counter() - started:.1f} s", flush=True)
        bench.table.requests.clients.append(client_of(root.backend))
    calls: dict[str, tuple[Callable[[AsyncAgentMemory, int], Awaitable[object]], Callable[[Root], Round]]] = {
        "read": (lambda memory, n: memory.read(f"notes/{n}.md"), lambda root: root.draw),
        "append, version unknown": (lambda memory, n: memory.append(f"notes/{n}.md", LINE), lambda root: root.draw),
        "append, version known": (
            lambda memory, n: memory.append(f"notes/{n}.md", LINE),
            lambda root: root.draw_and_append,
        ),
        "list": (lambda memory, _: memory.list(), lambda root: root.draw),
    }
    for row, (call, before) in calls.items():
        for way, round_ in (("in turn", in_turn), (f"{FILES_OF_AGENT} at once", at_once)):
            ways = {
                name: Way(
                    round_(lambda n, call=call, root=root: call(root.memory, n), FILES_OF_AGENT),  # type: ignore[misc]
                    before(root),
                )
                for name, root in roots.items()
            }
            await bench.table.row(f"among: {row}, {way}", ways, FILES_OF_AGENT, LONG_ROUNDS)
    for root in roots.values():
        await root.aclose()


async def far_away(endpoint: str, milliseconds: float) -> None:
    with away(endpoint, milliseconds) as address:
        bench = Bench(address, AWAY_ROUNDS)
        await bench.fill()
        await single_requests(bench)
        await beside_obstore(bench)
        await bench.aclose()


async def main(endpoint: str, long: bool) -> None:
    bench = Bench(endpoint)
    await bench.fill()
    await single_requests(bench)
    await listings(bench)
    await appends(bench)
    await sync_calls(bench)
    await beside_obstore(bench)
    await beside_boto3(bench)
    await beside_peers(bench)
    lines_kept(bench)
    if long:
        await among_many(bench)
    await bench.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", metavar="URL", help="a running S3 server instead of ministack")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--long", action="store_true", help=f"also {AGENTS:,} agents in one bucket")
    one.add_argument("--away", type=float, metavar="MS", help="only single requests and obstore, so far away")
    given = parser.parse_args()
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    print(
        *(f"{package} {version(package)}" for package in ("s3fs", "aiobotocore", "botocore", "aiohttp", "obstore")),
        sep=", ",
    )
    print("server:", given.endpoint or f"ministack {version('ministack')}")
    with contextlib.nullcontext(given.endpoint) if given.endpoint else ministack() as address:
        asyncio.run(far_away(address, given.away) if given.away is not None else main(address, given.long))
