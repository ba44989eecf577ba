"""Measure the cost of a history in one run: reading its end, searching it, and the memory of a search.

    python benchmarks/history.py [MEGABYTES]        default 1024

Ratios are between the fastest of several runs. ``grep`` is GNU grep in the C locale, which counts matching lines and
ignores case. "stdlib json" parses every line and compares each message in a plain loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory

RUNS = 5
QUERY = "platypus"
SMALL = 1
WORDS = (
    "the plan for tomorrow is to walk through the notes and find what was said about it before lunch with everybody "
)


def write_history(path: Path, megabytes: int, hits: str | None) -> None:
    """Write lines of about 260 bytes; with ``hits`` every hundredth has that role and the query, capitalised."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    size, number = 0, 0
    with path.open("w") as file:
        while size < megabytes * 1024 * 1024:
            number += 1
            role = "user" if number % 2 else "assistant"
            content = f"{number}: {WORDS}"
            if hits and number % 100 == 0:
                role, content = hits, content + QUERY.capitalize()
            timestamp = (moment + timedelta(seconds=number)).isoformat()
            message = {"role": role, "content": content, "timestamp": timestamp, "channel": "cli:local"}
            line = json.dumps(message) + "\n"
            size += file.write(line)


def best(function: Callable[[], object], runs: int = RUNS) -> float:
    """Return the seconds of the fastest run."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def grep(path: Path) -> int:
    """Count the matching lines with grep."""
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["grep", "-ic", QUERY, str(path)]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout)


def parse_every_line(path: Path) -> int:
    """Count the matching messages with stdlib json, line by line."""
    found = 0
    with path.open("rb") as file:
        for line in file:
            message = json.loads(line)
            found += message["role"] in ("user", "assistant") and QUERY in message["content"].lower()
    return found


def conversation(directory: Path) -> ConversationMemory:
    """Open the history in a directory."""
    return ConversationMemory(AgentMemory.open(directory))


def peak_of_a_search(directory: Path) -> None:
    """Print by how much one search raises the peak memory of the process, in MB; run it in its own process."""
    history = conversation(directory)
    history.load_history(1)
    before = high_water()
    assert history.search(QUERY) == []
    print(high_water() - before)


def high_water() -> float:
    """Return the peak memory of this process in MB; ``ru_maxrss`` would include that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def compare(title: str, directory: Path) -> None:
    """Print one line: our search compared with grep and with stdlib json."""
    path, history = directory / "history.jsonl", conversation(directory)
    found = len(history.search(QUERY, max_results=50))
    ours = best(lambda: history.search(QUERY, max_results=50))
    theirs, naive = best(lambda: grep(path)), best(lambda: parse_every_line(path), 1)
    print(
        f"search, {title}: {ours:.3f} s, {found} shown of {grep(path)} lines; "
        f"{ours / theirs:.2f}x grep -ic ({theirs:.3f} s), {naive / ours:.1f}x as fast as stdlib json ({naive:.2f} s)"
    )


def main(megabytes: int) -> None:
    """Run everything in a temporary directory."""
    with tempfile.TemporaryDirectory() as temporary:
        directories = {}
        for name, size, hits in [
            ("small", SMALL, None), ("no hits", megabytes, None), ("1 % hits", megabytes, "user"),
            ("1 % of lines hold it, none that is searched", megabytes, "tool"),
        ]:  # fmt: skip
            directories[name] = Path(temporary) / name.replace(" ", "-").replace("%", "percent").replace(",", "")
            directories[name].mkdir()
            write_history(directories[name] / "history.jsonl", size, hits)
        small, large = (conversation(directories[name]) for name in ("small", "no hits"))
        # In alternation: a slow phase of the machine lasts longer than 200 reads, and would affect only one history.
        rounds = [[best(lambda h=h: h.load_history(80), 1) for h in (small, large)] for _ in range(200)]
        times = [min(column) for column in zip(*rounds, strict=True)]
        print(
            f"load_history(80): {times[0] * 1e6:.0f} us at {SMALL} MB, {times[1] * 1e6:.0f} us at {megabytes} MB, "
            f"{times[1] / times[0]:.2f}x"
        )
        for name in ("no hits", "1 % hits", "1 % of lines hold it, none that is searched"):
            compare(name, directories[name])
        command = [sys.executable, __file__, "--peak", str(directories["no hits"])]
        peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        print(f"search, no hits: peak memory {float(peak):.1f} MB above that after the import, at {megabytes} MB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        peak_of_a_search(Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)
