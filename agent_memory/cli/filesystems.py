"""Which filesystem a store on local disk lies on, and whether locks reach other mounts of the same files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_WITHOUT_LOCKS: Final = re.compile(r"fuse(?:\..+)?|9p|virtiofs|vboxsf|prl_fs|fakeowner|cifs|smb3")
"""Filesystems whose locks may not reach other mounts of the same files: other containers, machines, or the host."""
_LEAST_FIELDS: Final = 5


def filesystem_warning(root: Path | None) -> str | None:
    """Return what to know about the filesystem of a root on local disk; None if there is nothing to know."""
    if root is None or not _MOUNTS.exists():
        return None
    kind = filesystem_at(root.resolve(), _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))
    if kind is None or not _WITHOUT_LOCKS.fullmatch(kind):
        return None
    return (
        f"{kind} may pass no locks on to other mounts of the same files (another container, another machine, the host):"
        " programs on two mounts can lose each other's edits without an error. Doctor sees only this mount; let all "
        "programs that change the store use it"
    )


def filesystem_at(path: Path, mountinfo: str) -> str | None:
    """Return the type of the filesystem of a path, from the text of ``/proc/self/mountinfo``."""
    depth, kind = 0, None
    for line in mountinfo.splitlines():
        facts, separator, source = line.partition(" - ")
        fields = facts.split(" ")
        if not separator or len(fields) < _LEAST_FIELDS:
            continue
        top = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[_LEAST_FIELDS - 1]))
        if path.is_relative_to(top) and len(top.parts) >= depth:  # a later mount covers an earlier one
            depth, kind = len(top.parts), source.split(" ")[0]
    return kind
