"""Directories and files exchanged with links to the outside, while every operation of the local backend runs.

A second process exchanges a name with a symbolic link about 100,000 times a second, which breaks code that resolves a
path first and opens it later. The last tests run such code and detect that it escapes. Figures:
``pytest --long tests/faults/test_swaps.py`` or ``-v``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory_local import _walk
from tests.faults.building import build
from tests.faults.page import Results
from tests.faults.swapped_operations import FILE, INSIDE, OPERATIONS, Operation, betrays
from tests.faults.swapping import PLACES, Field, Figures, race
from tests.support.outside import SECRET
from tests.support.sizes import long_except

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are exchanged by renameat2, which is Linux's")

_MOST_ROUNDS = 20
_TRIES_OF_A_CONTROL = 2000
_LEAST_SWAPS = 100
_SECONDS, _SECONDS_LONG = 0.15, 4.0
BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.fixture(scope="module")
def flipper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(Path(__file__).with_name("flipper.c"), tmp_path_factory.mktemp("flipper") / "flipper")


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest, results: Results) -> Iterator[dict[str, Figures]]:
    """The figures, printed after the last race, and for the page."""
    figures: dict[str, Figures] = {}
    yield figures
    results.swaps |= {name: (figure.tries, len(figure.escapes)) for name, figure in figures.items()}
    if request.config.getoption("--long") or request.config.option.verbose > 0:
        capture: Any = request.config.pluginmanager.getplugin("capturemanager")
        terminal: Any = request.config.pluginmanager.getplugin("terminalreporter")
        with capture.global_and_fixture_disabled():
            for name, figure in figures.items():
                terminal.write(f"\n  {name:<34}{figure}")


@pytest.fixture(autouse=True)
def _unheard_warnings() -> Iterator[None]:
    """Disable logging: a listing of a swapped tree logs its skipped entries, and pytest would keep 100,000 records."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@long_except(("scan", "list", "write", "append", "delete", "copy a file out"), "operation", BY_NAME)
def test_no_operation_leaves_its_tree_while_names_are_swapped(
    operation: Operation, flipper: Path, tmp_path: Path, report: dict[str, Figures], request: pytest.FixtureRequest
) -> None:
    report[operation.name] = _raced(operation, flipper, tmp_path, request)


@long_except(("read", "write"), "operation", BY_NAME)
def test_no_operation_leaves_its_tree_on_a_system_without_openat2(
    operation: Operation,
    flipper: Path,
    tmp_path: Path,
    report: dict[str, Figures],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_walk, "find_openat2", lambda _: None)
    report[f"{operation.name}, without openat2"] = _raced(operation, flipper, tmp_path, request)


def _raced(operation: Operation, flipper: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Figures:
    """Race an operation against swaps until some of its tries were done and some were refused."""
    seconds = _SECONDS_LONG if request.config.getoption("--long") else _SECONDS
    total = Figures()
    for turn in range(_MOST_ROUNDS):
        for place in PLACES:
            total += race(tmp_path / f"{place}-{turn}", flipper, place, operation, seconds)
        if total.escapes or (total.done and total.refused):
            break
    assert total.escapes == []
    assert total.done, "the race was none: the swaps refused every try"
    assert total.refused, "the race was none: no try met a link"
    assert total.swaps > _LEAST_SWAPS
    return total


def _checked(base: Path, name: str) -> Path:
    path = Path(os.path.realpath(base / name))
    if not path.is_relative_to(base):
        raise PermissionError(name)
    return path


def _read(base: Path, _: int) -> object:
    return _checked(base, FILE).read_text()


def _read_without_following(base: Path, _: int) -> object:
    with os.fdopen(os.open(_checked(base, FILE), os.O_RDONLY | os.O_NOFOLLOW)) as file:
        return file.read()


def _list(base: Path, _: int) -> object:
    return SECRET if "only-outside.md" in os.listdir(_checked(base, "m/d")) else ""  # noqa: PTH208 - only names


def _write(base: Path, turn: int) -> object:
    path = _checked(base, FILE)
    temporary = path.with_name(f"{turn}.tmp")
    temporary.write_text(INSIDE)
    return temporary.replace(path)


def _delete(base: Path, _: int) -> object:
    path = _checked(base, FILE)
    path.unlink()
    return path.write_text(INSIDE)


NAIVE: dict[str, Callable[[Path, int], object]] = {
    "read": _read,
    "read without following": _read_without_following,
    "list": _list,
    "write": _write,
    "delete": _delete,
}


def _try_naively(action: Callable[[Path, int], object], base: Path, figures: Figures) -> None:
    for turn in range(_TRIES_OF_A_CONTROL):
        figures.tries += 1
        try:
            result = action(base, turn)
        except OSError:
            figures.refused += 1
        else:
            figures.done += 1
            figures.escapes += [action.__name__] * betrays(result)


@pytest.mark.parametrize(
    ("naive", "place"),
    [
        ("read", "file"),
        ("write", "directory"),
        *(pytest.param("read", place, marks=pytest.mark.long) for place in PLACES if place != "file"),
        *(pytest.param(name, "directory", marks=pytest.mark.long) for name in NAIVE if name not in ("read", "write")),
    ],
)
def test_the_method_detects_that_code_that_resolves_before_it_opens_escapes(
    naive: str, place: str, flipper: Path, tmp_path: Path, report: dict[str, Figures]
) -> None:
    figures, ground = Figures(), Field(tmp_path)
    with ground.service:
        for _ in range(_MOST_ROUNDS):
            with ground.swapping(flipper, place, figures):
                _try_naively(NAIVE[naive], ground.base, figures)
            figures.escapes += ground.escapes()
            if figures.escapes:
                break
    report[f"control: {naive}, {place}"] = figures
    assert figures.escapes
