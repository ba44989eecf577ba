"""A real filesystem without a free byte: a clear error, the old content, and normal work once there is space again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_memory import AgentMemory, VersionLimits
from tests.faults import page
from tests.faults.filesystems import KINDS, Filesystem, NotHereError, mounted
from tests.faults.fork_server import Worker
from tests.faults.judging import Place, after_an_error
from tests.faults.operations import CHANGES, SHORT, WRITES, Operation
from tests.faults.page import Results
from tests.faults.plans import Plan, Report
from tests.faults.test_versions import chain_after_an_error
from tests.faults.trials import Trials
from tests.faults.versioned_operations import VERSIONED
from tests.support.sizes import long_except

_SIZES = {"tmpfs": "1m", "ext4": "8M", "XFS": "320M"}


@pytest.fixture(scope="module", params=KINDS)
def filesystem(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, results: Results
) -> Iterator[Filesystem]:
    kind: str = request.param
    try:
        with mounted(kind, tmp_path_factory.mktemp(kind), _SIZES[kind]) as filesystem:
            yield filesystem
    except NotHereError as reason:
        for name in CHANGES:
            results.not_run(name, page.FULL.format(kind), str(reason))
        pytest.skip(f"{kind}: {reason}")


def on_full_disk(worker: Worker, filesystem: Filesystem, operation: Operation) -> tuple[Place, Report, Path]:
    """Run an operation on a full filesystem; returns its place, its report, and the file to delete for free space."""
    trials = Trials(worker, filesystem.top)
    place = trials.place(operation)
    ballast = filesystem.fill()
    return place, trials.run(place, operation, Plan()), ballast


@long_except(SHORT, "operation", CHANGES)
def test_a_full_disk_raises_a_clear_error_and_leaves_the_old_content(
    worker: Worker, results: Results, filesystem: Filesystem, operation: Operation
) -> None:
    place, report, ballast = on_full_disk(worker, filesystem, operation)
    relieve: partial[None] = partial(Path.unlink, ballast, missing_ok=True)
    faults = after_an_error(place, operation, report, relieve=relieve)
    relieve()
    place.remove()
    if operation.name in WRITES and report.error is None:
        faults.append("found room on a full disk")
    results.check(operation.name, page.FULL.format(filesystem.kind), [faults])


_NEEDS_NO_ROOM = ("forget, versions", "prune, versions")
"""They erase; all others keep a state or a mark."""


@long_except(("write, versions",), "operation", VERSIONED)
def test_a_full_disk_leaves_each_state_of_a_store_with_versions_once(
    worker: Worker, results: Results, filesystem: Filesystem, operation: Operation
) -> None:
    place, report, ballast = on_full_disk(worker, filesystem, operation)
    ballast.unlink()
    faults = chain_after_an_error(place, operation, report, may_leave=True)
    place.remove()
    if report.error is None and operation.name not in _NEEDS_NO_ROOM:
        faults.append("found room on a full disk")
    results.check(operation.name, page.FULL.format(filesystem.kind), [faults])


def test_a_file_and_its_versions_are_forgotten_on_a_full_disk(filesystem: Filesystem) -> None:
    with AgentMemory.open(filesystem.top / "store", versions=VersionLimits()) as memory:
        for text in ("old", "new"):
            memory.write("a.md", text * 5000)
        ballast = filesystem.fill()
        try:
            for change in (memory.delete, lambda path: memory.write(path, "short")):
                with pytest.raises(OSError, match=r"No space left on device; .*'agent-memory forget' erases"):
                    change("a.md")
            assert memory.forget("a.md").versions == 1
            assert not memory.exists("a.md")
            assert memory.versions.list("a.md") == ()
        finally:
            ballast.unlink()


def test_versions_are_turned_off_on_a_full_disk_so_that_a_delete_frees_space(filesystem: Filesystem) -> None:
    root = filesystem.top / "store"
    with AgentMemory.open(root) as memory:
        memory.versions.set_limits(VersionLimits(keep=7))
        memory.write("a.md", "old" * 5000)
        memory.write("b.md", "other")
        ballast = filesystem.fill()
        try:
            with pytest.raises(OSError, match=r"No space left on device; .*'agent-memory versions off'"):
                memory.delete("a.md")
            memory.versions.set_limits(None)
            assert memory.versions.limits() is None
            with AgentMemory.open(root) as other:
                assert other.versions.limits() is None
                other.delete("a.md")  # keeps no copy
                assert other.versions.list("a.md") == ()
        finally:
            ballast.unlink()
        memory.versions.set_limits(VersionLimits(keep=8))
        limits = memory.versions.limits()
        assert limits is not None
        assert limits.keep == 8
    assert (root / ".agent-memory/store.json").read_bytes().count(b"\n") == 1
    shutil.rmtree(root)
