"""The proofs of the command prove: each runs in an empty store, and returns whether it held and what was seen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from statistics import median
from typing import Any, Final, NamedTuple

from agent_memory.backend import AnyBackend
from agent_memory.cli.demo import JOURNAL, LINES, append_at_once
from agent_memory.cli.doctor import diagnosed
from agent_memory.cli.settings import Access, Settings
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.flows import erases
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, AppendError
from agent_memory.key import Key
from agent_memory.object_store.options import bucket_and_prefix

_RESULTS: Final = {"yes": "kept", "no": "not kept", "not tried": "that only a crash can show", "refused": "refused"}
_ROUNDS: Final = 3
"""The repetitions of each race."""
CALLS: Final = 20
"""The measured calls of each kind."""
_TEXT: Final = "x" * 1023 + "\n"
_LINE: Final = "one line of a log\n"
_OF_A_USER: Final = "the secret of one user\n"


class Proof(NamedTuple):
    """The result of one proof.

    Attributes:
        held: whether what it tests is kept; None if the store refuses or does not have what it tests.
        text: what was seen, in one sentence.
        facts: the figures.
    """

    held: bool | None
    text: str
    facts: Mapping[str, Any]


class Latency(NamedTuple):
    """The median milliseconds of one kind of call, and of the same request by the bare client, if that was measured."""

    call: str
    ours: float
    bare: float | None


def races(settings: Settings) -> Proof:
    """Race writers for each promise that the backend states."""
    with settings.store(Access.MAKE) as store:
        diagnosis = diagnosed(store.backend, _ROUNDS)
    seen = {each.promise: each.seen for each in diagnosis.findings}
    by_result: Counter[str] = Counter(seen.values())
    text = ", ".join(f"{by_result[result]} {word}" for result, word in _RESULTS.items() if by_result[result])
    refused = ", ".join(promise for promise, result in seen.items() if result == "refused")
    if diagnosis.faults:
        return Proof(False, f"promises: {text}: {'; '.join(diagnosis.faults)}", seen)
    if refused:
        return Proof(None, f"promises: {text}, because the server cannot keep them safely: {refused}", seen)
    return Proof(True, f"promises: {text}", seen)


def lost_updates(settings: Settings) -> Proof:
    """Count the lines that are there after several processes appended to one file at once."""
    expected = [line for lines in LINES.values() for line in lines]
    with settings.memory(Access.MAKE) as memory:
        memory.write(JOURNAL, "# Journal\n")
        try:
            append_at_once(settings)
        except AppendError as error:
            return Proof(None, f"appends were refused: {error}", {"expected": len(expected)})
        found = Counter(memory.read(JOURNAL).splitlines())
    kept = sum(found[line] == 1 for line in expected)
    text = f"{len(LINES)} processes appended {len(LINES[1])} lines each: {kept} of {len(expected)} are there, once"
    return Proof(kept == len(expected), text, {"expected": len(expected), "kept": kept})


def erasure(settings: Settings) -> Proof:
    """Erase a file that was written, deleted and written again; a second `forget` must find nothing."""
    with settings.store(Access.MAKE) as store:
        memory = store.service.agent(settings.agent)
        for text in (_OF_A_USER, _OF_A_USER * 2):
            memory.write("erased.md", text)
        memory.delete("erased.md")
        memory.write("erased.md", _OF_A_USER)
        try:
            done = memory.forget("erased.md")
        except AgentMemoryError as error:
            return Proof(None, f"forget is refused or failed: {error}", {})
        left = memory.exists("erased.md")
        again = memory.forget("erased.md")
    facts = {"files": done.files, "again": again.files, "versions_searched": done.versions_searched}
    if left or again.files:
        return Proof(False, "something of the file was left after forget", facts)
    searched = "with all states that the storage kept" if done.versions_searched else "the storage keeps no states"
    return Proof(True, f"forget erased a file that was written, deleted and written again, {searched}", facts)


def versions(settings: Settings) -> Proof:
    """Keep, read, restore and undo versions, then turn them off."""
    with settings.memory(Access.MAKE) as memory:
        try:
            memory.versions.set_limits(VersionLimits())
        except AgentMemoryError as error:
            return Proof(None, f"versions are refused: {error}", {})
        texts = [f"state {number}\n" for number in range(3)]
        for text in texts:
            memory.write("kept.md", text)
        found = memory.versions.list("kept.md")
        kept = [memory.versions.read("kept.md", each) for each in found]
        memory.versions.restore("kept.md", found[-1])
        restored = memory.read("kept.md")
        memory.acting_as("a mistaken agent").write("kept.md", "wrong\n")
        undone = memory.versions.undo(actor="a mistaken agent")
        after = memory.read("kept.md")
        memory.versions.set_limits(None)
    facts = {"listed": len(found), "undone": len(undone.done)}
    if (kept, restored, after) != (texts[::-1], texts[0], texts[0]):
        return Proof(False, "a state that was listed, restored or undone has another content than was written", facts)
    return Proof(True, f"{len(found)} states were listed and read; one was restored, and a wrong write undone", facts)


def latencies(settings: Settings) -> list[Latency]:
    """Measure calls in turn with the same requests of the bare client, interleaved."""
    with settings.store(Access.MAKE) as store:
        memory = store.service.agent(settings.agent)
        bare = _bare_client(settings)
        memory.write("measured.md", _TEXT)
        memory.append("log.md", _LINE)
        if bare:
            bare("put", "measured.md")
            bare("put", "log.md")
        ours: dict[str, Callable[[], object]] = {
            "read": lambda: memory.read("measured.md"),
            "write": lambda: memory.write("measured.md", _TEXT),
            "append": lambda: memory.append("log.md", _LINE),
            "list": memory.list,
        }
        return [_measured(name, call, bare) for name, call in ours.items()]


_BARE: Final = {"read": "get", "write": "put", "append": "put", "list": "list"}
"""The request of the bare client for each call: an append to the version that this process wrote last is one PUT."""


def _measured(name: str, call: Callable[[], object], bare: Callable[[str, str], object] | None) -> Latency:
    ours, others = [], []
    file = "log.md" if name == "append" else "measured.md"
    for _ in range(CALLS):
        ours.append(_milliseconds(call))
        if bare:
            others.append(_milliseconds(lambda: bare(_BARE[name], file)))
    return Latency(name, median(ours), median(others) if others else None)


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _bare_client(settings: Settings) -> Callable[[str, str], object] | None:
    """A function that sends one request by s3fs: its kind and a file; None for another store, or another engine."""
    options = {name: value for name, value in settings.storage_options().items() if name != "allow_single_writer"}
    if not settings.url.lower().startswith("s3://") or "engine" in options:
        return None
    bucket, prefix = bucket_and_prefix(settings.url)
    client: Any = import_module("s3fs").S3FileSystem(**options, use_listings_cache=False, skip_instance_cache=True)
    requests: dict[str, Callable[[str], object]] = {
        "get": lambda key: client.cat_file(f"{bucket}/{key}"),
        "put": lambda key: client.call_s3("put_object", Bucket=bucket, Key=key, Body=_TEXT.encode()),
        "list": lambda key: client.call_s3("list_objects_v2", Bucket=bucket, Prefix=key.rpartition("/")[0] + "/"),
    }
    return lambda kind, file: requests[kind](f"{prefix}/bare/{file}")


def clear(backend: AnyBackend) -> int:
    """Remove everything below the root of a store; return the number of names that are left."""
    store = BlockingStore(backend)
    own = Key.internal("x").parent
    for tree in (Key.tree(), own):
        if erases(backend):
            store.run(tree_flows.forget, tree)
        else:
            for entry in store.run(tree_flows.list_all, tree).entries:
                try:
                    store.delete(entry.key)
                except AgentMemoryFileNotFoundError:
                    continue
    return sum(len(store.run(tree_flows.list_all, tree).entries) for tree in (Key.tree(), own))
