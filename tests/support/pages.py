"""The code blocks of a page of Markdown, run in order, and what they print compared with what the page shows.

The first line of a block says how it is run:

- ```` ```python ```` is a program of its own; a ```` ```text ```` block directly after it shows what it prints.
- ```` ```python title="bot.py" ```` is saved under that name.
- ```` ```python ```` with any other word is run by another test.
- ```` ```console ```` is a session of the shell: commands (``$ …``), each followed by what it prints.

``…`` in shown text stands for any text. Ids in hexadecimal digits are compared as if they were equal, and so are times.
Other blocks are not run.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import sizes
from tests.support.shell import output_of

_FENCE = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_ID = re.compile(r"\b[0-9a-f]{8,64}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?")
_USER = "ann"  # the actor of the sessions
_OTHERS = ("AGENT_MEMORY_", "PYTEST", "PY_COLORS", "FORCE_COLOR")  # variables that change what a session prints
_END = "--- the end of a command: "
_PROGRAMS = tempfile.TemporaryDirectory()


class Block(NamedTuple):
    """A fenced block; ``shown`` is the text block directly after it, ``line`` the number of its first line."""

    language: str
    info: str
    code: str
    line: int
    shown: str | None = None

    @property
    def title(self) -> str | None:
        """The name of the file that the block shows."""
        found = _TITLE.search(self.info)
        return found[1] if found else None


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks, in order."""
    fences = list(_FENCE.finditer(text))
    found = []
    for fence, after in zip_longest(fences, fences[1:]):
        block = Block(fence[1], fence[2] or "", fence[3], text.count("\n", 0, fence.start()) + 1)
        if after and after[1] == "text" and not text[fence.end() : after.start()].strip():
            block = block._replace(shown=after[3])
        found.append(block)
    return found


def matches(printed: str, shown: str) -> bool:
    """Whether a printed text is the one shown, in which ``…`` stands for any text."""
    parts = [re.escape(part) for part in _tidy(shown).split("…")]
    return re.fullmatch(".*?".join(parts), _tidy(printed), re.DOTALL) is not None


def check(page: Path) -> None:
    """Run a page's blocks in the current directory; in a long run, then its Python programs a second time."""
    blocks = blocks_of(page.read_text())
    for block in blocks:
        where = f"{page.name}:{block.line}"
        if block.title is not None:
            Path(block.title).write_text(block.code)
        elif block.language == "console":
            for command, printed, shown in session(block.code):
                _compare(f"{where}: {command}", printed, shown)
        elif _is_program(block):
            _compare(where, _executed(block, page), block.shown or "")
    if sizes.is_long:
        for block in filter(_is_program, blocks):
            _executed(block, page)


def session(code: str) -> Iterator[tuple[str, str, str]]:
    """Run the commands of a console block in one shell: each command, what it prints, and what the block shows.

    A command that fails has to print ``Error:`` first.
    """
    parts = [part.partition("\n") for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]]
    script = "".join(f"{command}\necho {_END}$?\n" for command, _, _ in parts)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OTHERS)}
    with tempfile.TemporaryDirectory() as programs:
        output = output_of(script, {**kept, "LOGNAME": _USER}, Path(programs))
    results = re.findall(rf"(.*?){_END}(\d+)\n", output, re.DOTALL)
    for (command, _, shown), (printed, status) in zip(parts, results, strict=True):
        assert status == "0" or printed.startswith("Error:"), f"{command}\n{printed}"
        yield command, printed, shown


def _is_program(block: Block) -> bool:
    return (block.language, block.info) == ("python", "")


def _executed(block: Block, page: Path) -> str:
    """What a program prints; it is imported as a module, so that a failing assert shows its values."""
    name = f"example_{re.sub('[^a-z0-9]', '_', page.stem.lower())}_{block.line}"
    # The line numbers of a traceback are those of the page.
    Path(_PROGRAMS.name, f"{name}.py").write_text("\n" * block.line + block.code)
    pytest.register_assert_rewrite(name)
    printed = io.StringIO()
    sys.path.insert(0, _PROGRAMS.name)
    importlib.invalidate_caches()
    try:
        with redirect_stdout(printed):
            importlib.import_module(name)
    finally:
        sys.path.remove(_PROGRAMS.name)
        sys.modules.pop(name, None)
    return printed.getvalue()


def _compare(where: str, printed: str, shown: str) -> None:
    assert matches(printed, shown), f"{where} printed\n{printed}\nand the page shows\n{shown}"


def _tidy(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.strip().splitlines())
    return _TIME.sub("<time>", _ID.sub("<id>", lines))
