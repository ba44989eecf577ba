"""Any text as one segment of a path: injective, reversible, stable, and always a valid name."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_memory import InvalidPathError, decode_segment, encode_segment
from agent_memory.key import RESERVED, TEMPORARY_SUFFIX, Key
from tests.key.test_key import PIECES, ROWS
from tests.support.loops import looped

CORPUS = [text for row in ROWS.values() for text in (*row.refuses, *row.escapes, *row.passes) if isinstance(text, str)]
TEXTS = st.text(st.characters(), max_size=300) | st.lists(
    st.sampled_from([*PIECES, "=", "==", "=2E", "\u1100", "\u1161", "\u09c7", "\u09be"]), max_size=6
).map("".join)


def is_name(segment: str, directory: str = "") -> bool:
    path = directory + segment
    return "/" not in segment and Key.tree().join(path).path == path and len(segment.encode()) <= 240


def is_whole(segment: str) -> bool:
    """Whether the segment contains its text, not only a digest."""
    return "==" not in segment


@given(TEXTS, st.sampled_from(["", ".json", "-v1"]), st.sampled_from(["", "d/"]))
def test_every_text_has_a_valid_name_and_is_decoded_again(text: str, suffix: str, directory: str) -> None:
    segment = encode_segment(text, suffix)
    assert is_name(segment, directory)
    assert encode_segment(text, suffix) == segment
    if is_whole(segment):
        assert decode_segment(segment, suffix) == text
    else:
        with pytest.raises(InvalidPathError, match="only a digest"):
            decode_segment(segment, suffix)


@given(TEXTS, TEXTS)
def test_different_texts_have_different_segments(one: str, other: str) -> None:
    assume(one != other)
    assert encode_segment(one) != encode_segment(other)


@looped("text", CORPUS)
def test_every_text_of_the_path_corpus_has_a_name(text: str) -> None:
    segment = encode_segment(text)
    assert is_name(segment)
    assert not is_whole(segment) or decode_segment(segment) == text


@given(st.text("=0123456789ABCDEFabcdef./ ", max_size=40))
def test_only_segments_of_a_text_are_decoded(segment: str) -> None:
    try:
        text = decode_segment(segment)
    except InvalidPathError:
        return
    assert encode_segment(text) == segment


@looped(
    ("text", "segment"),
    [
        ("plan.md", "plan.md"),
        ("slack:C0123", "slack=3AC0123"),
        ("two words", "two words"),
        ("café", "café"),
        ("cafe\u0301", "cafe=CC=81"),
        ("メモ", "メモ"),
        ("हिन्दी", "हिन्दी"),
        ("\U0001f680", "=F0=9F=9A=80"),
        ("", "="),
        ("=2E", "=3D2E"),
        ("=", "=3D"),
        (".", "=2E"),
        ("..", "=2E=2E"),
        (".hidden", "=2Ehidden"),
        ("a/../b", "a=2F..=2Fb"),
        ("%2e%2e", "=252e=252e"),
        ("con", "=63on"),
        ("NUL.txt", "=4EUL.txt"),
        (" edge ", "=20edge=20"),
        ("~", "=7E"),
        (RESERVED, "=2Eagent-memory"),
        (f"a{TEMPORARY_SUFFIX}", "a.agent-memory-tm=70"),
        ("\ud800", "=ED=A0=80"),
    ],
)
def test_a_segment_is_as_readable_as_its_text_allows(text: str, segment: str) -> None:
    assert encode_segment(text) == segment
    assert decode_segment(segment) == text


def test_an_escape_in_a_text_is_not_decoded_twice() -> None:
    text = "=2E=2E"
    for _ in range(3):
        text = encode_segment(text)
    for _ in range(3):
        text = decode_segment(text)
    assert text == "=2E=2E"


@pytest.mark.long
def test_every_character_has_the_same_segment_on_every_python() -> None:
    digest = hashlib.sha256()
    for code in range(sys.maxunicode + 1):
        digest.update(encode_segment(f"a{chr(code)}").encode())
    assert digest.hexdigest() == "542b995be323845d57925e9a48e5ff0ae7d4cf83d2a06cbc47296b0eea2c547e"


@looped(("length", "whole"), [(240, True), (241, False), (100_000, False)])
def test_a_text_of_240_bytes_is_kept_and_a_longer_one_is_hashed(length: int, whole: bool) -> None:
    segment = encode_segment("x" * length)
    assert is_whole(segment) is whole
    if not whole:
        assert segment == "x" * 100 + "==" + hashlib.sha256(b"x" * length).hexdigest()


def test_a_hashed_segment_keeps_no_half_of_an_escape_or_a_character() -> None:
    for text in ("x" * 99 + ":" * 200, "x" * 98 + ":" * 200, "x" * 99 + "é" * 200, "メ" * 200):
        assert is_name(encode_segment(text))
        assert encode_segment(text).partition("==")[0] in encode_segment(text[:110])


def test_43_cjk_characters_are_kept() -> None:
    assert encode_segment("記" * 43) == "記" * 43


def test_the_suffix_takes_its_room_from_the_text() -> None:
    assert is_whole(encode_segment("x" * 235, ".json"))
    assert not is_whole(encode_segment("x" * 236, ".json"))
    assert decode_segment("a=3A.json", ".json") == "a:"


@looped("suffix", ["/b", ".", " ", "?", TEMPORARY_SUFFIX, "x" * 200])
def test_a_suffix_that_no_name_can_have_is_refused(suffix: str) -> None:
    with pytest.raises(InvalidPathError):
        encode_segment("a" * 300 if len(suffix) > 100 else "a", suffix)


@looped("segment", ["a=", "a=3", "a=3a", "a=41", "=zz", "a:b", ".a", "con", "a.md/b", 7, None])
def test_a_name_that_encodes_no_text_is_refused(segment: str) -> None:
    with pytest.raises(InvalidPathError):
        decode_segment(segment)


@looped("suffix", [".json", 7, None])
def test_a_name_without_the_suffix_is_refused(suffix: str) -> None:
    with pytest.raises(InvalidPathError):
        decode_segment("a.md", suffix)
