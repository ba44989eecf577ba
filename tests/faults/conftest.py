"""Fixtures of the fault tests, and the page of a run: ``--faults-page docs/evidence/faults.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import shim
from tests.faults.filesystems import filesystem_of
from tests.faults.fork_server import Worker, serving
from tests.faults.page import Results, page
from tests.faults.plans import Try
from tests.faults.trials import Trials
from tests.support.gathering import hand_over, handed_over

_RESULTS = pytest.StashKey[Results]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if found := handed_over(node, "faults"):
        node.config.stash[_RESULTS].merge(found)


def pytest_sessionfinish(session: pytest.Session) -> None:
    results = session.config.stash[_RESULTS]
    file = session.config.getoption("--faults-page")
    if not hand_over(session.config, "faults", results) and file and results.cells:
        Path(file).write_text(page(results))


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Results:
    """The results of the run so far."""
    return pytestconfig.stash[_RESULTS]


@pytest.fixture(scope="session")
def long(pytestconfig: pytest.Config) -> bool:
    """Whether the run includes every case."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Iterator[Worker]:
    """The fork server with the shim."""
    if sys.platform != "linux":
        pytest.skip("the fault tests use seccomp, which only Linux has")
    library = shim.build(tmp_path_factory.mktemp("shim"))
    results.facts["filesystem"] = filesystem_of(tmp_path_factory.getbasetemp())
    with serving(library) as worker:
        report = worker.do(Try(tmp_path_factory.mktemp("first"), "memory://", "append, a new file"))
        if report.error:
            pytest.fail(str(report.error))
        yield worker


@pytest.fixture
def trials(worker: Worker, tmp_path: Path) -> Trials:
    """Tries of operations in this test's directory."""
    return Trials(worker, tmp_path)
