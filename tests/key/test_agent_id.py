"""Agent ids: which texts are ids, and how an external id is encoded as an agent id and decoded again."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent_memory import AgentMemoryService, AgentNotFoundError, InvalidAgentIdError, agent_id, external_id
from agent_memory.key import RULES, TEMPORARY_SUFFIX, Key, is_agent_id
from tests.support.loops import looped
from tests.support.sizes import examples

IDS = [
    *("a", "7", "Bob", "agent-1", "agent_1", "team.bob", "bob@example.com", "a+b", "x=3A", "a.b.c", "0==con"),
    *("A" * 128, "console", "con1", "com0", "com10", "a-con", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "0"),
]
NOT_IDS = [
    *("", ".", "..", "-a", "_a", ".a", "@a", "=a", "+a", "a.", "a..b", "a...", "A" * 129),
    *("a b", " a", "a ", "a\n", "\na", "a\0", "a/b", "../a", "a\\b", "/a", "~a", "C:", "a:b", "a|b"),
    *("a%2e", "a*", "a~", "a#", "a,b", "a;b", "(a)", "a$", "a?", "a&b", "a'b", "a!b"),
    *("é", "caf\u00e9", "\u0661", "\uff21", "a\u200d", "a\u0301", "\ud800", "メモ", "\u212a"),
    *("con", "CON", "con.txt", "Nul", "aux.a.b", "prn", "com1", "LPT9", "lpt1.x", "clock$", "conin$"),
]
EXTERNAL = [
    *("slack:C0123", "auth0|5f", "", " ", ".", "..", "...", "a..b", "a.", "con", "nul.txt", "=41", "0==con", "=="),
    *("メモ", "\U0001f680", "a\0b", f"bob{TEMPORARY_SUFFIX}"),
]
FOUND = [*IDS, "bob.agent-memory", f"bob{TEMPORARY_SUFFIX}", f"bob{TEMPORARY_SUFFIX}.x"]


def _id(value: object) -> str:
    return ascii(value)[:60]


def refusal(text: object) -> InvalidAgentIdError:
    with pytest.raises(InvalidAgentIdError) as refused:
        Key.agent(text)  # type: ignore[arg-type]
    return refused.value


@looped("text", IDS)
def test_each_id_names_its_own_tree(text: str) -> None:
    assert is_agent_id(text)
    assert Key.agent(text).storage == f"agent_memory/{text}"
    assert Key.agent(text).path == ""


@looped("text", [*NOT_IDS, None, 7, b"bob", ["bob"]])
def test_a_text_that_is_no_id_is_refused_with_a_valid_suggestion(text: object) -> None:
    assert not is_agent_id(text)
    error = refusal(text)
    assert error.rule == "agent-id"
    assert RULES["agent-id"] in str(error)
    assert repr(error.suggestion) in str(error)
    assert is_agent_id(error.suggestion)


def test_a_refused_id_is_an_invalid_path_and_an_agent_not_found() -> None:
    error = refusal("../a")
    assert isinstance(error, AgentNotFoundError)
    assert isinstance(error, LookupError)
    assert isinstance(error, ValueError)
    assert str(error).startswith("'../a' is not an agent id: ")


def test_the_suggestion_for_a_short_external_id_is_its_encoded_id() -> None:
    assert refusal("slack:C0123").suggestion == agent_id("slack:C0123") == "slack=3AC0123"


def test_a_refused_id_is_shown_escaped_and_cut() -> None:
    assert refusal("a\n\u202e").refused == r"'a\n\u202e'"
    assert refusal("a" * 200).refused == "'" + "a" * 80 + "'..."


# Every id is an agent that can be found.


@looped("text", FOUND)
def test_an_agent_that_can_write_is_listed(text: str) -> None:
    service = AgentMemoryService("memory://")
    try:
        service.write_memory_file(text, "a.md", "text")
    except InvalidAgentIdError:
        assert text not in IDS
        text = agent_id(text)
        service.write_memory_file(text, "a.md", "text")
    assert service.agent_ids() == (text,)
    assert [str(entry) for entry in service.list_memory_files(text)] == ["a.md"]


# Encoding any text as an id.


@looped(
    ("text", "made_of_it"),
    [
        ("slack:C0123", "slack=3AC0123"),
        ("auth0|5f", "auth0=7C5f"),
        ("bob", "bob"),
        ("bob@example.com", "bob@example.com"),
        ("caf\u00e9", "caf=C3=A9"),
        ("a=b", "a=3Db"),
        ("a..b.", "a=2E.b=2E"),
        ("", "0=="),
        ("con", "0==con"),
        ("-a", "0==-a"),
        ("../etc", "0===2E.=2Fetc"),
    ],
)
def test_an_encoded_id_keeps_the_allowed_characters_of_the_text(text: str, made_of_it: str) -> None:
    assert agent_id(text) == made_of_it


@looped("text", [*EXTERNAL, *FOUND])
def test_an_encoded_id_decodes_to_its_external_id(text: str) -> None:
    assert is_agent_id(agent_id(text))
    assert external_id(agent_id(text)) == text


# Short enough to be encoded: a character becomes at most 12 characters, and an id has at most 128.
SHORT = st.text(max_size=10) | st.text("abc.=-:/0\u00e9 CONconul$12", max_size=30)


@examples(500)
@given(SHORT)
def test_any_short_text_encodes_to_an_id_and_decodes_again(text: str) -> None:
    assert is_agent_id(agent_id(text))
    assert external_id(agent_id(text)) == text


@examples(500)
@given(SHORT, SHORT)
def test_different_texts_have_different_ids(one: str, other: str) -> None:
    assume(one != other)
    assert agent_id(one) != agent_id(other)


@examples(500)
@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,127}", fullmatch=True))
def test_only_encoded_ids_decode_to_an_external_id(text: str) -> None:
    try:
        external = external_id(text)
    except InvalidAgentIdError:
        return
    assert agent_id(external) == text


@looped("text", ["=41", "a=41", "a=3a", "a=3", "a=zz", "a=", "0==abc", "a..b", "é", "", "a b", "a=FF", None, 7])
def test_an_id_that_encodes_no_text_is_refused_with_a_suggestion(text: str) -> None:
    with pytest.raises(InvalidAgentIdError) as refused:
        external_id(text)
    assert is_agent_id(refused.value.suggestion)


@looped("text", ["\ud800", "a\udfff", ":" * 42, "a" * 129, "é" * 22, None, 7, b"bob"])
def test_a_text_that_cannot_be_encoded_is_refused_with_a_suggestion(text: str) -> None:
    with pytest.raises(InvalidAgentIdError) as refused:
        agent_id(text)
    assert is_agent_id(refused.value.suggestion)


@looped("text", ["a" + ":" * 42, ":" * 41, "a" * 128, "é" * 20])
def test_a_text_whose_id_just_fits_is_encoded(text: str) -> None:
    assert external_id(agent_id(text)) == text


# Hostile texts.


@looped("shape", ["a", ":", "é", "..", "=3A", "\ud800"])
def test_a_huge_id_is_refused_after_reading_only_its_beginning(shape: str) -> None:
    huge = shape * (2_000_000 // len(shape))
    assert refusal(huge).args == refusal(huge[:200]).args


@looped("ask", [Key.agent, agent_id, external_id])
def test_refusing_a_huge_text_allocates_almost_no_memory(ask: object) -> None:
    huge = ":" * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidAgentIdError):
            ask(huge)  # type: ignore[operator]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
