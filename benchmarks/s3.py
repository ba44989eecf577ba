"""What S3 costs through agent-memory beside bare s3fs, boto3 and the peers' ways to append: one server, one run.

    python benchmarks/s3.py [--long] [--endpoint URL]

Starts ministack (``pip install ministack``) on a free port, or takes a running server. Every figure is the median of
interleaved rounds of 64 calls, one on each of 64 files of 1 KB, in turn or all at once; a ratio is the median of the
rounds' ratios to the row's first line. CPU is the client's, all its threads. It is the honest figure: the wall clock
holds the server's time as well, which on an emulator is most of it. All clients have 64 connections and have made them
before; hooks and logging are at their defaults. "requests" is how many the client sent per call, counted.

"bare" is ``fs._call_s3(...)`` with the same requests as ours, conditions and metadata included, on fsspec's I/O loop,
where an async caller gets by `asyncio.wrap_future`; "no metadata" is the same without the writer's stamp that ours
carry. "sync" is `AgentMemory` beside `fsspec.asyn.sync` of the same coroutines, which is what ``fs.call_s3`` is.

- read, write, create, stat: one GET, PUT, PUT (``If-None-Match: *``), HEAD.
- list: one LIST, of an agent's 10 files and of a whole page of 1,000.
- append, version known: a process appends to what it wrote last: one PUT (``If-Match``).
- append, version unknown: the first append of a process to a file: GET and PUT (``If-Match``).
- append, others write too: another client has overwritten the file before every append: GET and PUT.
- appends of peers: "GET+PUT" reads, and writes without a condition, as session stores and S3 backends of agent
  frameworks do, here by the same session as "bare"; "boto3" is the same by their usual client; ``open("ab")`` is
  s3fs's.
- lines kept: four processes append 25 lines at once each to one object. "refused" are those that raised.

``--long`` adds "among": the files of 10,000 agents, 10 each, in one bucket, beside a bucket with one agent's; every
round draws another agent. "list" is there to be seen: how long a LIST takes in a large bucket is the server's matter.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import itertools
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, ClassVar, NamedTuple

import fsspec.asyn
from s3fs import S3FileSystem

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemory, AsyncAgentMemoryService
from agent_memory.object_store._kept import Kept
from agent_memory_s3 import S3Backend

FILES = 64
ROUNDS = 21
LONG_ROUNDS = 75
AGENTS, FILES_OF_AGENT = 10_000, 10
WRITERS, LINES_OF_WRITER = 4, 25
TEXT = "x" * 1023 + "\n"
DATA = TEXT.encode()
LINE = "one line of a log\n"
STAMP = {"agent-memory-writers": "0123456789ab 01234567:123:12345678"}  # what ours carry, in length
POOL = {"config_kwargs": {"max_pool_connections": FILES}}
Round = Callable[[], Awaitable[object]]
Call = Callable[[int], Awaitable[object]]


async def nothing() -> None:
    """What most rounds need beforehand."""


class Way(NamedTuple):
    """One way to do a row's operation: a round of it, and what is to be done before each round, untimed."""

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
    """Counts what botocore's clients send, while it is asked to."""

    def __init__(self) -> None:
        self.clients: list[Any] = []
        self._seen = 0

    async def of(self, round_: Round) -> int:
        """The requests of one round."""
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
    """Measures rows and prints them."""

    def __init__(self) -> None:
        self.requests = Requests()
        print(f"{'':<44}{'requests':>9}{'wall ms':>10}{'ratio':>8}{'CPU ms':>10}{'ratio':>8}", flush=True)

    async def row(self, row: str, ways: Mapping[str, Way], calls: int = FILES, rounds: int = ROUNDS) -> None:
        """Measure the ways in turns, the later ones first in every other round; print each beside the first."""
        sent = {}
        for name, way in ways.items():
            await way.before()
            await way.round()  # warms up
            await way.before()
            sent[name] = await self.requests.of(way.round) / calls
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in ways if number % 2 else reversed(list(ways)):
                await ways[name].before()
                costs[name].append(await _cost(ways[name].round, calls))
        print(row)
        plain = costs[next(iter(ways))]
        for name, cost in costs.items():
            figures = _beside(cost, plain, "wall") + _beside(cost, plain, "cpu")
            print(f"  {name:<42}{sent[name]:>9.2f}{figures}", flush=True)


async def _cost(round_: Round, calls: int) -> Cost:
    gc.collect()  # each pays for its own garbage
    wall, cpu = time.perf_counter(), time.process_time()
    await round_()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(wall / calls * 1e3, cpu / calls * 1e3)


def _beside(costs: list[Cost], plain: list[Cost], clock: str) -> str:
    own, its = ([getattr(cost, clock) for cost in each] for each in (costs, plain))
    ratio = statistics.median(mine / other for mine, other in zip(own, its, strict=True))
    return f"{statistics.median(own):>10.3f}" + (f"{ratio:>7.2f}x" if costs is not plain else " " * 8)


class Bare:
    """One bucket by s3fs's own coroutines. They run on fsspec's I/O loop; see `hop` and `wait`."""

    _opened: ClassVar[
        list[S3FileSystem]
    ] = []  # kept to the end: in an event loop s3fs would close them on the wrong one

    def __init__(self, bucket: str, options: Mapping[str, Any]) -> None:
        self._bucket = bucket
        self.known: dict[str, tuple[str, bytes]] = {}
        self.fs = S3FileSystem(**options, **POOL, use_listings_cache=False, skip_instance_cache=True)
        self._opened.append(self.fs)

    def make_bucket(self) -> None:
        self.fs.call_s3("create_bucket", Bucket=self._bucket)

    async def get(self, name: str) -> tuple[str, bytes]:
        reply = await self.fs._call_s3("get_object", Bucket=self._bucket, Key=name)
        async with reply["Body"] as body:
            return reply["ETag"], await body.read()

    async def put(self, name: str, data: bytes, **options: object) -> str:
        reply = await self.fs._call_s3("put_object", Bucket=self._bucket, Key=name, Body=data, **options)
        return str(reply["ETag"])

    async def head(self, name: str) -> object:
        return await self.fs._call_s3("head_object", Bucket=self._bucket, Key=name)

    async def list(self, prefix: str) -> object:
        return await self.fs._call_s3("list_objects_v2", Bucket=self._bucket, Prefix=prefix, MaxKeys=1000)

    async def append(self, name: str, line: str = LINE, **options: object) -> None:
        etag, data = await self.get(name)
        await self.put(name, data + line.encode(), IfMatch=etag, **options)

    async def append_to_known(self, name: str, **options: object) -> None:
        etag, data = self.known.get(name) or await self.get(name)
        data += LINE.encode()
        self.known[name] = await self.put(name, data, IfMatch=etag, **options), data

    async def append_blindly(self, name: str, line: str = LINE) -> None:
        _, data = await self.get(name)
        await self.put(name, data + line.encode())


def hop(request: Coroutine[Any, Any, object]) -> Awaitable[object]:
    """How an async caller gets to the I/O loop."""
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, fsspec.asyn.get_loop()))


def wait(call: Callable[..., Coroutine[Any, Any, object]], *args: object, **options: object) -> object:
    """How a sync caller does."""
    return fsspec.asyn.sync(fsspec.asyn.get_loop(), call, *args, **options)


class Bench:
    """The clients of one bucket and their files: ``bare/...`` and, of our agent "bench", ``agent_memory/bench/...``."""

    def __init__(self, endpoint: str) -> None:
        self.options: dict[str, Any] = {"endpoint_url": endpoint, "key": "benchmark", "secret": "benchmark"}
        self.bucket = new_name()
        self.bare = Bare(self.bucket, self.options)
        self.bare.make_bucket()
        self.backend = self._backend()
        self.ours = AsyncAgentMemoryService(self.backend).agent("bench")
        self._sync_backend = self._backend()
        self.sync = AgentMemoryService(self._sync_backend).agent("bench")
        self.boto3 = _boto3(self.options)
        self.new = itertools.count()
        self.table = Table()

    def _backend(self) -> S3Backend:
        return S3Backend(self.bucket, "", {**self.options, **POOL})

    async def fill(self) -> None:
        """Make the files, and with them the connections; count requests from now on."""
        await self.write_anew()
        self.sync.read(our_path(0))
        self.table.requests.clients += [self.bare.fs._s3, client_of(self.backend), client_of(self._sync_backend)]
        if self.boto3:
            self.table.requests.clients.append(self.boto3)

    async def write_anew(self) -> None:
        """Let all files have 1 KB."""
        self.bare.known.clear()
        await at_once(lambda n: hop(self.bare.put(bare_name(n), DATA, Metadata=STAMP)))()
        await at_once(lambda n: self.ours.write(our_path(n), TEXT))()

    async def forget(self) -> None:
        """Make ours a process that has appended nothing yet."""
        self.backend._kept = Kept()

    async def overwrite(self) -> None:
        """Be somebody else who writes all of our files."""
        await at_once(lambda n: hop(self.bare.put(our_name(n), DATA, Metadata=STAMP)))()

    async def aclose(self) -> None:
        await self.ours.aclose()
        self.sync.close()


def bare_name(number: int) -> str:
    return f"just_as_long/bench/files/{number}.md"


def our_path(number: int) -> str:
    return f"files/{number}.md"


def our_name(number: int) -> str:
    return f"agent_memory/bench/{our_path(number)}"


def client_of(backend: S3Backend) -> Any:
    """What it sends its requests by."""
    store: Any = backend._bucket.store
    return store._fs._s3


def new_name() -> str:
    return f"bench-{os.urandom(4).hex()}"


def _boto3(options: Mapping[str, Any]) -> Any:
    try:
        boto3 = importlib.import_module("boto3")
    except ImportError:
        print("boto3 is not installed: its rows are left out")
        return None
    config = importlib.import_module("botocore.config").Config(max_pool_connections=FILES)
    keys = {"aws_access_key_id": options["key"], "aws_secret_access_key": options["secret"]}
    print(f"boto3 {version('boto3')}")
    return boto3.client("s3", endpoint_url=options["endpoint_url"], config=config, **keys)


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
    """Let ours have found out that somebody else writes its files, as it does once for each."""
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


def open_and_append(fs: Any, path: str, line: str = LINE) -> None:
    with fs.open(path, "ab") as file:
        file.write(line.encode())


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
        except Exception:  # noqa: BLE001 - whatever it is, it was said
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
    """What each process does."""
    lines = [f"line {line} of writer {number}\n" for line in range(LINES_OF_WRITER)]
    failed = asyncio.run(LINES_OF[way](options, bucket, lines, ready.wait))
    with refused.get_lock():
        refused.value += failed


def kept_lines(way: str, options: Mapping[str, Any], memory: AgentMemory, bucket: str) -> None:
    """Print how many lines of all writers are in the file in the end."""
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


class Root:
    """A bucket of its own with the files of so many agents."""

    def __init__(self, options: Mapping[str, Any], agents: int) -> None:
        self._agents = agents
        bucket = new_name()
        self._bare = Bare(bucket, options)
        self._bare.make_bucket()
        self.backend = S3Backend(bucket, "", {**options, **POOL})
        self._service = AsyncAgentMemoryService(self.backend)
        self.memory: AsyncAgentMemory = self._service.agent("agent-0")

    async def fill(self) -> None:
        """As plain PUTs, 64 at once: the files are what ours would have written."""
        numbers = iter(range(self._agents * FILES_OF_AGENT))

        async def work() -> None:
            for number in numbers:
                agent, file = divmod(number, FILES_OF_AGENT)
                await self._bare.put(f"agent_memory/agent-{agent}/notes/{file}.md", DATA, Metadata=STAMP)

        await asyncio.gather(*(hop(work()) for _ in range(FILES)))
        await self.memory.append("notes/0.md", LINE)  # which finds out about the server

    async def draw(self) -> None:
        """Turn to an agent about whom nothing is known yet."""
        self.backend._kept = Kept()
        self.memory = self._service.agent(f"agent-{random.randrange(self._agents)}")

    async def draw_and_append(self) -> None:
        """Turn to an agent and append to each file."""
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


@contextlib.contextmanager
def ministack() -> Iterator[str]:
    """The endpoint of an emulator that runs meanwhile."""
    with socket.socket() as probe, tempfile.TemporaryFile() as log:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = shutil.which("ministack", path=sysconfig.get_path("scripts")) or "ministack"
        variables = {**os.environ, "GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1"}
        process = subprocess.Popen([command], env=variables, stdout=log, stderr=log)
        try:
            endpoint = f"http://127.0.0.1:{port}"
            _await_answer(endpoint, process)
            yield endpoint
        finally:
            process.terminate()
            process.wait(10)


def _await_answer(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(endpoint, timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("ministack does not start")


async def main(endpoint: str, long: bool) -> None:
    bench = Bench(endpoint)
    await bench.fill()
    await single_requests(bench)
    await listings(bench)
    await appends(bench)
    await sync_calls(bench)
    await beside_boto3(bench)
    await beside_peers(bench)
    lines_kept(bench)
    if long:
        await among_many(bench)
    await bench.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help=f"also {AGENTS:,} agents in one bucket")
    parser.add_argument("--endpoint", metavar="URL", help="a running S3 server instead of ministack")
    given = parser.parse_args()
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    print(*(f"{package} {version(package)}" for package in ("s3fs", "aiobotocore", "botocore", "aiohttp")), sep=", ")
    print("server:", given.endpoint or f"ministack {version('ministack')}")
    with contextlib.nullcontext(given.endpoint) if given.endpoint else ministack() as address:
        asyncio.run(main(address, given.long))
