"""Compare our obstore engine with bare obstore and with our s3fs engine: the same requests, one server, one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import obstore
from _measuring import FILES, Call, Way, at_once, in_turn
from _s3_clients import DATA, LINE, STAMP, TEXT, Bench, bare_name, hop, our_path
from obstore.store import S3Store

from agent_memory import AsyncAgentMemoryService
from agent_memory.object_store.states import RecentWrites
from agent_memory_obstore import ObstoreBackend

Request = Callable[[int], Coroutine[Any, Any, object]]


class BareObstore:
    """One bucket, accessed with obstore's own coroutines."""

    def __init__(self, bucket: str, options: Mapping[str, str]) -> None:
        client = {"allow_http": True, "read_timeout": "15s"}
        self._store = S3Store(bucket, **options, client_options=client, retry_config={"max_retries": 0})
        self.known: dict[str, tuple[str, bytes]] = {}

    async def get(self, name: str) -> tuple[str, bytes]:
        reply = await obstore.get_async(self._store, name)
        return str(reply.meta["e_tag"]), bytes(await reply.bytes_async())

    async def put(self, name: str, data: bytes, **mode: object) -> str:
        reply = await obstore.put_async(self._store, name, data, attributes=STAMP, use_multipart=False, **mode)
        return str(reply["e_tag"])

    async def head(self, name: str) -> object:
        return await obstore.head_async(self._store, name)

    async def append_to_known(self, name: str) -> None:
        etag, data = self.known.get(name) or await self.get(name)
        data += LINE.encode()
        self.known[name] = await self.put(name, data, mode={"e_tag": etag}), data

    async def append(self, name: str) -> None:
        etag, data = await self.get(name)
        await self.put(name, data + LINE.encode(), mode={"e_tag": etag})


class Clients:
    """Our obstore engine, bare obstore, and our s3fs engine, in one bucket."""

    def __init__(self, bench: Bench) -> None:
        options = {"endpoint": bench.options["endpoint_url"], "region": "us-east-1"}
        options |= {"access_key_id": bench.options["key"], "secret_access_key": bench.options["secret"]}
        self.bench = bench
        self.bare = BareObstore(bench.bucket, options)
        self.backend = ObstoreBackend(bench.bucket, "", options)
        self.ours = AsyncAgentMemoryService(self.backend).agent("obstore")

    async def write_anew(self) -> None:
        """Write all files anew, with 1 KB each, which also opens the connections."""
        self.bare.known.clear()
        await at_once(lambda n: hop(self.bare.put(bare_name(n), DATA)))()
        await at_once(lambda n: self.ours.write(our_path(n), TEXT))()
        await self.bench.write_anew()

    async def forget(self) -> None:
        """Clear the caches of recent writes of both engines, as in processes that have not appended yet."""
        self.backend._recent_writes = RecentWrites()
        await self.bench.forget()


async def beside_obstore(bench: Bench) -> None:
    clients = Clients(bench)
    await clients.write_anew()
    bare, ours, first, new = clients.bare, clients.ours, bench.ours, bench.new
    calls: dict[str, tuple[Request, Call, Call]] = {
        "read": (
            lambda n: bare.get(bare_name(n)),
            lambda n: ours.read(our_path(n)),
            lambda n: first.read(our_path(n)),
        ),
        "write": (
            lambda n: bare.put(bare_name(n), DATA),
            lambda n: ours.write(our_path(n), TEXT),
            lambda n: first.write(our_path(n), TEXT),
        ),
        "create": (
            lambda _: bare.put(bare_name(next(new) + FILES), DATA, mode="create"),
            lambda _: ours.create(our_path(next(new) + FILES), TEXT),
            lambda _: first.create(our_path(next(new) + FILES), TEXT),
        ),
        "stat": (
            lambda n: bare.head(bare_name(n)),
            lambda n: ours.stat(our_path(n)),
            lambda n: first.stat(our_path(n)),
        ),
    }
    for row, (plain, other, with_s3fs) in calls.items():
        await _rows(clients, row, plain, other, with_s3fs)
    appending = partial(_rows, clients, other=lambda n: ours.append(our_path(n), LINE))
    with_s3fs = lambda n: first.append(our_path(n), LINE)  # noqa: E731 - like the others
    known: Request = lambda n: bare.append_to_known(bare_name(n))  # noqa: E731
    unknown: Request = lambda n: bare.append(bare_name(n))  # noqa: E731
    await appending("append, version known", known, with_s3fs=with_s3fs)
    await appending("append, version unknown", unknown, with_s3fs=with_s3fs, before=clients.forget)
    await ours.aclose()


async def _rows(
    clients: Clients,
    row: str,
    plain: Request,
    other: Call,
    with_s3fs: Call,
    before: Callable[[], Awaitable[object]] | None = None,
) -> None:
    for way, round_ in (("in turn", in_turn), (f"{FILES} at once", at_once)):
        if "append" in row:
            await clients.write_anew()
        prepared = (before,) if before else ()
        ways = {
            "obstore": Way(round_(lambda n: hop(plain(n)))),
            "obstore, own loop": Way(round_(plain)),
            "agent-memory, obstore": Way(round_(other), *prepared),
            "agent-memory, s3fs": Way(round_(with_s3fs), *prepared),
        }
        also = ("agent-memory, obstore", "obstore, own loop")
        await clients.bench.table.row(f"{row} by obstore, {way}", ways, also=also)
