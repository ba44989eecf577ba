"""Probes of a store's real behaviour, in a scratch prefix of this package's own area: its promises and its limits."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Literal, NamedTuple

from agent_memory.backend import ABSENT, ANY, AnyBackend, ETag, ReadWhen, WriteWhen
from agent_memory.core import part_flows, tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.core.flows import as_another_process, erases
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    UnsupportedOperationError,
)
from agent_memory.key import Key
from agent_memory.object_store import ObjectStoreBackend
from agent_memory.registry import open_backend

Seen = Literal["yes", "no", "refused", "failed", "not tried"]
_RACERS: Final = 8
_LIMITED_RACERS: Final = 2
_READERS: Final = 4
_FIRST: Final = b"racer 0"
"""The text of the first racer."""
_DELETIONS: Final = 3
"""How many deletions race in a round: a server that is not atomic lets a deletion and a write through less often."""
_OF_DELETION: Final = 3
"""The racers of a deletion: with more writers, one of them is mostly done before the deletion is sent."""
_SECONDS_OF_REPLACING: Final = 0.3
"""Seconds per round in which a file is replaced while readers read it."""
_WRITES: Final = 2
_SLOW: Final = 2.0
"""Writes a second of one file below which the rate is a limit: some services allow one."""
_EDITS: Final = 50
_OTHER_SECONDS: Final = 30
_COUNTED: Final = "counted.md"
_LOST = (FileAlreadyExistsError, ConflictError)


class Sight(NamedTuple):
    """The result of a probe: promise kept, not kept, operation refused, or storage failed; ``detail`` explains it."""

    seen: Seen
    detail: str


class ScratchTree:
    """A random prefix in the store's own area, which no agent can address.

    Attributes:
        is_limited: whether the server allows few writes of one file, so that each racer waits for those before it.
    """

    is_limited = False

    def __init__(self, backend: AnyBackend, top: Key | None = None) -> None:
        self._backend = backend
        self._store = BlockingStore(backend)
        self.top = top or Key.internal(f"doctor/{secrets.token_hex(8)}")

    def racers(self) -> list[ScratchTree]:
        """The same prefix, for each of several racing writers as another process would see it."""
        count = _LIMITED_RACERS if self.is_limited else _RACERS
        return [ScratchTree(as_another_process(self._backend), self.top) for _ in range(count)]

    def write(self, name: str, data: bytes, when: WriteWhen = ANY) -> ETag:
        return self._store.write(self.top.join(name), data, when)

    def read(self, name: str) -> bytes | None:
        """The content, or None if there is no such file."""
        try:
            return self._store.read(self.top.join(name)).data
        except AgentMemoryFileNotFoundError:
            return None

    def add_one(self, name: str) -> None:
        """Count up the number in a file, by compare-and-swap."""
        key = self.top.join(name)
        while True:
            found = self._store.read(key)
            try:
                self._store.write(key, str(int(found.data) + 1).encode(), found.etag)
            except ConflictError:
                continue
            return

    def delete(self, name: str, when: ReadWhen = ANY) -> None:
        self._store.delete(self.top.join(name), when)

    def names(self) -> set[str]:
        """The names of all files in the scratch prefix."""
        entries = self._store.run(tree_flows.list_all, self.top).entries
        return {entry.key.relative_to(self.top).path for entry in entries}

    def clear(self) -> None:
        """Remove all files, and what the storage keeps of them."""
        for name in self.names():
            try:
                self.delete(name)
            except AgentMemoryFileNotFoundError:
                continue
        with suppress(AgentMemoryError):
            self._store.run(tree_flows.forget, self.top)

    def keeps_earlier_states(self) -> bool | None:
        """Whether the storage keeps a file that was replaced; None if it does not tell."""
        backend: object = self._backend
        if not erases(backend):
            return None
        try:
            self.write("kept.md", b"one")
            self.write("kept.md", b"two")
            return bool(self._store.call(backend.erase_earlier, self.top.join("kept.md")))
        except AgentMemoryError:
            return None

    def refusal_of_large_files(self) -> str | None:
        """Why the store refuses files that are larger than one call may be; None if it takes them, or does not tell."""
        key, size = self.top.join("large.log"), self._backend.max_bytes + 1
        try:
            parts = self._store.run(part_flows.begin, key, size, ABSENT)
            self._store.call(parts.abort)
        except UnsupportedOperationError as error:
            return str(error.args[0])
        except AgentMemoryError:
            return None
        return None


Probe = Callable[[ScratchTree, int], Sight]


def look(probe: Probe, scratch: ScratchTree, rounds: int) -> Sight:
    """Run one probe. An operation that the store does not support is "refused"; any other error is "failed"."""
    try:
        return probe(scratch, rounds)
    except UnsupportedOperationError as error:
        return Sight("refused", str(error).rpartition("': ")[2])
    except AgentMemoryError as error:
        return Sight("failed", f"could not be probed: {error}")


def atomic_write(scratch: ScratchTree, rounds: int) -> Sight:
    """Concurrent readers of a replaced file always see one of its whole states.

    A server that replaces in place is between two states only for a moment. The states are large to make the moment
    longer, and the writer continues for some time, so that a reader can observe it.
    """
    states = [b"a" * 500_000, b"b" * 700_000]
    scratch.write("replaced.md", states[0])
    over = threading.Event()

    def reads() -> bool:
        whole = True
        while whole and not over.is_set():
            whole = scratch.read("replaced.md") in states
        return whole

    replaced, ends = 0, time.monotonic() + rounds * _SECONDS_OF_REPLACING
    with ThreadPoolExecutor(_READERS) as pool:
        readers = [pool.submit(reads) for _ in range(_READERS)]
        try:
            while not any(reader.done() for reader in readers) and (replaced < 2 * rounds or time.monotonic() < ends):
                replaced += 1
                scratch.write("replaced.md", states[replaced % 2])
        finally:
            over.set()
        if all(reader.result() for reader in readers):
            return Sight("yes", f"whole states only, in {replaced} replacements")
    return Sight("no", "a reader saw a mixture, or nothing")


def atomic_create(scratch: ScratchTree, rounds: int) -> Sight:
    """Exactly one of several racing creators wins, and the file has its content."""
    racers = scratch.racers()
    for number in range(rounds):
        name = f"created-{number}.md"

        def create(racer: ScratchTree, text: bytes, name: str = name) -> None:
            racer.write(name, text, when=ABSENT)

        winners = _race(racers, create)
        if len(winners) != 1:
            return Sight("no", f"{len(winners)} of {len(racers)} racing creators won")
        if scratch.read(name) != winners[0]:
            return Sight("no", "a creator that lost wrote nevertheless")
    return Sight("yes", f"one winner of {len(racers)}, {rounds} times")


def compare_and_swap(scratch: ScratchTree, rounds: int) -> Sight:
    """A stale etag is refused, also of a deleted file; of racing writers with one etag exactly one wins."""
    racers = scratch.racers()
    stale = scratch.write("swapped.md", b"one")
    etag = scratch.write("swapped.md", b"two", when=stale)
    if not _refused(lambda: scratch.write("swapped.md", b"three", when=stale)):
        return Sight("no", "a write with a stale etag went through")
    for _ in range(rounds):

        def swap(racer: ScratchTree, text: bytes, etag: ETag = etag) -> None:
            racer.write("swapped.md", text, when=etag)

        winners = _race(racers, swap)
        if len(winners) != 1 or scratch.read("swapped.md") != winners[0]:
            return Sight("no", f"{len(winners)} of {len(racers)} racing writers with one etag won")
        etag = scratch.write("swapped.md", b"again")
    scratch.delete("swapped.md")
    if not _refused(lambda: scratch.write("swapped.md", b"back", when=etag)):
        return Sight("no", "a write with the etag of a deleted file went through")
    return Sight("yes", f"stale and deleted etags refused; one winner of {len(racers)}, {rounds} times")


def conditional_delete(scratch: ScratchTree, rounds: int) -> Sight:
    """A delete with a stale etag is refused; of a delete and writes that race on one etag exactly one wins."""
    stale = scratch.write("deleted.md", b"one")
    current = scratch.write("deleted.md", b"two")
    if not _refused(lambda: scratch.delete("deleted.md", when=stale)):
        return Sight("no", "a delete with a stale etag went through")
    scratch.delete("deleted.md", when=current)
    racers = scratch.racers()[:_OF_DELETION]
    races = rounds if scratch.is_limited else _DELETIONS * rounds
    for _ in range(races):
        etag = scratch.write("deleted.md", b"again")

        def change(racer: ScratchTree, text: bytes, etag: ETag = etag) -> None:
            if text == _FIRST:
                racer.delete("deleted.md", when=etag)
            else:
                racer.read("deleted.md")  # takes as long as the request that a deletion sends first
                racer.write("deleted.md", text, when=etag)

        winners = _race(racers, change)
        if _FIRST in winners and len(winners) > 1:
            return Sight("no", "a delete and a write that raced on one etag both won")
    return Sight("yes", f"a stale etag refused; no delete won beside a write, {races} times")


def exclusive_names(scratch: ScratchTree, rounds: int) -> Sight:  # noqa: ARG001 - a probe
    """A directory does not become a file, nor a file a directory."""
    scratch.write("directory/file.md", b"below")
    scratch.write("file.md", b"file")
    taken = _refused(lambda: scratch.write("directory", b"file"))
    blocked = _refused(lambda: scratch.write("file.md/below.md", b"below"))
    if taken and blocked:
        return Sight("yes", "a taken name is refused; racing processes were not tried")
    return Sight("no", "one name was made a file and a directory")


def case_sensitive(scratch: ScratchTree, rounds: int) -> Sight:  # noqa: ARG001 - a probe
    """Names that differ only by case are two files."""
    scratch.write("Case.md", b"upper")
    try:
        scratch.write("case.md", b"lower")
    except FileAlreadyExistsError:
        return Sight("no", "names that differ only by case are refused")
    if (scratch.read("Case.md"), scratch.read("case.md")) == (b"upper", b"lower"):
        return Sight("yes", "names that differ only by case are two files")
    return Sight("no", "names that differ only by case are one file")


def read_after_write(scratch: ScratchTree, rounds: int) -> Sight:
    """The next read and the next listing show every write and every delete."""
    for number in range(rounds):
        name = f"seen-{number}.md"
        for content in (b"first", b"second"):
            scratch.write(name, content)
            if scratch.read(name) != content:
                return Sight("no", "a read after a write saw an older state")
        if name not in scratch.names():
            return Sight("no", "a listing after a write did not show the file")
        scratch.delete(name)
        if scratch.read(name) is not None or name in scratch.names():
            return Sight("no", "a deleted file was still there")
    return Sight("yes", f"read and listed after {3 * rounds} changes")


PROBES: Final[dict[str, Probe]] = {
    "atomic_write": atomic_write,
    "atomic_create": atomic_create,
    "compare_and_swap": compare_and_swap,
    "conditional_delete": conditional_delete,
    "exclusive_names": exclusive_names,
    "case_sensitive": case_sensitive,
    "read_after_write": read_after_write,
}
"""A probe for each promise of `Capabilities` that can be tested; durability needs a crash."""


def _race(racers: Sequence[ScratchTree], attempt: Callable[[ScratchTree, bytes], object]) -> list[bytes]:
    """Start all racers at once, each with a text of its own, the first with `_FIRST`; returns the winners' texts.

    Raises:
        AgentMemoryError: a racer failed with another error than a lost race.
    """
    start = threading.Barrier(len(racers))
    texts = [b"racer %d" % number for number in range(len(racers))]

    def run(racer: ScratchTree, text: bytes) -> bool:
        start.wait()
        return not _refused(lambda: attempt(racer, text))

    with ThreadPoolExecutor(len(racers)) as pool:
        try:
            return [text for text, won in zip(texts, pool.map(run, racers, texts), strict=True) if won]
        except BaseException:
            start.abort()  # after an interrupt the barrier never fills, so release the waiting racers
            raise


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except _LOST:
        return True
    return False


def limits(backend: AnyBackend, top: Key) -> list[str]:
    """Try `forget` and an append to a large file, below a scratch key; return what is limited."""
    found: list[str] = []
    for tried in (_of_forget, _of_large_appends):
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


def limited_rate(backend: AnyBackend, top: Key) -> float | None:
    """The writes a second of one file, if the server limits them: it takes writes of several files faster.

    None also if the writes fail, because the probes of promises tell this.
    """
    if not isinstance(backend, ObjectStoreBackend):
        return None
    store, keys = BlockingStore(backend), [top.join(f"rate-{number}.md") for number in range(_WRITES + 1)]

    def seconds(written: Sequence[Key]) -> float:
        began = time.monotonic()
        for number, key in enumerate(written):
            store.write(key, b"%d" % number)
        return max(time.monotonic() - began, 1e-9)

    try:
        store.write(keys[0], b"x")
        several, one = seconds(keys[1:]), seconds(keys[:1] * _WRITES)
    except AgentMemoryError:
        return None
    rate = _WRITES / one
    return rate if rate < _SLOW and one > 2 * several else None


def tried_in_two_processes(backend: AnyBackend, url: str, options: Mapping[str, object]) -> Sight:
    """Let this process and another one count up a number in one file; each edit must add one."""
    scratch = ScratchTree(backend)
    facts = {"url": url, "options": options, "directory": scratch.top.path}
    try:
        scratch.write(_COUNTED, b"0")
        command = [sys.executable, "-P", "-m", __name__]  # without modules of the current directory
        with subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as other:
            try:
                assert other.stdin  # noqa: S101
                assert other.stderr  # noqa: S101
                other.stdin.write(json.dumps(facts).encode())
                other.stdin.close()
                own = _edits_while(other, scratch)
                failed = other.wait(_OTHER_SECONDS) != 0
                said = other.stderr.read() if failed else b""
            finally:
                other.kill()
        counted = int(scratch.read(_COUNTED) or b"0")
    except (AgentMemoryError, OSError, ValueError, subprocess.SubprocessError) as error:
        return Sight("failed", f"two processes could not be tried: {type(error).__name__}")
    finally:
        with suppress(AgentMemoryError):
            scratch.clear()
    if failed:
        kind = said.rstrip().rpartition(b"\n")[2].partition(b":")[0].decode(errors="replace") or "without a message"
        return Sight("failed", f"two processes could not be tried: the other one failed: {kind}")
    if lost := own + _EDITS - counted:
        return Sight("no", f"two processes lost {lost} of {own + _EDITS} edits")
    return Sight("yes", f"two processes lost none of {own + _EDITS} edits")


def _edits_while(other: subprocess.Popen[bytes], scratch: ScratchTree) -> int:
    """Edit until the other process has ended; returns the number of edits."""
    edits = 0
    while other.poll() is None and edits < _EDITS * _EDITS:
        scratch.add_one(_COUNTED)
        edits += 1
    return edits


def _main() -> None:
    facts = json.load(sys.stdin)
    scratch = ScratchTree(open_backend(facts["url"], facts["options"]), Key.internal(facts["directory"]))
    for _ in range(_EDITS):
        scratch.add_one(_COUNTED)


if __name__ == "__main__":
    _main()
