"""Compare a root with a million files of many agents with a root of a single agent: the same calls, as ratios.

    python benchmarks/many_agents.py [AGENTS] [DIRECTORY]        default 100000, each with 10 files

Plain system calls create the files, so only the measured calls pass through agent-memory. Each figure is the median
over agents drawn at random, in alternation with the single agent. "first read" and "Path.read_text" each read a file
that was not used recently, with its directories in no cache. "open and read" opens a service first.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agent_memory import AgentMemory, AgentMemoryService

FILES = 10
DRAWS = 3000
TEXT = "x" * 1023 + "\n"


def fill(root: Path, agents: int) -> None:
    for number in range(agents):
        directory = root / "agent_memory" / f"agent-{number}" / "notes"
        directory.mkdir(parents=True)
        for file in range(FILES):
            (directory / f"{file}.md").write_text(TEXT)


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def drawn_again(agents: int, alone: bool) -> int:
    return 0 if alone else random.randrange(agents)  # a different agent, so that this read also finds cold caches


CALLS: dict[str, Callable[[AgentMemory, str], object]] = {
    "first read": lambda memory, path: memory.read(path),
    "read": lambda memory, path: memory.read(path),
    "write": lambda memory, path: memory.write(path, TEXT),
    "append": lambda memory, path: memory.append(path, "one line of a log\n"),
}


def main(directory: Path, agents: int) -> None:
    one, many = directory / "one", directory / "many"
    fill(one, 1)
    took = seconds(lambda: fill(many, agents))
    print(f"{agents * FILES:,} files of {agents:,} agents made in {took:.0f} s")
    services = {root: AgentMemoryService(f"{root.as_uri()}?durability=process") for root in (one, many)}
    names = ("Path.read_text", *CALLS, "open and read")
    costs: dict[str, dict[Path, list[float]]] = {name: {root: [] for root in services} for name in names}
    for _ in range(DRAWS):
        drawn, path = f"agent-{random.randrange(agents)}", f"notes/{random.randrange(FILES)}.md"
        for root, service in services.items():
            agent = "agent-0" if root is one else drawn
            memory = service.agent(agent)
            plain = root / "agent_memory" / f"agent-{drawn_again(agents, root is one)}" / path
            costs["Path.read_text"][root].append(seconds(plain.read_text))
            for name, call in CALLS.items():
                costs[name][root].append(seconds(lambda call=call, memory=memory, path=path: call(memory, path)))
            costs["open and read"][root].append(
                seconds(lambda root=root, agent=agent, path=path: AgentMemoryService(root).agent(agent).read(path))
            )
    for name, cost in costs.items():
        alone, among = (statistics.median(cost[root]) * 1e6 for root in (one, many))
        print(f"{name:<14} one agent {alone:7.1f} µs   among {agents:,} {among:7.1f} µs   ratio {among / alone:.2f}")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as scratch:
        main(Path(scratch), count)
