"""`parse_json`: parses JSON that another program may have written, with a bound on its nesting."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NoReturn

MOST_LEVELS: Final = 256
"""The maximum nesting of a JSON text that is parsed, and therefore of one that is stored."""
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_STRING: Final = re.compile(r'"[^"]*"?')
_NO_BRACKETS: Final = re.compile(r"[^][{}]+")
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse_json(
    data: str | bytes,
    *,
    parse_constant: Callable[[str], Any] | None = None,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parse a JSON text, in UTF-8 if it is bytes; a byte order mark of bytes is left out.

    The parser of Python goes as deep as the interpreter's recursion limit allows. A garbage collection can happen at
    that depth, and then the finalizers of objects elsewhere in the process fail: a dropped connection stays open.

    Args:
        data: the text.
        parse_constant: see `json.loads`.
        object_pairs_hook: see `json.loads`.

    Raises:
        ValueError: the text is not JSON, or is nested deeper than `MOST_LEVELS`.
    """
    text = data if isinstance(data, str) else data.removeprefix(BOM_UTF8).decode()  # needs no codec of a file
    require_levels(text)
    return json.loads(text, parse_constant=parse_constant, object_pairs_hook=object_pairs_hook)


def refuse_constant(name: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``: Python parses them, but they are not JSON."""
    raise ValueError(f"{name} is not JSON")


def require_levels(text: str) -> None:
    """Require that a JSON text is nested at most `MOST_LEVELS` deep; raises `ValueError`."""
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return
    # one pass for each pattern: a pattern of strings with escapes would keep a place of each escape in memory
    brackets = _NO_BRACKETS.sub("", _STRING.sub("", _ESCAPE.sub("", text)))
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MOST_LEVELS:
        raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
