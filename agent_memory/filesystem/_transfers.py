"""Moves and copies of files, within the tree, and between the tree and the local disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import IO, Any, cast

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.implementations.local import make_path_posix
from fsspec.utils import isfilelike, other_paths, stringify_path

from agent_memory.backend import ABSENT, ANY
from agent_memory.core.precondition import SHA256
from agent_memory.errors import AgentMemoryFileNotFoundError, FileAlreadyExistsError, PathTraversalError
from agent_memory.filesystem._confined import Confined, is_a_directory, is_path, list_of_paths, local_path
from agent_memory.filesystem._files import BLOCK
from agent_memory.reading.reader import Reader


class Transfers(Confined):
    """The operations of a filesystem that move and copy."""

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Move a file or a directory by its literal name: one rename.

        If the new name is a directory, or ends with ``/``, the move goes into that directory. If it is a file, the move
        replaces it by one read, one write and one delete, which checks that the source is still the content that was
        read; a crash can leave both names, but never neither.
        """
        if maxdepth is not None:
            raise NotImplementedError("a move does not support maxdepth: deeper files would be lost")
        if is_path(path1):
            self._move(path1, path2)
            return
        sources = list_of_paths(path1)
        targets = [f"{self._strip_protocol(path2)}/"] * len(sources) if is_path(path2) else list_of_paths(path2)
        for source, target in zip(sources, targets, strict=True):
            self._move(source, target)

    def _move(self, path1: Any, path2: Any) -> None:
        source, target = self._names([path1, path2])
        inside = self._strip_protocol(f"{target}/{source.rpartition('/')[2]}")
        if target == "" or self._text(path2).endswith("/"):
            target = inside
        if source == target:
            return
        try:
            self._memory.rename(source, target)
        except FileAlreadyExistsError:
            if self.isdir(target):
                self._memory.rename(source, inside)
            elif not self._memory.exists(source):
                raise
            else:
                digest = hashlib.sha256(self._replace(source, target)).hexdigest()
                self._memory.delete(source, when=SHA256(digest))

    def _replace(self, source: str, target: str) -> bytes:
        data = self._memory.read_bytes(source)
        self._memory.write(target, data)
        return data

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file by its literal name: one copy, and over an existing file one more read and one more write.

        A directory is copied whole, and only to a free name.
        """
        source, target = self._names([path1, path2])
        if source == target:
            return
        try:
            self._memory.copy(source, target)
        except FileAlreadyExistsError:
            if not self._memory.exists(source):
                raise
            self._replace(source, target)

    def copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        on_error: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files, and directories if ``recursive``, as in fsspec's guide to copying: one `cp_file` each.

        Globs are expanded, unless both sides are lists.
        """
        ignore = "ignore" if recursive else "raise"
        path2 = self._text(path2) if is_path(path2) else list_of_paths(path2)
        for source, target in self._pairs(path1, path2, recursive, maxdepth, self.isdir):
            try:
                self.cp_file(source, target)
            except FileNotFoundError:
                if (on_error or ignore) != "ignore":
                    raise

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy files to the local disk, as in fsspec's guide to copying: one `get_file` each.

        Globs are expanded, unless both sides are lists.

        Raises:
            PathTraversalError: a symbolic link would lead out of the local directory; nothing was copied.
        """
        if is_path(lpath):
            lpath = make_path_posix(local_path(lpath))
        else:
            lpath = [local_path(each) for each in list_of_paths(lpath)]
        pairs = self._pairs(rpath, lpath, recursive, maxdepth, os.path.isdir)
        if is_path(lpath):
            _refuse_outside(lpath, [target for _, target in pairs])
        callback.set_size(len(pairs))
        for source, target in callback.wrap(pairs):
            with callback.branched(source, target) as child:
                self.get_file(source, target, callback=child, **kwargs)

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,
        callback: Callback = DEFAULT_CALLBACK,
        outfile: IO[bytes] | None = None,
        **kwargs: Any,
    ) -> None:
        """Copy a file to a local file or a file object, in bounded memory: one read."""
        path = self._strip_protocol(rpath)
        target: Any = outfile or lpath
        if not isfilelike(target):
            target = local_path(target)
            if Path(target).is_dir() and self.isfile(path):
                raise is_a_directory(target)

        async def work(reader: Reader) -> None:
            data = await reader.read(0, BLOCK)
            with _opened(target) as out:
                callback.set_size(reader.size)
                done = 0
                while data:
                    out.write(data)
                    done += len(data)
                    callback.relative_update(len(data))
                    data = await reader.read(done, done + BLOCK)

        try:
            with self._file(path):
                self._memory.scan(path, work)
        except IsADirectoryError:
            if isfilelike(target):
                raise
            Path(cast(str, target)).mkdir(parents=True, exist_ok=True)

    def put(self, lpath: Any, rpath: Any, *args: Any, **kwargs: Any) -> None:
        """Copy files from the local disk, as in fsspec's guide to copying: one `put_file` each."""
        lpath = local_path(lpath) if is_path(lpath) else [local_path(each) for each in list_of_paths(lpath)]
        super().put(lpath, self._text(rpath) if is_path(rpath) else self._names(rpath), *args, **kwargs)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        """Copy a local file into the tree, in bounded memory: one write, or with ``mode="create"`` one create."""
        local = Path(local_path(lpath))
        self._strip_protocol(rpath)  # refuses a path of another filesystem, whatever the local disk has
        if local.is_dir():
            self.makedirs(rpath, exist_ok=True)
            return
        with local.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            callback.set_size(size)
            path = self._strip_protocol(rpath)
            if path == "" or mode not in ("overwrite", "create"):
                self.pipe_file(rpath, file.read(), mode)
            else:
                when = ABSENT if mode == "create" else ANY
                self._memory.write_blocks(path, iter(lambda: file.read(BLOCK), b""), size, when=when)
        callback.relative_update(size)

    def _pairs(
        self, source: Any, target: Any, recursive: bool, maxdepth: int | None, is_directory: Callable[[str], bool]
    ) -> list[tuple[str, str]]:
        """The source and the target of each file to copy."""
        if not is_path(source) and not is_path(target):
            return list(zip(list_of_paths(source), target, strict=True))
        found = self._found(source, recursive, maxdepth)
        text = stringify_path(source) if is_path(source) else None
        if text is not None and (not recursive or maxdepth is not None):
            found = {name: is_file for name, is_file in found.items() if is_file}
        if not found:
            return []
        if not is_path(target):
            targets = target
        elif text is None:
            targets = other_paths(list(found), target, flatten=True)
        else:
            glob = has_magic(text)
            into = (glob and len(found) == 1) or (
                not glob and not text.endswith("/") and (target.endswith("/") or is_directory(target))
            )
            # fsspec computes the parent of a name without a slash as the name itself
            targets = other_paths([f"/{name}" for name in found], target, exists=into)
        return [pair for pair, is_file in zip(zip(found, targets, strict=True), found.values(), strict=True) if is_file]

    def _found(self, source: Any, recursive: bool, maxdepth: int | None) -> dict[str, bool]:
        """The names that match paths and globs, and whether each is a file."""
        found: dict[str, bool] = {}
        for name in self._names(source):
            glob = has_magic(name)
            infos: dict[str, Any] = {}
            infos |= cast(Any, self.glob(name, maxdepth=maxdepth, detail=True)) if glob else {name: self.info(name)}
            levels = maxdepth - 1 if glob and maxdepth is not None else maxdepth
            if recursive and levels != 0:
                for top in [info["name"] for info in infos.values() if info["type"] == "directory"]:
                    infos |= cast(Any, self.find(top, maxdepth=levels, withdirs=True, detail=True))
            found |= {info["name"]: info["type"] == "file" for info in infos.values()}
        if not found:
            raise AgentMemoryFileNotFoundError("no file matches the given paths")
        return dict(sorted(found.items()))


@contextmanager
def _opened(target: Any) -> Iterator[IO[bytes]]:
    """Open a local file and create its directories; a file object is used as it is, and stays open."""
    if isfilelike(target):
        yield target
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        yield file


def _refuse_outside(directory: str, targets: list[str]) -> None:
    top = Path(directory).resolve()
    if not all(Path(target).resolve().is_relative_to(top) for target in targets):
        raise PathTraversalError("a local symbolic link leads out of the target directory", "parent")
