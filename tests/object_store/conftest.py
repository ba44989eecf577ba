"""The page of a run of the fault matrix: ``--s3-faults-page docs/s3-faults.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.object_store.matrix import Cells, page

_CELLS = pytest.StashKey[Cells]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CELLS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    cells = session.config.stash[_CELLS]
    if (file := session.config.getoption("--s3-faults-page")) and cells:  # else another process has them
        Path(file).write_text(page(cells))


@pytest.fixture(scope="session")
def cells(pytestconfig: pytest.Config) -> Cells:
    """What the run found so far."""
    return pytestconfig.stash[_CELLS]
