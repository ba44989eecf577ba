"""A pattern that can never match a path is refused where it is given; the message suggests a better pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory, AgentMemoryService, InvalidPathError
from agent_memory.cli.app import app
from agent_memory.hookspecs import Operation
from agent_memory.key import Key
from agent_memory.key.patterns import MAX_PATTERN, require_possible
from agent_memory.plugins.readonly import ReadOnlyPlugin, from_configuration
from agent_memory.tools import FileSystemManager, MemorySearch
from tests.support.loops import looped

IMPOSSIBLE = [
    ("cafe\u0301/**", "must be in Unicode normal form C; try 'caf\\xe9/**'"),
    ("policies\\**", "must separate segments by '/', not by a backslash; try 'policies/**'"),
    (" policies/**", "must not begin or end with a space; try 'policies/**'"),
    ("policies /**", "must not begin or end with a space; try 'policies/**'"),
    ("C:/x/**", "must not begin with a drive letter; try 'x/**'"),
    ("a/b\0/**", "a path must not contain control characters; try 'a/b/**'"),
    ("a/x:y*.[mt]d", "try 'a/x-y*.[mt]d'"),
    ("a//b", "a pattern must not contain an empty segment or '.'; try 'a/b'"),
    ("./a", "a pattern must not contain an empty segment or '.'; try 'a'"),
    ("a/../b", "must not contain the segment '..'; try 'b'"),
    ("/a", "must not begin with '/'; try 'a'"),
    ("a/", "must not end with '/'"),
    ("~/x", "must not begin with '~'; try 'x'"),
    (".agent-memory/**", "the first segment must not be .agent-memory"),
    ("a/*.agent-memory-tmp", "a segment must not end with .agent-memory-tmp"),
    ("a/nul.*", "must not be a Windows device name"),
    ("a/%2e?", "must not contain encoded characters"),
    ("a/b.", "must not end with a dot"),
    ("a/b[.]", "must not end with a dot"),
    ("a/[:|]", "must not contain any of : "),
    ("a/[z-a]", "'[z-a]' matches no character"),
    ("a/\u202e*", "must not contain format or bidirectional"),
    ("a/\ud800*", "without lone surrogates"),
    ("a/" + "b" * 241, "can have at most 240 bytes"),
    ("a/" * 32 + "*", "can have at most 32 segments"),
    ("a/" + "b" * MAX_PATTERN, "can have at most 1,000 characters"),
]
OF_NAMES = [
    ("", "a path must name a file"),
    ("b\\*", "try 'b/*'"),
    ("con.*", "device name"),
    (" *", "with a space; try '*'"),
]
POSSIBLE = [
    "**", "*", "?", "a", "*.md", "**/~x", "**/.agent-memory/x", "[", "[]", "[]a].md", "[!a]*", "[cx]on", "a[ .-]",
    "a[.]b", "caf\u00e9/**", "\u30e1\u30e2/[\u30a0-\u30ff]*",
    "q \u00fe \u00f0 \u0111 \u0127 \u014b/?*[ab]", "\U0001f469\u200d*", "?\u0301", "a&b/{c}/$d",
    "*" + "a" * 240, "?" * 240, "[ab]" * 240, "/".join(["**"] * 40), "**/" * 3 + "a/" * 31 + "b",
]  # fmt: skip
Take = Callable[[str], object]


def search(pattern: str) -> object:
    return MemorySearch(AgentMemory.open("memory://")).search("x", glob=pattern)


def as_a_model(pattern: str) -> object:
    answer = MemorySearch(AgentMemory.open("memory://")).call({"query": "x", "glob": pattern})
    if answer.is_error:
        raise ValueError(answer.output)
    return answer


def on_the_command_line(pattern: str) -> object:
    ended = CliRunner().invoke(app, ["--url", "memory://", "search", "x", f"--glob={pattern}"])
    if ended.exit_code == 2:
        raise ValueError(ended.output)
    assert ended.exit_code == 1  # no match
    return ended


def suffix(text: str) -> object:
    return FileSystemManager(AgentMemory.open("memory://"), suffixes=[text])


@looped("take", [require_possible, ReadOnlyPlugin, lambda pattern: from_configuration([pattern]), search, as_a_model])
@looped(("pattern", "told"), IMPOSSIBLE)
def test_a_pattern_that_no_path_matches_is_refused(take: Take, pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        take(pattern)


@looped("take", [search, as_a_model, on_the_command_line])
@looped(("pattern", "told"), OF_NAMES)
def test_a_pattern_that_no_name_matches_is_refused(take: Take, pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        take(pattern)


@looped("take", [ReadOnlyPlugin, search, on_the_command_line])
@looped("pattern", POSSIBLE)
def test_a_pattern_that_a_path_can_match_is_accepted(take: Take, pattern: str) -> None:
    take(pattern)


@looped("pattern", ["~x", ".agent-memory"])
def test_a_name_reserved_only_at_the_top_is_accepted_as_a_file_name_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="matches no path"):
        ReadOnlyPlugin(pattern)
    search(pattern)


@looped("wrong", [".md ", ".", ".a:b", ".m\0", ".agent-memory-tmp", "md", 5, ".cafe\u0301"])
def test_a_suffix_that_no_name_can_have_is_refused(wrong: str) -> None:
    with pytest.raises((ValueError, InvalidPathError), match=r"suffixes must be|is refused"):
        suffix(wrong)


WRONG: list[tuple[Callable[[], object], str]] = [
    (ReadOnlyPlugin, "without a pattern nothing is read-only"),
    (lambda: ReadOnlyPlugin(5), "a pattern must be a string, not 5"),  # type: ignore[arg-type]
    (lambda: ReadOnlyPlugin(["a"]), "a pattern must be a string, not"),  # type: ignore[arg-type]
    (lambda: ReadOnlyPlugin("a", agents=[]), "one or more agent ids, or omitted for all"),
    (lambda: ReadOnlyPlugin("a", agents="bob"), "one or more agent ids, or omitted for all"),
    (lambda: ReadOnlyPlugin("a", agents=["slack:C0123"]), "not an agent id.*for example 'slack=3AC0123'"),
    (lambda: ReadOnlyPlugin("a", agents=["bob*"]), "not an agent id"),
    (lambda: ReadOnlyPlugin("a", agents=[5]), "not an agent id"),  # type: ignore[list-item]
    (lambda: from_configuration([]), "without a pattern nothing is read-only"),
    (lambda: from_configuration(["a"], agents=[]), "one or more agent ids"),
]


@looped(("make", "told"), WRONG)
def test_options_that_do_nothing_are_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


letter = st.sampled_from([*"abqzx.-~ [c]{!}%2e", "\u00e9", "\u0301", "\u200d", "\u30e1", "\U0001f469", "nul", "com1"])
name = st.lists(letter, min_size=1, max_size=6).map("".join)


def is_possible(path: str) -> bool:
    try:
        return Key.tree().join(path).path == path
    except InvalidPathError:
        return False


paths = st.lists(name, min_size=1, max_size=4).map("/".join).filter(is_possible)


@st.composite
def paths_and_patterns(draw: st.DrawFn) -> tuple[str, str]:
    """A valid path, and a pattern that matches it."""
    path = draw(paths)
    segments = []
    for segment in path.split("/"):
        if draw(st.integers(0, 5)) == 0:
            segments.append("**")
            continue
        parts = [
            draw(st.sampled_from([f"[{each}]" if each == "[" else each, "?", "*", f"[{each}]", f"[{each}a]", "[!:]"]))
            if each not in "!]"
            else draw(st.sampled_from([each, "?", "*"]))
            for each in segment
        ]
        segments.append("*" * draw(st.integers(0, 2)) + "".join(parts))
    return path, "/".join(segments)


@given(paths_and_patterns())
@example(("a.b", "a[.]b"))
@example(("\u0301\u0301", "[\u0301a]\u0301"))
def test_a_pattern_made_from_a_path_is_accepted_and_matches_it(drawn: tuple[str, str]) -> None:
    path, pattern = drawn
    operation = Operation(id="1", time=0.0, kind="write", agent=None, path=path)
    with pytest.raises(PermissionError, match="read-only"):
        ReadOnlyPlugin(pattern).agent_memory_before_operation(operation)
    if fnmatchcase(path, pattern):
        search(pattern)


def test_matching_many_wildcards_takes_no_exponential_time() -> None:
    path, pattern = "/".join("a" * 32), "/".join(["**", "a"] * 15 + ["b"])
    operation = Operation(id="1", time=0.0, kind="write", agent=None, path=path)
    ReadOnlyPlugin(pattern).agent_memory_before_operation(operation)  # an exponential search would take hours


def test_a_service_does_not_open_with_an_impossible_pattern(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="matches no path"):
        AgentMemoryService(tmp_path, plugins=[ReadOnlyPlugin("policies\\**")])
