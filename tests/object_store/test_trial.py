"""The trial of a server: it tests how the server treats each precondition before an operation relies on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import pytest
from click.testing import CliRunner

from agent_memory import (
    ABSENT,
    SHA256,
    AgentMemory,
    AsyncAgentMemory,
    ConflictError,
    FileTooLargeError,
    UnsupportedOperationError,
)
from agent_memory.backend import AnyBackend
from agent_memory.cli.app import app
from agent_memory.object_store import retry
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from agent_memory.testing import FunctionalContract
from tests.object_store.proxy import Proxy, Treatment, at_random
from tests.support.servers import S3Server, by_both_engines, by_s3fs_or_both
from tests.support.sizes import also, long_except

if TYPE_CHECKING:
    from agent_memory.testing._store import ContractStore

CEPH: dict[str, Treatment] = {"swap": "unquoted", "delete": "ignored", "copy": "ignored", "complete": "ignored"}
"""The treatments of Ceph RGW 16.2."""
KINDS = ("create", "swap", "delete", "copy", "complete")
MEANINGLESS = {
    ("create", "unquoted"): "it has no ETag",
    ("create", "ignored if missing"): "it holds only for a missing file",
    ("delete", "ignored if missing"): "a missing file has nothing to lose",
    ("copy", "ignored if missing"): "a missing file has no part to copy",
}
COMBINATIONS: list[dict[str, Treatment]] = [
    {},
    CEPH,
    *(
        {kind: each}
        for kind in KINDS
        for each in get_args(Treatment)
        if each != "kept" and (kind, each) not in MEANINGLESS
    ),
]
REASONS = {
    "kept": "cannot be tried in a race",  # because another kind is not kept
    "ignored": "ignores preconditions",
    "never met": "refuses preconditions that hold",
    "unquoted": "refuses preconditions that hold",
    "not taken": "does not take conditional requests",
    "in two steps": "of a request alone, but not in a race",
    "ignored if missing": "ignores the precondition if the file was deleted",
    "not shown": "fails for a change that loses a race",
    "in two steps or not shown": "not (shown to hold )?in a race",
}
LARGE = 5 << 20


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


def name_of(combination: Mapping[str, str]) -> str:
    if combination == CEPH:
        return "ceph"
    return " ".join(f"{kind} {each}" for kind, each in combination.items()) or "kept"


def found(combination: Mapping[str, str], kind: str) -> str:
    """The treatment of a kind that a trial finds, also if the losers of a race are answered by 500."""
    treatment, swap = combination.get(kind, "kept"), combination.get("swap", "kept")
    if kind == "delete" and swap.endswith("500 in a race"):  # a deletion is raced with swaps
        return "not shown" if swap == "500 in a race" else "in two steps or not shown"
    return "kept" if treatment == "500 in a race" else treatment.removesuffix(", 500 in a race")


NAMED = {name_of(each): each for each in COMBINATIONS}
in_each_combination = long_except(
    ("ceph", "create ignored", "swap ignored"),
    "combination",
    NAMED,
)


def left(server: S3Server, url: str) -> tuple[list[str], list[str]]:
    """The names of all objects and of all incomplete uploads below a URL."""
    client = server.client("s3")
    prefix = url.removeprefix("s3://memories/") + "/"
    listed: Any = client.list_objects_v2(Bucket="memories", Prefix=prefix)
    uploads: Any = client.list_multipart_uploads(Bucket="memories", Prefix=prefix)
    client.close()
    return (
        [each["Key"].removeprefix(prefix) for each in listed.get("Contents", ())],
        [each["Key"].removeprefix(prefix) for each in uploads.get("Uploads", ()) if each["Key"].startswith(prefix)],
    )


@by_s3fs_or_both
@in_each_combination
def test_an_operation_works_if_its_precondition_is_kept_and_is_refused_first_if_not(
    ministack: S3Server, proxy: Proxy, combination: dict[str, Treatment], engine: str
) -> None:
    proxy.treatments = combination
    url, server = ministack.new_url(), ministack.by(engine)
    creates = found(combination, "create") == "kept"
    swaps = found(combination, "swap") in ("kept", "unquoted")
    deletes = found(combination, "delete") == "kept" and engine == "s3fs" and swaps
    if combination == {"delete": "unquoted"}:
        deletes = False  # DELETE gets a quoted ETag, as PUT takes it

    def is_kept(kept: bool, kind: str, call: Callable[[], object]) -> None:
        if kept:
            call()
            return
        reason = REASONS[found(combination, kind)]
        if kind == "delete" and engine == "obstore":
            reason = "no conditional delete"
        with pytest.raises(UnsupportedOperationError, match=f"{reason}.*allow_single_writer"):
            call()

    with AgentMemory.open(url, storage_options=server.through(proxy)) as memory:
        for name in ("a.md", "edited.md", "moved.md"):
            memory.write(name, "x")
        stale = memory.read("a.md")
        is_kept(creates, "create", lambda: memory.create("new.md", "x"))
        is_kept(swaps, "swap", lambda: memory.edit("edited.md", str.upper))
        is_kept(creates and swaps, "swap" if creates else "create", lambda: memory.append("a.md", "y"))
        kinds = [kind for kind, kept in (("delete", deletes), ("create", creates)) if not kept]
        is_kept(not kinds, kinds[0] if kinds else "", lambda: memory.rename("moved.md", "there.md"))
        memory.write("a.md", "of another")
        with pytest.raises((ConflictError, UnsupportedOperationError)):
            memory.delete("a.md", when=SHA256(digest(stale)))
        assert memory.read("a.md") == "of another"
        stated = memory.capabilities
        assert (stated.atomic_create, stated.compare_and_swap, stated.conditional_delete) == (creates, swaps, deletes)
    names = {"a.md", "edited.md", "there.md" if not kinds else "moved.md", *(["new.md"] if creates else [])}
    assert left(ministack, url) == (sorted(names), []), "no scratch object is left"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "combination",
    [
        {},
        {"complete": "ignored"},
        *also(
            [each for each in COMBINATIONS if each.keys() & {"copy", "complete"} and each != {"complete": "ignored"}]
        ),
    ],
    ids=name_of,
)
def test_an_append_to_a_large_file_uses_parts_only_if_upload_preconditions_are_kept(
    ministack: S3Server, proxy: Proxy, combination: dict[str, Treatment]
) -> None:
    # a completion refuses what was copied too late
    in_parts = found(combination, "complete") == "kept" and found(combination, "copy") in ("kept", "in two steps")
    proxy.treatments = combination
    url = ministack.new_url()
    with AgentMemory.open(url, storage_options=ministack.through(proxy)) as memory:
        memory.write("log.md", "x" * LARGE)
        memory.append("log.md", "1")
        before = proxy.sent
        with AgentMemory.open(url, storage_options=ministack.options) as another:
            another.append("log.md", "2")
        memory.append("log.md", "3")
        assert (proxy.sent - before < LARGE) is in_parts
        assert memory.stat("log.md").size == LARGE + 3
    assert left(ministack, url) == (["log.md"], [])


@pytest.mark.long
@pytest.mark.parametrize("has_other_writers", [True, False])
def test_large_files_are_sent_whole_to_a_server_whose_uploads_are_not_atomic_unless_there_is_one_writer(
    ministack: S3Server, proxy: Proxy, has_other_writers: bool
) -> None:
    proxy.treatments = {"complete": "in two steps"}
    url = ministack.new_url()
    backend = open_backend(url, {**ministack.through(proxy), "allow_single_writer": not has_other_writers})
    with AgentMemory.open(backend) as memory:
        memory.write("log.md", "x" * LARGE)
        memory.append("log.md", "1")
        before = proxy.sent
        memory.append("log.md", "2")
        assert (proxy.sent - before > LARGE) is has_other_writers
        backend.max_bytes = LARGE - 1
        blocks = [b"x" * LARGE]
        if has_other_writers:
            with pytest.raises(FileTooLargeError, match="cannot append to it in parts"):
                memory.append("log.md", "3")
            with pytest.raises(UnsupportedOperationError, match="not in a race"):
                memory.write_blocks("new.bin", blocks, LARGE, when=ABSENT)
        else:
            memory.write_blocks("new.bin", blocks, LARGE, when=ABSENT)
    assert left(ministack, url) == (["log.md"] if has_other_writers else ["log.md", "new.bin"], [])


@pytest.mark.long
def test_a_copy_of_a_large_file_that_is_replaced_meanwhile_has_one_state_if_copied_parts_are_checked_before(
    ministack: S3Server, proxy: Proxy
) -> None:
    proxy.treatments = {"copy": "in two steps"}
    url = ministack.new_url()
    backend = open_backend(url, ministack.through(proxy))
    backend.max_bytes = LARGE - 1
    with AgentMemory.open(backend) as memory, AgentMemory.open(url, storage_options=ministack.options) as another:
        another.write("large.md", "x" * LARGE)
        memory.copy("large.md", "tried.md")
        proxy.between = lambda: another.write("large.md", "y" * (LARGE + 1))
        with pytest.raises(ConflictError, match="was rewritten while it was read"):
            memory.copy("large.md", "torn.md")
    assert sorted(left(ministack, url)[0]) == ["large.md", "tried.md"]


def test_every_conditional_request_uses_the_etag_form_that_the_server_takes(ministack: S3Server, proxy: Proxy) -> None:
    proxy.treatments = dict.fromkeys(KINDS, "unquoted")
    with AgentMemory.open(ministack.new_url(), storage_options=ministack.through(proxy)) as memory:
        memory.create("a.md", "x")
        memory.edit("a.md", str.upper)
        memory.rename("a.md", "b.md")
        memory.write("b.md", "x" * LARGE)
        memory.append("b.md", "y")
        before = proxy.sent
        memory.append("b.md", "z")
        assert proxy.sent - before < LARGE
        assert memory.capabilities.conditional_delete


@pytest.mark.long
@by_both_engines
@pytest.mark.parametrize("combination", [{}, CEPH, {"swap": "never met"}, {"create": "ignored"}])
def test_network_faults_do_not_change_the_verdict(
    ministack: S3Server, proxy: Proxy, combination: dict[str, Treatment], engine: str
) -> None:
    proxy.treatments = combination
    verdicts = set()
    for seed in range(100):
        url = ministack.new_url()
        proxy.choose = at_random(0.4, seed, ("reply lost", "reset", "500", "409", "500 after it was done"))
        with AgentMemory.open(url, storage_options=ministack.by(engine).through(proxy)) as memory:
            try:
                memory.append("a.md", "x")
            except UnsupportedOperationError as error:
                verdicts.add((memory.capabilities, str(error)))
            else:
                verdicts.add((memory.capabilities, ""))
        assert left(ministack, url) in ((["a.md"], []), ([], [])), "no scratch object is left"
    assert len(verdicts) == 1


def test_a_cancelled_trial_leaves_no_scratch_object(
    ministack: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_CLEANUP_SECONDS", 60.0)
    url = ministack.new_url()

    async def cancelled(after: int) -> None:
        numbers = iter(range(10))
        reached = asyncio.Event()
        loop = asyncio.get_running_loop()

        def choose(operation: str) -> Any:
            if operation == "PUT" and next(numbers) == after:
                loop.call_soon_threadsafe(reached.set)
                return "hangs"  # the request never arrives
            return None

        proxy.choose = choose
        memory = AsyncAgentMemory.open(url, storage_options=ministack.through(proxy))
        task = asyncio.ensure_future(memory.append("a.md", "x"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await memory.aclose()  # waits until the scratch object is removed

    for after in (1, 2, 3):
        asyncio.run(cancelled(after))
        names, _ = left(ministack, url)
        assert names == []


def test_a_server_that_refuses_valid_preconditions_works_only_for_a_single_writer(
    ministack: S3Server, proxy: Proxy
) -> None:
    proxy.treatments = {"swap": "never met"}
    options = ministack.through(proxy)
    with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
        memory.write("a.md", "x")
        with (
            proxy.counting() as requests,
            pytest.raises(UnsupportedOperationError, match="refuses preconditions that hold"),
        ):
            memory.append("a.md", "y")
        assert requests.total() <= 42, "of the trial alone: 11, and 31 that race the creation of files"
    with AgentMemory.open(ministack.new_url(), storage_options={**options, "allow_single_writer": True}) as memory:
        memory.write("a.md", "x")
        memory.append("a.md", "y")
        memory.edit("a.md", str.upper)
        memory.rename("a.md", "b.md")
        assert memory.read("b.md") == "XY"


@pytest.mark.long
@pytest.mark.parametrize(
    "combination",
    [each for each in COMBINATIONS if each != {"create": "500 in a race"}],  # a probe with lost answers shows nothing
    ids=name_of,
)
def test_doctor_reports_the_preconditions_that_the_server_keeps(
    ministack: S3Server, proxy: Proxy, combination: dict[str, Treatment]
) -> None:
    proxy.treatments = combination
    options = [part for name, value in ministack.through(proxy).items() for part in ("-o", f"{name}={value}")]
    result = CliRunner().invoke(app, ["--url", ministack.new_url(), *options, "--json", "doctor", "--rounds", "1"])
    document = json.loads(result.stdout)
    stated = {each["promise"]: (each["stated"], each["seen"]) for each in document["capabilities"]}
    refused, kept = (False, "refused"), (True, "yes")
    creates = found(combination, "create") == "kept"
    swaps = found(combination, "swap") in ("kept", "unquoted")
    deletes = found(combination, "delete") == "kept" and swaps
    assert stated["atomic_create"] == (kept if creates else refused)
    assert stated["compare_and_swap"] == (kept if swaps else refused)
    assert stated["conditional_delete"] == (kept if deletes else refused)
    uploads = found(combination, "complete") in ("kept", "unquoted")
    assert (document["large_files"] is None) == (uploads and creates), document["large_files"]
    assert document["healthy"], document["faults"]


@pytest.mark.long
@by_both_engines
def test_ceph_loses_no_append_and_no_edit_although_a_fifth_of_the_answers_is_lost(ceph: S3Server, engine: str) -> None:
    url = ceph.new_url()
    with Proxy(ceph.endpoint) as proxy:
        proxy.choose = at_random(0.2, 1, ("reply lost",))
        options = ceph.by(engine).through(proxy)

        def work(writer: int) -> None:
            with AgentMemory.open(url, storage_options=options) as memory:
                for number in range(20):
                    memory.append("log.md", f"{writer}:{number}\n")
                    memory.edit("count.md", lambda text: str(int(text) + 1))

        with AgentMemory.open(url, storage_options=options) as memory:
            memory.write("count.md", "0")
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(work, range(8)))
    with AgentMemory.open(url, storage_options=ceph.options) as memory:
        lines = memory.read("log.md").splitlines()
        assert sorted(lines) == sorted(f"{writer}:{number}" for writer in range(8) for number in range(20))
        assert memory.read("count.md") == "160"


@pytest.mark.long
def test_ceph_refuses_an_operation_that_could_destroy_another_writers_data(ceph: S3Server) -> None:
    with AgentMemory.open(ceph.new_url(), storage_options=ceph.options) as memory:
        memory.write("a.md", "x")
        with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
            memory.delete("a.md", when=SHA256(digest("x")))
        with pytest.raises(UnsupportedOperationError, match="ignores preconditions"):
            memory.rename("a.md", "b.md")
        assert [entry.path for entry in memory.list()] == ["a.md"]


class _ThroughAProxy(FunctionalContract):
    """The contract of a server that keeps only some preconditions; that of Ceph runs on Ceph."""

    combination: ClassVar[dict[str, Treatment]]

    @pytest.fixture
    def server(self, ministack: S3Server) -> Iterator[S3Server]:
        with Proxy(ministack.endpoint) as proxy:
            proxy.treatments = self.combination
            yield S3Server(proxy.endpoint)

    @pytest.fixture
    def opened(self, server: S3Server) -> Iterator[Callable[[], AnyBackend]]:
        backends: list[AnyBackend] = []
        url = server.new_url()

        def open_it() -> AnyBackend:
            backends.append(open_backend(url, server.options))
            return backends[-1]

        yield open_it
        for backend in backends:
            close_backend(backend)

    @pytest.fixture
    def backend(self, opened: Callable[[], AnyBackend]) -> AnyBackend:
        return opened()

    @pytest.fixture
    def another_backend(self, opened: Callable[[], AnyBackend]) -> AnyBackend:
        return opened()

    def test_the_capabilities_are_those_of_the_server(self, store: ContractStore) -> None:
        stated = store.capabilities
        assert (stated.atomic_create, stated.compare_and_swap, stated.conditional_delete) == (
            self.combination.get("create", "kept") == "kept",
            self.combination.get("swap", "kept") in ("kept", "unquoted"),
            self.combination.get("delete", "kept") == self.combination.get("swap", "kept") == "kept",
        )


@pytest.mark.long
class TestContractWithoutCreate(_ThroughAProxy):
    """A server that ignores ``If-None-Match``."""

    combination: ClassVar[dict[str, Treatment]] = {"create": "ignored"}


@pytest.mark.long
class TestContractWithoutSwap(_ThroughAProxy):
    """A server that never accepts ``If-Match`` of a PUT."""

    combination: ClassVar[dict[str, Treatment]] = {"swap": "never met"}


@pytest.mark.long
class TestContractWithoutDelete(_ThroughAProxy):
    """A server that does not accept ``If-Match`` of a DELETE."""

    combination: ClassVar[dict[str, Treatment]] = {"delete": "not taken"}
