"""The local-disk backend: a path or ``file:///path``, on Linux and macOS.

Options: ``durability``, ``allow_hard_links``, ``within``, ``mode``; see `LocalBackend`. Changes of a file exclude each
other across threads and processes, without lock files; readers never wait. No symbolic link below the root is followed,
not even one that replaces a directory during an operation.

- ``_backend``: `LocalBackend`, the five verbs, append in place, and moves and deletes of directories
- ``_root``: the open root, and whether another directory has its path now
- ``_walk``: open a key's directories one by one below the root; ``_system_calls``: the same in one system call, and a
  rename that replaces no file
- ``_spelling``: whether a directory keeps names as they are given, or ignores case
- ``_locked_path``: a key's directory and file, opened and locked for a change; refuse files with hard links
- ``_locks``: the locks of trees and files, retries while they are held, and failures in words
- ``_staged``: files without their final name, also written in parts; ``_files``: append to, sync and sweep files, their
  origins and permission bits
- ``_trees``: move and delete directories under an exclusive lock
- ``_scan``: list files, and remove directories without files
- ``_descriptor``: a descriptor that closes itself
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

from agent_memory.backend import BackendFactory, BlockingBackend, hookimpl
from agent_memory.errors import UnsupportedOperationError

if sys.platform != "win32":
    from agent_memory_local._backend import LocalBackend

__all__ = ["LocalBackend", "agent_memory_register_backends"]


_OPTIONS = ("allow_hard_links", "durability", "mode", "within")
_TRUTH = {"true": True, "false": False}


def _open(url: str, options: Mapping[str, object]) -> BlockingBackend:
    if sys.platform == "win32":
        raise UnsupportedOperationError("the local backend is not tested on Windows, so it does not run there")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.fragment:
        raise ValueError("a file URL must be file:///absolute/path, optionally with options (?durability=process)")
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    given: dict[str, Any] = {name: _TRUTH.get(value, value) for name, value in query.items()} | dict(options)
    if unknown := given.keys() - _OPTIONS:
        raise TypeError(f"file:// takes the options {', '.join(_OPTIONS)}, not {', '.join(sorted(unknown))}")
    return LocalBackend(os.fsdecode(unquote_to_bytes(parts.path)), **given)


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``file://``, which also serves plain paths, and ``local://``, fsspec's other name for it."""
    register("file", _open)
    register("local", _open)
