"""`ContractStore`: a backend as the contract tests call it; the base class of the tests, and threads that race."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import pytest

from agent_memory.backend import (
    ANY,
    AnyBackend,
    AppendWhen,
    Capabilities,
    Entry,
    ETag,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.core import flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory

_MOST_PAGES = 100_000
_WRITERS = 16
_BARRIER_SECONDS = 60.0
_TURN_SECONDS = 1e-5  # with Python's default of 5 ms, most threads would end before a switch


def key(name: str | Key) -> Key:
    """The key of a name in the tree that is the whole root; a key is returned unchanged."""
    return name if isinstance(name, Key) else Key.tree().join_prefix(name)


@contextmanager
def refused(capability: str) -> Iterator[None]:
    """Fail unless the block raises `UnsupportedOperationError`, because the backend does not state a capability."""
    try:
        yield
    except UnsupportedOperationError:
        return
    pytest.fail(f"capabilities.{capability} is false, so this has to raise UnsupportedOperationError", pytrace=False)


class ContractStore:
    """The five methods of a backend, for a blocking caller; names are strings or keys."""

    def __init__(self, backend: AnyBackend) -> None:
        self.backend = backend
        self.blocking = BlockingStore(backend)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the backend states, after it checked those that depend on a server."""
        if flows.checks_capabilities(self.backend):
            return cast(Capabilities, self.call("check_capabilities", "any"))
        return self.backend.capabilities

    def read(self, name: str | Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        """`Backend.read`."""
        found = self.blocking.read(key(name), start, end, when)
        assert isinstance(found.data, bytes), f"read() returned {type(found.data).__name__} instead of bytes as data"
        return found

    def stat(self, name: str | Key) -> Entry:
        """`Backend.stat`."""
        return self.blocking.stat(key(name))

    def write(self, name: str | Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        """`Backend.write`."""
        return self.blocking.write(key(name), data, when)

    def delete(self, name: str | Key, when: ReadWhen = ANY) -> None:
        """`Backend.delete`."""
        self.blocking.delete(key(name), when)

    def list(
        self, prefix: str | Key = "", *, recursive: bool = True, after: str | None = None, limit: int = 1000
    ) -> Page:
        """`Backend.list`."""
        return self.blocking.list(key(prefix), recursive=recursive, after=after, limit=limit)

    def append(self, name: str | Key, data: bytes, *, separator: bytes = b"", when: AppendWhen = ANY) -> flows.Effect:
        """Append as this package does: in place if the backend `Appends`, else by compare-and-swap."""
        return self.blocking.run(flows.append, key(name), data, separator=separator, when=when)

    def call(self, verb: str, *args: object, **named: object) -> Any:
        """Call a method of an optional protocol, with a key for each string."""
        keys = [key(each) if isinstance(each, str) else each for each in args]
        return self.blocking.call(getattr(self.backend, verb), *keys, **named)

    def fill(self, names: Sequence[str]) -> None:
        """Write many empty files, several at a time."""
        with ThreadPoolExecutor(_WRITERS) as threads:
            for _ in threads.map(lambda name: self.write(name, b""), names):
                pass

    def pages(self, prefix: str | Key = "", *, recursive: bool = True, limit: int = 1000) -> Iterable[Page]:
        """All pages; each is requested only when the previous one was used."""
        after = None
        for _ in range(_MOST_PAGES):
            page = self.list(prefix, recursive=recursive, after=after, limit=limit)
            yield page
            after = page.next
            if after is None:
                return
        raise AssertionError(f"a listing does not end after {_MOST_PAGES} pages")

    def names(self, prefix: str | Key = "", *, limit: int = 1000) -> tuple[str, ...]:
        """The paths of all files below a prefix, in the order of the listing."""
        return tuple(entry.path for page in self.pages(prefix, limit=limit) for entry in page.entries)

    def level(self, prefix: str | Key = "", *, limit: int = 1000) -> tuple[Sequence[str], Sequence[str]]:
        """The files and the directories of one level, each in the order of the listing."""
        pages = list(self.pages(prefix, recursive=False, limit=limit))
        files = [entry.path for page in pages for entry in page.entries]
        return files, [directory.path for page in pages for directory in page.directories]

    def holds(self, name: str | Key) -> bytes | None:
        """A file's content, or None if there is no such file."""
        try:
            return self.read(name).data
        except AgentMemoryFileNotFoundError:
            return None

    def memory(self) -> AgentMemory:
        """The tree that is the whole root."""
        return AgentMemory.open(self.backend)


class ContractBase:
    """The base of every part of the contract: its fixtures, and the numbers that a slow store may lower."""

    rounds: ClassVar[int] = 100
    """Number of runs of each race; a quarter for races of renames, because a rename has many steps."""
    workers: ClassVar[int] = 8
    """Number of racing threads."""
    many_files: ClassVar[int] = 1_100
    """Number of files in one directory; more than a page holds."""
    large_bytes: ClassVar[int] = 5_000_000
    """Size of a large file in bytes; more than one packet, block or part holds."""
    model_examples: ClassVar[int] = 30
    """Number of random sequences of operations that are compared with a plain dict."""
    model_steps: ClassVar[int] = 40
    """Maximum number of operations in a sequence."""
    single_writer: ClassVar[bool] = False
    """Whether the backend was opened with the caller's assurance that there is no other writer. Then it also keeps the
    promises that its `Capabilities` do not state, as long as only this one instance is used."""

    @pytest.fixture
    def another_backend(self, backend: AnyBackend) -> AnyBackend:
        """The same storage opened again, as another process would; override it if that is possible."""
        return backend

    @pytest.fixture
    def store(self, backend: AnyBackend) -> ContractStore:
        """The backend under test, empty."""
        return ContractStore(backend)

    @pytest.fixture
    def other(self, another_backend: AnyBackend) -> ContractStore:
        """The same storage, through another handle."""
        return ContractStore(flows.as_another_process(another_backend))

    def promises(self, store: ContractStore, capability: str) -> bool:
        """Whether the backend keeps a promise: it states the capability, or there is no other writer."""
        return self.single_writer or bool(getattr(store.capabilities, capability))

    def promising(self, store: ContractStore, capability: str, otherwise: str) -> ContractStore:
        """The store, if it keeps a promise; else the test is skipped, and the reason has ``otherwise`` at its end.

        A separate test checks that other stores refuse the operation.
        """
        if not self.promises(store, capability):
            pytest.skip(f"the backend states that {otherwise}")
        return store

    @pytest.fixture
    def creating(self, store: ContractStore) -> ContractStore:
        """The store, if it promises ``write(ABSENT)``."""
        return self.promising(store, "atomic_create", "it has no atomic create")

    @pytest.fixture
    def comparing(self, store: ContractStore) -> ContractStore:
        """The store, if it promises ``write(ETag)``."""
        return self.promising(store, "compare_and_swap", "it has no compare-and-swap")

    @pytest.fixture
    def changing(self, creating: ContractStore, comparing: ContractStore) -> ContractStore:  # noqa: ARG002 - the skip
        """The store, if it promises both: appends and edits work."""
        return creating

    @pytest.fixture
    def deleting(self, changing: ContractStore) -> ContractStore:
        """The store, if it promises ``delete(ETag)`` too: every operation works."""
        return self.promising(changing, "conditional_delete", "it has no conditional delete")


def race(actions: Iterable[Callable[[], object]]) -> list[object]:
    """Start all actions at the same moment, each in a thread; returns their results or errors, in order.

    Raises:
        UnsupportedOperationError: the backend refused an action, so there was no race.
        Exception: an action raised an error that is not an `AgentMemoryError`.
    """
    actions = list(actions)
    barrier = threading.Barrier(len(actions), timeout=_BARRIER_SECONDS)

    def start(action: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return action()
        except AgentMemoryError as error:
            return error

    with _quick_turns(), ThreadPoolExecutor(len(actions)) as threads:
        outcomes = list(threads.map(start, actions))
    for outcome in outcomes:
        if isinstance(outcome, UnsupportedOperationError):
            raise outcome
    return outcomes


def winners(outcomes: Sequence[object], *losing: type[AgentMemoryError]) -> list[int]:
    """The indexes of the actions that returned; every other action must have one of the ``losing`` errors."""
    for outcome in outcomes:
        if isinstance(outcome, AgentMemoryError) and not isinstance(outcome, losing):
            raise outcome
    return [place for place, outcome in enumerate(outcomes) if not isinstance(outcome, AgentMemoryError)]


def the_winner(outcomes: Sequence[object], *losing: type[AgentMemoryError]) -> int:
    """The index of the only action that returned; the others as for `winners`."""
    found = winners(outcomes, *losing)
    assert len(found) == 1, f"{len(found)} of {len(outcomes)} racers succeeded; exactly one may"
    return found[0]


def watch(change: Callable[[], None], observe: Callable[[], object], watchers: int) -> None:
    """Call ``observe`` repeatedly in threads, from before ``change`` begins until after it has ended.

    Raises:
        Exception: an error of either function.
    """
    barrier = threading.Barrier(watchers + 1, timeout=_BARRIER_SECONDS)
    done = threading.Event()

    def work() -> None:
        barrier.wait()
        try:
            change()
        finally:
            done.set()

    def look() -> None:
        barrier.wait()
        while not done.is_set():
            observe()
        observe()

    with _quick_turns(), ThreadPoolExecutor(watchers + 1) as threads:
        under_way = [threads.submit(work), *(threads.submit(look) for _ in range(watchers))]
    for future in under_way:
        future.result()


@contextmanager
def _quick_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
