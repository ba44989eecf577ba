"""`AgentMemoryPath`: the class of ``UPath("agentmemory://...")``, which universal-pathlib finds by its entry point."""

from __future__ import annotations

import errno
import os
from pathlib import PurePath
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import fsspec
from upath import UPath

from agent_memory.key import Key

__all__ = ["AgentMemoryPath"]

fsspec.get_filesystem_class("agentmemory")  # else universal-pathlib guesses how names are joined, and cuts them


class AgentMemoryPath(UPath):
    """A path in a memory; its options are those of `agent_memory.integrations.fsspec.AgentMemoryURLFileSystem`.

    A second path may be of another memory, with other options: `copy` and `move` go there, `rename` is refused.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        parts = [part for part in args if isinstance(part, UPath)]
        for part in parts[1:]:
            _require_one_memory(parts[0], part)
        super().__init__(*args, **options)

    def with_segments(self, *pathsegments: Any) -> Self:
        """As `UPath.with_segments`, and so for joined paths.

        Raises:
            ValueError: a part is a path of another memory or of another filesystem.
        """
        for part in pathsegments:
            _require_one_memory(self, part)
        return super().with_segments(*pathsegments)

    def rename(self, target: Any, **options: Any) -> Self:
        """Rename this file or directory in its memory; a text is a name from the root of the memory.

        Raises:
            ValueError: the target is a path of another memory or of another filesystem.
        """
        _require_path(target)
        if not isinstance(target, UPath):
            if isinstance(target, os.PathLike) and not isinstance(target, PurePath):
                target = os.fspath(target)
            scheme, is_url, _ = str(target).partition("://")
            is_here = not hasattr(target, "is_file") and (not is_url or scheme == self.protocol)
            target = self.with_segments(str(target)) if is_here else None
        if not (isinstance(target, AgentMemoryPath) and target.storage_options == self.storage_options):
            raise ValueError("rename() works in one memory: give a name in it, or use move() or copy()")
        return super().rename(target, **options)

    def copy(self, target: Any, **options: Any) -> Any:
        """As `UPath.copy`; also to another memory.

        Raises:
            OSError: the target is the source itself, perhaps under another root, agent or option, or is inside it.
        """
        there = UPath(target) if isinstance(target, os.PathLike) else target
        _require_another_place(self, there)
        return super().copy(target, **options)

    def move(self, target: Any, **options: Any) -> Any:
        """As `UPath.move`; also to another memory: then a copy, and the deletion of the source.

        Raises:
            OSError: as `copy`; or the target exists in another memory and is a directory, or has the same content. It
                may be the source itself, because one store can be reached in several ways.
        """
        there = UPath(target) if isinstance(target, os.PathLike) else target
        _require_another_place(self, there)
        if isinstance(there, AgentMemoryPath) and there.storage_options != self.storage_options:
            _require_another_file(self, there)
        return super().move(target, **options)

    def samefile(self, other_path: Any) -> bool:
        """Whether another path is the same file of the same store, also under another root, agent or option."""
        other = other_path if isinstance(other_path, UPath) else self.with_segments(other_path)
        return isinstance(other, AgentMemoryPath) and _place(other) == _place(self)


def _require_another_place(source: AgentMemoryPath, target: object) -> None:
    if isinstance(target, AgentMemoryPath) and _is_at_or_below(_place(target), _place(source)):
        raise OSError(errno.EINVAL, "source and target are the same, or the target is inside the source")


def _require_another_file(source: AgentMemoryPath, target: AgentMemoryPath) -> None:
    """Refuse a target that may be the source under another name of its store."""
    if target.is_dir() or (target.is_file() and source.is_file() and target.read_bytes() == source.read_bytes()):
        raise OSError(errno.EINVAL, "the target exists and may be the source itself: copy it, or delete one of the two")


def _require_one_memory(path: UPath, part: object) -> None:
    _require_path(part)
    if isinstance(part, UPath) and (part.protocol, part.storage_options) != (path.protocol, path.storage_options):
        raise ValueError("a part of the path is in another memory: join names that are given as text")


def _require_path(part: object) -> None:
    if not isinstance(part, str | os.PathLike | UPath):
        raise TypeError(f"a path is a str or a PathLike, not {type(part).__name__}")


def _place(path: AgentMemoryPath) -> str:
    """Where a file is stored: the root, as an absolute path without links or as a URL with its server, and the name."""
    options = path.storage_options
    root, agent = os.fspath(options.get("root", "")), options.get("agent")
    scheme, is_url, _ = root.partition("://")
    if not is_url or scheme in ("file", "local"):
        root = os.path.realpath(os.path.expanduser(unquote(urlsplit(root).path) if is_url else root))  # noqa: PTH111
    else:
        given: Any = options.get("root_options") or {}
        root = f"{given.get('endpoint_url') or (given.get('client_kwargs') or {}).get('endpoint_url')} {root}"
    tree = Key.tree() if agent is None else Key.agent(agent)
    return "/".join(filter(None, (root.rstrip("/"), tree.storage, path.path)))


def _is_at_or_below(place: str, directory: str) -> bool:
    return place == directory or place.startswith(directory + "/")
