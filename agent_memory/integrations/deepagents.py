"""A backend of Deep Agents over the files of a memory. Needs ``pip install 'agent-memory-files[deepagents]'``."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from agent_memory.backend import Entry
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, InvalidPathError
from agent_memory.integrations.toolkit import (
    AnyMemory,
    ModelText,
    async_view,
    checked_bytes,
    each_file,
    overwriting,
    refusal,
    step,
    sync_view,
    unusable,
    warn_left_out,
)
from agent_memory.memory import AsyncAgentMemory
from agent_memory.tools.search import LeftOut

try:
    from deepagents.backends import protocol, utils
    from deepagents.backends.utils import (
        InvalidGlobPatternError,
        compile_grep_include_glob,
        grep_matches_from_files,
        perform_string_replacement,
        slice_read_response,
    )
except ImportError as error:
    raise unusable("deepagents", "deepagents", error) from error

__all__ = ["AgentMemoryBackend"]

P = ParamSpec("P")
T = TypeVar("T")
_BINARY: Final = re.compile(
    r"[^/]\.(3gpp|aac|aiff|avi|flac|flv|gif|hei[cf]|jpe?g|mkv|mov|mp[34]|mpe?g|ogg|pdf|png|pptx?|wav|web[mp]|wmv)\Z"
)
_FILES, _BYTES = 64, 8 * 1024 * 1024
"""How much a search reads at once, at most; a larger file is read alone."""


class EditRefused(Exception):
    """Ends an edit with an error of exactly this text."""


def _answers(
    result: Callable[[str], T], action: str
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """A decorator for methods: an error is returned as ``result(text)``."""

    def decorated(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(method)
        async def answer(*args: P.args, **options: P.kwargs) -> T:
            try:
                return await method(*args, **options)
            except (EditRefused, InvalidGlobPatternError) as refused:
                return result(str(refused))
            except AgentMemoryError as error:
                return result(f"{action} {_reason(error)}")

        return answer

    return decorated


def _reason(error: AgentMemoryError) -> str:
    if not isinstance(error, InvalidPathError):
        return f"'/{error.path}': {error.args[0]}"
    return f"{error.refused[:1]}/{error.refused[1:]}: {refusal(error)}"  # the path is escaped and cut


class _AsyncBackend(protocol.BackendProtocol):
    """The async methods; with a memory that never suspends they are the logic of the sync methods."""

    def __init__(self, memory: AsyncAgentMemory) -> None:
        self._memory = memory

    @_answers(protocol.LsResult, "Cannot list")
    async def als(self, path: str) -> protocol.LsResult:
        """See `BackendProtocol.ls`."""
        name = _name(path)
        entries = await self._memory.list(name, recursive=False)
        if not entries and not await self._memory.is_directory(name):
            is_file = await self._memory.exists(name)
            return protocol.LsResult(f"Path '{path}': {'not_a_directory' if is_file else 'path_not_found'}")
        return protocol.LsResult(entries=sorted(map(_info, entries), key=lambda info: info["path"]))

    @_answers(protocol.ReadResult, "Error reading file")
    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> protocol.ReadResult:
        """See `BackendProtocol.read`."""
        name = _name(file_path)
        try:
            if _is_text(name):
                text = ModelText(await self._memory.read(name)).text
                data = protocol.FileData(content=text, encoding="utf-8")
                return slice_read_response(data, offset, limit)
            content = base64.b64encode(await self._memory.read_bytes(name)).decode()
            return protocol.ReadResult(file_data=protocol.FileData(content=content, encoding="base64"))
        except AgentMemoryFileNotFoundError:
            return protocol.ReadResult(f"File '{file_path}' not found")

    @_answers(protocol.WriteResult, "Error writing file")
    async def awrite(self, file_path: str, content: str) -> protocol.WriteResult:
        """See `BackendProtocol.write`."""
        name = _name(file_path)
        await self._memory.write(name, await overwriting(self._memory, name, content))
        return protocol.WriteResult(path=file_path)

    @_answers(protocol.EditResult, "Error editing file")
    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> protocol.EditResult:
        """See `BackendProtocol.edit`."""
        occurrences = 0

        def change(text: str) -> str:
            nonlocal occurrences  # in the end those of the last call, whose result is written
            text, occurrences = _replaced(text, old_string, new_string, replace_all)
            return text

        try:
            await self._memory.edit(_name(file_path), change)
        except AgentMemoryFileNotFoundError:
            return protocol.EditResult(f"Error: File '{file_path}' not found")
        return protocol.EditResult(path=file_path, occurrences=occurrences)

    @_answers(protocol.DeleteResult, "Error deleting")
    async def adelete(self, file_path: str) -> protocol.DeleteResult:
        """See `BackendProtocol.delete`; ``/`` deletes every file of the memory."""
        name = _name(file_path)
        with suppress(AgentMemoryFileNotFoundError):  # it may be a directory
            if name:
                await self._memory.delete(name)
                return protocol.DeleteResult(path=file_path)
        with suppress(AgentMemoryFileNotFoundError):
            if (await self._memory.delete_tree(name)).files:
                return protocol.DeleteResult(path=file_path)
        return protocol.DeleteResult(f"Error: File '{file_path}' not found")

    @_answers(protocol.GlobResult, "Error globbing path")
    async def aglob(self, pattern: str, path: str | None = None) -> protocol.GlobResult:
        """See `BackendProtocol.glob`."""
        return protocol.GlobResult(matches=[_info(entry) for entry in await self._find(pattern, path)])

    async def _find(self, pattern: str | None, path: str | None) -> list[Entry]:
        """The files below a directory, or the file of this path, that match a glob pattern, in the order of paths."""
        is_wanted = compile_grep_include_glob(pattern) if pattern is not None else None
        name = _name(path or "")
        entries = await self._memory.list(name)
        if not entries and name:
            with suppress(AgentMemoryFileNotFoundError):
                entries = (await self._memory.stat(name),)
        start = len(name) + 1 if name else 0
        return [entry for entry in entries if not is_wanted or is_wanted(entry.path[start:] or entry.key.name)]

    @_answers(protocol.GrepResult, "Error searching path")
    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> protocol.GrepResult:
        """See `BackendProtocol.grep`; ``truncated`` also after 15 seconds, and if a file could not be read."""
        result = protocol.GrepResult(matches=(found := list[protocol.GrepMatch]()))
        end = time.monotonic() + protocol.DEFAULT_GREP_TIMEOUT
        for paths in _batches(await self._find(glob or None, path)):
            is_late = time.monotonic() >= end
            texts, is_whole = ({}, False) if is_late else await self._texts(paths)
            part = grep_matches_from_files(texts, pattern, max_count=max_count and max_count - len(found))
            found += part.matches or ()
            result.truncated |= not is_whole or part.truncated
            if part.truncated:
                break
        return result

    async def _texts(self, paths: list[str]) -> tuple[dict[str, protocol.FileData], bool]:
        """The files that are text, by the agent's paths; and whether all files could be read."""
        texts: dict[str, protocol.FileData] = {}
        left_out: list[LeftOut] = []
        for path, data in await each_file(self._memory, self._memory.read_bytes, paths, left_out):
            with suppress(UnicodeDecodeError):
                texts[f"/{path}"] = protocol.FileData(content=ModelText(data.decode()).text, encoding="utf-8")
        warn_left_out(left_out)
        return texts, not left_out

    async def _write_bytes(self, name: str, data: bytes) -> object:
        return await self._memory.write(name, checked_bytes(data))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        """See `BackendProtocol.upload_files`."""
        codes = [(await _coded(self._write_bytes(_name(path), data)))[1] for path, data in files]
        return [protocol.FileUploadResponse(path, code) for (path, _), code in zip(files, codes, strict=True)]

    async def adownload_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """See `BackendProtocol.download_files`."""
        known, _ = await _coded(self._memory.read_many(map(_name, paths), missing_ok=True, bytes=True))
        return [await self._download(path, (known or {}).get(_name(path))) for path in paths]

    async def _download(self, path: str, data: bytes | None) -> protocol.FileDownloadResponse:
        code: str | None = None
        if data is None:  # it is missing, or one of the files has an error
            data, code = await _coded(self._memory.read_bytes(_name(path)))
        if code == protocol.FILE_NOT_FOUND and (await _coded(self._memory.is_directory(_name(path))))[0]:
            code = protocol.IS_DIRECTORY
        return protocol.FileDownloadResponse(path, data, code)


class AgentMemoryBackend(_AsyncBackend):
    """The files of a memory as files of a deep agent: for ``create_deep_agent``, or a route of a `CompositeBackend`.

    Args:
        memory: the tree; the agent's ``/notes/a.md`` is the file ``notes/a.md`` of the memory.

    Text is stored as it is. An edit is one atomic step, also with other agents and processes. Every failure is the
    ``error`` of a result, in the words of the framework's own backends; that of a refused name suggests a valid name.
    """

    def __init__(self, memory: AnyMemory) -> None:
        super().__init__(async_view(memory))
        self._sync = _AsyncBackend(sync_view(memory))

    def ls(self, path: str) -> protocol.LsResult:
        """See `BackendProtocol.ls`."""
        return step(self._sync.als(path))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> protocol.ReadResult:
        """See `BackendProtocol.read`."""
        return step(self._sync.aread(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> protocol.WriteResult:
        """See `BackendProtocol.write`."""
        return step(self._sync.awrite(file_path, content))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> protocol.EditResult:
        """See `BackendProtocol.edit`."""
        return step(self._sync.aedit(file_path, old_string, new_string, replace_all))

    def delete(self, file_path: str) -> protocol.DeleteResult:
        """See `adelete`."""
        return step(self._sync.adelete(file_path))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> protocol.GrepResult:
        """See `agrep`."""
        return step(self._sync.agrep(pattern, path, glob, max_count=max_count))

    def glob(self, pattern: str, path: str | None = None) -> protocol.GlobResult:
        """See `BackendProtocol.glob`."""
        return step(self._sync.aglob(pattern, path))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[protocol.FileUploadResponse]:
        """See `BackendProtocol.upload_files`."""
        return step(self._sync.aupload_files(files))

    def download_files(self, paths: list[str]) -> list[protocol.FileDownloadResponse]:
        """See `BackendProtocol.download_files`."""
        return step(self._sync.adownload_files(paths))


async def _coded(work: Awaitable[T]) -> tuple[T | None, str | None]:
    """The result of an operation, or one of the framework's codes for its error, or the text of the error."""
    try:
        return await work, None
    except AgentMemoryError as error:
        if getattr(error, "taken_by", "") == "directory" or getattr(error, "rule", "") == "empty":
            return None, protocol.IS_DIRECTORY
        if isinstance(error, InvalidPathError | FileExistsError):
            return None, protocol.INVALID_PATH
        if isinstance(error, PermissionError):
            return None, protocol.PERMISSION_DENIED
        return None, protocol.FILE_NOT_FOUND if isinstance(error, FileNotFoundError) else str(error)


def _is_text(path: str) -> bool:
    """Whether the framework reads a file as text; its function for that is private."""
    kind_of = getattr(utils, "_get_backend_read_file_type", None)
    return kind_of(path) == "text" if kind_of else not _BINARY.search(path.lower())


def _name(path: str) -> str:
    """The path in the memory, without a check: the memory refuses a path that is not valid; "" is the whole memory."""
    return "/".join(segment for segment in path.split("/") if segment not in ("", "."))


def _info(entry: Entry) -> protocol.FileInfo:
    if entry.is_directory:
        return protocol.FileInfo(path=f"/{entry.path}/", is_dir=True, size=0, modified_at="")
    modified = datetime.fromtimestamp(entry.modified, UTC).isoformat()
    return protocol.FileInfo(path=f"/{entry.path}", is_dir=False, size=entry.size, modified_at=modified)


def _replaced(text: str, old: str, new: str, replace_all: bool) -> tuple[str, int]:
    """The edited text and the number of replacements."""
    file = ModelText(text)
    result = perform_string_replacement(file.text, file.given(old), file.given(new), replace_all)
    if isinstance(result, str):
        raise EditRefused(result)
    return file.stored(result[0]), result[1]


def _batches(entries: Iterable[Entry]) -> Iterator[list[str]]:
    """The paths of text files, in groups to read at once."""
    paths: list[str] = []
    size = 0
    for entry in entries:
        if _is_text(entry.path):
            if paths and (len(paths) == _FILES or size + entry.size > _BYTES):
                yield paths
                paths, size = [], 0
            paths.append(entry.path)
            size += entry.size
    yield paths
