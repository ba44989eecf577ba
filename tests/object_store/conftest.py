"""Write the documentation page of a run of the fault matrix: ``--s3-faults-page docs/evidence/s3-faults.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory.object_store.trial import race, results
from agent_memory_obstore._client import ObstoreStore
from agent_memory_s3._client import S3Store
from tests.object_store.matrix import Cells, page
from tests.support import sizes
from tests.support.gathering import hand_over, handed_over

_CELLS = pytest.StashKey[Cells]()
_OF_TRIALS = {"test_bill.py", "test_race.py", "test_tried_servers.py", "test_unsafe_servers.py"}
"""The modules whose tests need all races of a trial, to find an unsafe server or to count requests."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CELLS] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if found := handed_over(node, "s3-faults"):
        node.config.stash[_CELLS].update(found)


def pytest_sessionfinish(session: pytest.Session) -> None:
    cells = session.config.stash[_CELLS]
    file = session.config.getoption("--s3-faults-page")
    if not hand_over(session.config, "s3-faults", cells) and file and cells:
        Path(file).write_text(page(cells))


@pytest.fixture(scope="session")
def cells(pytestconfig: pytest.Config) -> Cells:
    """The results of the run so far."""
    return pytestconfig.stash[_CELLS]


@pytest.fixture(autouse=True)
def _untried() -> None:
    """Let the first store of each test try its server, as in a new process."""
    results._tried.clear()


@pytest.fixture(autouse=True)
def _few_races(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial race each kind of changes once in the short run: all its races are most of the requests of a test."""
    if not sizes.is_long and request.path.name not in _OF_TRIALS:
        monkeypatch.setattr(race, "OBJECTS", 1)
        monkeypatch.setattr(race, "PASSES", 1)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the short run no store of this process tries its server: for tests that say nothing about the server."""
    if not sizes.is_long:
        for engine in (S3Store, ObstoreStore):
            monkeypatch.setattr(engine, "is_trusted", _yes)


async def _yes(_: object) -> bool:
    return True
