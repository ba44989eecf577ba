"""A file too large for one call passes through the commands byte for byte and in bounded memory.

The peak of each process is Linux's ``VmHWM``, because ``ru_maxrss`` of a child starts with the value of its parent.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_memory import AgentMemoryService
from tests.object_store.proxy import Fault, Proxy
from tests.support import forked
from tests.support.servers import Root, S3Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak is read in /proc")
MOST_MEGABYTES = 128
SMALL, LARGE = 12_000_001, 200_000_003
_PROCESS = """
import sys
from pathlib import Path
from agent_memory.backend import Backend, BlockingBackend
from agent_memory.cli.app import app

Backend.max_bytes = BlockingBackend.max_bytes = int(sys.argv.pop(1))
code = 0
try:
    app(sys.argv[1:], standalone_mode=True)
except SystemExit as end:
    code = end.code or 0
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024, file=sys.stderr)
sys.exit(code)
"""


def given(option: str, options: Mapping[str, object]) -> list[str]:
    """The arguments that pass storage options to a command."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return [word for name, text in texts.items() for word in (option, f"{name}={text}")]


class Journey(NamedTuple):
    """A large file in a folder, and a runner of commands, each in a new process."""

    folder: Path
    size: int
    digest: str
    at: Path

    def command(self, *args: str, root: Root | None = None) -> list[str]:
        options = given("-o", root.options) if root else []
        most = 5_000_000 if self.size == SMALL else 50_000_000
        where = ["--url", root.url, *options] if root else []
        return [sys.executable, "-c", _PROCESS, str(most), *where, *args]

    def run(self, *args: str, root: Root | None = None, bounded: bool = True) -> str:
        done = forked.run(self.command(*args, root=root), cwd=self.at, timeout=600)
        assert done.returncode == 0, done.stderr
        peak = int(done.stderr.split()[-1])
        assert peak < MOST_MEGABYTES or not bounded
        return done.stdout.decode()

    def holds(self, root: Root, path: str) -> bool:
        """Whether a store has the complete file under this name."""
        found = hashlib.sha256()
        out = self.at / f"out-{os.urandom(4).hex()}"
        self.run("export", str(out), root=root)
        with (out / path).open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
        return found.hexdigest() == self.digest


@pytest.fixture(params=[SMALL, pytest.param(LARGE, marks=pytest.mark.long)], ids=["12 MB", "200 MB"])
def journey(request: pytest.FixtureRequest, tmp_path: Path) -> Journey:
    folder, size, digest = tmp_path / "folder", request.param, hashlib.sha256()
    folder.mkdir()
    with (folder / "large.bin").open("wb") as file:
        left = size
        while left:
            block = os.urandom(min(1 << 20, left))
            file.write(block)
            digest.update(block)
            left -= len(block)
    return Journey(folder, size, digest.hexdigest(), tmp_path)


@pytest.fixture(params=["ministack", pytest.param("seaweedfs", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    return found.for_one_writer() if request.param == "seaweedfs" else found


def on_disk(journey: Journey, name: str) -> Root:
    return Root(str(journey.at / name), {})


def paths(root: Root) -> list[str]:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        return [entry.path for entry in service.agent("default").list()]


def test_a_large_file_is_copied_from_a_folder_to_disk_to_s3_to_disk_to_a_folder(
    journey: Journey, server: S3Server
) -> None:
    first, bucket, second = (
        on_disk(journey, "first"),
        Root(server.new_url(), server.options),
        on_disk(journey, "second"),
    )
    to = given("--to-option", bucket.options)
    of = given("--from-option", bucket.options)
    assert "imported 1 file" in journey.run("import", "folder", root=first)
    assert "transferred 1 file" in journey.run("transfer", first.url, bucket.url, *to)
    assert "transferred 1 file" in journey.run("transfer", bucket.url, second.url, *of)
    assert journey.holds(second, "large.bin")
    assert "1 were there already" in journey.run("import", "folder", root=first)
    assert "1 were there already" in journey.run("transfer", first.url, bucket.url, *to)


@pytest.mark.long
def test_a_large_file_is_renamed_and_copied_in_place_on_s3(journey: Journey, server: S3Server) -> None:
    bucket = Root(server.new_url(), server.options)
    journey.run("import", "folder", root=bucket)
    with Proxy(server.endpoint) as proxy:
        through = Root(bucket.url, server.through(proxy))
        journey.run("cp", "large.bin", "copied.bin", root=through)
        journey.run("mv", "large.bin", "moved.bin", root=through)
        assert proxy.sent < 100_000
        assert proxy.received < journey.size  # a read of a file that is too large is aborted
    assert paths(bucket) == ["copied.bin", "moved.bin"]
    assert journey.holds(bucket, "copied.bin")
    assert journey.holds(bucket, "moved.bin")


def test_a_large_file_is_renamed_and_copied_in_place_on_disk(journey: Journey) -> None:
    root = on_disk(journey, "root")
    journey.run("import", "folder", root=root)
    journey.run("cp", "large.bin", "copied.bin", root=root)
    journey.run("mv", "large.bin", "moved.bin", root=root)
    assert paths(root) == ["copied.bin", "moved.bin"]
    assert journey.holds(root, "copied.bin")
    assert journey.holds(root, "moved.bin")


def killed(process: subprocess.Popen[bytes], proxy: Proxy, seen: Callable[[], bool]) -> None:
    """Kill a process when the proxy has seen enough of its requests."""
    end = time.monotonic() + 120
    while not seen():
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < end, f"it hangs: {proxy.counts}"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def after(passing: int, operation: str) -> Callable[[str], Fault | None]:
    """Answer the first requests of a kind, and never the later ones."""
    met: list[str] = []

    def choose(name: str) -> Fault | None:
        met.extend([name] if name == operation else [])
        return "hangs" if name == operation and len(met) > passing else None

    return choose


@pytest.mark.long
def test_a_killed_import_leaves_no_visible_file_and_can_be_repeated(journey: Journey, server: S3Server) -> None:
    bucket = Root(server.new_url(), server.options)
    with Proxy(server.endpoint) as proxy:
        proxy.choose = after(3, "PUT PART")  # two requests are part of the trial of the server
        command = journey.command("import", "folder", root=Root(bucket.url, server.through(proxy)))
        process = subprocess.Popen(command, cwd=journey.at, stderr=subprocess.DEVNULL)
        killed(process, proxy, lambda: proxy.counts["PUT PART"] > 3)
    assert paths(bucket) == []
    assert "imported 1 file" in journey.run("import", "folder", root=bucket)
    assert journey.holds(bucket, "large.bin")


@pytest.mark.long
def test_a_killed_copy_to_disk_leaves_no_visible_file_and_can_be_repeated(journey: Journey, server: S3Server) -> None:
    bucket, disk = Root(server.new_url(), server.options), on_disk(journey, "disk")
    journey.run("import", "folder", root=bucket)
    with Proxy(server.endpoint) as proxy:
        proxy.choose = after(1, "GET")
        options = given("--from-option", server.through(proxy))
        process = subprocess.Popen(
            journey.command("transfer", bucket.url, disk.url, *options), cwd=journey.at, stderr=subprocess.DEVNULL
        )
        killed(process, proxy, lambda: proxy.counts["GET"] > 1)
    assert paths(disk) == []
    options = given("--from-option", server.options)
    assert "transferred 1 file" in journey.run("transfer", bucket.url, disk.url, *options)
    assert journey.holds(disk, "large.bin")
    assert not list((journey.at / "disk").rglob("*.agent-memory-tmp"))


def test_a_large_file_in_memory_is_copied_and_renamed(journey: Journey) -> None:
    with AgentMemoryService("memory://") as service:
        memory = service.agent("default")
        memory._tree.backend.max_bytes = 1_000_000
        with (journey.folder / "large.bin").open("rb") as file:
            memory.write_blocks("large.bin", iter(lambda: file.read(1 << 20), b""), journey.size)
        memory.copy("large.bin", "copied.bin")
        memory.rename("large.bin", "moved.bin")
        memory._tree.backend.max_bytes = journey.size
        for path in ("copied.bin", "moved.bin"):
            assert hashlib.sha256(memory.read_bytes(path)).hexdigest() == journey.digest
