"""Measure the cost of confinement, locks, durability and hooks on local disk in one run, as ratios.

    python benchmarks/local.py [--long] [DIRECTORY]

Every row is the median of interleaved rounds of the plain call and of ours, with hooks and logging at their defaults.

- read: compared with `Path.read_text`; "key cold" has no name in the cache.
- append: compared with a bare ``open(path, "a").write``. "our calls" is the lower bound of ours: its system calls in
  one function, without names, hooks and errors. "our backend" is only the backend's verb, with error and interrupt
  handling. "three calls" are only open, write and close.
- replace, durable: compared with temp + write + fsync + rename + fsync(directory).
- list: compared with a recursion of `os.scandir` that stats each file; "our walk" creates no keys and entries and does
  not sort.
- async: compared with the sync call plus an empty call in a thread.

Installed peers (the local memory tool of anthropic, FilesystemBackend of deepagents, the local filesystem of fsspec)
run their equivalent operation, if they have one.
``--long`` makes the large append 1 GB instead of 16 MB.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _comparing import ROUNDS, Call, compare, microseconds

from agent_memory import AgentMemory, AgentMemoryService, AsyncAgentMemoryService
from agent_memory.backend import ETag
from agent_memory.backend.helpers import PageBuilder
from agent_memory.key import Key, _joined
from agent_memory_local import LocalBackend, _locks
from agent_memory_local._scan import scan
from agent_memory_local._system_calls import HOW_SIZE, find_openat2
from agent_memory_local._walk import OPEN_FILE_TO_CHANGE

LINE = "one line of a log\n"
TEXTS = {"1 KB": "x" * 1023 + "\n", "100 KB": ("x" * 1023 + "\n") * 100}


def append_plainly(path: Path) -> None:
    with open(path, "a") as file:  # noqa: PTH123 - faster than Path.open, so a stricter comparison
        file.write(LINE)


def append_by_system_calls(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    os.write(file, LINE.encode())
    os.close(file)


def our_calls_alone(root: Path) -> Call:
    """Only the system calls of an append to an existing file, with the directory of its tree already open."""
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    tree = os.open(root / "agent_memory" / "bench", os.O_RDONLY | os.O_DIRECTORY)
    below = find_openat2(top)
    data = LINE.encode()

    def append() -> None:
        _locks.is_exclusive_announced(tree)
        fcntl.flock(tree, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.stat("agent_memory/bench", dir_fd=top)
        file = below(top, b"agent_memory/bench/log", OPEN_FILE_TO_CHANGE, HOW_SIZE) if below else -1
        _locks.lock_file(file)
        os.write(file, data)
        fcntl.flock(tree, fcntl.LOCK_UN)
        _locks.unlock_file(file)
        os.close(file)

    return append


def our_backend_alone(root: Path, path: str) -> Call:
    """The backend's verb, called with a parsed key."""
    backend, key, data = LocalBackend(root, durability="process"), Key.agent("bench").join(path), LINE.encode()
    return lambda: backend.append(key, data)


class _NoPage(PageBuilder):
    def file(self, name: str, size: int, modified: float, version: ETag | None = None) -> None:
        pass


def our_walk_alone(directory: Path) -> Call:
    """Only the descriptors of a listing and the stat of each file, without a result."""

    def walk() -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        scan(descriptor, _NoPage(Key.tree()), True, 0)
        os.close(descriptor)

    return walk


def replace_durably(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def scan_plainly(directory: str) -> int:
    found = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += scan_plainly(entry.path)
            else:
                entry.stat(follow_symlinks=False)
                found += 1
    return found


class Peers:
    """The operations of the installed peers, each in its own directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = itertools.count()
        self._anthropic = self._made("anthropic", self._new_anthropic)
        self._deepagents = self._made("deepagents", self._new_deepagents)
        self._fsspec = self._made("fsspec", self._new_fsspec)

    def _made(self, package: str, make: Callable[[Path], Any]) -> Any:
        try:
            found = make(self._directory / package)
            print(f"peer: {package} {version(package)}")
        except (ImportError, PackageNotFoundError):
            print(f"peer: {package} is not installed")
            return None
        return found

    def _new_anthropic(self, root: Path) -> Any:
        from anthropic.tools import BetaLocalFilesystemMemoryTool

        return BetaLocalFilesystemMemoryTool(str(root))

    def _new_deepagents(self, root: Path) -> Any:
        from deepagents.backends import FilesystemBackend

        root.mkdir()
        return FilesystemBackend(root_dir=str(root), virtual_mode=True)

    def _new_fsspec(self, root: Path) -> Any:
        from fsspec.implementations.local import LocalFileSystem

        root.mkdir()
        return LocalFileSystem(skip_instance_cache=True)

    def create(self, text: str) -> Iterator[tuple[str, Call]]:
        """Create a new file."""
        if tool := self._anthropic:
            yield (
                "anthropic",
                lambda: self._view_checked(
                    tool.execute(_command("create", path=f"/memories/new-{next(self._names)}.md", file_text=text))
                ),
            )
        if backend := self._deepagents:
            yield "deepagents", lambda: backend.write(f"/new-{next(self._names)}.md", text)
        if fs := self._fsspec:
            data, where = text.encode(), self._directory / "fsspec"
            yield "fsspec", lambda: fs.pipe_file(f"{where}/new-{next(self._names)}.md", data)

    def read(self, path: str, text: str) -> Iterator[tuple[str, Call]]:
        """Create the file of a path, then read it."""
        for name, root in (("anthropic", "anthropic/memories"), ("deepagents", "deepagents"), ("fsspec", "fsspec")):
            file = self._directory / root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            if name == "anthropic" and (tool := self._anthropic):
                command = _command("view", path=f"/memories/{path}")
                yield name, lambda tool=tool, command=command: tool.execute(command)
            if name == "deepagents" and (backend := self._deepagents):
                yield name, lambda backend=backend: backend.read(f"/{path}")
            if name == "fsspec" and (fs := self._fsspec):
                yield name, lambda fs=fs, file=str(file): fs.cat_file(file)

    def append(self) -> Iterator[tuple[str, Call]]:
        """Append a line."""
        if fs := self._fsspec:
            log = str(self._directory / "fsspec" / "log")

            def append() -> None:
                with fs.open(log, "ab") as file:
                    file.write(LINE.encode())

            yield "fsspec", append

    def list(self, directory: Path) -> Iterator[tuple[str, Call]]:
        """List all files of a directory with their sizes."""
        if fs := self._fsspec:
            yield "fsspec", lambda: fs.find(str(directory), detail=True)

    def _view_checked(self, answer: object) -> object:
        assert "rror" not in str(answer), answer
        return answer


def _command(name: str, **arguments: object) -> Any:
    from anthropic.types.beta import (
        BetaMemoryTool20250818CreateCommand as Create,
    )
    from anthropic.types.beta import (
        BetaMemoryTool20250818ViewCommand as View,
    )

    return {"create": Create, "view": View}[name](command=name, **arguments)


def keys() -> None:
    names = [f"notes/2026/file-{number}.md" for number in range(100_000)]
    _joined.cache_clear()
    fresh, tree = iter(names), Key.tree()
    cold = microseconds(lambda: tree.join(next(fresh)), len(names))
    warm = microseconds(lambda: tree.join(names[-1]), len(names))
    print(f"key: first time {cold:.2f} µs, from the cache {warm:.2f} µs")


def reads(plain: Path, scratch: AgentMemory, peers: Peers) -> None:
    for (size, text), depth in itertools.product(TEXTS.items(), (1, 3, 6)):
        path = "/".join(["d"] * (depth - 1) + [f"file-{size[:-3]}.md"])
        (plain / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / path).write_text(text)
        scratch.write(path, text)

        def cold(path: str = path) -> str:
            _joined.cache_clear()
            return scratch.read(path)

        others = {"key cold": cold, **dict(peers.read(path, text))}
        compare(f"read {size}, depth {depth}", (plain / path).read_text, lambda path=path: scratch.read(path), others)


def appends(plain: Path, root: Path, scratch: AgentMemory, peers: Peers, large: int) -> None:
    log = plain / "log"
    for depth in (1, 3, 6):
        path = "/".join(["d"] * (depth - 1) + ["log"])
        scratch.append(path, LINE)
        others: dict[str, Call] = {
            "our calls": our_calls_alone(root),
            "our backend": our_backend_alone(root, path),
            "three calls": lambda: append_by_system_calls(log),
            **dict(peers.append()),
        }
        compare(
            f"append, depth {depth}", lambda: append_plainly(log), lambda path=path: scratch.append(path, LINE), others
        )
    scratch.write("small", TEXTS["1 KB"])
    for _ in range(large // 50_000_000 + 1):
        scratch.append("large", "x" * min(large, 50_000_000))
    compare(
        f"append at 1 KB, at {scratch.stat('large').size // 1_000_000} MB",
        lambda: scratch.append("small", LINE),
        lambda: scratch.append("large", LINE),
    )


def writes(plain: Path, scratch: AgentMemory, durable: AgentMemory, peers: Peers) -> None:
    whole = plain / "whole"
    for size, text in TEXTS.items():
        names = itertools.count()
        compare(
            f"replace {size}, durable",
            lambda text=text: replace_durably(whole, text),
            lambda text=text: durable.write("whole", text),
            calls=20,
        )

        def plainly(text: str = text, size: str = size, names: Iterator[int] = names) -> None:
            with (plain / f"new-{size}-{next(names)}").open("x") as file:
                file.write(text)

        compare(
            f"create {size}, process",
            plainly,
            lambda text=text, size=size, names=names: scratch.create(f"new-{size}-{next(names)}", text),
            dict(peers.create(text)),
            calls=100,
        )


def listings(root: Path, service: AgentMemoryService, peers: Peers) -> None:
    memory = service.agent("list")
    for number in range(10_000):
        memory.create(f"d{number % 100}/file-{number}.md", "x")
    directory = root / "agent_memory" / "list"
    assert len(memory.list()) == scan_plainly(str(directory)) == 10_000
    others = {"our walk": our_walk_alone(directory), **dict(peers.list(directory))}
    compare("list 10,000 files", lambda: scan_plainly(str(directory)), memory.list, others, calls=1)


async def hops(url: str, scratch: AgentMemory) -> None:
    """Compare an async call with the sync call plus an empty call in a thread, as medians."""
    memory = AsyncAgentMemoryService(url).agent("bench")
    loop = asyncio.get_running_loop()
    costs: dict[str, list[float]] = {"sync": [], "hop": [], "async": []}
    await memory.read("small")
    for _ in range(ROUNDS):
        costs["sync"].append(microseconds(lambda: scratch.read("small"), 200))
        for name, call in (
            ("hop", lambda: loop.run_in_executor(None, int)),
            ("async", lambda: memory.read("small")),
        ):
            started = time.perf_counter()
            for _ in range(200):
                await call()
            costs[name].append((time.perf_counter() - started) / 200 * 1e6)
    sync, hop, ours = (statistics.median(costs[name]) for name in ("sync", "hop", "async"))
    print(f"async read {ours:.1f} µs; sync {sync:.1f} + an empty hop {hop:.1f}: {ours / (sync + hop):.2f}x of the sum")


def main(directory: Path, large: int) -> None:
    plain, root = directory / "plain", directory / "root"
    plain.mkdir()
    url = f"{root.as_uri()}?durability=process"
    service = AgentMemoryService(url)
    scratch, durable = service.agent("bench"), AgentMemoryService(root).agent("bench")
    peers = Peers(directory)
    keys()
    reads(plain, scratch, peers)
    appends(plain, root, scratch, peers, large)
    writes(plain, scratch, durable, peers)
    listings(root, service, peers)
    asyncio.run(hops(url, scratch))


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--long"]
    with tempfile.TemporaryDirectory(dir=given[0] if given else None) as scratch_directory:
        main(Path(scratch_directory), 1_000_000_000 if "--long" in sys.argv else 16_000_000)
