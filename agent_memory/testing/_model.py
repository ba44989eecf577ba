"""`DictMemory`: the behaviour of `AgentMemory` over a plain dict, as the model of the stateful test."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import cast

from agent_memory.backend import ANY
from agent_memory.core.flows import content_bytes, text_bytes
from agent_memory.core.precondition import (
    BY_MISSING,
    SHA256,
    DefaultCondition,
    DeleteCondition,
    EditCondition,
    checked_edit,
)
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    PartialOperationError,
    ReadError,
    TakenBy,
)
from agent_memory.key import Key
from agent_memory.memory import TreeResult, WriteResult


def sha256(data: bytes) -> str:
    """The SHA-256 of ``data``, in the form that preconditions take."""
    return hashlib.sha256(data).hexdigest()


class DictMemory:
    """A memory with its files in the dict ``files``; raises the same errors as `AgentMemory`.

    Listings and `stat` give ``(path, size, is_directory)`` instead of an `Entry`, because only a store has times.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> str:
        try:
            return self.read_bytes(path).decode()
        except UnicodeDecodeError as error:
            raise ReadError(path) from error

    def read_bytes(self, path: str) -> bytes:
        return self._file(_path(path))

    def write(self, path: str, content: str | bytes, *, when: DeleteCondition = ANY) -> WriteResult:
        path, data = _path(path), content_bytes(content)
        if isinstance(when, SHA256):
            self._expect(path, when, missing=ConflictError)
        return self._put(path, data)

    def create(self, path: str, content: str) -> WriteResult:
        path, data = _path(path), text_bytes(content)
        self._require_free(path)
        return self._put(path, data)

    def append(self, path: str, content: str, *, when: EditCondition = ANY) -> WriteResult:
        path, data = _path(path), text_bytes(content)
        if isinstance(when, SHA256):
            self._expect(path, when, missing=ConflictError)
        whole = self._put(path, self.files.get(path, b"") + data)
        return WriteResult(path, whole.size, sha256(data))

    def edit(
        self,
        path: str,
        change: Callable[[str], str | None],
        *,
        missing: str | None = None,
        when: EditCondition | DefaultCondition = BY_MISSING,
    ) -> WriteResult:
        condition = checked_edit(when, missing)
        path = _path(path)
        text_bytes(missing or "")
        if condition is not ANY:
            self._expect(path, condition, missing=AgentMemoryFileNotFoundError)
        changed = change(self.read(path) if path in self.files else missing or "")
        if changed is not None:
            return self._put(path, text_bytes(changed))
        self.files.pop(path, None)
        return WriteResult(path, 0, "")

    def delete(self, path: str, *, when: DeleteCondition = ANY) -> None:
        path = _path(path)
        self._expect(path, when, missing=AgentMemoryFileNotFoundError)
        del self.files[path]

    def delete_tree(self, path: str) -> TreeResult:
        path = Key.tree().join_prefix(path).path
        below = self._below(path)
        if path and not below:
            raise AgentMemoryFileNotFoundError(path)
        for name in below:
            del self.files[name]
        return TreeResult(path, len(below), 0)

    def rename(self, path: str, new_path: str) -> TreeResult:
        moved = self._moved(path, new_path)
        self.files = {moved.get(name, name): data for name, data in self.files.items()}
        return TreeResult(_path(new_path), len(moved), 0)

    def copy(self, path: str, new_path: str) -> TreeResult:
        moved = self._moved(path, new_path)
        self.files |= {new: self.files[name] for name, new in moved.items()}
        return TreeResult(_path(new_path), len(moved), 0)

    def read_many(self, paths: Sequence[str], *, missing_ok: bool = False) -> dict[str, str]:
        found: dict[str, str] = {}
        errors: list[AgentMemoryError] = []
        for path in dict.fromkeys(paths):
            try:
                found[path] = self.read(path)
            except AgentMemoryError as error:
                if not (missing_ok and isinstance(error, AgentMemoryFileNotFoundError)):
                    errors.append(error)
        if len(errors) > 1:
            raise PartialOperationError("several files failed")
        if errors:
            raise errors[0]
        return found

    def tail(self, path: str, lines: int) -> str:
        return "".join(re.findall(r"[^\n]*\n|[^\n]+", self.read(path))[-lines:])

    def list(
        self,
        path: str = "",
        *,
        recursive: bool = True,
        name_prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> tuple[tuple[str, int, bool], ...]:
        path = Key.tree().join_prefix(path).path
        depth = path.count("/") + 2 if path else 1
        found: dict[str, tuple[str, int, bool]] = {}
        for name in self._below(path):
            top = "/".join(name.split("/")[:depth])
            if recursive or top == name:
                found[name] = (name, len(self.files[name]), False)
            else:
                found[top] = (top, 0, True)
        begin = f"{path}/{name_prefix}" if path else name_prefix
        names = (name for name in found if name.startswith(begin) and (after is None or name > after))
        return tuple(found[name] for name in sorted(names, key=str.encode))[:limit]

    def stat(self, path: str) -> tuple[str, int, bool]:
        return _path(path), len(self.read_bytes(path)), False

    def exists(self, path: str) -> bool:
        return _path(path) in self.files

    def is_directory(self, path: str) -> bool:
        path = Key.tree().join_prefix(path).path
        return not path or bool(self._below(path))

    def _put(self, path: str, data: bytes) -> WriteResult:
        if path not in self.files:
            self._require_free(path)
        self.files[path] = data
        return WriteResult(path, len(data), sha256(data))

    def _file(self, path: str) -> bytes:
        if path not in self.files:
            raise AgentMemoryFileNotFoundError(path)
        return self.files[path]

    def _expect(self, path: str, when: EditCondition, missing: type[Exception]) -> None:
        if path not in self.files:
            raise missing(path)
        if isinstance(when, SHA256) and when.digest != sha256(self.files[path]):
            raise ConflictError(path)

    def _require_free(self, path: str) -> None:
        parts = path.split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        for taken_by, is_taken in (
            ("file", path in self.files),
            ("directory", bool(self._below(path))),
            ("file_above", bool(above & self.files.keys())),
        ):
            if is_taken:
                raise FileAlreadyExistsError(path, cast(TakenBy, taken_by))

    def _below(self, path: str) -> tuple[str, ...]:
        return tuple(name for name in self.files if not path or name.startswith(path + "/"))

    def _moved(self, path: str, new_path: str) -> dict[str, str]:
        """The new name of each moved file, by its old name."""
        path, new_path = _path(path), _path(new_path)
        if new_path.startswith(path + "/"):
            raise InvalidPathError(path)
        sources = (path,) if path in self.files else self._below(path)
        if not sources:
            raise AgentMemoryFileNotFoundError(path)
        self._require_free(new_path)
        return {name: new_path + name[len(path) :] for name in sources}


def _path(text: str) -> str:
    return Key.tree().join(text).path
