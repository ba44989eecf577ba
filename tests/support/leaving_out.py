"""A plugin of pytest: a run without ``--long`` neither imports nor generates the tests that it leaves out.

To generate 11,000 tests and to deselect them costs each worker several seconds. Tests above the backends run on disk
and in memory, those of the surfaces on S3 too: the contract says that all backends are alike, and runs on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
_ON_S3 = ("ministack", "in_a_versioned_bucket")
"""The values of parameters that are roots on S3."""
_WITH_S3 = ("tests/acceptance/", "tests/backends/", "tests/object_store/")
_MARKED = re.compile(r"^pytestmark = .*pytest\.mark\.long\b", re.MULTILINE)


class LongTests:
    """Leaves out the tests with the marker `long`, and counts what it left out."""

    def __init__(self) -> None:
        self._count = 0

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return self._left_out(_is_long_file(collection_path), True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[pytest.Item] | None:
        no_items: list[pytest.Item] = []
        return self._left_out(_is_long(getattr(obj, "pytestmark", ())), no_items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Remove the values that are left out from each list; a list of such values only keeps the first."""
        parametrize = metafunc.parametrize
        left_out = () if metafunc.definition.nodeid.startswith(_WITH_S3) else _ON_S3

        def with_short_values(names: Any, values: Iterable[Any], *args: Any, **options: Any) -> None:
            given = [*values]
            short = [number for number, value in enumerate(given) if not _is_long(getattr(value, "marks", ()))]
            short = [number for number in short if given[number] not in left_out] or short[:1] or [0]
            if isinstance(options.get("ids"), Sequence):
                options["ids"] = [options["ids"][number] for number in short]
            parametrize(names, [given[number] for number in short], *args, **options)

        vars(metafunc)["parametrize"] = with_short_values

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if self._count and exitstatus in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
            terminalreporter.write_line("long tests were left out: add --long to run them")

    def _left_out(self, is_left_out: bool, answer: T) -> T | None:
        self._count += is_left_out
        return answer if is_left_out else None


def _is_long_file(path: Path) -> bool:
    return path.name.startswith("test_") and path.suffix == ".py" and bool(_MARKED.search(path.read_text()))


def _is_long(marks: Iterable[object]) -> bool:
    return any(getattr(mark, "name", "") == "long" for mark in (marks if isinstance(marks, list | tuple) else [marks]))
