"""Claude's memory tool, ``memory_20250818``, over one `AgentMemory`.

Commands, parameters and answers follow Claude's documentation ("Memory tool"); where it leaves a case open, they
follow the Python SDK. Edits are compare-and-swap with retry, so concurrent sessions lose no edit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Self, cast

from agent_memory.core.sync_facade import step
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidPathError,
    ReadError,
)
from agent_memory.memory import AgentMemory, AsyncAgentMemory, TreeResult, WriteResult
from agent_memory.tools import _views
from agent_memory.tools._model_text import ModelText, overwriting
from agent_memory.tools._paths import ROOT as ROOT
from agent_memory.tools._paths import Paths
from agent_memory.tools._project import Worktrees, project_memories
from agent_memory.tools._protected import EitherMemory, logic_view
from agent_memory.tools._schema import COMMANDS, DefinitionStyle, definition
from agent_memory.tools._strings import STRINGS, StringSet
from agent_memory.tools._warnings import warned
from agent_memory.tools.arguments import Values, as_mapping, checked, shown
from agent_memory.tools.results import MAX_CHARACTERS, Malformed, ToolRefusal, ToolResult, answered

OnExisting = Literal["error", "overwrite"]
MAX_VIEW_CHARACTERS: Final = MAX_CHARACTERS
"""The most characters of a file or listing in one view; Claude's own tool description says 16,000."""


class _MemoryTool(Generic[EitherMemory]):
    """The six commands; the sync and the async class share this logic."""

    _kind: type[EitherMemory]

    def __init__(
        self,
        memory: EitherMemory,
        *,
        on_existing: OnExisting = "error",
        strings: StringSet = "docs",
        max_view_characters: int = MAX_VIEW_CHARACTERS,
        history: bool = False,
        conversation: bool = True,
    ) -> None:
        if on_existing not in ("error", "overwrite"):
            raise ValueError(f"on_existing must be 'error' or 'overwrite', not {on_existing!r}")
        if strings not in STRINGS:
            raise ValueError(f"strings must be 'docs' or 'sdk', not {strings!r}")
        if max_view_characters < 1:
            raise ValueError("max_view_characters must be at least 1")
        self._memory = logic_view(self._kind, memory, history, conversation)
        self._overwrite = on_existing == "overwrite"
        self._strings = STRINGS[strings]
        self._paths = Paths(self._memory, self._strings)
        self._limit = max_view_characters

    @classmethod
    def for_project(cls, start: str | os.PathLike[str] = ".", *, worktrees: Worktrees = "own") -> Self:
        """Open the tool over a project's ``.claude/memories``; the first write creates this directory.

        The project is the git work tree that contains ``start``, as git reports it, else ``start``. Its own path may
        contain symbolic links; below it no link is followed. If the repository's own configuration moves the work
        tree elsewhere, the project is ``start``. Git runs for some milliseconds, which blocks an event loop.

        Args:
            start: a directory of the project.
            worktrees: "own": each work tree of a repository has its own memories; "shared": all have those of the
                main work tree, which is the first in ``git worktree list``.

        Raises:
            ValueError: ``worktrees`` is another value; or it is "shared", and git finds no work tree, or the repository
                is bare.
        """
        root, options = project_memories(start, worktrees)
        memory: Any = cls._kind.open(root, storage_options=options)
        return cls(memory)

    @staticmethod
    def tool_definition(style: DefinitionStyle = "claude") -> dict[str, object]:
        """The tool's definition for a model API.

        "claude": the Claude API's built-in type. "json_schema": name, description and ``input_schema`` for any
        other model; its field ``command`` selects the command.
        """
        return definition(style)

    async def _call(self, arguments: object) -> ToolResult:
        return await answered(lambda: self._run(arguments), self._strings.prefix, max(self._limit, MAX_CHARACTERS))

    async def _run(self, arguments: object) -> ToolResult:
        given = as_mapping(arguments)
        command = given.get("command")
        if not isinstance(command, str) or command not in COMMANDS:
            named = repr(shown(command)) if isinstance(command, str) else "missing or no text"
            raise Malformed(f"the parameter `command` is {named}; it is one of {', '.join(COMMANDS)}")
        values = checked(given, COMMANDS[command].parameters)
        try:
            return ToolResult(await getattr(self, f"_{command}")(values))
        except InvalidPathError as error:
            raise self._paths.refused(error) from error

    async def _view(self, values: Values) -> str:
        path, name = await self._paths.named(values["path"])
        try:
            text = ModelText(await self._memory.read(name)).text if name else None
        except AgentMemoryFileNotFoundError:
            text = None
        except ReadError as error:
            self._refuse_bytes(path, error)
            raise
        view_range = cast("Sequence[int] | None", values.get("view_range"))
        if text is None:
            return await self._directory(path, name, view_range)
        if text.count("\n") >= _views.MAX_LINES:
            raise ToolRefusal(self._strings.too_many_lines.format(path=path))
        line_offset = cast(int, values.get("line_offset", 0))
        rows = _views.file_view(text, view_range, self._limit, max(0, line_offset))
        return self._strings.content.format(path=path) + "\n" + rows

    async def _directory(self, path: str, name: str, view_range: Sequence[int] | None) -> str:
        entries = await self._memory.list(name)
        if name and not entries:
            raise ToolRefusal(self._strings.view_missing.format(path=path))
        below = sum(segment not in ("", ".") for segment in name.split("/"))
        rows = _views.listing(path, below, entries, view_range, self._limit)
        return self._strings.listing.format(path=path) + "\n" + rows

    async def _create(self, values: Values) -> str:
        path, name = await self._paths.named(values["path"])
        exists = ToolRefusal(self._strings.exists.format(path=path))
        if not name:
            raise exists
        text = str(values["file_text"])
        try:
            if self._overwrite:
                written = await self._memory.write(name, await overwriting(self._memory, name, text))
            else:
                written = await self._memory.create(name, text)
        except FileAlreadyExistsError as error:
            raise self._taken(path, error, exists) from None
        answer = self._strings.created.format(path=path)
        return await warned(self._memory, answer, name, shown=path, size=written.size, text=text)

    async def _str_replace(self, values: Values) -> str:
        path, name = await self._paths.named(values["path"])
        old, new = str(values["old_str"]), str(values.get("new_str", ""))
        done = ("", 0)

        def change(file: ModelText) -> str:
            nonlocal done
            done = _views.replaced(file.text, file.given(old), file.given(new), path, self._strings)
            return done[0]

        try:
            written = await self._edit(path, name, change)
        except AgentMemoryFileNotFoundError:
            missing, directory = self._strings.replace_missing, self._strings.replace_directory
            raise await self._no_file(path, name, missing, directory) from None
        answer = self._strings.replaced + "\n" + _views.snippet(*done, self._limit)
        return await warned(self._memory, answer, name, shown=path, size=written.size, text=done[0])

    async def _insert(self, values: Values) -> str:
        path, name = await self._paths.named(values["path"])
        line, addition = cast(int, values["insert_line"]), str(values["insert_text"])
        text = ""

        def change(file: ModelText) -> str:
            nonlocal text
            text = _views.inserted(file.text, line, file.given(addition), self._strings)
            return text

        try:
            written = await self._edit(path, name, change)
        except AgentMemoryFileNotFoundError:
            missing, directory = self._strings.insert_missing, self._strings.insert_directory
            raise await self._no_file(path, name, missing, directory) from None
        answer = self._strings.inserted.format(path=path)
        return await warned(self._memory, answer, name, shown=path, size=written.size, text=text)

    async def _delete(self, values: Values) -> str:
        path, name = await self._paths.named(values["path"])
        if not name:
            raise ToolRefusal(self._strings.delete_root)
        try:
            await self._memory.delete(name)
        except AgentMemoryFileNotFoundError:
            try:
                result = await self._memory.delete_tree(name)
            except AgentMemoryFileNotFoundError:
                raise ToolRefusal(self._strings.missing.format(path=path)) from None
            return await warned(self._memory, self._strings.deleted.format(path=path) + _left(result))
        return await warned(self._memory, self._strings.deleted.format(path=path))

    async def _rename(self, values: Values) -> str:
        path, name = await self._paths.named(values["old_path"])
        new_path, new_name = await self._paths.named(values["new_path"])
        if not name:
            raise ToolRefusal(self._strings.rename_root)
        taken = ToolRefusal(self._strings.taken.format(path=new_path))
        if not new_name:
            raise taken
        try:
            result = await self._memory.rename(name, new_name)
        except AgentMemoryFileNotFoundError:
            raise ToolRefusal(self._strings.missing.format(path=path)) from None
        except FileAlreadyExistsError as error:
            raise self._taken(new_path, error, taken) from None
        answer = self._strings.renamed.format(path=path, new_path=new_path) + _left(result)
        return await warned(self._memory, answer, new_name, shown=new_path)

    async def _edit(self, path: str, name: str, change: Callable[[ModelText], str]) -> WriteResult:
        if not name:
            raise AgentMemoryFileNotFoundError("the root is a directory")

        def changed(text: str) -> str:
            file = ModelText(text)
            return file.stored(change(file))

        try:
            return await self._memory.edit(name, changed)
        except ReadError as error:
            self._refuse_bytes(path, error)
            raise

    def _refuse_bytes(self, path: str, error: ReadError) -> None:
        if error.__cause__ is None:  # the file is not UTF-8; an error of the storage has a cause
            raise ToolRefusal(self._strings.unsupported.format(path=path)) from error

    def _taken(self, path: str, error: FileAlreadyExistsError, exists: ToolRefusal) -> ToolRefusal:
        if error.taken_by in ("file", "directory"):
            return exists
        return ToolRefusal(f"{self._strings.prefix}{path}: {error.args[0]}")

    async def _no_file(self, path: str, name: str, missing: str, directory: str) -> ToolRefusal:
        is_directory = not name or await self._memory.list(name, recursive=False)
        return ToolRefusal((directory if is_directory else missing).format(path=path))


def _left(result: TreeResult) -> str:
    return f"; {result.skipped} names in it are not valid paths and were left there" if result.skipped else ""


class MemoryTool(_MemoryTool[AgentMemory]):
    """Claude's memory tool over one memory; never raises for bad input from a model.

    Args:
        memory: the tree that is ``/memories``.
        on_existing: what `create` does if the path exists: "error" (the documented behaviour) or "overwrite" (the
            documentation allows it).
        strings: the answers of Claude's documentation ("docs") or of its Python SDK ("sdk").
        max_view_characters: the most characters of one view; a longer view is cut and says how to continue.
        history: whether a model may read the files of a conversation in the tree (``history.jsonl``,
            ``cron/jobs.json``, ``jobs.json``). It can never change them, and without ``history`` it cannot see them.
        conversation: False says that the tree holds no conversation and never will: the model may use these names too.
            The first change puts a mark into the store, by which every conversation in this directory, or below it, is
            refused, until a person takes the mark back with ``agent-memory conversation allow``.
    """

    _kind = AgentMemory

    def call(self, arguments: Mapping[str, object] | str) -> ToolResult:
        """Run one command.

        Args:
            arguments: the tool's input, as a mapping or as the JSON text of one.

        Returns:
            The answer. A malformed, refused or failed call returns an error, and stored data is unchanged.
        """
        return step(self._call(arguments))


class AsyncMemoryTool(_MemoryTool[AsyncAgentMemory]):
    """`MemoryTool` for async callers."""

    _kind = AsyncAgentMemory

    async def call(self, arguments: Mapping[str, object] | str) -> ToolResult:
        """As `MemoryTool.call`."""
        return await self._call(arguments)
