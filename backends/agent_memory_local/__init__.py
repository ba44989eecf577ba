"""The local-disk backend: a path or ``file:///path``.

``?durability=process`` is for tests and scratch, ``?allow_hard_links=true`` for backups made of links, and
``?within=/above`` for a root whose path is not all the operator's (`LocalBackend`). All changes to a file exclude each
other across threads and processes, without lock files in the tree; readers never wait. No symbolic link below the root
is followed, not even one that replaces a directory during an operation. Linux and macOS.
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


_OPTIONS = ("allow_hard_links", "durability", "within")
_TRUTH = {"true": True, "false": False}


def _open(url: str, options: Mapping[str, object]) -> BlockingBackend:
    if sys.platform == "win32":
        raise UnsupportedOperationError("the local backend is not tested on Windows, so it does not run there")
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.fragment:
        raise ValueError("a file URL is file:///absolute/path, with ?durability=process if wanted")
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    given: dict[str, Any] = {name: _TRUTH.get(value, value) for name, value in query.items()} | dict(options)
    if unknown := given.keys() - _OPTIONS:
        raise TypeError(f"file:// takes the options {', '.join(_OPTIONS)}, not {', '.join(sorted(unknown))}")
    return LocalBackend(os.fsdecode(unquote_to_bytes(parts.path)), **given)


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``file://``, which is also what a plain path becomes, and fsspec's other name for it."""
    register("file", _open)
    register("local", _open)
