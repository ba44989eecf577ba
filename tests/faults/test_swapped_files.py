"""A file exchanged with a hard link to the outside, or with a pipe, between a backend's check and its use."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_memory import AgentMemoryError
from tests.backends.local.planted import watched
from tests.faults.building import build
from tests.faults.swapped_operations import FILE, INSIDE, OPERATIONS, Operation, Turn, betrays
from tests.faults.swapping import Field, Figures
from tests.support.outside import SECRET
from tests.support.sizes import long_except

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged by renameat2, which is Linux's")

_LEAST_SWAPS = 100
_MOST_SECONDS = 30
_SECONDS, _SECONDS_LONG = 0.25, 4.0
ON_THE_FILE = {operation.name: operation for operation in OPERATIONS if operation.name in {
    "read", "scan", "write", "append", "edit", "delete", "copy a file out", "rename a file out",
}}  # fmt: skip


@pytest.fixture(scope="module")
def flipper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(Path(__file__).with_name("flipper.c"), tmp_path_factory.mktemp("flipper") / "flipper")


@pytest.fixture(autouse=True)
def _quiet_and_watched() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with watched(120):
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return _SECONDS_LONG if request.config.getoption("--long") else _SECONDS


def swapped(
    ground: Field, flipper: Path, decoy: str, operation: Operation, seconds: float
) -> tuple[Figures, list[str]]:
    """Repeat an operation while its file is exchanged with a decoy; the figures, and results from the outside."""
    figures = Figures()
    betrayals: list[str] = []
    with ground.service:
        start = time.monotonic()
        while figures.swaps <= _LEAST_SWAPS and time.monotonic() - start < _MOST_SECONDS:
            Turn(ground.service, ground.memory, 0).keep(FILE)  # the last try before may have removed it
            with ground.swapping(flipper, "file", figures, decoy):
                betrayals += _repeated(operation, ground, seconds, figures)
    assert figures.swaps > _LEAST_SWAPS
    return figures, betrayals


def _repeated(operation: Operation, ground: Field, seconds: float, figures: Figures) -> list[str]:
    betrayals: list[str] = []
    start = time.monotonic()
    while (spent := time.monotonic() - start) < seconds or (spent < _MOST_SECONDS and not figures.done):
        turn = Turn(ground.service, ground.memory, figures.tries * 4)
        operation.prepare(turn)
        figures.tries += 1
        try:
            turn.results.append(operation.act(turn))
            figures.done += 1
        except AgentMemoryError:
            figures.refused += 1
        operation.finish(turn)
        betrayals += [f"{sight!r:.80}" for sight in turn.results if betrays(sight)]
    return betrayals


@long_except(("read", "write", "append"), "operation", ON_THE_FILE)
def test_a_hard_link_swapped_in_for_a_file_is_neither_read_nor_changed(
    operation: Operation, flipper: Path, tmp_path: Path, seconds: float
) -> None:
    ground = Field(tmp_path)
    figures, betrayals = swapped(ground, flipper, "hardlink", operation, seconds)
    assert (ground.outside / FILE).stat().st_size == len(SECRET), "the file outside was changed"
    assert betrayals[:3] == []
    assert figures.done


@long_except(("scan", "edit"), "operation", ON_THE_FILE)
def test_a_pipe_swapped_in_for_a_file_does_not_hang_an_operation(
    operation: Operation, flipper: Path, tmp_path: Path, seconds: float
) -> None:
    figures, _ = swapped(Field(tmp_path), flipper, "pipe", operation, seconds)
    assert figures.done


@pytest.mark.parametrize("decoy", ["symlink", "hardlink", "pipe"])
def test_an_append_that_returned_is_in_the_intended_file(
    decoy: str, flipper: Path, tmp_path: Path, seconds: float
) -> None:
    append = Operation("append", lambda turn: turn.memory.append(FILE, "+"))
    ground = Field(tmp_path)
    figures, _ = swapped(ground, flipper, decoy, append, seconds)
    in_file = len((ground.base / FILE).read_text()) - len(INSIDE)
    assert in_file == figures.done, f"of {figures.done} appends that returned, {in_file} are in the file"
    assert (ground.outside / FILE).stat().st_size == len(SECRET), "the file outside was changed"
