"""A memory as a workspace of Pydantic AI, and as tools. Needs ``pip install 'agent-memory-files[pydantic-ai]'``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from agent_memory.backend import Entry
from agent_memory.errors import (
    AgentMemoryFileNotFoundError,
    FileAlreadyExistsError,
    InvalidPathError,
)
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelTool,
    async_view,
    checked_bytes,
    checked_id,
    mapped_errors,
    model_tools,
    refusal,
    unusable,
)
from agent_memory.key import Key

try:
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.workspaces import FileEntry, SupportsFilesystem, WorkspaceBackend, WorkspaceRef
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise unusable("pydantic-ai-slim", "pydantic-ai", error) from error

__all__ = ["DIRECTORY_FILE", "AgentMemoryWorkspace", "memory_tools"]

P = ParamSpec("P")
T = TypeVar("T")
DIRECTORY_FILE: Final = ".agent-memory-directory"
"""The name of the empty file that `AgentMemoryWorkspace.make_dir` puts into a directory."""
_OBJECT: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""Arguments of another kind are told to the model, as those of function tools are."""
_TAKEN: Final = {"directory": errno.EISDIR, "file_above": errno.ENOTDIR}


def _refused(error: Any) -> InvalidPathError:
    return InvalidPathError(f"the path is refused: {refusal(error)}", error.rule)


def _explained(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A decorator: the error for a refused name suggests names, for the agent's paths are not those of the memory."""

    @wraps(method)
    async def call(*args: P.args, **options: P.kwargs) -> T:
        with mapped_errors({InvalidPathError: _refused}):
            return await method(*args, **options)

    return call


class AgentMemoryWorkspace(WorkspaceBackend, SupportsFilesystem):
    """A workspace with files and without commands: ``/`` is the whole memory, and the working directory.

    The file ``/notes/today.md`` of the workspace is the file ``notes/today.md`` of the memory. A directory exists while
    a file is below it. `make_dir` puts an empty file into the directory, so that it also exists without other files;
    the workspace neither lists nor opens this file, and removes it with the directory.

    Args:
        memory: the tree that holds the files.
        name: the ``id`` in the workspace's reference. A memory has no identity without credentials, so an application
            with several workspaces gives them different names.

    A path that the memory refuses is a `ValueError` with the broken rule and names in place of the refused ones; the
    other errors are the builtin errors of files.

    Raises:
        TypeError: ``memory`` is no memory, or ``name`` is no str.
    """

    def __init__(self, memory: AnyMemory, *, name: str = "memory") -> None:
        self._memory = async_view(memory)
        self._ref = WorkspaceRef(provider="agent-memory", id=checked_id("name", name))

    @property
    def ref(self) -> WorkspaceRef:
        """See `WorkspaceBackend.ref`."""
        return self._ref

    async def working_dir(self) -> str:
        """See `WorkspaceBackend.working_dir`."""
        return "/"

    @_explained
    async def read_bytes(self, path: str) -> bytes:
        """See `SupportsFilesystem.read_bytes`."""
        name = _file_name(path)
        try:
            return await self._memory.read_bytes(name)
        except AgentMemoryFileNotFoundError as error:
            if await self._memory.is_directory(name):
                raise _os_error(errno.EISDIR, path) from error
            raise

    @_explained
    async def write_bytes(self, path: str, data: bytes) -> None:
        """Write a file in one atomic step; the last writer wins. See `SupportsFilesystem.write_bytes`."""
        try:
            await self._memory.write(_file_name(path), checked_bytes(data))
        except FileAlreadyExistsError as error:
            if error.taken_by in _TAKEN:
                raise _os_error(_TAKEN[error.taken_by], path) from error
            raise

    @_explained
    async def stat(self, path: str) -> FileEntry:
        """See `SupportsFilesystem.stat`."""
        name = _name(path)
        try:
            if name:
                return _file_entry(await self._memory.stat(name))
        except AgentMemoryFileNotFoundError:
            if not await self._memory.is_directory(name):
                raise
        return FileEntry(name=name.rpartition("/")[2], path=f"/{name}", is_dir=True, size=None)

    @_explained
    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """See `SupportsFilesystem.list_dir`."""
        found = await self._memory.list(_name(path), recursive=False)
        if not found and not (await self.stat(path)).is_dir:
            raise _os_error(errno.ENOTDIR, path)
        entries = map(_file_entry, found)
        return [entry for entry in entries if entry.name != DIRECTORY_FILE]

    @_explained
    async def make_dir(self, path: str) -> None:
        """See `SupportsFilesystem.make_dir`."""
        if not (name := _name(path)):
            return
        Key.tree().join(name)  # refuses the directory's name itself
        try:
            await self._memory.create(f"{name}/{DIRECTORY_FILE}", "")
        except FileAlreadyExistsError as error:
            if error.taken_by == "file_above":
                is_file = await self._memory.exists(name)
                raise _os_error(errno.EEXIST if is_file else errno.ENOTDIR, path) from error
            if error.taken_by == "other_case":
                raise  # otherwise the directory was made before

    @_explained
    async def remove(self, path: str) -> None:
        """See `SupportsFilesystem.remove`."""
        if not (name := _name(path)):
            raise ValueError("the working directory cannot be removed")
        try:
            await self._memory.delete(name)
        except AgentMemoryFileNotFoundError:
            await self._memory.delete_tree(name)

    async def exists(self, path: str) -> bool:
        """See `SupportsFilesystem.exists`; False for a name that the memory refuses."""
        try:
            await self.stat(path)
        except (FileNotFoundError, InvalidPathError):
            return False
        return True


def memory_tools(memory: AnyMemory, *, versions: bool = False) -> list[Tool[Any]]:
    """Return tools for ``Agent(tools=...)``, with which a model keeps notes; see `toolkit.model_tools`."""
    return [_tool(tool) for tool in model_tools(async_view(memory), versions=versions)]


def _tool(tool: ModelTool) -> Tool[Any]:
    async def call(context: RunContext[Any], /, **arguments: object) -> str:
        return (await tool.call(arguments, context.tool_call_id)).output

    made = Tool.from_schema(call, tool.name, tool.description, tool.parameters, takes_ctx=True)
    made.function_schema.validator = _OBJECT
    return made


def _name(path: str) -> str:
    """The path in the memory; "" for the working directory."""
    if not checked_id("path", path).startswith("/"):
        raise ValueError("a path must be absolute")
    if DIRECTORY_FILE in path.split("/"):
        raise InvalidPathError(f"the name {DIRECTORY_FILE} is reserved for directories")
    return path.strip("/")


def _file_name(path: str) -> str:
    if name := _name(path):
        return name
    raise _os_error(errno.EISDIR, path)


def _file_entry(entry: Entry) -> FileEntry:
    size = None if entry.is_directory else entry.size
    return FileEntry(name=entry.key.name, path=f"/{entry.path}", is_dir=entry.is_directory, size=size)


def _os_error(code: int, path: str) -> OSError:
    """The builtin error of a code, such as `IsADirectoryError`."""
    return OSError(code, os.strerror(code), path)
