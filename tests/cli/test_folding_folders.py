"""An export to a folder that ignores case names both files and says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory.cli.importing import _apart


class Folding:
    """A folder on a volume that ignores case: only this answer of it is asked for."""

    def folds_case(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("first", "second"), [("a.md", "A.md"), ("straße.md", "STRASSE.md"), ("ﬁ.md", "FI.md"), ("Σ/a.md", "ς/b.md")]
)
def test_names_that_are_one_there_are_both_named(first: str, second: str) -> None:
    folder: Any = Folding()
    apart, left = _apart(folder, [first, "other.md", second])
    assert apart == [first, "other.md"]
    told = str(left[0].error)
    assert told.startswith(repr(second))
    assert repr(first if "/" not in first else first.partition("/")[0]) in told
    assert "rename one of the two" in told
