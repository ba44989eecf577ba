"""Write the documentation page of a run of the fault matrix: ``--s3-faults-page docs/evidence/s3-faults.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory.object_store.trial import results
from tests.object_store.matrix import Cells, page

_CELLS = pytest.StashKey[Cells]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CELLS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    cells = session.config.stash[_CELLS]
    if (file := session.config.getoption("--s3-faults-page")) and cells:  # a process without cells writes no page
        Path(file).write_text(page(cells))


@pytest.fixture(scope="session")
def cells(pytestconfig: pytest.Config) -> Cells:
    """The results of the run so far."""
    return pytestconfig.stash[_CELLS]


@pytest.fixture(autouse=True)
def _untried() -> None:
    """Let the first store of each test try its server, as in a new process."""
    results._tried.clear()
