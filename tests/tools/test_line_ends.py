r"""A model sees ``\n`` and no byte order mark; the file keeps its own line ends and its mark."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_memory import AgentMemory, AsyncAgentMemory, VersionLimits
from agent_memory.conversation import ConversationMemory, MemoryWriteTool
from agent_memory.tools import AgentMemoryTools, MemorySearch
from agent_memory.tools._model_text import ModelText, shown_part
from agent_memory.tools._toolset import Toolset
from tests.support.sizes import examples
from tests.tools.calls import Call, caller, succeeded

PATH = "/memories/a.md"
MIXED = b"\xef\xbb\xbfone\r\ntwo\nthree\r\nfour\nfive"
line_ends = st.sampled_from(["\n", "\r\n"])
plain_lines = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), line_ends), max_size=9)
lines = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c\r", "\ufeff"]), line_ends), max_size=9)


def stored_text(rows: list[tuple[str, str]]) -> str:
    return "".join(line + end for line, end in rows)


# view


@pytest.mark.parametrize("data", [b"one\r\ntwo\r\n", b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfone\ntwo\r\n"])
def test_a_view_is_that_of_the_same_file_with_unix_ends(memory: AgentMemory, call: Call, data: bytes) -> None:
    memory.write("a.md", data)
    seen = succeeded(call("view", path=PATH))
    memory.write("a.md", b"one\ntwo\n")
    assert seen == succeeded(call("view", path=PATH))


# edits


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("one\ntwo", "1\n2", b"\xef\xbb\xbf1\r\n2\nthree\r\nfour\nfive"),
        ("one", "1\n1.5", b"\xef\xbb\xbf1\r\n1.5\r\ntwo\nthree\r\nfour\nfive"),
        ("one\r\ntwo\r\nthree", "1\r\ntwo\r\n3", b"\xef\xbb\xbf1\r\ntwo\n3\r\nfour\nfive"),
        ("two\nthree\nfour", "two\nnew\nthree\nfour", b"\xef\xbb\xbfone\r\ntwo\nnew\nthree\r\nfour\nfive"),
        ("three\nfour\nfive", "3\nfour\n5\n6", b"\xef\xbb\xbfone\r\ntwo\n3\r\nfour\n5\n6"),
        ("one\ntwo\nthree\n", "", b"\xef\xbb\xbffour\nfive"),
        ("\nthree\n", "\n", b"\xef\xbb\xbfone\r\ntwo\nfour\nfive"),
        ("one\ntwo\nthree\nfour\nfive", "0", b"\xef\xbb\xbf0"),
    ],
)
def test_a_replacement_keeps_the_ends_of_the_other_lines(
    memory: AgentMemory, call: Call, old: str, new: str, after: bytes
) -> None:
    memory.write("a.md", MIXED)
    succeeded(call("str_replace", path=PATH, old_str=old, new_str=new))
    assert memory.read_bytes("a.md") == after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        (0, b"\xef\xbb\xbfx\r\ny\r\none\r\ntwo\nthree\r\nfour\nfive\n"),
        (1, b"\xef\xbb\xbfone\r\nx\r\ny\r\ntwo\nthree\r\nfour\nfive\n"),
        (2, b"\xef\xbb\xbfone\r\ntwo\nx\ny\nthree\r\nfour\nfive\n"),
        (5, b"\xef\xbb\xbfone\r\ntwo\nthree\r\nfour\nfive\nx\ny\n"),
    ],
)
def test_inserted_lines_take_the_end_of_the_line_before(
    memory: AgentMemory, call: Call, line: int, after: bytes
) -> None:
    memory.write("a.md", MIXED)
    succeeded(call("insert", path=PATH, insert_line=line, insert_text="x\r\ny"))
    assert memory.read_bytes("a.md") == after


def test_an_ambiguous_text_is_reported_by_the_lines_that_the_model_sees(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", b"\xef\xbb\xbfa\r\nb\r\na\r\nb\r\n")
    assert "in lines: 1, 3." in call("str_replace", path=PATH, old_str="a\nb", new_str="c").output


@examples(200)
@given(lines, st.text("ab\n", max_size=4), st.text("ab\n", max_size=4), st.sampled_from(["", "\ufeff"]))
@example([("a", "\r\n"), ("b", "\n"), ("a", "\r\n")], "b", "b\nb", "\ufeff")
@example([("\ufeff", "\n")], "\n", "", "\ufeff")
def test_a_replacement_is_that_of_unix_ends_and_keeps_every_line_around_it(
    rows: list[tuple[str, str]], old: str, new: str, mark: str
) -> None:
    memory = AgentMemory.open("memory://")
    before = mark + stored_text(rows)
    memory.write("a.md", before)
    result = caller(memory)("str_replace", path=PATH, old_str=old, new_str=new)
    after = memory.read("a.md")
    shown, now = ModelText(before).text, ModelText(after).text
    if not old or shown.count(old) != 1 or shown.find(old) != shown.rfind(old):
        assert result.is_error
        assert after == before
        return
    if "\r\n" not in shown:  # else a replacement can leave an end of `\r\r\n`, which is seen in another way
        assert now == shown.replace(old, new)
    at = shown.find(old)
    above, below = shown.count("\n", 0, at), shown.count("\n", at + len(old))
    split, split_after = before.split("\n"), after.split("\n")
    assert split_after[:above] == split[:above]
    assert split_after[len(split_after) - below :] == split[len(split) - below :]


@examples(200)
@given(plain_lines, st.lists(st.sampled_from(["a", "b", "x"]), max_size=9))
def test_a_text_is_stored_as_the_model_gave_it_with_line_ends_of_the_file(
    rows: list[tuple[str, str]], new: list[str]
) -> None:
    before, text = stored_text(rows), "\n".join(new)
    stored = ModelText(before).stored(text)
    assert stored.replace("\r\n", "\n") == text
    if {end for _, end in rows} == {"\r\n"}:
        assert stored.count("\n") == stored.count("\r\n")
    assert ModelText(before).stored(ModelText(before).text) == before


def test_an_edit_of_many_lines_takes_bounded_time(memory: AgentMemory, call: Call) -> None:
    memory.write("a.md", b"x\r\ny\n" * 100_000)
    succeeded(call("insert", path=PATH, insert_line=100_000, insert_text="new\n" * 50_000))
    assert memory.read_bytes("a.md") == b"x\r\ny\n" * 50_000 + b"new\n" * 50_000 + b"x\r\ny\n" * 50_000


@pytest.mark.parametrize("new", ["a\r\nb", "\r", "a\r"])
def test_a_file_with_unix_ends_gets_the_bytes_that_the_model_gave(memory: AgentMemory, call: Call, new: str) -> None:
    memory.write("a.md", b"one\ntwo\n")
    succeeded(call("str_replace", path=PATH, old_str="one", new_str=new))
    assert memory.read("a.md") == f"{new}\ntwo\n"


# whole files


def by_create(memory: AgentMemory, text: str) -> None:
    succeeded(caller(memory, on_existing="overwrite")("create", path=PATH, file_text=text))


def by_base64(memory: AgentMemory, text: str) -> None:
    content = base64.b64encode(text.encode()).decode()
    succeeded(
        AgentMemoryTools(memory).call("write_agent_memory_file", {"file_path": "a.md", "content_base64": content})
    )


@pytest.mark.parametrize("write", [by_create, by_base64])
def test_a_replaced_file_keeps_its_ends_and_its_mark(
    memory: AgentMemory, write: Callable[[AgentMemory, str], None]
) -> None:
    memory.write("a.md", b"\xef\xbb\xbfone\r\ntwo\r\n")
    write(memory, "1\n2\n3\n")
    assert memory.read_bytes("a.md") == b"\xef\xbb\xbf1\r\n2\r\n3\r\n"
    write(memory, "\ufeff1\r\nlast")
    assert memory.read_bytes("a.md") == b"\xef\xbb\xbf1\r\nlast"


@pytest.mark.parametrize("write", [by_create, by_base64])
@pytest.mark.parametrize("old", [None, b"one\n", b"\xff\r\n"])
def test_a_new_file_and_one_without_such_ends_get_the_bytes_of_the_model(
    memory: AgentMemory, write: Callable[[AgentMemory, str], None], old: bytes | None
) -> None:
    if old is not None:
        memory.write("a.md", old)
    write(memory, "1\r\n2\n")
    assert memory.read_bytes("a.md") == b"1\r\n2\n"


def test_the_memory_document_keeps_its_ends(memory: AgentMemory) -> None:
    memory.write("workspace/MEMORY.md", b"one\r\n")
    succeeded(MemoryWriteTool(ConversationMemory(memory)).call({"content": "1\n2\n"}))
    assert memory.read_bytes("workspace/MEMORY.md") == b"1\r\n2\r\n"


# append


def by_append(memory: AgentMemory, text: str) -> None:
    succeeded(asyncio.run(Toolset(memory.as_async()).call("append", {"path": PATH, "text": text})))


def by_base64_append(memory: AgentMemory, text: str) -> None:
    content = base64.b64encode(text.encode()).decode()
    arguments = {"file_path": "a.md", "content_to_append_base64": content}
    succeeded(AgentMemoryTools(memory).call("append_to_agent_memory_file", arguments))


@pytest.mark.parametrize("append", [by_append, by_base64_append])
@pytest.mark.parametrize(
    ("old", "text", "after"),
    [
        (b"a\r\n", "b\nc\n", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb", "c\r\nd", b"a\r\nb\r\nc\r\nd"),
        (b"a\nb\r\n", "c\n", b"a\nb\r\nc\r\n"),
        (b"a\r\nb\n", "c\n", b"a\r\nb\nc\n"),
        (b"a\r\nb\nc", "d", b"a\r\nb\nc\nd"),
        (b"\r\n" + b"x" * 60_000, "d", b"\r\n" + b"x" * 60_000 + b"\r\nd"),
        (b"a", "b\r\n", b"a\nb\r\n"),
        (b"", "b\r\n", b"b\r\n"),
    ],
)
def test_appended_lines_take_the_end_of_the_last_line(
    memory: AgentMemory, append: Callable[[AgentMemory, str], None], old: bytes, text: str, after: bytes
) -> None:
    memory.write("a.md", old)
    append(memory, text)
    assert memory.read_bytes("a.md") == after


# other readers


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("text", ["\ufeffa\r\n\r\nbé\r\r\nc\r\n", "a\r", "\r\n" * 7, "🧠\r\n🧠"])
def test_the_parts_of_a_file_give_its_text(memory: AgentMemory, text: str, limit: int) -> None:
    memory.write("a.md", text)
    tools, found, offset = AgentMemoryTools(memory), b"", 0
    while True:
        arguments = {"file_path": "a.md", "offset": offset, "limit": limit}
        answer = tools.call("read_agent_memory_file", arguments).data
        assert answer is not None
        found += base64.b64decode(str(answer["content_base64"]))
        if not answer.get("truncated"):
            break
        offset = int(str(answer["next_offset"]))
    mark = "\ufeff" if limit < 3 else ""  # a part of it is no mark
    assert found.decode().removeprefix(mark) == ModelText(text).text


def test_a_part_that_is_no_text_is_returned_as_it_is() -> None:
    data = b"\x89PNG\r\n\x1a\n"
    assert shown_part(data, 0, 100) == (data, len(data))
    assert shown_part(b"\xa9\r\n", 5, 100) == (b"\xa9\n", 3)
    assert shown_part(b"\xa9\r\n", 0, 100) == (b"\xa9\r\n", 3)


def test_a_search_sees_no_mark_and_no_carriage_return(memory: AgentMemory) -> None:
    memory.write("a.md", b"\xef\xbb\xbfone\r\ntwo\r\n")
    (match,) = MemorySearch(memory).search("^one$", regex=True, context=1).matches
    assert (match.line, match.text, match.after) == (1, "one", ["two"])
    (match,) = MemorySearch(memory).search("two", context=1).matches
    assert (match.line, match.before, match.text) == (2, ["one"], "two")


def test_an_earlier_version_is_shown_as_the_file_was(memory: AgentMemory) -> None:
    memory.versions.set_limits(VersionLimits())
    memory.write("a.md", b"\xef\xbb\xbfone\r\n")
    memory.write("a.md", b"two")
    (_, old) = memory.versions.list("a.md")
    tools = Toolset(memory.as_async())
    shown = succeeded(asyncio.run(tools.call("memory_versions", {"path": PATH, "version": old.id})))
    assert shown == "one\n"


def test_the_program_reads_and_writes_bytes(memory: AgentMemory) -> None:
    memory.write("a.md", MIXED)
    assert memory.read("a.md").encode() == MIXED
    memory.append("a.md", "\nsix", separator="\n")
    memory.edit("a.md", lambda text: text.replace("two\n", "2\n"))
    assert memory.read_bytes("a.md") == MIXED.replace(b"two", b"2") + b"\n\nsix"


def test_an_async_tool_translates_too() -> None:
    async def run() -> bytes:
        memory = AsyncAgentMemory.open("memory://")
        await memory.write("a.md", b"one\r\n")
        await Toolset(memory).call("insert", {"path": PATH, "insert_line": 1, "insert_text": "two"})
        return await memory.read_bytes("a.md")

    assert asyncio.run(run()) == b"one\r\ntwo\r\n"


@pytest.mark.parametrize("text", ["a\n\n", "\n", "\n\n", "a\r\n\r\n", "a\n\n\n"])
def test_an_insert_keeps_blank_lines_at_the_end(memory: AgentMemory, call: Call, text: str) -> None:
    memory.write("a.md", text)
    succeeded(call("insert", path=PATH, insert_line=0, insert_text="x"))
    end = "\r\n" if "\r" in text else "\n"
    assert memory.read("a.md") == f"x{end}{text}"
