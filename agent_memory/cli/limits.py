"""What a store cannot do, or does slowly, although it keeps its promises."""

from __future__ import annotations

import time
from typing import Final

from agent_memory.backend import AnyBackend
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend

_WRITES: Final = 4
_SLOW: Final = 2.0
"""Writes a second of one file below which the rate is told: some services allow one."""


def limits(backend: AnyBackend, top: Key) -> list[str]:
    """Try `forget`, an append to a large file, and writes of one file, below a scratch key; return what is limited."""
    found: list[str] = []
    for tried in (_of_forget, _of_large_appends, _of_rate):
        try:
            limit = tried(backend, top)
        except AgentMemoryError:  # the probes of promises tell what fails
            continue
        found += [limit] if limit else []
    return found


def _of_forget(backend: AnyBackend, top: Key) -> str | None:
    store, key = BlockingStore(backend), top.join("forgotten.md")
    store.write(key, b"x")
    try:
        effect = store.run(tree_flows.forget, key)
    except AgentMemoryError as error:
        return f"forget does not work: {str(error).rpartition(f'{key.path!r}: ')[2]}"
    if effect.versions_searched:
        return None
    return "the server has no versions: forget and redact delete plainly and look for no earlier versions"


def _of_large_appends(backend: AnyBackend, top: Key) -> str | None:
    if not isinstance(backend, ObjectStoreBackend):
        return None
    if BlockingStore(backend).call(backend.appends_in_parts, top.join("large.log")):
        return None
    return (
        f"a file over {backend.max_bytes:,} bytes takes no appends: the server or the engine does not copy parts of a"
        " file on a precondition, so an append sends the whole file"
    )


def _of_rate(backend: AnyBackend, top: Key) -> str | None:
    if not isinstance(backend, ObjectStoreBackend):
        return None
    store, key = BlockingStore(backend), top.join("rate.md")
    store.write(key, b"0")
    began = time.monotonic()
    for number in range(_WRITES):
        store.write(key, b"%d" % number)
    rate = _WRITES / max(time.monotonic() - began, 1e-9)
    return f"one file took {rate:.1f} writes a second" if rate < _SLOW else None
