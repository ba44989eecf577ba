"""Paths of a model, below ``/memories``: conversion to names within a memory, and the answers to bad paths."""

from __future__ import annotations

import re
from typing import Final

from agent_memory.errors import InvalidPathError, PathTraversalError
from agent_memory.key import RULES
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._strings import Strings
from agent_memory.tools.arguments import shown
from agent_memory.tools.results import ToolRefusal

ROOT: Final = "/memories"
_QUOTED = re.compile(r"""^['"](.*)['"]""")


class Paths:
    """The paths of one memory, which the model sees as ``/memories``."""

    def __init__(self, memory: AsyncAgentMemory, strings: Strings) -> None:
        self._memory = memory
        self._strings = strings

    async def named(self, value: object) -> tuple[str, str]:
        """Convert a model's path to the path to show and the name within the memory, ``""`` for the root.

        Raises:
            ToolRefusal: the path is not ``/memories`` and not below it. An attempt to escape is reported to the hooks.
        """
        path = str(value)
        if path != ROOT and not path.startswith(ROOT + "/"):
            if path.startswith(("/", "\\")) or ".." in path:
                await self._report(path)
            raise ToolRefusal(self._strings.outside.format(path=shown(path)))
        name = path[len(ROOT) :].strip("/")
        if name in ("", "."):
            return ROOT, ""
        return f"{ROOT}/{name}", name

    async def _report(self, path: str) -> None:
        try:
            await self._memory.exists("/" + path.lstrip("/"))  # raises before any I/O; the hooks get the path
        except InvalidPathError:
            return

    def refused(self, error: InvalidPathError) -> ToolRefusal:
        """The answer to the model for a name within the memory that was refused."""
        if error.rule == "symlink":
            return ToolRefusal(self._strings.symlink)
        if error.rule == "into-itself":
            return ToolRefusal(f"{self._strings.prefix}{RULES[error.rule]}")
        path = f"{ROOT}/" + _QUOTED.sub(r"\1", error.refused)
        advice = f"; try {ROOT}/{error.suggestion}" if error.suggestion else ""
        if isinstance(error, PathTraversalError):
            return ToolRefusal(self._strings.escape.format(path=path, advice=advice))
        return ToolRefusal(f"{self._strings.prefix}The path {path} is refused: {RULES[error.rule]}{advice}")
