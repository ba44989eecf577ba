"""`looped`: one test for all members of a corpus; it reports every member that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def looped(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once for each value in one test of pytest; the arguments are those of `pytest.mark.parametrize`.

    Only for tests that leave nothing behind: the members share the fixtures. A corpus without members fails.
    """
    arguments = [names] if isinstance(names, str) else [*names]
    members = [*values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            assert members, "the corpus is empty"
            failed = []
            for member in members:
                given = [member] if isinstance(names, str) else member
                try:
                    test(**dict(zip(arguments, given, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - every failing member is reported
                    failed.append(f"{ascii(member)[:200]}: {type(error).__name__}: {error}")
            if failed:
                pytest.fail(f"{len(failed)} of {len(members)} members failed:\n" + "\n".join(failed), pytrace=False)

        left = [each for name, each in inspect.signature(test).parameters.items() if name not in arguments]
        run.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]  # the fixtures that pytest gives
        return run

    return decorate
