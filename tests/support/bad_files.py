"""Files of other programs that a memory cannot read, between two that it can."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

GOOD: Final = ("a.md", "z.md")
LOCKED: Final = tuple(f"locked/{number:02}.md" for number in range(25))
"""More files without permission than a command takes for a failure of the storage."""
LARGE: Final = "large.md"
BINARY: Final = "binary.md"
WORD: Final = "needle"
_NOBODY: Final = 65534


@contextmanager
def unprivileged_directory() -> Iterator[Path]:
    """A directory in which this process, within the context, has no more rights than an ordinary user."""
    path = Path(tempfile.mkdtemp(prefix="agent-memory-"))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(path, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield path
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(path, ignore_errors=True)


def make_bad_files(tree: Path) -> None:
    """Fill a tree; the good files and the binary one contain `WORD`."""
    (tree / "locked").mkdir(parents=True)
    for name in (*GOOD, *LOCKED):
        (tree / name).write_text(f"{WORD} {name}\n")
    for name in LOCKED:
        (tree / name).chmod(0)
    (tree / BINARY).write_bytes(b"\xff needle\n")
    with (tree / LARGE).open("wb") as file:
        file.truncate(60_000_000)
    os.mkfifo(tree / "pipe.md")
    (tree / "link.md").symlink_to("nowhere")
    (tree / "b:ad.md").write_text(WORD)
    (tree / "closed").mkdir()
    (tree / "closed/x.md").write_text(WORD)
    (tree / "closed").chmod(0)
