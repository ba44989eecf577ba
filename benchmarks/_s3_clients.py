"""The clients that `s3.py` measures, ours and the bare ones, and their server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import fsspec.asyn
from _measuring import FILES, ROUNDS, Table, at_once
from s3fs import S3FileSystem

from agent_memory import AgentMemoryService, AsyncAgentMemoryService
from agent_memory.object_store.states import RecentWrites
from agent_memory_s3 import S3Backend

TEXT = "x" * 1023 + "\n"
DATA = TEXT.encode()
LINE = "one line of a log\n"
STAMP = {"agent-memory-writers": "0123456789ab 01234567:123:12345678"}  # as long as the metadata of our writes
POOL = {"config_kwargs": {"max_pool_connections": FILES}}


class Bare:
    """One bucket, accessed with s3fs's own coroutines. They run on fsspec's I/O loop; see `hop` and `wait`."""

    _opened: ClassVar[list[S3FileSystem]] = []  # kept until exit: s3fs would close them on the wrong event loop

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
    """Run a request on the I/O loop, for an async caller."""
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(request, fsspec.asyn.get_loop()))


def wait(call: Callable[..., Coroutine[Any, Any, object]], *args: object, **options: object) -> object:
    """Run a request on the I/O loop, for a sync caller."""
    return fsspec.asyn.sync(fsspec.asyn.get_loop(), call, *args, **options)


class Bench:
    """The clients of one bucket and their files, named by `bare_name` and, for our agent "bench", by `our_name`."""

    def __init__(self, endpoint: str, rounds: int = ROUNDS) -> None:
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
        self.table = Table(rounds)

    def _backend(self) -> S3Backend:
        return S3Backend(self.bucket, "", {**self.options, **POOL})

    async def fill(self) -> None:
        """Create the files, which also opens the connections; count requests from now on."""
        await self.write_anew()
        self.sync.read(our_path(0))
        self.table.requests.clients += [self.bare.fs._s3, client_of(self.backend), client_of(self._sync_backend)]
        if self.boto3:
            self.table.requests.clients.append(self.boto3)

    async def write_anew(self) -> None:
        """Write all files anew, with 1 KB each."""
        self.bare.known.clear()
        await at_once(lambda n: hop(self.bare.put(bare_name(n), DATA, Metadata=STAMP)))()
        await at_once(lambda n: self.ours.write(our_path(n), TEXT))()

    async def forget(self) -> None:
        """Clear our cache of recent writes, as in a process that has not appended yet."""
        self.backend._recent_writes = RecentWrites()

    async def overwrite(self) -> None:
        """Overwrite all of our files, as another client would."""
        await at_once(lambda n: hop(self.bare.put(our_name(n), DATA, Metadata=STAMP)))()

    async def aclose(self) -> None:
        await self.ours.aclose()
        self.sync.close()


def open_and_append(fs: Any, path: str, line: str = LINE) -> None:
    with fs.open(path, "ab") as file:
        file.write(line.encode())


def bare_name(number: int) -> str:
    return f"just_as_long/bench/files/{number}.md"


def our_path(number: int) -> str:
    return f"files/{number}.md"


def our_name(number: int) -> str:
    return f"agent_memory/bench/{our_path(number)}"


def client_of(backend: S3Backend) -> Any:
    """Return the botocore client of a backend."""
    store: Any = backend._bucket.store
    return store._connection._client


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


@contextlib.contextmanager
def ministack() -> Iterator[str]:
    """Run the emulator ministack, and provide its endpoint."""
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
