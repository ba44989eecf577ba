"""Names that models and people really choose: each is accepted, or is refused with a suggestion that is accepted."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory, InvalidPathError
from agent_memory.key import RULES, Key
from tests.support.loops import looped
from tests.support.names import NAMES, PASSES
from tests.support.sizes import examples

PASSING = [name for name, expected in NAMES if expected == PASSES]
REFUSED = [(name, expected) for name, expected in NAMES if expected != PASSES]


def _id(value: str) -> str:
    return ascii(value)[1:61]


def test_the_list_has_140_names_and_no_name_twice() -> None:
    assert len(NAMES) >= 140
    assert len({name for name, _ in NAMES}) == len(NAMES)


def test_the_list_expects_rules_that_exist() -> None:
    assert {rule for _, rule in REFUSED} <= set(RULES)


@looped("name", PASSING)
def test_an_ordinary_name_is_a_key(name: str) -> None:
    key = Key.tree().join(name)
    assert key.path == "/".join(part for part in name.split("/") if part not in ("", "."))


@looped(("name", "rule"), REFUSED)
def test_a_refusal_has_its_rule_and_a_suggestion_that_is_a_key(name: str, rule: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        Key.tree().join(name)
    assert refused.value.rule == rule
    assert str(Key.tree().join(refused.value.suggestion)) == refused.value.suggestion


@looped(
    ("name", "suggestion"),
    [
        ("12:30 meeting.md", "12-30 meeting.md"),
        ("Q&A?.md", "Q&A.md"),
        ("TODO: fix.md", "TODO fix.md"),
        ("/memories/x.md", "x.md"),
        ("/memories/12:30.md", "12-30.md"),
        ("//memories//dir/./x.md", "dir/x.md"),
        ("/memories/memories/x.md", "memories/x.md"),
        ("/other/x.md", "other/x.md"),
        ("a/../x.md", "x.md"),
        ("a/b/../../dir/./x.md", "dir/x.md"),
        ("a/%2e%2e/x.md", "x.md"),
        ("a/\uff0e\uff0e/x.md", "x.md"),
        ("~/notes", "notes"),
        ("C:\\Users\\me\\notes.txt", "Users/me/notes.txt"),
        ("cafe\u0301.md", "caf\u00e9.md"),
        ("search%20results.md", "search results.md"),
        ("notes.md ", "notes.md"),
        ("etc.", "etc"),
        ("con.md", "_con.md"),
        ("\u26a0\ufe0f why?.md", "\u26a0\ufe0f why.md"),
        ("a\ufe0f?.md", "a.md"),
        ("1\ufe0f\u20e3: a.md", "1\ufe0f\u20e3 a.md"),
        ("*\ufe0f\u20e3 a.md", "\u20e3 a.md"),
        ("Q: why", "Q- why"),
        ("C:a.md", "C-a.md"),
        ("C:", "C-"),
        ("?.env", "_.env"),
        ("a/%2eb", "a/_.b"),
        (" .a", "_.a"),
        ("~.a", "_.a"),
        ("~/.ssh/a", ".ssh/a"),
        ("/memories/.a?", ".a"),
        ("notes/", "notes"),
    ],
)
def test_a_suggestion_keeps_the_allowed_parts_of_the_name(name: str, suggestion: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        Key.tree().join(name)
    assert refused.value.suggestion == suggestion


@looped("name", ["12:30 meeting.md", "con.md", "cafe\u0301.md", "notes.md ", "../notes.md", "a\\b.md"])
def test_a_suggestion_made_in_a_subtree_is_valid_in_that_subtree(name: str) -> None:
    everything = AgentMemory.open("memory://")
    notes = everything.subtree("notes")
    with pytest.raises(InvalidPathError) as refused:
        notes.write(name, "text")
    notes.write(refused.value.suggestion, "text")
    with pytest.raises(InvalidPathError) as refused_at_the_top:
        everything.write(name, "text")
    assert [str(entry) for entry in everything.list()] == [f"notes/{refused_at_the_top.value.suggestion}"]


def test_every_passing_name_is_stored_and_listed_unchanged() -> None:
    memory = AgentMemory.open("memory://")
    written = set()
    for number, name in enumerate(PASSING):
        place = memory.subtree(str(number))
        written.add(f"{number}/{place.write(name, name).path}")
        assert place.read(name) == name
    assert {str(entry) for entry in memory.list()} == written


PIECES = st.sampled_from(
    [
        *("a", "B", ".", "..", "/", " ", "~", ":", "?", "*", "Q:", "\\", "con", "1", "%2e", "&#46;", "/memories/"),
        *("\u2764", "\ufe0f", "\u200d", "\u20e3", "\n", "\ufeff", "e\u0301", "\uff0e", "\ud800", "x" * 250),
        *(".agent-memory", ".agent-memory-tmp"),
    ]
)


@examples(600)
@given(st.lists(PIECES, min_size=1, max_size=8).map("".join))
@example("?.env")
@example("a/\u200b.b/:.c")
def test_a_suggestion_is_a_name_and_hides_no_file_that_the_text_does_not_hide(text: str) -> None:
    try:
        Key.tree().join(text)
    except InvalidPathError as error:
        suggestion = error.suggestion
    else:
        return
    assert Key.tree().join(suggestion).path == suggestion
    as_written = [part for part in re.split(r"[/\\]", text) if part.startswith(".")]
    assert as_written or not any(part.startswith(".") for part in suggestion.split("/"))
