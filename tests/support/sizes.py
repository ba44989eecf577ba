"""The sizes of a test in the short run and with ``--long``."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import pytest
from hypothesis import settings

is_long = False
"""Whether this is a long run; set before the test modules are imported."""


def long_except(short: Container[str], argument: str, values: Mapping[str, object]) -> pytest.MarkDecorator:
    """Parametrize a test with named values; those whose name is not in ``short`` run only with ``--long``."""
    return pytest.mark.parametrize(
        argument,
        [pytest.param(each, id=name, marks=() if name in short else pytest.mark.long) for name, each in values.items()],
    )


def also(values: Iterable[object]) -> list[object]:
    """Values of a parameter that run only with ``--long``."""
    return [pytest.param(each, marks=pytest.mark.long) for each in values]


def examples(count: int) -> settings:
    """Try so many examples with ``--long``, and a fifth of them in the short run."""
    return settings(max_examples=count if is_long else count // 5)
