"""The contract on S3 servers. ministack runs all race rounds, SeaweedFS a few in long runs, and moto none.

Short runs use SeaweedFS in the races of `tests.core.test_concurrency` and in the policy tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

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


class TestMinistack(_OnS3, BackendContract):
    """An emulator, fast and atomic."""

    rounds = 100 if sizes.is_long else 5

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
