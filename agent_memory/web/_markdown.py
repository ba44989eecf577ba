"""Markdown as HTML, safely: no raw HTML, no images, and only links that a person sees and that reveal no page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table
from markdown_it.token import Token
from markupsafe import Markup

from agent_memory.key.quoting import UNPRINTABLE, printable
from agent_memory.web._text import shown

_MOST_CELLS: Final = 10_000
_CELLS: Final = "cells"
_RULES_OFF: Final = ("html_block", "html_inline", "image", "reference")


def _is_shown_link(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme.lower() in ("http", "https") and bool(parts.netloc) and not UNPRINTABLE.search(url)


class _SafeMarkdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's
        return _is_shown_link(url)


def _text(self: Any, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:  # noqa: ARG001 - the library's
    return str(shown(tokens[number].content))


def _link_open(self: Any, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    token = tokens[number]
    env.setdefault("links", []).append(str(token.attrGet("href")))
    token.attrs = {"href": str(token.attrGet("href")), "rel": "noreferrer noopener nofollow"}
    return str(self.renderToken(tokens, number, options, env))


def _link_close(self: Any, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:  # noqa: ARG001
    """End a link, and show where it leads."""
    return str(Markup('</a> <span class="target">&lt;{}&gt;</span>').format(env["links"].pop()))


def _cell_open(self: Any, tokens: Sequence[Token], number: int, options: Any, env: Any) -> str:
    """Begin a cell; its side is a class, because the content security policy forbids the attribute ``style``."""
    token = tokens[number]
    if side := token.attrs.pop("style", None):
        token.attrs["class"] = f"to-{str(side).removeprefix('text-align:')}"
    return str(self.renderToken(tokens, number, options, env))


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table, unless the text could have more than `_MOST_CELLS` with it: a short row has all columns too."""
    columns = state.src.count("|", state.bMarks[start], state.eMarks[start]) + 1
    used = state.env.get(_CELLS, 0)
    if used + columns * (end - start) > _MOST_CELLS or not table(state, start, end, silent):
        return False
    if not silent:
        state.env[_CELLS] = used + columns * (state.line - start)
    return True


def _renderer() -> MarkdownIt:
    made = _SafeMarkdown("commonmark", {"html": False, "linkify": False, "maxNesting": 20})
    made.enable("table").disable(_RULES_OFF)
    made.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    rules = {
        "text": _text, "link_open": _link_open, "link_close": _link_close, "th_open": _cell_open, "td_open": _cell_open,
    }  # fmt: skip
    for name, rule in rules.items():
        made.add_render_rule(name, rule)
    return made


_markdown: Final = _renderer()


def rendered(text: str) -> Markup:
    """The HTML of a Markdown text; it has no element with an address but links with ``http`` and ``https``."""
    return Markup(_markdown.render(printable(text), {}))  # noqa: S704 - the renderer escapes
