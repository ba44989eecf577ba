"""The parser of names: for each rule of the grammar, texts that it refuses and similar texts that must pass."""

from __future__ import annotations

import copy
import enum
import html
import html.entities
import importlib
import itertools
import pickle
import re
import sys
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from agent_memory import InvalidPathError, PathTraversalError
from agent_memory.key import AGENTS, RESERVED, RULES, TEMPORARY_SUFFIX, Key, _grammar
from tests.support.loops import looped
from tests.support.reaching import our_modules
from tests.support.sizes import examples

TREE = Key.tree()
MISREAD = {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}
"""Pattern operations that do not backtrack correctly before Python 3.11.5 (CPython issue 106052).

A possessive repeat of a single character has nothing to backtrack over, and works in 3.11.2 too.
"""
ONE_CHARACTER = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}
NOT_ABOUT_NAMES = {
    *("agent-id", "root-too-long", "source-checkout", "into-itself", "symlink"),
    *("not-encoded", "hashed", "segment"),
}


class Row(NamedTuple):
    """One rule: texts that it refuses, escape attempts that it refuses, and the most similar texts that pass."""

    refuses: tuple[object, ...]
    escapes: tuple[str, ...]
    passes: tuple[str, ...]


ROWS: dict[str, Row] = {
    "not-text": Row((b"a.md", None, 3, PurePosixPath("a.md"), ["a.md"]), (), ("a.md",)),
    "empty": Row(("", ".", "./", "./.", ".//."), (), ("a", ".a", "0")),
    "too-long": Row(
        (f"{'a' * 240}/" * 3 + "b" * 46, f"{'é' * 120}/" * 3 + "é" * 23, "a/" * 384 + "b"),
        ("../" * 300, "a/" * 400 + "../b", "/" + "a" * 768),
        (f"{'a' * 240}/" * 3 + "b" * 45, f"{'é' * 120}/" * 3 + "é" * 22 + "b"),
    ),
    "too-deep": Row(("/".join("a" * 33), "a/" * 32 + "b"), ("a/" * 33 + "../b",), ("/".join("a" * 32),)),
    "segment-too-long": Row(
        ("a" * 241, "é" * 120 + "a", "b/" + "a" * 241, "a" * 241 + "/b", "会" * 81),
        ("a" * 241 + "/../b",),
        ("a" * 240, "é" * 120, "会" * 80, "b/" + "a" * 240),
    ),
    "absolute": Row((), ("/", "/a.md", "//a.md", "///a", "/./a", "/etc/passwd", "/../a"), ("a.md", "etc/passwd")),
    "drive": Row((), ("C:", "c:/a", "C:\\a", "z:../a", "z:./a", "z:.."), ("C/a", "C", "C.md", "C-a", "Cc")),
    "home": Row((), ("~", "~/a", "~root/a", "~a.md", "~~", "./~/a", ".//~a"), ("a~", "a/~", "a/~b/c", "a~1.md")),
    "parent": Row(
        (),
        ("..", "../a", "a/..", "a/../b", "a/b/../../../c", "./..", "a//..", "a/./../b", "../..", "../a/"),
        ("..a", "a..b", "a/..b", "...a", ".a", "a/..b/..c"),
    ),
    "backslash": Row(
        ("a\\b", "a\\", "notes\\today.md"),
        ("\\", "\\a", "..\\a", "a\\..\\b", "a/..\\b", "\\\\server\\share", "\\\\?\\C:\\a"),
        ("a/b", "a-b", "a\u2216b", "a\u29f5b"),
    ),
    "directory": Row(("a/", "a//", "a/.", "a/./", "a/b/", "a/b/./."), (), ("a", "a/b", "a/.b")),
    "punctuation": Row(
        (
            *(f"ab{mark}c.md" for mark in ':*?"<>|'),
            *(f"a/b{mark}" for mark in ':*?"<>|'),
            "CC:/a",
            "a/c:/b",
            "Q: what",
            "C:a.md",
            "z:.a",
        ),
        ("../a?.md", "ab:/../c", '../"a"'),
        (*(f"a{mark}b.md" for mark in "+&@=,;'()[]{}!#$%^`~-_ "), "a\uff1ab.md", "a\ua789b.md", "“a”.md"),
    ),
    "control": Row(
        (*(f"a{mark}b" for mark in "\0\x01\t\n\r\x1b\x1f\x7f\x80\x85\x9f"), "a\n", "\na"),
        ("..\0/a", ".\0./a", "\0/etc/passwd", "..\n", "a/.\x7f./b", "\x85../a"),
        ("a b", "a\u00a1b", "a~b"),
    ),
    "format": Row(
        tuple(f"a{mark}b" for mark in "\xad\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041"),
        (".\u200b./a", "\u200b../a", "..\u202e/a", "\ufeff/etc/passwd", "\u2060~/a", "a/.\xad./b"),
        ("a\u2010b", "a\u2027b", "a\u20dbb"),
    ),
    "invisible": Row(
        (
            *(f"a{mark}b" for mark in "\u034f\u115f\u1160\u17b4\u180b\u2065\u3164\ufe00\ufe0f\uffa0\U000e0100"),
            *("\ufe0fa", "1\ufe0f", "\u2764\ufe0f\ufe0f", "\u2764\ufe0e", "a/\ufe0f\u20e3"),
        ),
        (".\ufe0f./a", "..\u034f/a", "\u3164../a", "a/.\U000e01ef./b"),
        ("a\u3163b", "a\u17b6b", "a\ufffdb", "\u2764\ufe0f", "a\U0001f600\ufe0fb", "1\ufe0f\u20e3", "#\ufe0f\u20e3/a"),
    ),
    "noncharacter": Row(
        tuple(f"a{mark}b" for mark in "\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff"),
        (".\ufdd0./a", "..\uffff", "\ufffe/etc"),
        ("a\ufdcfb", "a\ufdf0b", "a\ufffdb"),
    ),
    "line-separator": Row(("a\u2028b", "a\u2029"), ("..\u2028/a", ".\u2029./a", "\u2028/etc"), ("a\u2027b",)),
    "blank": Row(
        tuple(f"a{mark}b" for mark in "\xa0\u1680\u2000\u2003\u200a\u202f\u205f\u2800\u3000"),
        ("..\xa0/a", ".\u3000./a", "..\u1680/a", ".\u2800./a", "\u2003/etc", "a/\u202f../b"),
        ("a b", "a  b", "a\u2581b"),
    ),
    "surrogate": Row(("a\ud800b", "\udfff", "a\udcff.md"), ("../\ud800", ".\udc80./a", "\ud800/etc"), ("\U00010000",)),
    "joiner": Row(
        ("\u200da", "a\u200c", "a\u200d.md", "1\u200d2", "a\u200d b", "a\u200d\u200db", "a/\u200db", "🚀\u200d.md"),
        (".\u200d./a", "..\u200c/a", "\u200d../a", "a/.\u200c./b", "\u200d/etc"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.md",
            "ශ්\u200dරී.md",
            "क्\u200dष.md",
            "👨\u200d👩\u200d👧.md",
            "👩🏽\u200d💻.md",
            "❤\u200d🔥.md",
            "a\u200cb",
        ),
    ),
    "not-nfc": Row(
        ("cafe\u0301.md", "\u212b", "\u1112\u1161\u11ab", "\u0340", "a/e\u0301/b", "\u0938\u094d\u0930\u0958"),
        ("../cafe\u0301.md", "e\u0301/../.."),
        ("caf\u00e9.md", "\u00c5", "\ud55c", "x\u0301", "\u0915\u093c"),
    ),
    "encoded": Row(
        ("%41", "a%2eb", "a%u002eb", "a%Uff0e", "a&#46;b", "a&#X2E;b", "a&amp;b", "a&AMPb", "a&period;md", "100%25"),
        (
            "%2e%2e/a",
            "%2E%2e%2Fa",
            ".%2e/a",
            "a/%2e%2e/b",
            "%2fetc/passwd",
            "%5c%2e%2e",
            "%7e/a",
            "%43%3a/a",
            "..%00/a",
            "%252e%252e%252fa",
            "%25252e%25252e/a",
            "%25%32%65%25%32%65/a",
            "%" + "25" * 12 + "2e%" + "25" * 12 + "2e/a",
            "%u002e%u002e/a",
            "%uff0e%uff0e/a",
            "%u2025/a",
            "%c0%ae%c0%ae/a",
            "%C0%AE%c0%ae%c0%afa",
            "%e0%80%ae%e0%80%ae/a",
            "..%c1%9ca",
            "%ef%bc%8e%ef%bc%8e/a",
            "%e2%80%a5/a",
            "&#46;&#46;/a",
            "&#46&#46/a",
            "&#x2e;&#X2E;&#47;a",
            "&#0000046;&#x0002e;/a",
            "&period;&period;&sol;a",
            "&nldr;/a",
            "&bsol;&period;&period;&bsol;a",
            "&amp;#46;&amp;#46;/a",
            "&amp;amp;period;&amp;amp;period;/a",
            "&" + "amp;" * 12 + "#46;&" + "amp;" * 12 + "#46;/a",
            "%26%2346%3b%26%2346%3b/a",
            "&#37;2e&#37;2e/a",
            "&percnt;2e&percnt;2e/a",
            "&num;46;/../a&#46;",
        ),
        ("100%.md", "50% off", "a%zz", "%", "%2", "%g0", "AT&T", "Q&A", "a&#b", "&solo;", "&period", "a&b;c", "&;"),
    ),
    "lookalike": Row(
        (". ", " .", "\u2024", "\uff0e", "a/\ufe52", "a\uff0fb", "a\uff3cb", "a\ufe68b", "\u2100", "a/\u2105.md"),
        (
            ". .",
            ".. /a",
            " ../a",
            "a/.. /b",
            "\uff0e\uff0e/a",
            ".\uff0e/a",
            "\u2024\u2024/a",
            "\u2025/a",
            "a/\u2025",
            "\ufe52\ufe52/a",
            "\uff0e /\uff0e \uff0e/a",
            "\uff0fetc/passwd",
            "a\uff0f..\uff0fb",
            "..\uff3ca",
        ),
        ("\u2026", "\u2026.md", "\uff0e.md", "a\uff0eb", "a\u2044b", "a\u2215b", "\u00bd", "a\u00b7b"),
    ),
    "device": Row(
        (
            *("con", "CON", "prn", "Aux", "nul", "com1", "COM9", "lpt1", "LPT9", "clock$", "CONIN$", "conout$"),
            *("com\u00b9", "lpt\u00b2", "COM\u00b3", "con.md", "nul.tar.gz", "aux .md", "com\u00b9.md", "CLOCK$.md"),
            *("a/con", "con/a", "a/nul.md/b", "./prn", "a//lpt3.txt"),
        ),
        ("con/../a", "a/nul/../.."),
        ("console.md", "con-1", "a.con", "com", "com0", "com10", "lpt", "nul_", "_con", "conin", "clock", "auxx.md"),
    ),
    "edge-space": Row((" a", "a ", "a/ b", "a /b", "a/b ", " ", "a/ /b", "b  "), (" /a", " ~/a"), ("a b",)),
    "trailing-dot": Row(("a.", "a..", "...", "....", "a./b", "a/b.", "a.md."), ("a./../b",), ("a.b", ".a", "...a")),
    "reserved": Row(
        (RESERVED, f"{RESERVED}/a", f"./{RESERVED}/a", ".Agent-Memory/a", ".AGENT-MEMORY", f".//{RESERVED}//a"),
        (f"{RESERVED}/../a",),
        (f"a/{RESERVED}", f"{RESERVED}.md", f"{RESERVED}2/a", "agent-memory/a", "agent_memory/a", ".agent_memory"),
    ),
    "temporary": Row(
        (TEMPORARY_SUFFIX, f"a{TEMPORARY_SUFFIX}", f"a{TEMPORARY_SUFFIX}/b", f"a/b{TEMPORARY_SUFFIX}"),
        (f"a{TEMPORARY_SUFFIX}/../b",),
        (f"a{TEMPORARY_SUFFIX}.md", TEMPORARY_SUFFIX.lstrip("."), f"a{TEMPORARY_SUFFIX}x"),
    ),
}

REFUSES: list[tuple[str, object]] = [(rule, text) for rule, row in ROWS.items() for text in row.refuses]
ESCAPES: list[tuple[str, str]] = [(rule, text) for rule, row in ROWS.items() for text in row.escapes]
PASSES: list[tuple[str, str]] = [(rule, text) for rule, row in ROWS.items() for text in row.passes]
PARENTS = {
    "plain": "..",
    "percent": "%2e%2e",
    "half": ".%2e",
    "twice": "%252e%252e",
    "ten times": f"%{'25' * 9}2e%{'25' * 9}2e",
    "percent-u": "%u002e%u002e",
    "overlong": "%c0%ae%c0%ae",
    "decimal": "&#46;&#46;",
    "hexadecimal": "&#x2e;&#x2e;",
    "named": "&period;&period;",
    "ten ampersands": f"&{'amp;' * 10}#46;&{'amp;' * 10}#46;",
    "leaders": "\u2024\u2024",
    "one sign": "\u2025",
    "fullwidth": "\uff0e\uff0e",
    "encoded fullwidth": "%ef%bc%8e%ef%bc%8e",
    "spaced": ". .",
    "zero width": ".\u200b.",
    "joined": ".\u200d.",
    "nul": "..\0",
}


def _id(value: object) -> str:
    return ascii(value)[:60]


def refusal(text: object, below: Key = TREE) -> InvalidPathError:
    with pytest.raises(InvalidPathError) as refused:
        below.join(text)  # type: ignore[arg-type]
    return refused.value


def test_every_rule_about_names_has_a_row() -> None:
    assert ROWS.keys() == RULES.keys() - NOT_ABOUT_NAMES
    assert all((row.refuses or row.escapes) and row.passes for row in ROWS.values())


@looped(("rule", "text"), REFUSES)
def test_a_rule_refuses_its_texts(rule: str, text: object) -> None:
    error = refusal(text)
    assert (error.rule, type(error)) == (rule, InvalidPathError)


@looped(("rule", "text"), ESCAPES)
def test_a_rule_refuses_an_escape_attempt_as_a_path_traversal(rule: str, text: str) -> None:
    error = refusal(text)
    assert (error.rule, type(error)) == (rule, PathTraversalError)


@looped("text", [text for _, text in PASSES])
def test_the_most_similar_allowed_text_passes(text: str) -> None:
    assert TREE.join(text).path == text


@looped("place", ["{}", "{}/a", "a/{}", "a/b/{}/c", "./{}/a", "a//{}", "{}/{}/{}/a"])
@looped("spelling", PARENTS.values())
def test_every_spelling_of_a_parent_segment_is_an_escape_at_any_depth(spelling: str, place: str) -> None:
    text = place.replace("{}", spelling)
    assert type(refusal(text)) is PathTraversalError
    assert type(refusal(text, TREE.join_prefix("notes"))) is PathTraversalError
    assert type(refusal(text, Key.agent("bob"))) is PathTraversalError


@looped("text", [text for rule, text in ESCAPES if rule != "home"])
def test_an_escape_attempt_is_an_escape_below_a_prefix_too(text: str) -> None:
    assert type(refusal(text, TREE.join_prefix("notes"))) is PathTraversalError


# The text of a refusal.


@looped(("rule", "text"), [*REFUSES, *ESCAPES])
def test_a_refusal_explains_its_rule_and_suggests_a_name_that_passes(rule: str, text: object) -> None:
    error = refusal(text)
    assert RULES[rule] in str(error)
    assert repr(error.suggestion) in str(error)
    assert TREE.join(error.suggestion).path == error.suggestion


@looped(
    ("text", "shown"),
    [
        ("a\n\x1b[31mb", r"'a\n\x1b[31mb'"),
        ("caf\u00e9?", r"'caf\xe9?'"),
        ("\u202egnp.md", r"'\u202egnp.md'"),
        ("\ud800", r"'\ud800'"),
        ("a" * 79 + "??", "'" + "a" * 79 + "?'..."),
        (None, "a value of type NoneType"),
        (b"secret", "a value of type bytes"),
    ],
)
def test_a_refusal_shows_the_text_escaped_and_cut(text: object, shown: str) -> None:
    error = refusal(text)
    assert error.refused == shown
    assert str(error).startswith(f"{shown} is refused: ")


def test_a_refusal_below_a_prefix_shows_the_text_as_it_was_given() -> None:
    error = refusal("12:30 meeting.md", TREE.join_prefix("notes/private"))
    assert (error.refused, error.suggestion) == ("'12:30 meeting.md'", "12-30 meeting.md")
    assert "private" not in str(error)


# The normal form.


@looped(
    ("text", "path"),
    [
        ("a//b", "a/b"),
        ("./a", "a"),
        ("a/./b", "a/b"),
        ("././/a///.//b", "a/b"),
        (".//etc/passwd", "etc/passwd"),
        ("a/" + "./" * 40 + "b", "a/b"),
    ],
)
def test_normalising_removes_doubled_slashes_and_single_dots(text: str, path: str) -> None:
    assert TREE.join(text).path == path


def test_the_length_limit_counts_the_text_before_normalising() -> None:
    assert TREE.join("a" + "/" * 766 + "b").path == "a/b"
    assert refusal("a" + "/" * 767 + "b").rule == "too-long"


WORDS = r"/ // . .. ./ ../ \ ~ C: a notes .md é %2e %2F %25 %u002e % &#46; &amp; &period; & ; # con NUL com1 $ : ? *"
CHARACTERS = " \u00a0\u3000\u0301\u2024\uff0e\uff0f\u00b9\0\n\u200b\u200c\u200d\ufe0f👩🏽\u1112\u1161\ud800"
PIECES = [*WORDS.split(), *CHARACTERS, RESERVED, RESERVED.upper(), TEMPORARY_SUFFIX, "x" * 239, "é" * 121, "a/" * 31]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=16).map("".join) | st.text()


def judged(text: str, below: Key = TREE) -> Key | InvalidPathError:
    try:
        return below.join(text)
    except InvalidPathError as error:
        return error


def parsed(text: str, below: Key = TREE) -> Key | None:
    answer = judged(text, below)
    return answer if isinstance(answer, Key) else None


@examples(1000)
@given(TEXTS)
@example("/".join("é" * 32) + "x" * 240)
@example("./~a")
def test_a_text_has_a_normal_form_or_is_refused_with_a_suggestion_that_has_one(text: str) -> None:
    answer = judged(text)
    if isinstance(answer, InvalidPathError):
        assert answer.rule in ROWS
        assert answer.refused.isascii()
        assert len(answer.refused) <= 1000
    path = answer.path if isinstance(answer, Key) else answer.suggestion
    assert TREE.join(path).path == path
    assert len(path.encode()) <= 768
    assert not {"", ".", ".."} & set(path.split("/"))
    assert unicodedata.is_normalized("NFC", path)


@settings(examples(500), suppress_health_check=[HealthCheck.filter_too_much])  # most texts are not valid names
@given(TEXTS)
def test_a_decoded_key_still_names_a_path_within_its_tree(text: str) -> None:
    key = parsed(text)
    assume(key is not None)
    assert key is not None
    for decode in DECODERS:
        decoded = decode(key.path)
        assert decoded.count("/") == key.path.count("/")
        assert "\\" not in decoded
        assert not {"", ".", ".."} & set(decoded.split("/"))


DECODERS: list[Callable[[str], str]] = [
    unquote,
    html.unescape,
    lambda text: unicodedata.normalize("NFKC", text),
    lambda text: unicodedata.normalize("NFKC", html.unescape(unquote(text))),
    lambda text: unicodedata.normalize("NFKC", text).replace(" ", ""),
]


# Prefixes, and keys below them.


@looped(
    ("text", "path"),
    [("", ""), (".", ""), ("./", ""), ("a", "a"), ("a/", "a"), ("a/.", "a"), ("a//b/./", "a/b"), ("./a", "a")],
)
def test_a_prefix_may_be_the_top_and_may_end_in_a_slash(text: str, path: str) -> None:
    assert TREE.join_prefix(text).path == path
    assert TREE.join_prefix("top").join_prefix(text).path == f"top/{path}".rstrip("/")


@looped(
    ("text", "rule"),
    [
        ("/", "absolute"),
        ("//", "absolute"),
        ("..", "parent"),
        ("a/../", "parent"),
        ("~", "home"),
        ("C:", "drive"),
        (" ", "edge-space"),
        ("a?/", "punctuation"),
        (RESERVED, "reserved"),
        (f"{RESERVED}/", "reserved"),
        ("a/" * 33, "too-deep"),
        (None, "not-text"),
    ],
)
def test_a_prefix_obeys_every_other_rule(text: str, rule: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        TREE.join_prefix(text)
    assert refused.value.rule == rule


@looped("text", ["/", "/etc", "//etc", "..", "../a"])
def test_a_prefix_below_a_prefix_stays_below_it(text: str) -> None:
    with pytest.raises(PathTraversalError):
        TREE.join_prefix("top").join_prefix(text)


@looped(
    ("prefix", "text", "rule"),
    [
        ("a/" * 30, "b/c/d", "too-deep"),
        (f"{'a' * 240}/" * 3, "b" * 46, "too-long"),
        ("a", "é" * 384, "too-long"),
        ("a", "", "empty"),
        ("a", ".", "empty"),
        ("a", "b/", "directory"),
        ("a", "/b", "absolute"),
        ("a", "..", "parent"),
    ],
)
def test_limits_apply_to_the_whole_path_below_a_prefix(prefix: str, text: str, rule: str) -> None:
    assert refusal(text, TREE.join_prefix(prefix)).rule == rule


def test_a_path_below_a_prefix_may_reach_the_limits() -> None:
    assert TREE.join_prefix("a/" * 30).join("b/c").path == "a/" * 30 + "b/c"
    long = TREE.join_prefix(f"{'a' * 240}/" * 3)
    assert long.join("b" * 45).path == f"{'a' * 240}/" * 3 + "b" * 45


@examples(500)
@given(TEXTS, st.sampled_from(["notes", "a/" * 31, "é" * 120 + "/" + "b" * 240 + "/" + "c" * 240]))
@example("b" * 240, "a/" * 31)
@example("b" * 60 + "?", "é" * 120 + "/" + "b" * 240 + "/" + "c" * 240)
def test_a_text_joined_to_a_prefix_and_its_suggestion_stay_below_it(text: str, prefix: str) -> None:
    below = TREE.join_prefix(prefix)
    answer = judged(text, below)
    key = answer if isinstance(answer, Key) else below.join(answer.suggestion)
    assert isinstance(answer, Key) or key.path == f"{below.path}/{answer.suggestion}"
    assert key.is_below(below)
    assert TREE.join(key.path) == key


@settings(deadline=None)
@given(TEXTS)
def test_no_text_leaves_an_agents_tree(text: str) -> None:
    key = parsed(text, Key.agent("bob"))
    assert key is None or key.storage.startswith("agent_memory/bob/")


# Data that no text can reach, and names found in storage.


@examples(1000)
@given(TEXTS)
@example(RESERVED)
@example(f"./{RESERVED}/audit")
def test_no_text_reaches_the_packages_own_data(text: str) -> None:
    internal = Key.internal("audit").segments[0]
    for join in (TREE.join, TREE.join_prefix, AGENTS.join, Key.agent("bob").join):
        try:
            key = join(text)
        except InvalidPathError:
            continue
        assert not key.segments or key.segments[0].casefold() != internal


@given(st.tuples(*(st.sampled_from([c.lower(), c.upper()]) for c in RESERVED)).map("".join))
def test_the_packages_own_data_is_out_of_reach_on_a_disk_that_folds_case(name: str) -> None:
    assert refusal(f"{name}/audit").rule == "reserved"


def test_the_packages_own_data_is_stored_beside_the_trees() -> None:
    assert Key.internal("audit/today.jsonl").storage == ".agent-memory/audit/today.jsonl"
    assert Key.internal("audit/today.jsonl").path == "audit/today.jsonl"


@looped("name", ["a.md", "a/b.md", "\u26a0.md", ".env", "a b"])
def test_a_stored_name_that_the_grammar_allows_is_a_key(name: str) -> None:
    for below in (TREE, TREE.join_prefix("notes"), Key.agent("bob"), Key.agent("bob").join_prefix("x/y")):
        assert below.stored(name) == below.join(name)


@looped(
    "name",
    ["", ".", "..", "/", "/a", "a/", "a//b", "./a", "a/./b", "../a", "con", "cafe\u0301", "a:b", "a\ud800", "a."],
)
def test_a_stored_name_that_the_grammar_refuses_gives_none(name: str) -> None:
    for below in (TREE, TREE.join_prefix("notes"), Key.agent("bob")):
        assert below.stored(name) is None


@settings(deadline=None)
@given(TEXTS)
def test_a_stored_name_is_never_normalised(name: str) -> None:
    key = TREE.stored(name)
    assert key is None or key.path == name


# Keys as values.


def test_a_key_knows_its_tree_and_its_place_in_storage() -> None:
    key = Key.agent("bob").join("notes/a.md")
    assert (key.base, key.path, key.storage) == ("agent_memory/bob", "notes/a.md", "agent_memory/bob/notes/a.md")
    assert (str(key), key.name, str(key.parent)) == ("notes/a.md", "a.md", "notes")
    assert key.segments == ("agent_memory", "bob", "notes", "a.md")
    assert (TREE.segments, TREE.parent, TREE.name) == ((), TREE, "")


def test_a_key_seen_from_a_prefix_names_the_same_file() -> None:
    notes = Key.agent("bob").join_prefix("notes")
    seen = notes.join("a.md").relative_to(notes)
    assert (seen.path, seen.storage) == ("a.md", "agent_memory/bob/notes/a.md")


def test_is_below_compares_whole_segments() -> None:
    assert TREE.join("a/b").is_below(TREE.join("a"))
    assert TREE.join("a").is_below(TREE)
    assert not TREE.join("ab").is_below(TREE.join("a"))
    assert not TREE.join("a").is_below(TREE.join("a"))


def test_a_key_cannot_be_constructed_without_parsing() -> None:
    with pytest.raises(TypeError, match="parsed"):
        Key()


@looped("attribute", ["base", "path", "storage", "other"])
def test_a_key_never_changes(attribute: str) -> None:
    key = TREE.join("a")
    with pytest.raises(AttributeError):
        setattr(key, attribute, "../b")
    with pytest.raises(AttributeError):
        delattr(key, attribute)
    assert key == TREE.join("a")
    assert not hasattr(key, "__dict__")


@looped("key", [TREE, TREE.join("a/b"), Key.agent("bob").join("a"), Key.internal("a"), AGENTS])
def test_a_key_survives_pickling_and_copying(key: Key) -> None:
    twins = [pickle.loads(pickle.dumps(key, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for twin in [*twins, copy.copy(key), copy.deepcopy(key)]:
        assert (twin, hash(twin), twin.path, twin.base) == (key, hash(key), key.path, key.base)


def test_equal_names_are_equal_keys() -> None:
    assert TREE.join("a//b") == TREE.join("./a/b")
    assert hash(TREE.join("a//b")) == hash(TREE.join("./a/b"))
    assert TREE.join("a") != TREE.join("A")
    assert TREE.join("a") != "a"
    assert TREE.join("agent_memory/bob/a") != Key.agent("bob").join("a")


@given(st.lists(TEXTS))
@example(["\uff41", "\U00010000", "\ue000", "z", "é"])
@settings(deadline=None)
def test_keys_sort_by_their_utf8_bytes(texts: list[str]) -> None:
    keys = [key for text in texts if (key := parsed(text))]
    assert sorted(keys) == sorted(keys, key=lambda key: key.storage.encode())


# Subclasses of str that misreport their content.


class Liar(str):
    """A str whose methods report a text that it does not hold."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("good.md")

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __len__(self) -> int:
        return 4

    def __str__(self) -> str:
        return "../other"

    def __format__(self, spec: str) -> str:
        return "../other"

    def startswith(self, *_: object) -> bool:
        return False

    def split(self, *_: object, **__: object) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ["good.md"]


class Name(str, enum.Enum):  # noqa: UP042  # StrEnum formats as its value and would hide the error
    """A str enumeration: many programs name their agents and files by its members."""

    BOB = "bob"


@looped("below", [TREE, TREE.join_prefix("notes"), Key.agent("bob")])
def test_a_str_subclass_that_misreports_its_text_cannot_poison_the_cache(below: Key) -> None:
    good = below.join("good.md")
    assert refusal(Liar("../../secret"), below).rule == "parent"
    assert refusal(Liar("/etc"), below).rule == "absolute"
    assert below.join(Liar("mine.md")).path == f"{below.path}/mine.md".lstrip("/")
    assert below.join("good.md") == good
    assert below.join("mine.md").path.endswith("mine.md")


def test_a_misreporting_str_subclass_parsed_first_cannot_poison_the_cache() -> None:
    assert refusal(Liar("seen first?.md")).rule == "punctuation"
    assert TREE.join(Liar("seen.md")).path == "seen.md"
    assert type(TREE.join(Liar("seen.md")).path) is str
    assert TREE.join("good.md").path == "good.md"


def test_a_member_of_a_str_enumeration_is_parsed_as_its_value() -> None:
    assert TREE.join(Name.BOB).storage == "bob"
    assert TREE.join_prefix("notes").join(Name.BOB).storage == "notes/bob"
    assert Key.agent(Name.BOB).storage == "agent_memory/bob"


def test_an_id_that_misreports_its_text_stays_within_the_agents() -> None:
    assert Key.agent(Liar("bob")).storage == "agent_memory/bob"


# The character classes, compared with the Unicode data of the running Python.

RULE_OF_CATEGORY = {"Cc": "control", "Cf": "format", "Zs": "blank", "Zl": "line-separator", "Zp": "line-separator"}
JOINERS = "\u200c\u200d"
NONCHARACTERS = [*range(0xFDD0, 0xFDF0), *(plane << 16 | low for plane in range(17) for low in (0xFFFE, 0xFFFF))]
DEFAULT_IGNORABLE = [  # Unicode 16, DerivedCoreProperties.txt
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
BLANK_TO_THE_EYE = {0x2800: "blank", 0x16FE4: "invisible", 0x1D159: "invisible"}


def _rule_between_letters(code: int) -> str | None:
    return _grammar.text_rule(f"a{chr(code)}b")


@looped("category", RULE_OF_CATEGORY)
def test_every_character_of_a_refused_category_is_refused(category: str) -> None:
    rules = {
        code: _rule_between_letters(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) == category and chr(code) not in f" {JOINERS}"
    }
    assert rules
    assert {code: rule for code, rule in rules.items() if rule != RULE_OF_CATEGORY[category]} == {}


def test_every_surrogate_is_refused() -> None:
    assert {_rule_between_letters(code) for code in range(0xD800, 0xE000)} == {"surrogate"}


def test_every_noncharacter_is_refused() -> None:
    assert len(NONCHARACTERS) == 66
    assert {_rule_between_letters(code) for code in NONCHARACTERS} == {"noncharacter"}


def test_every_default_ignorable_character_except_the_joiners_is_refused() -> None:
    refused = {code for code in DEFAULT_IGNORABLE if _rule_between_letters(code) in ("format", "invisible")}
    assert set(DEFAULT_IGNORABLE) - refused == set(map(ord, JOINERS))


def test_no_visible_character_is_refused_as_invisible() -> None:
    hiding = {*RULE_OF_CATEGORY.values(), "invisible", "noncharacter", "surrogate"}
    refused = {
        code: rule
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "LMNPS" and (rule := _rule_between_letters(code)) in hiding
    }
    visible = {code: rule for code, rule in refused.items() if code not in DEFAULT_IGNORABLE}
    assert visible == {code: rule for code, rule in BLANK_TO_THE_EYE.items() if unicodedata.name(chr(code), "")}


def test_a_joiner_is_allowed_only_between_letters_marks_and_emoji() -> None:
    joined = "aé字क्ා🚀🏽❤"
    apart = "1.-_ /()!"
    for joiner, before, after in itertools.product(JOINERS, joined + apart, joined + apart):
        rule = _grammar.text_rule(f"x{before}{joiner}{after}x")
        assert (rule == "joiner") == (before in apart or after in apart)


@looped(
    "name",
    [n for n, value in html.entities.html5.items() if set("./\\%&#;") & set(unicodedata.normalize("NFKC", value))],
)
def test_an_html_entity_for_a_dot_a_separator_or_an_escape_is_refused(name: str) -> None:
    assert refusal(f"a&{name}b").rule == "encoded"


def test_html_has_the_entities_that_the_rules_refuse() -> None:
    assert {"period;", "sol;", "bsol;", "percnt;", "amp", "num;", "semi;"} <= html.entities.html5.keys()


# A hostile text costs no more than its first characters.

SHAPES = ["a", "../", "%25", "&amp;", "e\u0301", "a\u200d", "C:", " ", "./", "\ud800", "\u2024", "~", "?", "CON/", "🏽"]


@looped("shape", SHAPES)
@looped("below", [TREE, TREE.join_prefix("notes")])
def test_a_huge_text_is_refused_after_reading_only_its_beginning(shape: str, below: Key) -> None:
    huge = shape * (2_000_000 // len(shape))
    error, shorter = refusal(huge, below), refusal(huge[:1500], below)
    assert error.rule == "too-long"
    assert (type(error), error.args) == (type(shorter), shorter.args)


@looped("below", [TREE, TREE.join_prefix("notes"), Key.agent("bob")])
@looped("shape", ["a", "%25", "../"])
def test_refusing_fifty_megabytes_allocates_almost_no_memory(shape: str, below: Key) -> None:
    huge = shape * (50_000_000 // len(shape))
    for ask in (below.join, below.join_prefix, below.stored):
        assert _allocated(lambda ask=ask: ask(huge)) < 1_000_000  # type: ignore[misc]


@looped(
    "hostile",
    [
        lambda size: "%25" * (size // 3),
        lambda size: "%" + "25" * (size // 2 - 2) + "2e",
        lambda size: "&" + "amp;" * (size // 4 - 2) + "#46;",
        lambda size: "&#4" * (size // 3),
        lambda size: "e" + "\u0301" * (size // 2 - 1),
        lambda size: "a\u200d" * (size // 4),
        lambda size: "../" * (size // 3),
        lambda size: "a" * (size - 1) + "?",
        lambda size: " " * size,
        lambda size: "." * size,
        lambda size: "x/" * 31 + "?" * (size - 62),  # two ways to match a segment would be 2**31 for the path
        lambda size: "c/" * 31 + "?" * (size - 62),
    ],
)
def test_the_work_of_refusing_grows_at_most_linearly_with_the_text(hostile: Callable[[int], str]) -> None:
    refusal(hostile(700))  # fills the caches before counting
    short, long = _calls(lambda: refusal(hostile(96))), _calls(lambda: refusal(hostile(768)))
    assert long <= 8 * short + 500


def _operations(parsed: Any) -> set[str]:
    """The names of all operations of a parsed pattern."""
    if hasattr(parsed, "data"):
        found = {str(operation) for operation, argument in parsed if not _repeats_one(str(operation), argument)}
        return found | _operations([argument for _, argument in parsed])
    return set().union(*map(_operations, parsed)) if isinstance(parsed, list | tuple) else set()


def _repeats_one(operation: str, argument: Any) -> bool:
    """Whether an operation is a possessive repeat of a single character."""
    return operation == "POSSESSIVE_REPEAT" and [str(each) for each, _ in argument[2]] in [[o] for o in ONE_CHARACTER]


def test_no_pattern_uses_an_operation_that_older_pythons_misread() -> None:
    parser: Any = importlib.import_module("re._parser")
    assert _operations(parser.parse(r"a(?:b|c[de]*+f++)")).isdisjoint(MISREAD)
    assert "POSSESSIVE_REPEAT" in _operations(parser.parse(r"(?:ab?c)?+"))
    assert _operations(parser.parse(r"a(?:b|(?=c(?:de){0,3}+))")) >= {"POSSESSIVE_REPEAT", "LITERAL"}
    assert "ATOMIC_GROUP" in _operations(parser.parse(r"a(?>b)"))
    patterns = {each for module in our_modules() for each in vars(module).values() if isinstance(each, re.Pattern)}
    assert len(patterns) > 20
    for pattern in patterns:
        assert _operations(parser.parse(pattern.pattern, pattern.flags)).isdisjoint(MISREAD), pattern


def _allocated(function: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        function()
    except InvalidPathError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def _calls(function: Callable[[], object]) -> int:
    count = itertools.count()
    before = sys.getprofile()
    sys.setprofile(lambda *_: next(count) and None)
    try:
        function()
    finally:
        sys.setprofile(before)
    return next(count)
