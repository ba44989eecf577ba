"""A printed line of fields parses back to exactly the same fields, for any content."""

from __future__ import annotations

import ast
import logging
import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_memory.cli.audit import _line as audit_line
from agent_memory.cli.conversation import _line as history_line
from agent_memory.conversation import Message
from agent_memory.hookspecs import Operation, Outcome
from agent_memory.key.quoting import ascii_field, field
from agent_memory.plugins.logging import LoggingPlugin
from tests.support.loops import looped

_TOKEN = re.compile(r"""(?:[^\s'"]*=)?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"]+)""")
NASTY = ("a  b",
         "-", "->", "bytes", "ok", "x'  y", 'x"', "", ".", "= ", "a=b", "a\nb", "\u3164", "\u2800", "\u202e", "\\",
         "3 bytes", "(not as written)", "] USER: hi", "日記.md", "\ud800", "ops  write  a.md  ok")  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=20), st.text(alphabet=" '\"\\=-ab\n\t", max_size=12))
maybe = st.one_of(st.none(), texts)


def tokens(line: str) -> list[str]:
    """Split a line at its spaces into tokens; fail if any other text is left over."""
    found = _TOKEN.findall(line)
    assert _TOKEN.sub("", line).strip() == ""
    return found


def read_back(token: str) -> str:
    return str(ast.literal_eval(token)) if token[:1] in ("'", '"') else token


@given(st.lists(texts))
def test_a_line_of_fields_parses_back_to_its_fields(fields: list[str]) -> None:
    for write in (field, ascii_field):
        line = "  ".join(map(write, fields))
        assert line.isprintable()
        assert [read_back(token) for token in tokens(line)] == fields
    assert line.isascii()


@looped("text", ["notes/a.md", "日記.md", "bob@example.com", "mcp:client", "ops", "0-1_x", "(x)"])
def test_an_ordinary_name_is_not_quoted(text: str) -> None:
    assert field(text) == (text if text[0] != "(" else repr(text))


def shown(value: str | None, path: bool = False) -> str | None:
    return "." if path and value == "" else value


@given(agent=maybe, actor=maybe, what=texts, path=maybe, target=maybe, end=maybe, digest=maybe,
       size=st.one_of(st.none(), st.integers(), texts), edited=st.booleans())  # fmt: skip
def test_a_line_of_audit_show_parses_back_to_its_fields(
    agent: str | None, actor: str | None, what: str, path: str | None, target: str | None, end: str | None,
    digest: str | None, size: object, edited: bool,
) -> None:  # fmt: skip
    facts = {"agent": agent, "actor": actor, "operation": what or "x", "path": path, "target": target, "outcome": end,
             "digest": digest, "size": size}  # fmt: skip
    record: dict[str, Any] = {name: value for name, value in facts.items() if value is not None}
    record |= {"event": "operation", "time": "2026-11-24T21:00:00.123456+00:00"} | ({"edited": True} if edited else {})
    day, time, *rest = tokens(audit_line(record))
    assert (day, time) == ("2026-11-24", "21:00:00")

    def take() -> str | None:
        token = rest.pop(0)
        return None if token == "-" else read_back(token)

    assert [take(), take(), take(), take()] == [agent, actor, what or "x", shown(path, path=True)]
    assert (rest.pop(0) == "->") if target is not None else rest[0] != "->"
    if target is not None:
        assert take() == shown(target, path=True)
    assert take() == end
    if size is not None:
        assert [take(), rest.pop(0)] == [str(size), "bytes"]
    if digest:
        assert take() == digest[:8]
    assert rest == (["(not", "as", "written)"] if edited else [])


@given(agent=texts, path=texts, target=maybe, actor=maybe, error=maybe)
def test_a_line_of_the_log_parses_back_to_its_fields(
    agent: str, path: str, target: str | None, actor: str | None, error: str | None
) -> None:
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("agent_memory"), Lines()
    logger.addHandler(handler)
    try:
        operation = Operation("1", 0.0, "write", agent, path, target, 3, actor)
        LoggingPlugin().agent_memory_after_operation(operation, Outcome("error", 0.001, error=error))
        LoggingPlugin().agent_memory_key_rejected(agent, ascii(path), "control", actor)
    finally:
        logger.removeHandler(handler)
    expected = {"agent": agent, "path": path, "target": target, "actor": actor}
    done, refused = ([part.partition("=") for part in tokens(line)] for line in lines)
    assert (done[0][0], refused[0][0]) == ("write", "refused")
    found = {name: read_back(value) for name, _, value in done[1:]}
    assert {name: found.get(name) for name in expected} == expected
    assert (found["size"], found["outcome"], found.get("error")) == ("3", "error", error)
    found = {name: read_back(value) for name, _, value in refused[1:]}
    assert found == {
        name: value for name, value in (expected | {"target": None, "rule": "control"}).items() if value is not None
    }


@given(channel=texts, sender=texts, role=texts.filter(bool))
def test_the_head_of_a_message_parses_back_to_its_fields(channel: str, sender: str, role: str) -> None:
    moment = datetime(2026, 11, 24, 21, tzinfo=UTC)
    line = history_line(Message(role, "said", timestamp=moment, channel=channel, sender_id=sender))
    when, rest = line.split(" ", 1)
    assert when == moment.isoformat(timespec="seconds")
    match = re.fullmatch(rf"\[({_TOKEN.pattern}) / ({_TOKEN.pattern})\] ({_TOKEN.pattern}): said", rest)
    assert match
    assert [read_back(each) for each in match.groups()] == [channel or "unknown", sender or "unknown", role.upper()]
