"""Two texts side by side: the rows have both texts, the marks are where they differ, and the work is bounded."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from agent_memory.web import _compare
from agent_memory.web._compare import Comparison, Side, compare

LINES = st.lists(st.sampled_from(["", "a", "b", "the plan", "the  plan", "<b>", "the <b> plan", "x y z"]), max_size=30)


def plain(side: Side) -> str:
    return Markup(re.sub("</?(del|ins)>", "", side.text)).unescape()


def texts(found: Comparison, before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Both texts from the rows; equal lines that are not shown are taken from the texts."""
    old: list[str] = []
    new: list[str] = []
    for row in found.rows:
        if row.equal:
            assert before[len(old) : len(old) + row.equal] == after[len(new) : len(new) + row.equal]
            old += before[len(old) : len(old) + row.equal]
            new += after[len(new) : len(new) + row.equal]
        if row.old:
            assert row.old.number == len(old) + 1
            old.append(plain(row.old))
        if row.new:
            assert row.new.number == len(new) + 1
            new.append(plain(row.new))
    return old, new


@given(LINES, LINES)
def test_the_rows_have_both_texts(before: list[str], after: list[str]) -> None:
    old, new = "\n".join(before), "\n".join(after)
    found = compare(old, new)
    assert texts(found, old.split("\n"), new.split("\n")) == (old.split("\n"), new.split("\n"))
    assert (found.removed + found.added == 0) == (old == new)


def test_the_words_that_differ_are_marked() -> None:
    row = compare("call Ben at 3", "call Ann at 3 <b>").rows[0]
    assert row.old
    assert row.new
    assert row.old.text == "call <del>Ben</del> at 3"
    assert row.new.text == "call <ins>Ann</ins> at 3<ins> &lt;b&gt;</ins>"


def test_lines_that_have_nothing_in_common_have_no_marks() -> None:
    row = compare("aaaa bbbb", "1234 5678 !?").rows[0]
    assert row.old
    assert "<del>" not in row.old.text
    assert row.old.differs


def test_equal_lines_between_changes_are_folded() -> None:
    before = [f"line {number}" for number in range(100)]
    after = [*before[:50], "new", *before[51:]]
    found = compare("\n".join(before), "\n".join(after))
    assert [row.equal for row in found.rows if row.equal] == [47, 46]
    assert len(found.rows) == 9


def test_what_is_not_compared_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compare, "MOST_LINES", 10)
    found = compare("same\n" + "\n".join("ab" * 20), "same\n" + "\n".join("cd" * 10))
    assert (found.old_left, found.new_left) == (30, 10)
    assert len([row for row in found.rows if row.old]) == 11


@pytest.mark.parametrize("kinds", [2, 90, 150, 5000])
def test_texts_that_differ_everywhere_are_compared_in_bounded_work(kinds: int) -> None:
    """The test ends; with a comparison of all lines and words it would take minutes."""
    chance = random.Random(1)
    words = [" ".join(chance.choice(["the", "a", "plan", "of", "it"]) for _ in range(60)) for _ in range(kinds)]
    old, new = ("\n".join(chance.choice(words) for _ in range(20_000)) for _ in range(2))
    found = compare(old[:1_000_000], new[:1_000_000])
    assert found.old_left > 0
