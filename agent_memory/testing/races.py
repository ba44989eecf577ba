"""Contract tests of races: the promises that hold while other threads write and read at the same moment.

Each race starts its threads at a barrier and runs many times, because one run proves nothing. The tests compare results
and contents, never times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from agent_memory.backend import ABSENT, ANY, ETag
from agent_memory.core.flows import as_another_process
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
)
from agent_memory.testing._store import ContractBase, ContractStore, race, the_winner, watch, winners

__all__ = ["RaceContract", "race"]

_APPENDS = 4
_SIZES = (1, 4_000, 17, 2_000, 600)


def _state(number: int) -> bytes:
    """One whole state of a file; its first eight bytes determine the rest."""
    return b"%08d" % number * _SIZES[number % len(_SIZES)]


class WatchingContract(ContractBase):
    """Readers beside a writer: no mixture, no gap, no missing file."""

    @pytest.fixture
    def replacing(self, store: ContractStore) -> ContractStore:
        """The store, if it promises a reader the whole old or the whole new file."""
        return self.promising(store, "atomic_write", "a reader may see half a write")

    def watch_replacements(self, store: ContractStore, observe: Callable[[], object]) -> None:
        """Replace ``dir/file`` again and again while threads call ``observe``."""
        store.write("dir/file", _state(0))

        def change() -> None:
            for number in range(1, self.rounds + 1):
                store.write("dir/file", _state(number))

        self.watch(change, observe)

    def watch(self, change: Callable[[], None], observe: Callable[[], object]) -> None:
        """Call ``observe`` in half as many threads as `workers`, at least 2, until ``change`` has ended."""
        watch(change, observe, max(2, self.workers // 2))

    def test_a_reader_sees_a_whole_state_of_a_file_that_is_replaced(
        self, replacing: ContractStore, other: ContractStore
    ) -> None:
        def observe() -> None:
            snapshot = other.read("dir/file")
            assert snapshot.data == _state(int(snapshot.data[:8]))
            assert snapshot.size == len(snapshot.data)

        self.watch_replacements(replacing, observe)
        assert other.read("dir/file").data == _state(self.rounds)

    def test_a_file_that_is_replaced_is_never_missing(self, replacing: ContractStore, other: ContractStore) -> None:
        sizes = {len(_state(number)) for number in range(len(_SIZES))}

        def observe() -> None:
            assert other.stat("dir/file").size in sizes
            page = other.list()
            assert [(entry.path, entry.size in sizes) for entry in page.entries] == [("dir/file", True)]
            assert page.skipped == 0
            assert other.level() == ([], ["dir"])

        self.watch_replacements(replacing, observe)

    def test_ranges_of_one_version_are_of_one_state(self, replacing: ContractStore, other: ContractStore) -> None:
        def observe() -> None:
            first = other.read("dir/file", 0, 8)
            try:
                rest = other.read("dir/file", 8, None, first.etag)
            except ConflictError:
                return
            assert first.data + rest.data == _state(int(first.data))

        self.watch_replacements(replacing, observe)

    @pytest.mark.parametrize("size", [7, 9_001])
    def test_a_reader_sees_whole_appends(self, changing: ContractStore, other: ContractStore, size: int) -> None:
        changing.write("log", b"")
        records = [(b"%06d" % number).ljust(size, b".") for number in range(self.rounds)]
        whole = b"".join(records)

        def change() -> None:
            for record in records:
                changing.append("log", record)

        def observe() -> None:
            snapshot = other.read("log")
            assert len(snapshot.data) % size == 0
            assert whole.startswith(snapshot.data)
            assert other.stat("log").size in range(len(snapshot.data), len(whole) + 1, size)

        self.watch(change, observe)
        assert other.read("log").data == whole

    def test_a_listing_gives_what_stays_while_files_beside_it_come_and_go(
        self, replacing: ContractStore, other: ContractStore
    ) -> None:
        stays = ("dir/b", "dir/sub/d", "dir/x")
        for name in stays:
            replacing.write(name, b"x")

        def change() -> None:
            for number in range(max(1, self.rounds // 4)):
                names = [f"dir/{place}{number}" for place in ("a", "c/", "sub/", "z")]
                for name in names:
                    replacing.write(name, b"x")
                for name in names:
                    replacing.delete(name)

        def observe() -> None:
            for limit in (2, 1000):
                names = other.names("dir", limit=limit)
                assert [name for name in names if name in stays] == list(stays)
                assert len(set(names)) == len(names)

        self.watch(change, observe)

    def test_a_file_that_is_renamed_has_one_name_at_least(self, deleting: ContractStore, other: ContractStore) -> None:
        memory = deleting.memory()
        for number in range(max(1, self.rounds // 4)):
            data = b"%d" % number
            deleting.write(f"from/{number}", data)

            def look(number: int = number, data: bytes = data) -> None:
                assert data in (other.holds(f"from/{number}"), other.holds(f"to/{number}"))

            outcomes = race([partial(memory.rename, f"from/{number}", f"to/{number}"), look, look])
            assert len(winners(outcomes)) == 3
            assert other.names() == (f"to/{number}",)
            deleting.delete(f"to/{number}")


class RaceContract(WatchingContract):
    """Races of writers with each other; races of readers with a writer are in `WatchingContract`."""

    @pytest.fixture
    def racers(self, store: ContractStore, other: ContractStore) -> Sequence[ContractStore]:
        """The store for each of `workers` threads, half by another handle; each as another process if it can."""
        both = (store.backend, other.backend)
        return [ContractStore(as_another_process(both[number % 2])) for number in range(self.workers)]

    def test_of_racing_creators_exactly_one_wins(
        self, creating: ContractStore, racers: Sequence[ContractStore]
    ) -> None:
        for number in range(self.rounds):
            name = f"race/{number}"
            contents = [b"creator %d" % racer for racer in range(len(racers))]
            outcomes = race(
                partial(racer.write, name, data, ABSENT) for racer, data in zip(racers, contents, strict=True)
            )
            winner = the_winner(outcomes, FileAlreadyExistsError)
            assert creating.read(name).data == contents[winner]
            assert creating.read(name).etag == outcomes[winner]

    def test_of_racing_writers_on_one_version_exactly_one_wins(
        self, comparing: ContractStore, racers: Sequence[ContractStore]
    ) -> None:
        etag = comparing.write("shared", b"start")
        for number in range(self.rounds):
            contents = [b"round %d of %d" % (number, racer) for racer in range(len(racers))]
            outcomes = race(
                partial(racer.write, "shared", data, etag) for racer, data in zip(racers, contents, strict=True)
            )
            winner = the_winner(outcomes, ConflictError)
            assert comparing.read("shared").data == contents[winner]
            etag = comparing.read("shared").etag
            assert etag == outcomes[winner]

    def test_racing_appends_lose_nothing(self, changing: ContractStore, racers: Sequence[ContractStore]) -> None:
        for number in range(max(1, self.rounds // _APPENDS)):
            name = f"race/log{number}"

            def append(racer: int, name: str = name) -> None:
                memory = racers[racer].memory()
                for turn in range(_APPENDS):
                    memory.append(name, f"{racer}:{turn}\n")

            assert len(winners(race(partial(append, racer) for racer in range(len(racers))))) == len(racers)
            lines = changing.read(name).data.decode().splitlines()
            for racer in range(len(racers)):
                own = [line for line in lines if line.startswith(f"{racer}:")]
                assert own == [f"{racer}:{turn}" for turn in range(_APPENDS)]
            assert len(lines) == len(racers) * _APPENDS

    def test_racing_appends_set_a_separator_exactly_once(
        self, changing: ContractStore, racers: Sequence[ContractStore]
    ) -> None:
        records = [b"record %d" % racer for racer in range(len(racers))]
        for number in range(max(1, self.rounds // _APPENDS)):
            name = f"race/log{number}"
            outcomes = race(
                partial(racer.append, name, record, separator=b"\n")
                for racer, record in zip(racers, records, strict=True)
            )
            assert len(winners(outcomes)) == len(racers)
            assert sorted(changing.read(name).data.split(b"\n")) == sorted(records)

    def test_racing_edits_lose_nothing(self, changing: ContractStore, racers: Sequence[ContractStore]) -> None:
        edits = max(1, self.rounds // len(racers))
        changing.write("count", b"0")

        def count(racer: ContractStore) -> None:
            memory = racer.memory()
            for _ in range(edits):
                memory.edit("count", lambda text: str(int(text) + 1))

        assert len(winners(race(partial(count, racer) for racer in racers))) == len(racers)
        assert int(changing.read("count").data) == len(racers) * edits

    @pytest.mark.parametrize("is_conditional", [False, True], ids=["any", "version"])
    def test_of_racing_deletes_exactly_one_wins(
        self, deleting: ContractStore, racers: Sequence[ContractStore], is_conditional: bool
    ) -> None:
        for number in range(self.rounds):
            etag = deleting.write("dir/file", b"%d" % number)
            outcomes = race(partial(racer.delete, "dir/file", etag if is_conditional else ANY) for racer in racers)
            the_winner(outcomes, AgentMemoryFileNotFoundError, *([ConflictError] if is_conditional else []))
            assert deleting.level() == ([], [])

    def test_a_write_on_a_version_never_brings_a_deleted_file_back(
        self, comparing: ContractStore, other: ContractStore
    ) -> None:
        for number in range(self.rounds):
            self.write_beside_a_delete(comparing, other, b"%d" % number)
            assert comparing.level() == ([], [])

    def write_beside_a_delete(self, comparing: ContractStore, other: ContractStore, before: bytes) -> object:
        """Race a write of b"new" to ``dir/file`` on its etag with its deletion; return the outcome of the write."""
        etag = comparing.write("dir/file", before)
        written, deleted = race([partial(comparing.write, "dir/file", b"new", etag), partial(other.delete, "dir/file")])
        assert deleted is None
        assert isinstance(written, ETag | ConflictError)
        return written

    def test_a_delete_on_a_version_never_takes_a_newer_file(
        self, deleting: ContractStore, other: ContractStore
    ) -> None:
        for number in range(self.rounds):
            etag = deleting.write("file", b"%d" % number)
            deleted, written = race([partial(deleting.delete, "file", etag), partial(other.write, "file", b"new")])
            assert isinstance(written, ETag)
            assert deleted is None or isinstance(deleted, ConflictError)
            assert deleting.holds("file") == b"new"

    def test_a_write_survives_a_delete_that_empties_its_directory(
        self, comparing: ContractStore, other: ContractStore
    ) -> None:
        for number in range(self.rounds):
            data = b"%d" % number
            names = ("a/b/c/new", "a/b/d/new", "a/b/new")
            comparing.write("a/b/c/last", b"x")
            outcomes = race(
                [partial(comparing.delete, "a/b/c/last"), *(partial(other.write, name, data) for name in names)]
            )
            assert len(winners(outcomes)) == 1 + len(names)
            assert comparing.names() == names
            assert [comparing.holds(name) for name in names] == [data] * len(names)
            for name in names:
                comparing.delete(name)
            assert comparing.level() == ([], [])

    def test_an_append_comes_before_or_after_a_delete(self, changing: ContractStore, other: ContractStore) -> None:
        for number in range(self.rounds):
            self.append_beside_a_delete(changing, other, b"%d" % number)
            assert changing.holds("dir/log") in (None, b"new")
            changing.memory().delete_tree("")

    def append_beside_a_delete(self, changing: ContractStore, other: ContractStore, before: bytes) -> None:
        """Race one append of b"new" to ``dir/log`` with its deletion."""
        changing.write("dir/log", before)
        appended, deleted = race([partial(changing.append, "dir/log", b"new"), partial(other.delete, "dir/log")])
        assert deleted is None
        assert not isinstance(appended, AgentMemoryError)

    def test_a_name_becomes_a_file_or_a_directory_and_never_both(
        self, creating: ContractStore, other: ContractStore
    ) -> None:
        if not creating.capabilities.exclusive_names:
            pytest.skip("the backend states that racing writers may make both")
        for number in range(self.rounds):
            names = (f"{number}/x", f"{number}/x/y", f"{number}/x/y/z")
            seats = (creating, other, creating)
            outcomes = race(partial(seat.write, name, b"x", ABSENT) for seat, name in zip(seats, names, strict=True))
            winner = the_winner(outcomes, FileAlreadyExistsError)
            assert creating.names(str(number)) == (names[winner],)

    def test_of_racing_renames_of_one_file_exactly_one_wins(
        self, deleting: ContractStore, racers: Sequence[ContractStore]
    ) -> None:
        for number in range(max(1, self.rounds // 4)):
            deleting.write("from/file", b"%d" % number)
            outcomes = race(
                partial(racer.memory().rename, "from/file", f"to/{place}") for place, racer in enumerate(racers)
            )
            winner = the_winner(outcomes, AgentMemoryFileNotFoundError, ConflictError)
            assert deleting.names() == (f"to/{winner}",)
            assert deleting.holds(f"to/{winner}") == b"%d" % number
            deleting.delete(f"to/{winner}")

    def test_of_racing_renames_to_one_name_exactly_one_wins(
        self, deleting: ContractStore, racers: Sequence[ContractStore]
    ) -> None:
        sources = [f"from/{place}" for place in range(len(racers))]
        for _ in range(max(1, self.rounds // 4)):
            for name in sources:
                deleting.write(name, name.encode())
            outcomes = race(
                partial(racer.memory().rename, name, "to") for racer, name in zip(racers, sources, strict=True)
            )
            winner = the_winner(outcomes, FileAlreadyExistsError)
            assert deleting.holds("to") == sources[winner].encode()
            assert deleting.names() == (*(name for name in sources if name != sources[winner]), "to")
            deleting.memory().delete_tree("")
