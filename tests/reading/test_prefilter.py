"""The prefilter never skips a matching line: in upper or lower case, and in JSON with any escapes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory.reading import prefilter
from agent_memory.reading.prefilter import SearchPrefilter
from tests.conversation.strategies import FAMILIES, spelled
from tests.support.sizes import examples

words = st.sampled_from(FAMILIES).flatmap(lambda letters: st.tuples(*[st.text(letters, max_size=8)] * 2))


def offsets(query: str, block: bytes, *, is_json: bool) -> list[int]:
    """Every offset that the prefilter gives. As in a search, each call starts at the end of the last offset's line."""
    find = SearchPrefilter(query.lower(), json=is_json).finder(block)
    found, at = [], find(0)
    while at >= 0:
        found.append(at)
        at = find(block.find(b"\n", at) + 1 or len(block))
    return found


def numbers_of_lines(block: bytes, found: list[int]) -> set[int]:
    return {block.count(b"\n", 0, at) for at in found}


def cased() -> Iterator[str]:
    return (character for character in map(chr, range(sys.maxunicode + 1)) if character.lower() != character)


@examples(300)
@given(words, st.data())
@example(("a\\b", "\\b"), None)
@example(("\\", "\\"), None)
def test_a_matching_plain_text_is_never_skipped(pair: tuple[str, str], data: st.DataObject | None) -> None:
    text, query = pair
    if data is not None:
        query = data.draw(st.sampled_from([query, *(text[at : at + 2] for at in range(len(text)))]))
    line = text.replace("\n", "").encode(errors="replace")
    if query and query.lower() in line.decode().lower():
        assert 1 in numbers_of_lines(b"\n" + line, offsets(query, b"\n" + line, is_json=False))


@examples(300)
@given(words, st.data())
def test_a_matching_json_string_is_never_skipped(pair: tuple[str, str], data: st.DataObject) -> None:
    text, query = pair
    query = data.draw(st.sampled_from([query, *(text[at : at + 2].upper() for at in range(len(text)))]))
    line = data.draw(spelled(text)).encode()
    if query and query.lower() in json.loads(line).lower():
        assert 1 in numbers_of_lines(b"\n" + line, offsets(query, b"\n" + line, is_json=True))


@pytest.mark.parametrize("is_json", [True, False])
def test_every_unicode_character_is_found_by_its_lower_case(is_json: bool) -> None:
    for character in cased():
        for query in character.lower():
            assert offsets(query, character.encode(), is_json=is_json) == [0]
            assert offsets(query, f"a{character}a".encode(), is_json=is_json)


def test_every_escaped_unicode_character_is_found_by_its_lower_case() -> None:
    for character in cased():
        escaped = json.dumps(character).encode()
        for query in character.lower():
            assert offsets(query, escaped, is_json=True)
            assert offsets(query, escaped.upper().replace(b"\\U", b"\\u"), is_json=True)


@pytest.mark.parametrize("is_json", [True, False])
def test_a_block_without_the_query_is_skipped(is_json: bool) -> None:
    block = json.dumps({"role": "user", "content": "Grüße"}, ensure_ascii=False).encode() * 100
    for query in ("tea", "königin", "z", "😀", "role: user"):
        assert offsets(query, block, is_json=is_json) == []


def test_no_character_after_the_last_cased_one_has_a_lower_case() -> None:
    assert max(map(ord, cased())) < prefilter._LAST_CASED


@pytest.mark.parametrize("is_json", [True, False])
def test_a_query_longer_than_the_compared_prefix_is_found(is_json: bool) -> None:
    query = "k" * prefilter._LOOKED_AT + "\U00010428"
    for text in (query, query.upper(), query.replace("k", "\u212a")):
        assert offsets(query, b"\n" + text.encode(), is_json=is_json) == [1]
        assert query.lower() in text.lower()
    assert offsets(query, query[: prefilter._LOOKED_AT - 1].encode(), is_json=is_json) == []
