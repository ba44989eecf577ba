"""The contract on S3 servers. ministack runs all race rounds, SeaweedFS a few in long runs, and moto none.

Short runs have the whole contract by the engine obstore, and `OF_S3FS` by s3fs.

Short runs use SeaweedFS in the races of `tests.core.test_concurrency` and in the policy tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from agent_memory import AgentMemory, VersionLimits
from agent_memory.backend import ABSENT, AnyBackend, ETag
from agent_memory.errors import WriteError
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from agent_memory.testing import BackendContract, FunctionalContract
from tests.support import sizes

if TYPE_CHECKING:
    from agent_memory.testing._store import ContractStore
    from tests.support.servers import S3Server

Open = Callable[[str], AnyBackend]
T = TypeVar("T")


class _OnS3(FunctionalContract):
    @pytest.fixture
    def url(self, server: S3Server) -> str:
        return server.new_url()

    @pytest.fixture
    def opened(self, server: S3Server) -> Iterator[Open]:
        backends: list[AnyBackend] = []

        def open_url(url: str) -> AnyBackend:
            backends.append(open_backend(url, server.options))
            return backends[-1]

        yield open_url
        for backend in backends:
            close_backend(backend)

    @pytest.fixture
    def backend(self, opened: Open, url: str) -> AnyBackend:
        return opened(url)

    @pytest.fixture
    def another_backend(self, opened: Open, url: str) -> AnyBackend:
        return opened(url)


OF_S3FS = {
    "test_a_name_is_kept_as_it_is": 4,
    "test_a_range_is_read_only_of_the_state_asked_for": 9,
    "test_a_range_is_what_a_slice_gives": 9,
    "test_pages_give_every_name_once": 4,
    "test_what_is_no_file_is_not_found": 3,
    **dict.fromkeys(
        (
            "test_a_condition_on_the_state_decides_about_a_delete",
            "test_a_create_refuses_a_file_that_is_there",
            "test_a_write_on_a_stale_version_is_a_conflict",
            "test_a_version_of_a_missing_file_is_a_conflict",
            "test_of_racing_deletes_exactly_one_wins",
            "test_what_is_not_there_is_erased_already",
            "test_a_write_in_parts_needs_a_name_that_can_be_a_file",
        ),
        2,
    ),
    **dict.fromkeys(
        (
            "test_a_delete_on_a_stale_version_is_a_conflict",
            "test_a_delete_on_a_version_never_takes_a_newer_file",
            "test_a_delete_on_the_current_version_deletes",
            "test_a_directory_is_erased_with_all_that_is_in_it",
            "test_a_file_is_erased_alone",
            "test_a_file_outlives_the_erasing_of_its_earlier_states",
            "test_a_file_that_is_renamed_has_one_name_at_least",
            "test_a_file_written_in_parts_has_its_origin",
            "test_a_file_written_in_parts_is_there_when_it_is_complete",
            "test_a_name_is_free_again",
            "test_a_write_in_parts_creates_no_file_that_is_there",
            "test_a_write_in_parts_on_a_version_replaces_no_other",
            "test_a_write_in_parts_on_present_replaces_a_file_and_creates_none",
            "test_a_write_in_parts_replaces_whatever_is_there",
            "test_a_write_in_parts_that_is_aborted_leaves_nothing",
            "test_an_async_caller_gets_the_same",
            "test_of_racing_creators_in_parts_exactly_one_wins",
            "test_of_racing_renames_of_one_file_exactly_one_wins",
            "test_of_racing_renames_to_one_name_exactly_one_wins",
            "test_random_operations_do_what_they_do_on_a_dict",
            "test_readers_see_the_old_or_the_new_of_a_write_in_parts",
        ),
        1,
    ),
}
"""The tests of s3fs in the short run, and which share of their values: what obstore skips, and what engines do alone.

The short run has all others by obstore, which needs a fifth of the time. Both engines share everything above them.
"""


def shortened(tests: Mapping[str, int]) -> Callable[[type[T]], type[T]]:
    """In the short run a contract has only some of its tests, each with every so-many-th value of its parameters."""

    def leave_out(contract: type[T]) -> type[T]:
        if not sizes.is_long:
            assert all(hasattr(contract, name) for name in tests)
            for name in dir(contract):
                if name.startswith("test_"):
                    setattr(contract, name, thinned(getattr(contract, name), tests[name]) if name in tests else None)
        return contract

    return leave_out


def thinned(test: Callable[..., None], step: int) -> Callable[..., None]:
    """The test with every ``step``-th value of each of its parameters."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        test(*args, **fixtures)

    run.pytestmark = [_thinned(mark, step) for mark in getattr(test, "pytestmark", ())]  # type: ignore[attr-defined]
    return run


def _thinned(mark: pytest.Mark, step: int) -> pytest.Mark:
    if mark.name != "parametrize":
        return mark
    names, values = mark.args
    ids = mark.kwargs.get("ids")
    ids = ids if ids is None or callable(ids) else [*ids][::step]
    return pytest.mark.parametrize(names, [*values][::step], ids=ids).mark


@shortened(OF_S3FS)
class TestMinistack(_OnS3, BackendContract):
    """An emulator, fast and atomic, with the engine s3fs."""

    rounds = 100 if sizes.is_long else 3
    if not sizes.is_long:
        model_examples = 4

    @pytest.fixture
    def server(self, ministack: S3Server) -> S3Server:
        return ministack


@pytest.mark.long
class TestMinistackWithVersions(TestMinistack):
    """The same emulator, with a store that keeps versions."""

    rounds = 10
    test_nothing_larger_than_max_bytes_is_written = None  # type: ignore[assignment]  # no room for the settings

    @pytest.fixture
    def backend(self, opened: Open, url: str) -> AnyBackend:
        backend = opened(url)
        AgentMemory.open(backend).versions.set_limits(VersionLimits())
        return backend


@pytest.mark.long
class TestSeaweedFS(_OnS3, BackendContract):
    """A real distributed store; the losers of a race wait for seconds."""

    rounds = 3
    workers = 4
    model_examples = 10
    model_steps = 30

    @pytest.fixture
    def server(self, seaweedfs: S3Server) -> S3Server:
        return seaweedfs


@pytest.mark.long
class TestCeph(_OnS3, BackendContract):
    """A real store that accepts only ETags without quotes, and ignores preconditions of a DELETE."""

    rounds = 10
    workers = 4
    model_examples = 10
    model_steps = 30

    @pytest.fixture
    def server(self, ceph: S3Server) -> S3Server:
        return ceph

    def test_the_capabilities_state_the_preconditions_that_the_server_keeps(self, store: ContractStore) -> None:
        stated = store.capabilities
        assert stated.atomic_create
        assert stated.compare_and_swap
        assert not stated.conditional_delete

    def test_a_write_on_a_version_never_brings_a_deleted_file_back(
        self, comparing: ContractStore, other: ContractStore
    ) -> None:
        """Ceph does not order a DELETE with a PUT: if both succeed, the object may be there (docs/s3.md)."""
        for number in range(self.rounds):
            written = self.write_beside_a_delete(comparing, other, b"%d" % number)
            assert comparing.holds("dir/file") in ((None, b"new") if isinstance(written, ETag) else (None,))
            comparing.memory().delete_tree("")

    def test_an_append_comes_before_or_after_a_delete(self, changing: ContractStore, other: ContractStore) -> None:
        """As above: the delete may have had no effect."""
        for number in range(self.rounds):
            self.append_beside_a_delete(changing, other, b"%d" % number)
            assert changing.holds("dir/log") in (None, b"new", b"%dnew" % number)
            changing.memory().delete_tree("")


@pytest.mark.long
class TestObstoreOnCeph(TestCeph):
    """The same store, with the engine obstore."""

    @pytest.fixture
    def server(self, ceph: S3Server) -> S3Server:
        return ceph.by("obstore")


@pytest.mark.long
class TestMoto(_OnS3):
    """A widely used emulator. It is not atomic, so the race tests do not run on it."""

    model_examples = 10
    model_steps = 30

    @pytest.fixture
    def server(self, moto: S3Server) -> S3Server:
        return moto


class _ByHttps(_OnS3):
    """The contract without races over https; short runs try its core in `tests.object_store.test_https`."""

    model_examples = 10
    model_steps = 30
    engine = "s3fs"

    @pytest.fixture
    def server(self, plain_server: S3Server, https: Callable[[S3Server], S3Server]) -> S3Server:
        return https(plain_server).by(self.engine)


@pytest.mark.long
class TestMinistackByHttps(_ByHttps):
    """The emulator of the races."""

    @pytest.fixture
    def plain_server(self, ministack: S3Server) -> S3Server:
        return ministack


@pytest.mark.long
class TestObstoreByHttps(TestMinistackByHttps):
    """The same emulator, with the engine obstore."""

    engine = "obstore"


@pytest.mark.long
class TestSeaweedFSByHttps(_ByHttps):
    """A real distributed store."""

    @pytest.fixture
    def plain_server(self, seaweedfs: S3Server) -> S3Server:
        return seaweedfs


@pytest.mark.long
class TestCephByHttps(_ByHttps):
    """A store that refuses bodies in chunks with a checksum behind them."""

    @pytest.fixture
    def plain_server(self, ceph: S3Server) -> S3Server:
        return ceph


@pytest.mark.long
class TestMotoByHttps(_ByHttps):
    """A widely used emulator."""

    @pytest.fixture
    def plain_server(self, moto: S3Server) -> S3Server:
        return moto


class TestObstore(_OnS3, BackendContract):
    """The engine obstore, which refuses unsupported operations."""

    rounds = 10 if sizes.is_long else 3

    @pytest.fixture
    def server(self, ministack: S3Server) -> S3Server:
        return ministack.by("obstore")


@pytest.mark.long
class TestObstoreOfASingleWriter(_OnS3):
    """With renames and conditional deletes, for a single writer."""

    single_writer = True

    @pytest.fixture
    def server(self, ministack: S3Server) -> S3Server:
        server = ministack.by("obstore")
        server.options["allow_single_writer"] = True
        return server


@pytest.mark.long
class TestObstoreOnSeaweedFS(TestSeaweedFS):
    """The same store, with the engine obstore."""

    @pytest.fixture
    def server(self, seaweedfs: S3Server) -> S3Server:
        return seaweedfs.by("obstore")

    def test_a_create_takes_the_name_of_a_directory_that_was_emptied(self, creating: ContractStore) -> None:
        """A documented limit: SeaweedFS keeps the directory, and obstore cannot remove it."""
        creating.write("a/b", b"x")
        creating.delete("a/b")
        with pytest.raises(WriteError, match="cannot remove a directory"):
            creating.write("a", b"x", ABSENT)
        creating.write("a/b", b"y", ABSENT)
