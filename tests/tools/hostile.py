"""Values that a hostile or broken model may send."""

from __future__ import annotations

import math
from typing import Any, Final

HUGE: Final = 50_000_001  # one more than the largest number of bytes of one write
HUGE_TEXT: Final = "a" * HUGE

NO_TEXTS: Final[tuple[object, ...]] = (
    None,
    True,
    0,
    -1,
    10**4000,
    1.5,
    math.nan,
    b"bytes",
    [],
    ["/memories/a.md"],
    {},
    {"path": "/memories/a.md"},
    [[[[[]]]]],
    object(),
)
NO_INTEGERS: Final[tuple[object, ...]] = (None, True, False, "1", 1.0, math.inf, [1], {}, b"1", object())
NO_RANGES: Final[tuple[object, ...]] = (
    "1-2",
    1,
    True,
    {},
    ["1", "2"],
    [1.0, 2.0],
    [True, False],
    [1, None],
    [[1], [2]],
    b"12",
    {1, 2},
)

BAD_NAMES: Final[tuple[str, ...]] = (
    "../a.md",
    "..",
    "d/../../a.md",
    "..\\a.md",
    "d\\..\\..\\a.md",
    "%2e%2e/a.md",
    "%2E%2E%2Fa.md",
    "%252e%252e%252fa.md",
    "..%c0%af..%c0%afetc",
    "%u002e%u002e/a.md",
    "&#46;&#46;/a.md",
    "．．/a.md",
    "․․/a.md",
    "..\u200b/a.md",
    "\u202e..\u202c/a.md",
    "a\x00.md",
    "a.md\x00.png",
    "a\nb",
    "\x1b[2J",
    "\ud800",
    "\udcff.md",
    "\u202efdp.md",
    "con",
    "nul.txt",
    "COM1",
    "a.md::$DATA",
    "C:/Windows",
    "~/a.md",
    "~root",
    ".agent-memory/audit.jsonl",
    ".Agent-Memory/x",
    "x.agent-memory-tmp",
    "trailing.",
    " space",
    "a\u0301.md",
    "|rm -rf",
    "a" * 241,
    "a/" * 33 + "a",
    HUGE_TEXT,
    "../" * 10_000 + "etc/passwd",
)
"""None of these is a valid file name below any directory."""

ABSOLUTE: Final[tuple[str, ...]] = (
    "/",
    "/etc/passwd",
    "//memories/a.md",
    "/memoriesX/a.md",
    "/memories2/evil.txt",
    "/memories\\a.md",
    "/memories\x00/a.md",
    "/Memories/a.md",
    " /memories/a.md",
    "file:///memories/a.md",
    "C:\\memories\\a.md",
    "\\\\host\\share",
    "/proc/self/environ",
    "/dev/null",
    "/" * HUGE,
)
"""Paths that lead outside any directory."""

RELATIVE: Final[tuple[str, ...]] = ("", "a.md", "memories/a.md", "{path}", "%s%n", "./memories", "x" * 100)
"""Paths that are not below ``/memories``."""

NO_ARGUMENTS: Final[tuple[object, ...]] = (
    None,
    3,
    True,
    1.5,
    [],
    ["view"],
    object(),
    {1: 2, None: 3},
    {"command": None},
    b"\xff",
    bytearray(b"{}"),
    "",
    "view",
    "null",
    "[]",
    "3",
    '"view"',
    "{",
    "{}{}",
    '{"command": "view", "path": }',
    "\ufeff{}",
    "\ud800",
    "[" * 100_000,
    '{"command":' * 100_000,
    '{"command": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "1" * 10_000,
    '{"insert_line": ' + "1" * 10_000 + "}",
    '"' + HUGE_TEXT,
)


class Liar(str):
    """A str whose methods report another text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "/memories/../../etc/passwd"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("view")

    def startswith(self, *_: Any) -> bool:
        return True

    def strip(self, *_: Any) -> str:
        return "notes.md"


class Failing(str):
    """A str whose methods raise."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("a secret")

    def __len__(self) -> int:
        raise RuntimeError("a secret")


STRANGERS: Final[tuple[object, ...]] = (
    Liar("/memories/a.md"),
    Liar("../a.md"),
    Failing("/memories/a.md"),
    10**5000,
    type("x" * 5000, (), {})(),
)
"""Values that JSON cannot hold; only code can pass them."""
