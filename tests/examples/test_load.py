"""The product of `docs/production.md` with all options and many clients: nothing lost, nothing over, no leak."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.production import Store, children_of, running, until
from tests.support.servers import S3Server, free_port

pytestmark = [pytest.mark.long, pytest.mark.ecosystem, pytest.mark.timeout(1200)]

CLIENTS, USERS, SECONDS, WORKERS = 200, 20, 60, 4
NAMES = ("first.md", "second.md", "third.md")  # a file for each round, so that each round has the same work
LINE = "The customer prefers short answers, key AKIAIOSFODNN7EXAMPLE, and calls on Mondays. "
AGENT_BYTES = 300_000
MOST_THREADS = 96  # 64 of the service's pool, and those of the web server, the audit log and the exporter of spans
PROGRAM = Path(__file__).parents[1] / "support" / "load_app.py"


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "disk":
        return Store((tmp_path / "store").as_uri(), {}, tmp_path)
    server: S3Server = request.getfixturevalue("ministack")
    return Store(server.new_url(), server.environment, tmp_path)


class Process(NamedTuple):
    """What a worker process holds: descriptors, threads and resident memory in bytes."""

    files: int
    threads: int
    memory: int

    @staticmethod
    def of(pid: int) -> Process:
        status = Path(f"/proc/{pid}/status").read_text()
        numbers = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE)}
        return Process(len(list(Path(f"/proc/{pid}/fd").iterdir())), numbers["Threads"], numbers["VmRSS"] * 1024)


class Load:
    """The clients: each sends lines of its own to files that it shares with others, one for each round."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.acknowledged: dict[str, set[str]] = {}
        self.refused = 0
        self.failed = Counter[str]()
        self.unknown: set[str] = set()

    async def run(self, name: str, seconds: float) -> None:
        import aiohttp

        until_time = time.monotonic() + seconds
        connector = aiohttp.TCPConnector(limit=CLIENTS)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(60)) as session:
            await asyncio.gather(*(self._client(session, name, number, until_time) for number in range(CLIENTS)))

    async def _client(self, session: Any, name: str, number: int, until_time: float) -> None:
        user = f"user-{number % USERS}"
        while time.monotonic() < until_time:
            mark = uuid.uuid4().hex
            headers = {"X-Forwarded-User": user, "Idempotency-Key": mark}
            async with session.post(f"{self._url}/memory/{name}", data=LINE + mark, headers=headers) as answer:
                if answer.status == 200:
                    self.acknowledged.setdefault(user, set()).add(mark)
                    continue
                kind = (await answer.json())["kind"]
            if kind == "operation_denied":
                self.refused += 1
                await asyncio.sleep(0.2)  # as a client does that is told to free room
            elif kind == "outcome_unknown":
                self.unknown.add(mark)
            else:
                self.failed[kind] += 1


async def waits_of(port: int, workers: int) -> list[dict[str, float]]:
    """What each worker process says that its calls waited."""
    import aiohttp

    found: dict[float, dict[str, float]] = {}
    for _ in range(500):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/waits") as answer:
            told = await answer.json()
        found[told["process"]] = told
        if len(found) == workers:
            break
    return list(found.values())


def test_many_clients_lose_nothing_exceed_nothing_and_leave_nothing_behind(store: Store) -> None:
    port = free_port()
    (store.directory / "app").mkdir()
    shutil.copy(PROGRAM, store.directory / "app")
    store.command("versions", "on")
    store.command("limits", "on", "--agent-bytes", str(AGENT_BYTES))
    command = [sys.executable, "-m", "uvicorn", "load_app:app", "--workers", str(WORKERS), "--host", "127.0.0.1"]
    load, held = Load(port), list[list[Process]]()
    with running([*command, "--port", str(port)], store.directory, store.environment()) as server:
        until(lambda: len(children_of(server.pid)) == WORKERS and _answers(port), "the server does not start")
        for name in NAMES:
            asyncio.run(load.run(name, SECONDS))
            time.sleep(5)
            held.append([Process.of(pid) for pid in sorted(children_of(server.pid))])
        told = asyncio.run(waits_of(port, WORKERS))
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
    total = sum(map(len, load.acknowledged.values()))
    waited = {name: sum(each[name] for each in told) for name in ("measured", "reported", "spans")}
    print(f"{total:,} lines, {load.refused:,} refused, {len(load.unknown)} unknown, {load.failed}; {held}; {waited}")  # noqa: T201
    _require_no_leak(held)
    assert abs(waited["measured"] - waited["reported"]) <= 0.1 * waited["measured"]
    assert waited["spans"] >= total
    for user, marks in load.acknowledged.items():
        _require_whole(store, user, marks, load.unknown)
    assert "file" in store.command("audit", "verify", "--files")


def _answers(port: int) -> bool:
    import urllib.request

    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
    except OSError:
        return False
    return True


def _require_no_leak(held: list[list[Process]]) -> None:
    """The busiest worker holds no more after the last round than after the first."""
    first, last = ([max(each) for each in zip(*workers, strict=True)] for workers in (held[0], held[-1]))
    assert last[0] <= first[0] + 10, held
    assert last[1] <= MOST_THREADS, held
    assert last[2] <= 1.15 * first[2] + 16_000_000, held


def _require_whole(store: Store, user: str, marks: set[str], unknown: set[str]) -> None:
    listed = store.command("--agent", user, "ls")
    text = "".join(store.command("--agent", user, "read", name) for name in NAMES if name in listed)
    assert len(text.encode()) <= AGENT_BYTES + len(NAMES)  # the command ends its output with a line feed
    found = Counter(re.findall(r"[0-9a-f]{32}", text))
    assert marks <= found.keys()
    assert found.keys() <= marks | unknown
    assert set(found.values()) <= {1}
    assert "AKIAIOSFODNN7EXAMPLE" not in text
