"""Hypothesis strategies for histories: all forms of a JSON line, and many lines that are no JSON."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import strategies as st

NOW: Final = datetime.fromtimestamp(time.time(), UTC)
RECENT: Final = NOW - timedelta(days=1)
OLD: Final = NOW - timedelta(days=10)
BETWEEN: Final = (NOW - timedelta(days=5)).timestamp()

# Letters that are (part of) another letter's lower case, or that JSON must or may escape.
FAMILIES: Final = (
    "kK\u212a",
    "sS\u017f\xdf\u1e9e",
    "iI\u0130\u0131\u0307",
    "a \u03c3\u03c2\u03a3",
    "aA\u030a\xe5\xc5\u212b",
    "\u01c4\u01c5\u01c6\u02bcn",
    "\u03c9\u03a9\u2126",
    "\u0587\ufb01fi",
    "\U0001f600\U00010400\U00010428",
    "\ud83d\ude00\ud801\udc28\U0001f600",
    '"\\/k ',
    "\b\f\n\r\t\0 ",
    "u\\n/0b",
    "\u2028\x85\xa0 \ufffd",
)
SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def escaped(character: str) -> str:
    """A character as one or two ``\\u`` escapes."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """A JSON string of a text, each character in one of its possible escapes."""
    return '"' + "".join(draw(st.sampled_from(spellings(character))) for character in text) + '"'


def spellings(character: str) -> list[str]:
    lower = escaped(character)
    found = [lower, "\\u".join(part.upper() for part in lower.split("\\u"))]
    if character in SHORT:
        found.append("\\" + SHORT[character])
    if character == "/" or not (character in SHORT or character < " " or "\ud800" <= character <= "\udfff"):
        found += [character] * 3
    return found


timestamps = st.sampled_from(
    [
        RECENT.isoformat(),
        RECENT.replace(tzinfo=None).isoformat(),
        RECENT.isoformat().replace("+00:00", "Z"),
        RECENT.astimezone().isoformat(),
        OLD.isoformat(),
        OLD.date().isoformat(),
        "2026-13-01",
        "\ud800",
    ]
)
roles = st.sampled_from(
    ['"user"'] * 6
    + ['"assistant"'] * 3
    + ['"\\u0075ser"', '"assistan\\u0074"', '"tool"', '"system"', '"User"', '""', '"user "', "null"]
)
role_names = st.sampled_from(['"role"', '"r\\u006Fle"'])
spaces = st.sampled_from(["", "", " ", "\t ", "\r"])
extras = st.sampled_from(
    [
        '"channel": "k\\u004b"',
        '"sender_id": "\\ud83d\\ude00"',
        '"channel": 5',
        '"tool_calls": []',
        '"tool_calls": null',
        '"tool_calls": "k"',
        '"unknown": {"content": "k"}',
        '"content": "twice k"',
        '"content": null',
        '"role": "user"',
    ]
)


@st.composite
def objects(draw: st.DrawFn, letters: str) -> str:
    """A JSON object that is a message or almost one."""
    members = [
        f"{draw(role_names)}: {draw(roles)}",
        f'"content": {draw(st.text(letters, max_size=6).flatmap(spelled))}',
        f'"timestamp": {json.dumps(draw(timestamps))}',
    ]
    members += draw(st.lists(extras, max_size=2))
    if draw(st.integers(0, 9)) == 0:
        members.pop(draw(st.integers(0, 2)))
    order = draw(st.permutations(members))
    space = draw(spaces)
    return space + "{" + f",{space}".join(order) + "}" + space


blanks = st.sampled_from([b"", b" ", b"\r", b"\t\x0b"])
garbage = st.one_of(
    st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([b"null", b"[]", b'"k"', b"{", b"\xef\xbb\xbf{}", b"\x00", b"[" * 3000, b"1" * 5000, b"{} {}"]),
)


@st.composite
def lines(draw: st.DrawFn, letters: str) -> bytes:
    """A line without its newline: mostly a message, else torn, doubled, other bytes, blank or garbage."""
    kind = draw(st.sampled_from(["message"] * 12 + ["torn", "two", "other bytes", "blank", "garbage"]))
    if kind == "blank":
        return draw(blanks)
    if kind == "garbage":
        return draw(garbage)
    line = draw(objects(letters)).encode()
    if kind == "torn":
        return line[: draw(st.integers(0, len(line)))]
    if kind == "other bytes":
        return line.replace(b"k", b"\xff").replace(b'{"', b'{"\xe9')
    return line * 2 if kind == "two" else line


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, str]:
    """The bytes of a history, and a query of the same letters as its messages."""
    letters = draw(st.sampled_from(FAMILIES))
    line = st.tuples(lines(letters), st.sampled_from([b"\n", b"\n", b"\r\n"]), st.integers(1, 2))
    data = b"".join((line + end) * times for line, end, times in draw(st.lists(line, max_size=8)))
    if draw(st.booleans()):
        data = data.removesuffix(b"\n")
    begin = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]))
    return begin + data, draw(st.text(letters, min_size=1, max_size=3))
