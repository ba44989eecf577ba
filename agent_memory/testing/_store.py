"""`ContractStore`: a backend of either kind as the contract's tests call it, and what all of them share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, cast

import pytest

from agent_memory.backend import (
    ANY,
    AnyBackend,
    AppendWhen,
    Capabilities,
    Entry,
    Page,
    ReadWhen,
    Snapshot,
    Version,
    WriteWhen,
)
from agent_memory.core import flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryFileNotFoundError
from agent_memory.key import Key
from agent_memory.memory import AgentMemory

_MOST_PAGES = 100_000
_WRITERS = 16


def key(name: str | Key) -> Key:
    """The key of a name in the tree that is the whole root; a key is itself."""
    return name if isinstance(name, Key) else Key.tree().join_prefix(name)


class ContractStore:
    """The five verbs of a backend for a caller that blocks; names are texts or keys."""

    def __init__(self, backend: AnyBackend) -> None:
        self.backend = backend
        self.blocking = BlockingStore(backend)

    @property
    def capabilities(self) -> Capabilities:
        """What the backend states, after it tried what depends on a server."""
        backend: object = self.backend
        if flows.checks_capabilities(backend):
            return cast(Capabilities, self.blocking.call(backend.check_capabilities, key("any")))
        return self.backend.capabilities

    def read(self, name: str | Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        """`Backend.read`."""
        return self.blocking.read(key(name), start, end, when)

    def stat(self, name: str | Key) -> Entry:
        """`Backend.stat`."""
        return self.blocking.stat(key(name))

    def write(self, name: str | Key, data: bytes, when: WriteWhen = ANY) -> Version:
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
        """Append as this package does it: in place where the backend `Appends`, else by compare-and-swap."""
        return self.blocking.run(flows.append, key(name), data, separator=separator, when=when)

    def fill(self, names: Sequence[str]) -> None:
        """Write many empty files, several at a time."""
        with ThreadPoolExecutor(_WRITERS) as threads:
            for _ in threads.map(lambda name: self.write(name, b""), names):
                pass

    def pages(self, prefix: str | Key = "", *, recursive: bool = True, limit: int = 1000) -> Iterable[Page]:
        """Page by page to the end, each asked for only when the one before was used."""
        after = None
        for _ in range(_MOST_PAGES):
            page = self.list(prefix, recursive=recursive, after=after, limit=limit)
            yield page
            after = page.next
            if after is None:
                return
        raise AssertionError(f"a listing goes on after {_MOST_PAGES} pages")

    def names(self, prefix: str | Key = "", *, limit: int = 1000) -> tuple[str, ...]:
        """The paths of all files below a prefix, in the order given."""
        return tuple(entry.path for page in self.pages(prefix, limit=limit) for entry in page.entries)

    def level(self, prefix: str | Key = "", *, limit: int = 1000) -> tuple[Sequence[str], Sequence[str]]:
        """The files and the directories of one level, each in the order given."""
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
    """What every part of the contract is given, and what a slow store may lower."""

    rounds: ClassVar[int] = 100
    """How many times each race is run; those of renames, which have many steps each, a quarter of it."""
    workers: ClassVar[int] = 8
    """How many threads race."""
    many_files: ClassVar[int] = 1_100
    """How many files one directory is filled with; more than a page holds."""
    large_bytes: ClassVar[int] = 5_000_000
    """The size of a large file; more than one packet, block or part holds."""
    model_examples: ClassVar[int] = 30
    """How many random sequences of operations are compared with a plain dict."""
    model_steps: ClassVar[int] = 40
    """How long each of them may be."""
    single_writer: ClassVar[bool] = False
    """The backend was opened on its caller's word that nobody else writes: what its `Capabilities` do not
    state it does nevertheless, as long as this one instance is used."""

    @pytest.fixture
    def another_backend(self, backend: AnyBackend) -> AnyBackend:
        """The same storage opened once more, as another process would; override it where that can be done."""
        return backend

    @pytest.fixture
    def store(self, backend: AnyBackend) -> ContractStore:
        """The backend under test, empty."""
        return ContractStore(backend)

    @pytest.fixture
    def other(self, another_backend: AnyBackend) -> ContractStore:
        """The same storage, seen by somebody else."""
        return ContractStore(another_backend)

    def creates(self, store: ContractStore) -> bool:
        """Whether ``write(ABSENT)`` is promised."""
        return store.capabilities.atomic_create or self.single_writer

    def compares(self, store: ContractStore) -> bool:
        """Whether ``write(Version)`` is promised."""
        return store.capabilities.compare_and_swap or self.single_writer

    def deletes(self, store: ContractStore) -> bool:
        """Whether ``delete(Version)`` is promised."""
        return store.capabilities.conditional_delete or self.single_writer

    @pytest.fixture
    def creating(self, store: ContractStore) -> ContractStore:
        """The store, where a create is promised; that it is refused elsewhere has a test of its own."""
        if not self.creates(store):
            pytest.skip("the backend states that it has no atomic create")
        return store

    @pytest.fixture
    def comparing(self, store: ContractStore) -> ContractStore:
        """The store, where compare-and-swap is promised; that it is refused elsewhere has a test of its own."""
        if not self.compares(store):
            pytest.skip("the backend states that it has no compare-and-swap")
        return store

    @pytest.fixture
    def changing(self, creating: ContractStore, comparing: ContractStore) -> ContractStore:
        """The store, where both are promised: appends and edits work."""
        assert creating is comparing
        return creating

    @pytest.fixture
    def deleting(self, changing: ContractStore) -> ContractStore:
        """The store, where a conditional delete is promised too: every operation works."""
        if not self.deletes(changing):
            pytest.skip("the backend states that it has no conditional delete")
        return changing
