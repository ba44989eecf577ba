"""The memory tool's two edits, as pure functions of a file's text."""

from __future__ import annotations

from agent_memory.tools._strings import Strings
from agent_memory.tools._views import occurrences
from agent_memory.tools.arguments import shown
from agent_memory.tools.results import ToolRefusal

_SHOWN = 1000


def replaced(text: str, old: str, new: str, path: str, strings: Strings) -> tuple[str, int]:
    """Replace the only occurrence of ``old``; returns the new text and the position of the replacement.

    Raises:
        ToolRefusal: ``old`` is empty, does not occur, or occurs more than once; overlapping occurrences count.
    """
    if not old:
        raise ToolRefusal(strings.empty)
    at = text.find(old)
    echo = old if len(old) <= _SHOWN else shown(old, _SHOWN)
    if at < 0:
        raise ToolRefusal(strings.absent.format(old_str=echo, path=path))
    if text.find(old, at + 1) >= 0:
        raise ToolRefusal(strings.duplicate.format(old_str=echo, lines=occurrences(text, old)))
    return text[:at] + new + text[at + len(old) :], at


def inserted(text: str, line: int, addition: str, strings: Strings) -> str:
    """Insert lines after line ``line``, or at the beginning if it is 0; the result ends with a newline.

    Raises:
        ToolRefusal: ``line`` is negative, or the text has fewer lines.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= line <= len(lines):
        raise ToolRefusal(strings.bad_line.format(line=line, lines=len(lines)))
    lines.insert(line, addition.rstrip("\n"))
    return "\n".join(lines) + "\n"
