"""Measure what a user feels, in one run: each row beside the best alternative or the floor, as one table of Markdown.

    python benchmarks/felt.py [disk] [s3] [start]

Without arguments all three groups. Times are medians of interleaved rounds, in milliseconds unless the row says
otherwise. On disk a change is durable when it returns, which is the default, and so it is in the floors. S3 is an
emulator whose answers arrive 20 ms later, and requests are counted at the client. A growth is an exponent: 1.0 if twice
as many names take twice as long.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from _s3_away import away
from _s3_clients import POOL, client_of, ministack, new_name
from local import LINE, TEXTS, replace_durably
from s3fs import S3FileSystem

from agent_memory import AgentMemory, AgentMemoryService, VersionLimits
from agent_memory.audit.record import START, encode
from agent_memory_s3 import S3Backend

TEXT = TEXTS["1 KB"]
ROUNDS = 31
AGENTS = 5_000


class Row(NamedTuple):
    """One line of the table: what was measured, ours, and what it is compared with."""

    what: str
    ours: str
    beside: str
    other: str
    ratio: str


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def beside(what: str, ours: Callable[[], object], name: str, other: Callable[[], object], rounds: int = ROUNDS) -> Row:
    """Measure two calls in turn."""
    return compared(what, [(milliseconds(ours), milliseconds(other)) for _ in range(rounds)], name)


def compared(what: str, times: Sequence[tuple[float, float]], name: str) -> Row:
    """The medians of our times and of the others."""
    mine, its = (statistics.median(each) for each in zip(*times, strict=True))
    return Row(what, f"{mine:.3f}", name, f"{its:.3f}", f"{mine / its:.2f}")


def growth(what: str, sizes: tuple[int, int], times: tuple[float, float], unit: str = "ms") -> Row:
    exponent = math.log(times[1] / times[0]) / math.log(sizes[1] / sizes[0])
    ours = f"{times[0]:.1f} and {times[1]:.1f} {unit}"
    return Row(what, ours, f"{sizes[0]:,} and {sizes[1]:,}", "growth", f"{exponent:.2f}")


def on_disk() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as root, AgentMemory.open(root) as memory:
        plain = Path(root, "plain")
        plain.mkdir()
        (plain / "read").write_text(TEXT)
        memory.write("read.md", TEXT)
        yield beside("read 1 KB", lambda: memory.read("read.md"), "`Path.read_text`", (plain / "read").read_text, 501)
        yield beside("stat", lambda: memory.stat("read.md"), "`os.stat`", lambda: os.stat(plain / "read"), 501)  # noqa: PTH116
        whole = plain / "whole"
        yield beside(
            "write 1 KB",
            lambda: memory.write("w.md", TEXT),
            "the same system calls",
            lambda: replace_durably(whole, TEXT),
        )
        yield beside(
            "append a line",
            lambda: memory.append("l.md", LINE),
            "`write`, `fsync`",
            lambda: append_durably(plain / "l"),
        )
        yield beside(
            "edit 1 KB", lambda: memory.edit("w.md", str.swapcase), "read, replace", lambda: edit_durably(whole)
        )
        for number in range(1_000):
            memory.write(f"many/{number}.md", "x")
        yield deletions(memory, plain)
        yield trees(memory, plain)
    yield from listings()
    yield from earlier_versions()


def append_durably(path: Path) -> None:
    with path.open("ab", 0) as file:
        file.write(LINE.encode())
        os.fsync(file.fileno())


def edit_durably(path: Path) -> None:
    replace_durably(path, path.read_text().swapcase())


def remove_durably(path: Path) -> None:
    path.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def deletions(memory: AgentMemory, plain: Path) -> Row:
    times = []
    for _ in range(ROUNDS):
        memory.write("many/x.md", "x")
        (plain / "x").write_text("x")
        times.append(
            (milliseconds(lambda: memory.delete("many/x.md")), milliseconds(lambda: remove_durably(plain / "x")))
        )
    return compared("delete beside 1,000 files", times, "`unlink`, `fsync` of the directory")


def trees(memory: AgentMemory, plain: Path) -> Row:
    times = []
    for _ in range(5):
        for number in range(100):
            memory.write(f"tree/{number}.md", "x")
        (plain / "tree").mkdir()
        for number in range(100):
            (plain / "tree" / f"{number}").write_text("x")
        ours = milliseconds(lambda: memory.delete_tree("tree"))
        times.append((ours, milliseconds(lambda: shutil.rmtree(plain / "tree"))))
    return compared("delete_tree of 100 files", times, "`shutil.rmtree`, not durable")


def listings() -> Iterator[Row]:
    """List an agent's files beside the bare scan of the directory."""
    times = []
    sizes = 100_001, 400_000
    for size in sizes:
        with tempfile.TemporaryDirectory() as root, AgentMemory.open(root) as memory:
            memory.write("first.md", "x")
            directory = next(Path(root).rglob("first.md")).parent
            for number in range(size - 1):
                (directory / f"f{number}.md").touch()
            times.append(least(memory.list))
            if size == sizes[0]:
                yield beside(
                    f"list {size:,} names", memory.list, "`scandir`, `stat`, sorted", lambda d=directory: scan(d), 3
                )
    yield growth("list", sizes, (times[0], times[1]))


def scan(directory: Path) -> list[tuple[str, int, float]]:
    with os.scandir(directory) as entries:
        found = [(each.name, each.stat()) for each in entries]
    return sorted((name, stat.st_size, stat.st_mtime) for name, stat in found)


def earlier_versions() -> Iterator[Row]:
    sizes = 5_000, 20_000
    pages, reads = [], []
    for size in sizes:
        options = {"durability": "process"}  # to write them in less time
        limits = VersionLimits(keep=100_000)
        with (
            tempfile.TemporaryDirectory() as root,
            AgentMemory.open(root, storage_options=options, versions=limits) as memory,
        ):
            for number in range(size):
                memory.write("a.md", f"{number}")
            middle = memory.versions.list("a.md")[size // 2]
            pages.append(least(lambda: memory.versions.list("a.md", limit=50, after=middle)))  # noqa: B023
            reads.append(least(lambda: memory.versions.read("a.md", middle)))  # noqa: B023
    yield growth("a page of 50 versions from the middle", sizes, (pages[0], pages[1]))
    yield growth("read one version", sizes, (reads[0], reads[1]))


def least(call: Callable[[], object]) -> float:
    return min(milliseconds(call) for _ in range(5))


class Counted:
    """Counts the requests of a client of botocore."""

    def __init__(self, client: Any) -> None:
        self.requests: Counter[str] = Counter()
        client.meta.events.register("before-send.s3", self._count)

    def _count(self, request: Any, **_: Any) -> None:
        self.requests[request.method] += 1

    def of(self, call: Callable[[], object]) -> int:
        before = self.requests.total()
        call()
        return self.requests.total() - before


def on_s3() -> Iterator[Row]:
    with ministack() as near, away(near, 20) as endpoint:
        bucket = new_name()
        options = {"endpoint_url": endpoint, "key": "benchmark", "secret": "benchmark"}
        bare = S3FileSystem(**options, use_listings_cache=False, skip_instance_cache=True)
        bare.call_s3("create_bucket", Bucket=bucket)
        backend = S3Backend(bucket, "", {**options, **POOL})
        with AgentMemoryService(backend) as service:
            service.agent("one").write("notes/2026/x.md", TEXT)  # connects
            counted = Counted(client_of(backend))
            yield from many_agents(service, bare, bucket, counted)
            yield from deleted_trees(service, bare, bucket, counted)


def many_agents(service: AgentMemoryService, bare: Any, bucket: str, counted: Counted) -> Iterator[Row]:
    one = service.agent("one")

    def put() -> object:
        return bare.call_s3("put_object", Bucket=bucket, Key="bare", Body=TEXT.encode())

    put()
    yield beside("overwrite, one agent", lambda: one.write("notes/2026/x.md", TEXT), "one bare PUT", put)
    agents = [service.agent(f"agent-{number}") for number in range(AGENTS)]
    first = [(milliseconds(lambda a=agent: a.write("notes/2026/x.md", TEXT))) for agent in agents[:ROUNDS]]
    yield Row("first write of an agent into `notes/2026`", f"{statistics.median(first):.1f}", "", "", "")
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda agent: agent.write("notes/2026/x.md", TEXT), agents[ROUNDS:]))
    turns = iter(agents)  # the least recently used first
    requests = counted.of(lambda: next(turns).write("notes/2026/x.md", TEXT))
    row = beside(
        f"overwrite, {AGENTS:,} agents in turn", lambda: next(turns).write("notes/2026/x.md", TEXT), "one bare PUT", put
    )
    yield row._replace(what=f"{row.what} ({requests} requests)")
    for agent in agents[:1_200]:
        agent.once("first").append("keyed.md", "x")
    keyed = counted.of(lambda: agents[0].once("second").append("keyed.md", "y"))
    yield Row("a keyed append, after 1,200 agents", f"{keyed} requests", "", "", "")


def deleted_trees(service: AgentMemoryService, bare: Any, bucket: str, counted: Counted) -> Iterator[Row]:
    memory = service.agent("tree")
    times, requests = [], 0
    for _ in range(5):
        for number in range(100):
            memory.write(f"d/{number}.md", "x")
            bare.call_s3("put_object", Bucket=bucket, Key=f"bare-tree/{number}", Body=b"x")
        before = counted.requests.total()
        ours = milliseconds(lambda: memory.delete_tree("d"))
        requests = counted.requests.total() - before
        times.append((ours, milliseconds(lambda: bare.rm(f"{bucket}/bare-tree", recursive=True))))
    yield compared(f"delete_tree of 100 files ({requests} requests)", times, "`s3fs.rm`, without conditions")


def at_start() -> Iterator[Row]:
    none = cpu(sys.executable, "-c", "pass")
    base = cpu(sys.executable, "-c", "import asyncio, pluggy, logging, json") - none
    ours = cpu(sys.executable, "-c", "import agent_memory") - none
    beside_it = "`asyncio`, `pluggy`, `logging`, `json`"
    yield Row("`import agent_memory`, CPU", f"{ours:.0f}", beside_it, f"{base:.0f}", f"{ours / base:.2f}")
    with tempfile.TemporaryDirectory() as root:
        program = f"from agent_memory import AgentMemory\nAgentMemory.open({root!r}).write('a.md', 'x')"
        opened = cpu(sys.executable, "-c", program) - none
        yield Row(
            "import, open a disk and write, CPU", f"{opened:.0f}", beside_it, f"{base:.0f}", f"{opened / base:.2f}"
        )
        script = str(Path(sys.executable).with_name("agent-memory"))
        listing = cpu(script, "--url", root, "ls") - none
        yield Row("`agent-memory ls`, CPU", f"{listing:.0f}", "", "", "")
        yield from audit_logs(Path(root), script)


def audit_logs(root: Path, script: str) -> Iterator[Row]:
    log, previous = root / "log.jsonl", START
    with log.open("wb") as file:
        for number in range(200_000):
            facts = {
                "agent": f"agent-{number % 10}",
                "operation": "append",
                "path": f"{number % 100}.md",
                "outcome": "ok",
            }
            line, previous = encode("0" * 16, number + 1, previous, "result" if number else "begin", 1e9, facts)
            file.write(line)
    for words in (("show", "-n", "20"), ("blame", "13.md")):
        command = (script, "--agent", "agent-3", "audit", words[0], "--log", str(log), *words[1:])
        yield Row(f"`audit {' '.join(words)}` of 200,000 records, CPU", f"{cpu(*command, rounds=3):.0f}", "", "", "")


def cpu(*command: str, rounds: int = 11) -> float:
    """The least processor time of a command, in milliseconds."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1e3


GROUPS = {"disk": on_disk, "s3": on_s3, "start": at_start}


def main(chosen: list[str]) -> None:
    print("| what | ours | beside | that | ratio |\n|---|---:|---|---:|---:|", flush=True)
    for name in chosen or GROUPS:
        for row in GROUPS[name]():
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
