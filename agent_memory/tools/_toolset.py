"""One memory as separate tools: the memory tool's six commands, append, search, and two tools for versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.states import FileVersion
from agent_memory.errors import FileAlreadyExistsError, InvalidPathError
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools._model_text import ModelText, appending
from agent_memory.tools._paths import ROOT, Paths
from agent_memory.tools._protected import for_tools
from agent_memory.tools._schema import COMMANDS, CommandSchema
from agent_memory.tools._strings import STRINGS
from agent_memory.tools._warnings import warned
from agent_memory.tools.arguments import Parameter, Values, checked, shown
from agent_memory.tools.memory_tool import AsyncMemoryTool
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolRefusal, ToolResult, answered, cut
from agent_memory.tools.search import MAX_CONTEXT, MAX_RESULTS, LineSearch, fitting

TOOLS: Final[dict[str, CommandSchema]] = {
    **COMMANDS,
    "append": CommandSchema(
        "Add text to the end of a file, beginning on a new line; creates a missing file.",
        {
            "path": COMMANDS["create"].parameters["path"],
            "text": Parameter("string", "The text to add, one line or several."),
        },
    ),
    "search": CommandSchema(
        "Find the lines that contain a text, ignoring case, with their files and line numbers.",
        {
            "query": Parameter("string", "The text to find, literally."),
            "path": Parameter("string", "Only this directory or file; default: all of /memories.", required=False),
            "glob": Parameter("string", "Only files of this name, such as *.md, or of this path.", required=False),
            "context": Parameter("integer", f"Lines to show around each match: 0 to {MAX_CONTEXT}.", required=False),
            "max_results": Parameter("integer", f"The most lines to find: 1 to {MAX_RESULTS}.", required=False),
            "after": Parameter("string", "Continue after this match, given as path:line.", required=False),
        },
    ),
}
"""The description of each tool for the model, and its parameters."""
_VERSIONS: Final = 20
"""The versions in one answer."""
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
"""Two more tools, for a store that keeps versions: list and show them, and restore one."""
_ALL: Final = TOOLS | VERSION_TOOLS
_MEMORY: Final = "Your memory is the text files below /memories; they outlive this conversation."
_MORE: Final = {
    "view": "Begin with the path /memories. The line numbers and the tab after them are not part of a file.",
    "create": "A file that exists is left as it is: change it with str_replace, insert or append.",
    "str_replace": "Nothing changes if old_str does not occur, or occurs more than once.",
    "delete": "It cannot be undone.",
    "search": "View a line before you replace it: a found line can be cut or escaped.",
}


def table(*, versions: bool) -> dict[str, CommandSchema]:
    """Return the tools by name; ``versions`` adds `VERSION_TOOLS`."""
    return _ALL if versions else TOOLS


def description_of(name: str, schema: CommandSchema) -> str:
    """Return the description of a tool for a model that is told nothing else about the memory."""
    return " ".join((schema.description, *filter(None, [_MORE.get(name)]), _MEMORY))


class Toolset:
    """The tools over one memory, which the model sees as ``/memories``; for ``history`` see `MemoryTool`."""

    def __init__(self, memory: AsyncAgentMemory, history: bool = False, conversation: bool = True) -> None:
        self._memory = for_tools(AsyncAgentMemory, memory, history, conversation)
        self._tool = AsyncMemoryTool(memory, history=history, conversation=conversation)
        self._paths = Paths(memory, STRINGS["docs"])

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        """Run one of `TOOLS` or `VERSION_TOOLS`; never raises for bad input from a model."""
        if name in COMMANDS:
            return await self._tool.call({**arguments, "command": name})
        return await answered(lambda: self._own(name, arguments))

    async def _own(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        values = checked(arguments, _ALL[name].parameters)
        try:
            if name in VERSION_TOOLS:
                return await self._versions(name, values)
            return await (self._append(values) if name == "append" else self._search(values))
        except InvalidPathError as error:
            raise self._paths.refused(error) from error

    async def _append(self, values: Values) -> ToolResult:
        path, name = await self._paths.named(values["path"])
        if not name:
            raise ToolRefusal(f"Error: {path}: the name is a directory")
        try:
            text, separator = await appending(self._memory, name, str(values["text"]), "\n")
            written = await self._memory.append(name, text, separator=separator)
        except FileAlreadyExistsError as error:
            raise ToolRefusal(f"Error: {path}: {error.args[0]}") from None
        answer = f"The text was added to {path}."
        return ToolResult(await warned(self._memory, answer, name, shown=path, size=written.size))

    async def _search(self, values: Values) -> ToolResult:
        given: dict[str, Any] = {**values, "path": (await self._paths.named(values.get("path", ROOT)))[1]}
        for name in ("glob", "after"):
            if name in given:
                given[name] = given[name].removeprefix(f"{ROOT}/")
        try:
            found = await LineSearch(**given).run(self._memory, self._memory._at_once, MAX_CHARACTERS)
        except InvalidPathError:
            raise
        except ValueError as error:
            raise Malformed(str(error)) from None
        matches = tuple(replace(match, path=f"{ROOT}/{match.path}") for match in found.matches)
        left_out = tuple(each._replace(path=f"{ROOT}/{each.path}") for each in found.left_out)
        result = fitting(replace(found, matches=matches, left_out=left_out))
        none = f"No matches found for {shown(given['query'])}."
        text = str(result) if result.matches else "\n".join([none, *result.notes()])
        return ToolResult(text, data=result.to_mapping())

    async def _versions(self, name: str, values: Values) -> ToolResult:
        path, file = await self._paths.named(values.get("path", ROOT))
        if "version" not in values:
            return await self._list_versions(path, file, values)
        if not file:
            raise ToolRefusal("Error: a version is of one file: give its path")
        version = shown(str(values["version"]))
        return await (self._restore if name == "memory_restore" else self._show_version)(path, file, version)

    async def _list_versions(self, path: str, file: str, values: Values) -> ToolResult:
        after = None if "after" not in values else shown(str(values["after"]))
        found = await self._memory.versions.list(file, limit=_VERSIONS, after=after)
        lines = [_line(version) for version in found]
        if len(found) == _VERSIONS:
            lines.append(f"[There may be more: call again with after={found[-1].id}]")
        if not lines and await self._memory.versions.limits() is None:
            lines = ["This store keeps no versions."]
        return ToolResult("\n".join(lines) or f"No versions of {path} are kept.")

    async def _show_version(self, path: str, file: str, version: str) -> ToolResult:
        text = ModelText(await self._memory.versions.read(file, version)).text
        return ToolResult(cut(text, MAX_CHARACTERS) or f"Version {version} of {path} is empty.")

    async def _restore(self, path: str, file: str, version: str) -> ToolResult:
        try:
            written = await self._memory.versions.restore(file, version)
        except FileAlreadyExistsError as error:
            raise ToolRefusal(f"Error: {path}: {error.args[0]}") from None
        answer = f"{path} has the text of version {version} again."
        return ToolResult(await warned(self._memory, answer, file, shown=path, size=written.size))


def _line(version: FileVersion) -> str:
    end = f"until {_by(version.ended_by)}" if version.ended_by else "present"
    size = "redacted" if version.redacted_by else f"{version.size:,} bytes"
    return f"{version.id or '-'}  {ROOT}/{version.path}  {size}  {_by(version.made_by)}  {end}"


def _by(by: MadeBy | None) -> str:
    if by is None:
        return "unknown"
    moment = datetime.fromtimestamp(by.time, UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC {by.operation} {shown(by.actor) if by.actor else '-'}"
