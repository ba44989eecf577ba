"""The files that this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_files() -> dict[int, Path]:
    """The open descriptors, each with the path that the system shows for it."""
    found = {}
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the descriptor of this listing is closed by now
            found[int(path.name)] = path.readlink()
    return found
