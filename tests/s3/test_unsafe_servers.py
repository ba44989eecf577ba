"""Servers that keep no preconditions: found out, refused for shared writing, and good for a single writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
)
from agent_memory.cli import doctor
from agent_memory.cli.app import app
from agent_memory.testing import conformance
from agent_memory.testing.conformance import conform
from tests.s3.proxy import Fault, Proxy
from tests.servers import S3Server, by_both_engines

UNSAFE = {
    "rclone": "ignores preconditions",
    "refusing": "does not take conditional requests",
    "swift": "does not take conditional requests",
}


@pytest.fixture
def refusing(ministack: S3Server) -> Iterator[S3Server]:
    """A server that answers every conditional request with 501, as OpenStack Swift's s3api does."""
    with Proxy(ministack.endpoint) as proxy:
        proxy.refuses_conditions = True
        yield S3Server(proxy.endpoint)


@pytest.fixture
def swift(ministack: S3Server) -> Iterator[S3Server]:
    """One that also ends a body in answer to a HEAD of a missing object, as Swift's does."""
    with Proxy(ministack.endpoint) as proxy:
        proxy.refuses_conditions, proxy.chunked_heads = True, 0.0
        yield S3Server(proxy.endpoint)


@pytest.fixture(params=[(server, engine) for server in UNSAFE for engine in ("s3fs", "obstore")], ids="-".join)
def unsafe(request: pytest.FixtureRequest) -> tuple[S3Server, str]:
    """A server by an engine, and what it is refused for."""
    name, engine = request.param
    server: S3Server = request.getfixturevalue(name)
    return server.by(engine), UNSAFE[name]


def test_what_several_writers_need_is_refused_and_nothing_is_written(unsafe: tuple[S3Server, str]) -> None:
    server, reason = unsafe
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.write("a.md", "x")
        assert memory.read("a.md") == "x"
        calls: list[Callable[[], object]] = [
            lambda: memory.append("a.md", "y"),
            lambda: memory.create("b.md", "y"),
            lambda: memory.edit("a.md", str.upper),
        ]
        for call in calls:
            with pytest.raises(UnsupportedOperationError, match=f"{reason}.*allow_single_writer"):
                call()
        with pytest.raises(UnsupportedOperationError, match="allow_single_writer"):
            memory.rename("a.md", "b.md")
        assert [(entry.path, entry.size) for entry in memory.list()] == [("a.md", 1)]
        assert not memory.capabilities.compare_and_swap
        memory.delete("a.md")
        assert memory.list() == ()


def test_a_single_writer_says_so_and_can_do_everything(unsafe: tuple[S3Server, str]) -> None:
    server, _ = unsafe
    options = {**server.options, "allow_single_writer": True}
    with AgentMemory.open(server.new_url(), storage_options=options) as memory:
        memory.create("a.md", "x")
        assert not memory.capabilities.compare_and_swap
        with pytest.raises(FileAlreadyExistsError):
            memory.create("a.md", "y")
        memory.append("a.md", "y")
        memory.edit("a.md", str.upper)
        memory.rename("a.md", "b.md")
        assert memory.read("b.md") == "XY"
        memory.delete("b.md")
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.delete("b.md")


def test_whether_there_is_a_single_writer_is_true_or_false(ministack: S3Server) -> None:
    with pytest.raises(TypeError, match="allow_single_writer is true or false"):
        AgentMemory.open(ministack.new_url(), storage_options={**ministack.options, "allow_single_writer": "perhaps"})


def test_doctor_says_so(unsafe: tuple[S3Server, str]) -> None:
    server, reason = unsafe
    options = [part for name, value in server.options.items() for part in ("-o", f"{name}={value}")]
    result = CliRunner().invoke(app, ["--url", server.new_url(), *options, "doctor", "--rounds", "1"])
    assert reason in " ".join(result.output.split())
    # A reader of rclone's may also see a file that is being replaced, now and then.
    assert re.search("a store for a single writer|Not kept: atomic_write", result.output)


@pytest.mark.long
@by_both_engines
def test_doctor_finds_a_server_that_replaces_files_in_place(rclone: S3Server, engine: str) -> None:
    server = rclone.by(engine)
    options = [part for name, value in server.options.items() for part in ("-o", f"{name}={value}")]
    looks = (CliRunner().invoke(app, ["--url", server.new_url(), *options, "doctor"]).output for _ in range(40))
    assert any("Not kept: atomic_write" in look for look in looks)  # the first look mostly; later on a busy machine


@pytest.mark.long
@by_both_engines
def test_the_contract_counts_what_a_server_refuses_as_not_promised(swift: S3Server, engine: str) -> None:
    server = swift.by(engine)
    promises, left = conform(server.new_url(), server.options, rounds=1)
    assert not left
    assert [each for each in promises if each.outcome in ("broken", "not tried")] == []
    refused = [each for each in promises if each.outcome == "not promised"]
    assert any("does not take conditional requests" in each.detail for each in refused)


@by_both_engines
def test_a_store_that_stalls_is_no_verdict_and_ends(
    ministack: S3Server, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_OPERATION_SECONDS", 0.5)
    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(conformance, "_OPERATION_SECONDS", 0.5)
    server = ministack.by(engine)
    with Proxy(ministack.endpoint) as proxy:
        proxy.choose = lambda operation: "hangs" if operation == "PUT" else None
        options = [part for name, value in server.through(proxy).items() for part in ("-o", f"{name}={value}")]
        result = CliRunner().invoke(app, ["--url", server.new_url(), *options, "doctor", "--rounds", "1"])
        assert result.exit_code == 1, result.output
        assert "Verdict: none. The storage failed" in result.output
        assert "Not kept" not in result.output
        assert "not tried, because the storage failed before" in " ".join(result.output.split())
        promises, _ = conform(server.new_url(), server.through(proxy), rounds=1)
    assert [each for each in promises if each.outcome == "broken"] == []
    assert sum(each.detail == "not tried, because the storage failed in the tests before" for each in promises) > 50


def test_doctor_finds_a_safe_server_safe(ministack: S3Server) -> None:
    options = [part for name, value in ministack.options.items() for part in ("-o", f"{name}={value}")]
    result = CliRunner().invoke(app, ["--url", ministack.new_url(), *options, "doctor", "--rounds", "2"])
    assert result.exit_code == 0, result.output
    assert "the store keeps what its backend states" in result.output


def test_a_fault_is_no_verdict(ministack: S3Server) -> None:
    with Proxy(ministack.endpoint) as proxy:
        options = ministack.through(proxy)
        first: list[Fault] = ["500", "reset", "reply lost", "503"]
        faults = iter(first)
        proxy.choose = lambda operation: next(faults, None) if operation == "PUT" else None
        with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
            memory.create("a.md", "x")
            assert memory.capabilities.compare_and_swap


@by_both_engines
@pytest.mark.parametrize("seconds", [0.0, 0.01], ids=["at once", "later"])
def test_a_server_that_ends_the_body_of_a_head_is_used_all_the_same(
    ministack: S3Server, engine: str, seconds: float
) -> None:
    """OpenStack Swift's s3api: the end of a chunked body, in answer to a HEAD of nothing, is read as another answer."""
    with Proxy(ministack.endpoint) as proxy:
        proxy.chunked_heads, proxy.refuses_conditions = seconds, True
        server = S3Server(proxy.endpoint).by(engine)
        with AgentMemory.open(server.new_url(), storage_options=server.options, timeout=20) as memory:
            assert not memory.exists("a.md")
            memory.write("d/a.md", "x")
            for _ in range(5):
                assert not memory.exists("b.md")
            with pytest.raises(AgentMemoryFileNotFoundError):
                memory.delete("b.md")
            with pytest.raises(UnsupportedOperationError, match=r"conditional requests.*allow_single_writer"):
                memory.append("d/a.md", "y")
            assert (memory.read("d/a.md"), memory.stat("d/a.md").size) == ("x", 1)
        options = {**server.options, "allow_single_writer": True}
        with AgentMemory.open(server.new_url(), storage_options=options, timeout=20) as memory:
            memory.create("a.md", "x")
            memory.append("a.md", "y")
            memory.rename("a.md", "b.md")
            assert memory.read("b.md") == "xy"


def test_a_server_that_breaks_http_at_every_try_is_said_to(ministack: S3Server) -> None:
    with Proxy(ministack.endpoint) as proxy:
        options = ministack.through(proxy)
        with AgentMemory.open(ministack.new_url(), storage_options=options) as memory:
            memory.create("a.md", "x")
            proxy.choose = lambda _: "no http"
            for call in (lambda: memory.read("a.md"), lambda: memory.stat("a.md"), memory.list):
                with proxy.counting() as requests, pytest.raises(ReadError, match=r"breaks HTTP.*4 times in a row"):
                    call()
                assert sum(requests.values()) == 4
            with pytest.raises(OutcomeUnknownError, match="breaks HTTP"):
                memory.write("a.md", "y")
