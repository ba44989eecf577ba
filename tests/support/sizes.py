"""The parameters of a test that the short run tries, and those that only ``--long`` adds."""

from __future__ import annotations

from collections.abc import Container, Mapping

import pytest


def long_except(short: Container[str], argument: str, values: Mapping[str, object]) -> pytest.MarkDecorator:
    """Parametrize a test with named values; those whose name is not in ``short`` run only with ``--long``."""
    return pytest.mark.parametrize(
        argument,
        [pytest.param(each, id=name, marks=() if name in short else pytest.mark.long) for name, each in values.items()],
    )
