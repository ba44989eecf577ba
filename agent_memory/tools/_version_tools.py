"""Two more tools over one memory, for a store that keeps versions: list and show them, and restore one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.states import FileVersion
from agent_memory.errors import FileAlreadyExistsError, InvalidPathError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._model_text import ModelText
from agent_memory.tools._paths import ROOT, Paths
from agent_memory.tools._protected import for_tools
from agent_memory.tools._schema import CommandSchema
from agent_memory.tools._strings import STRINGS
from agent_memory.tools.arguments import Parameter, Values, checked, shown
from agent_memory.tools.results import MAX_CHARACTERS, ToolRefusal, ToolResult, answered, cut

_SHOWN: Final = 20
_PATH: Final = "A file below /memories; it may be deleted."

VERSION_TOOLS: Final[dict[str, CommandSchema]] = {
    "memory_versions": CommandSchema(
        "List the earlier versions of a file, newest first, or without path the versions of all files that were "
        "replaced or deleted last; or show the text of one version.",
        {
            "path": Parameter("string", f"{_PATH} Default: all files.", required=False),
            "version": Parameter("string", "Show the text of this version of the file.", required=False),
            "after": Parameter("string", "Continue the list after this version.", required=False),
        },
    ),
    "memory_restore": CommandSchema(
        "Write the text of an earlier version as the current file; the current text becomes a version itself.",
        {
            "path": Parameter("string", _PATH),
            "version": Parameter("string", "The id of the version, from memory_versions."),
        },
    ),
}
"""The description of each tool for the model, and its parameters."""


class VersionTools:
    """The tools of `VERSION_TOOLS` over one memory; for ``history`` see `MemoryTool`."""

    def __init__(self, memory: AsyncAgentMemory, history: bool = False, conversation: bool = True) -> None:
        self._memory = for_tools(AsyncAgentMemory, memory, history, conversation)
        self._paths = Paths(memory, STRINGS["docs"])

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run one of `VERSION_TOOLS`; never raises for bad input from a model."""
        return await answered(lambda: self._run(name, arguments))

    async def _run(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        values = checked(arguments, VERSION_TOOLS[name].parameters)
        path, file = await self._paths.named(values.get("path", ROOT))
        try:
            if "version" not in values:
                return await self._list(path, file, values)
            if not file:
                raise ToolRefusal("Error: a version is of one file: give its path")
            version = shown(str(values["version"]))
            return await (self._restore if name == "memory_restore" else self._show)(path, file, version)
        except InvalidPathError as error:
            raise self._paths.refused(error) from error

    async def _list(self, path: str, file: str, values: Values) -> ToolResult:
        after = None if "after" not in values else shown(str(values["after"]))
        found = await self._memory.versions.list(file, limit=_SHOWN, after=after)
        lines = [_line(version) for version in found]
        if len(found) == _SHOWN:
            lines.append(f"[There may be more: call again with after={found[-1].id}]")
        if not lines and await self._memory.versions.limits() is None:
            lines = ["This store keeps no versions."]
        return ToolResult("\n".join(lines) or f"No versions of {path} are kept.")

    async def _show(self, path: str, file: str, version: str) -> ToolResult:
        text = ModelText(await self._memory.versions.read(file, version)).text
        return ToolResult(cut(text, MAX_CHARACTERS) or f"Version {version} of {path} is empty.")

    async def _restore(self, path: str, file: str, version: str) -> ToolResult:
        try:
            await self._memory.versions.restore(file, version)
        except FileAlreadyExistsError as error:
            raise ToolRefusal(f"Error: {path}: {error.args[0]}") from None
        return ToolResult(f"{path} has the text of version {version} again.")


def _line(version: FileVersion) -> str:
    end = f"until {_by(version.ended_by)}" if version.ended_by else "present"
    size = "redacted" if version.redacted_by else f"{version.size:,} bytes"
    return f"{version.id or '-'}  {ROOT}/{version.path}  {size}  {_by(version.made_by)}  {end}"


def _by(by: MadeBy | None) -> str:
    if by is None:
        return "unknown"
    moment = datetime.fromtimestamp(by.time, UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC {by.operation} {shown(by.actor) if by.actor else '-'}"
