"""The programs of `examples/production` as processes, on a store that the command line looks at afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

PRODUCTION = Path(__file__).parents[2] / "examples" / "production"
_SECONDS = 120


class Store(NamedTuple):
    """A store with an audit log, as the environment variables of a program name it."""

    url: str
    variables: Mapping[str, str]
    directory: Path

    def environment(self, *, required: bool = True) -> dict[str, str]:
        """The environment of a program: the file of plugins of the examples, with a log in this store."""
        checkpoints = str(self.directory / "checkpoints.jsonl")
        audit = {"audit": {"target": self.url, "required": required, "checkpoints": checkpoints}}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_MEMORY_")}
        return {
            **kept,
            **self.variables,
            "AGENT_MEMORY_URL": self.url,
            "AGENT_MEMORY_CONFIG": "agent-memory.toml",
            "AGENT_MEMORY_PLUGINS": json.dumps(audit),
        }

    def command(self, *words: str) -> str:
        """What a command of `agent-memory` prints about the agent ``ann``; it must succeed."""
        command = [sys.executable, "-m", "agent_memory", "--agent", "ann", *words]
        variables = {**self.environment(), "AGENT_MEMORY_CONFIG": "", "AGENT_MEMORY_PLUGINS": "", "NO_COLOR": "1"}
        done = subprocess.run(
            command, cwd=self.directory, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def lines(self) -> list[str]:
        return self.command("read", "log.md").splitlines()

    def verified(self) -> str:
        """What `audit verify` prints; without ``unanchored``, each process closed its log, and so wrote all records."""
        found = self.directory / "checkpoints.jsonl"  # not of processes that were all killed
        return self.command("audit", "verify", *(("--checkpoints", str(found)) if found.exists() else ()))

    def recorded(self) -> list[dict[str, Any]]:
        """The records of successful appends in the store's log, whose chains are intact."""
        self.verified()
        rows = json.loads(self.command("--json", "audit", "show", "-n", "100000"))["records"]
        return [row for row in rows if row.get("operation") == "append" and row.get("outcome") == "ok"]


@contextmanager
def running(command: list[str], directory: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a copy of the examples' program in a session of its own; at the end none of its processes is left."""
    shutil.copytree(PRODUCTION, directory / "app", dirs_exist_ok=True)
    log = directory / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory / "app", env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    except BaseException:
        print(log.read_text(errors="replace")[-5000:])  # noqa: T201 - pytest shows it beside the failure
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def children_of(pid: int) -> set[int]:
    """The worker processes of a server: its children, but for multiprocessing's tracker of resources."""
    of_threads = [_contents(path).split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    found = {int(word) for words in of_threads for word in words}
    return {child for child in found if b"resource_tracker" not in _contents(Path(f"/proc/{child}/cmdline"))}


def kill_a_worker(pid: int) -> None:
    """Kill one worker process of a server, and wait until another one takes its place."""
    replace_a_worker(pid, signal.SIGKILL)


def replace_a_worker(pid: int, number: signal.Signals) -> None:
    """Send a signal to one worker process of a server, and wait until another one takes its place."""
    workers = children_of(pid)
    ended = max(workers)
    os.kill(ended, number)
    until(lambda: ended not in (now := children_of(pid)) and len(now) == len(workers), "no worker takes its place")


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the process or the thread has just ended
        return b""


def until(ready: Callable[[], bool], fault: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not ready():
        assert time.monotonic() < deadline, fault
        time.sleep(0.05)
