"""Every answer of a conversation counts the lines that hold no message."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory
from agent_memory.conversation import ConversationMemory, MemoryContext, SearchHistoryTool, Skipped
from agent_memory.conversation.memory import MEMORY
from tests.conversation.histories import HISTORY, line
from tests.support.sizes import examples

DAMAGED = [b'{"role": "user", "cont', b"\xff", b"{}", b'{"role": "user"}', line("x")[:-1] + b"x", b"[" * 100_000]
BLANK = [b"", b" \r", b"\t"]


def history(*lines: bytes) -> AgentMemory:
    memory = AgentMemory.open("memory://")
    memory.write(HISTORY, b"\n".join(lines))
    return memory


def test_every_answer_counts_the_damaged_lines() -> None:
    memory = history(DAMAGED[0], line("tea"), *BLANK, *DAMAGED[1:], line("coffee"))
    conversation, skipped = ConversationMemory(memory), Skipped()
    assert conversation.load_history().skipped == len(DAMAGED)
    assert len([*conversation.iter_history(skipped)]) == 2
    assert skipped.count == len(DAMAGED)
    for query, hits in (("tea", 1), ("coffee", 1), ("none", 0)):
        matches = conversation.search(query)
        assert (len(matches), matches.skipped) == (hits, len(DAMAGED))
    assert MemoryContext(conversation).build_messages("", "").skipped == len(DAMAGED)


def test_a_model_is_told_of_damaged_lines() -> None:
    tool = SearchHistoryTool(ConversationMemory(history(DAMAGED[0], line("tea"), DAMAGED[1])))
    found = tool.call({"query": "tea"})
    assert found.output.endswith("\n---")  # the format of the answer is known to other programs
    assert found.data == tool.call({"query": "none"}).data == {"damaged_lines": 2}
    none = "No matches found for 'none'."
    assert tool.call({"query": "none"}).output == f"{none}\n[2 damaged lines of the history left out]"
    assert SearchHistoryTool(ConversationMemory(history(line("tea")))).call({"query": "none"}).output == none


def test_a_byte_order_mark_hides_no_first_message_and_stays() -> None:
    for end in (b"\n", b"\r\n"):
        memory = history(b"\xef\xbb\xbf" + line("tea")[:-1] + end + line("coffee"))
        conversation = ConversationMemory(memory)
        assert [message.content for message in conversation.load_history()] == ["tea", "coffee"]
        assert [message.content for message in conversation.load_history(2)] == ["tea", "coffee"]
        assert (conversation.load_history().skipped, len(conversation.search("TEA"))) == (0, 1)
        conversation.append_message(conversation.load_history()[1])
        assert memory.read_bytes(HISTORY).startswith(b"\xef\xbb\xbf{")


def test_the_document_in_a_prompt_has_no_mark_and_unix_ends() -> None:
    memory = AgentMemory.open("memory://")
    memory.write(MEMORY, b"\xef\xbb\xbfone\r\ntwo")
    (system, _) = MemoryContext(ConversationMemory(memory)).build_messages("Hello.", "Hi.")
    assert system.content == "Hello.\n\n## Your Memory\n\none\ntwo"
    assert ConversationMemory(memory).load_global_memory() == "\ufeffone\r\ntwo"


values = st.text() | st.integers() | st.none()
names = st.sampled_from(["role", "content", "timestamp", "channel", "sender_id", "other"])
times = st.sampled_from(
    ["2026-03-01T12:00:00+00:00", "2026-02-30T12:00:00", "0000-01-01T00:00:00", "2026-03-31T24:00:00"]
)
objects = st.dictionaries(names, values | times).map(lambda value: json.dumps(value, ensure_ascii=False))
messages = st.builds(
    lambda role, content, time, more: json.dumps({"role": role, "content": content, "timestamp": time, **more}),
    st.sampled_from(["user", "tool", "", "User"]),
    st.text(),
    times,
    st.dictionaries(st.sampled_from(["channel", "sender_id"]), values),
)
changes = st.sampled_from([(b"", b""), (b"\\", b"\\x"), (b'"', b""), (b"}", b"}}"), (b"e", b"\xff"), (b": ", b":")])


@examples(300)
@given(st.lists(st.tuples((objects | messages).filter(str.isprintable), changes), max_size=8))
@example([('{"role": "user", "content": "\\q", "timestamp": "2026-03-01T12:00:00"}', (b"", b""))])
@example([('{"role": "user", "content": "é\\n", "timestamp": "2026-03-01T12:00:00"}', (b"", b""))])
def test_the_count_is_that_of_every_line_parsed(rows: list[tuple[str, tuple[bytes, bytes]]]) -> None:
    lines = [row.encode().replace(*change, 1) if change[0] else row.encode() for row, change in rows]
    parsed = Skipped()
    for each in lines:
        parsed.parse(each)
    assert ConversationMemory(history(*lines)).search("in no line").skipped == parsed.count
