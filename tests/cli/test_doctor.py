"""doctor: it compares a store's stated capabilities with its behaviour, and detects every broken promise."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from fsspec.implementations.local import LocalFileSystem

from agent_memory import registry
from agent_memory.backend import (
    ABSENT,
    ANY,
    AnyBackend,
    Capabilities,
    ETag,
    NewOrigin,
    Page,
    ReadWhen,
    Snapshot,
    WriteWhen,
)
from agent_memory.cli import doctor
from agent_memory.cli.probes import PROBES, ScratchTree, Sight
from agent_memory.core import tree_flows
from agent_memory.core.blocking import BlockingStore
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, ReadError
from agent_memory.key import Key
from agent_memory.testing import conformance
from agent_memory.testing.conformance import conform
from agent_memory_fsspec import FsspecBackend
from agent_memory_memory import MemoryBackend
from tests.support.places import in_a_versioned_bucket
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("quick_doctor")
Run = Callable[..., Result]


def broken(backend: AnyBackend) -> set[str]:
    return {finding.promise for finding in doctor.diagnosed(backend, 3).findings if finding.broken}


def seen(backend: AnyBackend) -> Mapping[str, str]:
    return {finding.promise: finding.seen for finding in doctor.diagnosed(backend, 3).findings}


class Racy(MemoryBackend):
    """A backend that checks whether a name is free, and then writes without a lock."""

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is ABSENT:
            try:
                super().stat(key)
            except AgentMemoryFileNotFoundError:
                time.sleep(0.05)
                return super().write(key, data, origin=origin)
            raise FileAlreadyExistsError(key.path)
        return super().write(key, data, when, origin)


class Blind(MemoryBackend):
    """A backend that ignores the version of a conditional write."""

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        return super().write(key, data, when if when is ABSENT else ANY, origin)


class BlindDelete(MemoryBackend):
    """A backend that ignores the version of a conditional delete."""

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:  # noqa: ARG002 - the planted fault
        super().delete(key)


class StaleListing(MemoryBackend):
    """A backend that returns the previous call's listing."""

    last = Page(())

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        page, self.last = self.last, super().list(prefix, recursive=recursive, after=after, limit=limit)
        return page


class Gap(MemoryBackend):
    """A backend that deletes a file before it replaces it."""

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY, origin: NewOrigin | None = None) -> ETag:
        if when is ANY and key.name == "replaced.md":
            try:
                self.delete(key)
            except AgentMemoryFileNotFoundError:
                return super().write(key, data, origin=origin)
            time.sleep(0.05)
        return super().write(key, data, when, origin)


class FoldsCase(MemoryBackend):
    """A backend that treats names that differ only by case as one file."""

    def _path(self, key: Key) -> str:
        return super()._path(key).lower()


class NamesTwice(MemoryBackend):
    """A backend that allows a name to be both a file and a directory."""

    def _refuse_taken(self, key: Key) -> None:
        pass


@pytest.mark.parametrize(
    ("backend", "promise"),
    [
        (Racy, "atomic_create"),
        (Blind, "compare_and_swap"),
        (BlindDelete, "conditional_delete"),
        (StaleListing, "read_after_write"),
        (Gap, "atomic_write"),
        (FoldsCase, "case_sensitive"),
        (NamesTwice, "exclusive_names"),
    ],
)
def test_a_broken_promise_is_detected(backend: type[MemoryBackend], promise: str) -> None:
    also = {"conditional_delete"} if backend is Blind else set()  # its writes can also win beside a delete
    assert broken(backend()) - also == {promise}


def test_a_promise_that_is_not_made_cannot_be_broken() -> None:
    class Honest(FoldsCase):
        capabilities = replace(MemoryBackend().capabilities, case_sensitive=False)

    assert broken(Honest()) == set()
    assert seen(Honest())["case_sensitive"] == "no"


def test_a_refused_operation_is_no_fault(tmp_path: Path) -> None:
    backend = FsspecBackend(LocalFileSystem(), str(tmp_path))
    found = seen(backend)
    assert (found["atomic_create"], found["compare_and_swap"]) == ("refused", "refused")
    assert broken(backend) == set()


def test_a_storage_failure_is_a_finding_and_doctor_continues() -> None:
    class Failing(MemoryBackend):
        def read(self, *_: object, **__: object) -> Snapshot:
            raise ReadError("the disk is on fire")

    diagnosis = doctor.diagnosed(Failing(), 1)
    assert "atomic_create" in {finding.promise for finding in diagnosis.findings if finding.seen == "failed"}
    assert any("on fire" in fault for fault in diagnosis.faults)


@pytest.mark.parametrize("url", [".agent-memory", "memory://doctor"])
def test_a_healthy_store_passes_and_no_scratch_file_is_left(run: Run, url: str) -> None:
    run("--url", url, "write", "a.md", "x")
    result = run("--url", url, "doctor", "--rounds", "2")
    assert result.exit_code == 0
    assert "one winner of 8, 2 times" in result.stdout
    assert "the store keeps the promises that its backend states" in result.stdout
    assert "1 agent, 1 file" in result.stdout
    assert scratch_files(registry.open_backend(url)) == []


def scratch_files(backend: AnyBackend) -> list[str]:
    return [entry.path for entry in BlockingStore(backend).run(tree_flows.list_all, Key.internal("doctor")).entries]


def test_doctor_tells_that_a_store_refuses_large_files(run: Run, tmp_path: Path) -> None:
    url = f"simplecache::file://{tmp_path}/plain"
    shown = run("--url", url, "doctor", "--rounds", "1").stdout
    limit = json.loads(run("--url", url, "--json", "doctor", "--rounds", "1").stdout)["large_files"]
    assert limit.startswith("files over 50,000,000 bytes are refused: ")
    assert f"Limit: {limit}\n" in shown
    assert "Limit:" not in run("doctor", "--rounds", "1").stdout


def test_the_scratch_files_are_removed_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(scratch: ScratchTree, rounds: int) -> Sight:
        scratch.write("left.md", str(rounds).encode())
        raise KeyboardInterrupt

    monkeypatch.setitem(PROBES, "atomic_write", interrupted)
    backend = MemoryBackend()
    with pytest.raises(KeyboardInterrupt):
        doctor.diagnosed(backend, 1)
    assert scratch_files(backend) == []


def test_doctor_prints_json(run: Run) -> None:
    run("write", "a.md", "x")
    document = json.loads(run("doctor", "--rounds", "1", "--json").stdout)
    assert document["healthy"] is True
    assert {"file", "memory", "s3"} <= set(document["backends"])
    assert document["agents"] == [{"agent": "default", "files": 1, "skipped": 0, "doubles": []}]
    assert {each["promise"] for each in document["capabilities"]} >= set(Capabilities.__dataclass_fields__)


def test_stored_names_that_are_no_keys_are_counted_for_each_agent(run: Run, tmp_path: Path) -> None:
    run("write", "a.md", "x")
    agents = tmp_path / ".agent-memory/agent_memory"
    (agents / "default/what?.md").write_text("x")
    (agents / "default/aux").write_text("x")
    (agents / "stray.md").write_text("x")
    result = run("doctor", "--rounds", "1")
    assert result.exit_code == 0
    assert "default: 2 names skipped: not a valid path" in result.stdout
    assert "stray.md" in result.stdout


def test_a_name_that_is_both_a_file_and_a_directory_is_detected() -> None:
    backend = NamesTwice()
    agent = Key.agent("ann")
    backend.write(agent.join("a"), b"x")
    backend.write(agent.join("a/b"), b"x")
    assert [tree.doubles for tree in doctor.diagnosed(backend, 1).trees] == [["a"]]


def test_a_backend_without_its_package_is_not_listed_as_installed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['s3fs'] = None\n"  # an import of it fails
        "from agent_memory.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "--url", str(tmp_path / "store"), "doctor", "--rounds", "1"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert " s3," not in shown[0]
    assert shown[1] == "Backend without its package: s3: pip install 'agent-memory-files[s3]'"
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    assert "s3" not in document["backends"]
    assert "file" in document["backends"]


def test_a_backend_that_does_not_load_is_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "broken_plugins", lambda: {"acme": "ImportError: no module"})
    result = run("doctor", "--rounds", "1")
    assert "acme: ImportError: no module" in result.stdout
    assert result.exit_code == 0
    assert "acme" in run("--url", "nosuch://x", "doctor").stdout


@pytest.mark.long
def test_the_whole_contract_runs_against_a_url(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--contract", str(tmp_path / "store"), "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert "every promise that the backend makes was kept" in result.stdout
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.long
def test_a_broken_promise_of_the_contract_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryBackend.stat
    monkeypatch.setattr(MemoryBackend, "stat", lambda *args: replace(real(*args), size=1_000))
    result = run("--json", "doctor", "--contract", "memory://contract-broken", "--rounds", "1")
    assert result.exit_code == 1
    promises = json.loads(result.stdout)["promises"]
    broken_ones = {each["text"] for each in promises if each["outcome"] == "broken"}
    assert "stat tells size and time as a listing does" in broken_ones
    assert "a write replaces the whole file" not in broken_ones


@pytest.mark.long
@pytest.mark.parametrize("said", ["--no-such-option", "-k nothing"])
def test_doctor_ignores_the_users_pytest_options(run: Run, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", said)
    monkeypatch.setattr(MemoryBackend, "stat", lambda *_: pytest.fail("no stat"))
    result = run("doctor", "--contract", "memory://contract-options", "--rounds", "1")
    assert "promises of" in result.stdout
    assert result.exit_code == 1


def test_an_incomplete_test_run_gives_no_verdict() -> None:
    ran: list[None] = []

    def stop() -> None:
        ran.append(None)
        if len(ran) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conform("memory://contract-stopped", {}, rounds=1, advance=stop)
    assert len(ran) == 3
    with pytest.raises(RuntimeError, match="after 0 of 0 tests"):
        conformance._Listener(lambda _: None, lambda: None).check(4)


def test_an_unreachable_store_is_reported_before_any_test(run: Run) -> None:
    address = ["-o", "endpoint_url=http://127.0.0.1:9", "-o", "key=k", "-o", "secret=s"]
    result = run("doctor", "--contract", "s3://memories", *address)
    assert result.exit_code == 1, result.output
    assert "no reply from S3" in result.stderr
    assert "Verdict" not in result.stdout


def test_a_prefix_that_is_too_long_for_the_tests_is_reported_before_any_test(run: Run) -> None:
    result = run("doctor", "--contract", "s3://memories/" + "p" * 79, "-o", "key=k", "-o", "secret=s")
    assert "the prefix is too long" in result.stderr
    assert "Verdict" not in result.stdout


@pytest.mark.parametrize(("args", "code"), [(["nosuch://x"], 6), (["memory://x", "-o", "a=b"], 2)])
def test_a_url_that_cannot_be_opened_prints_one_line(run: Run, args: list[str], code: int) -> None:
    result = run("doctor", "--contract", *args)
    assert result.exit_code == code
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.long
def test_the_versioning_of_a_bucket_is_told_and_no_scratch_file_stays_in_it(
    run: Run, ministack: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    place = in_a_versioned_bucket(ministack)
    diagnosis = doctor.diagnosed(registry.open_backend(place.url, place.options), 1)
    assert (diagnosis.keeps_earlier_states, diagnosis.left, list(place.contents())) == (True, None, [])
    doctor._print(diagnosis)
    assert "Bucket versioning is on" in capsys.readouterr().out
    for url in ("memory://doctor-of-states", "root"):
        assert (
            json.loads(run("--url", url, "--json", "doctor", "--rounds", "1").stdout)["keeps_earlier_states"] is False
        )
    plain = doctor.diagnosed(registry.open_backend(ministack.new_url(), ministack.options), 1)
    assert plain.keeps_earlier_states is False
