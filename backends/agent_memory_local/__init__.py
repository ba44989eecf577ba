"""The local-disk backend: a path or ``file:///path``, with ``?durability=process`` for tests and scratch.

Every change to a file takes an exclusive lock on its directory (``flock`` on the directory itself: no lock
files in the tree), so replace, create, append and delete exclude each other across threads and processes.
Readers never wait for the disk. No symbolic link below the root is followed. Linux and macOS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

from agent_memory.backend import BackendFactory, hookimpl
from agent_memory_local._backend import LocalBackend

__all__ = ["LocalBackend", "agent_memory_register_backends"]


def _open(url: str, options: Mapping[str, object]) -> LocalBackend:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.fragment:
        raise ValueError("a file URL is file:///absolute/path, with ?durability=process if wanted")
    given = {**{name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}, **options}
    if unknown := given.keys() - {"durability"}:
        raise TypeError(f"file:// takes the option durability, not {', '.join(sorted(unknown))}")
    return LocalBackend(os.fsdecode(unquote_to_bytes(parts.path)), **given)  # type: ignore[arg-type]  # checked by LocalBackend


@hookimpl
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add ``file://``, which is also what a plain path becomes, and fsspec's other name for it."""
    register("file", _open)
    register("local", _open)
