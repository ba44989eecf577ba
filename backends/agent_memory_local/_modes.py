"""The permission bits of new files and directories."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple


class NewModes(NamedTuple):
    """The permission bits of new files and directories; None: the bits of the system call, less the umask."""

    file: int | None = None
    directory: int | None = None

    @classmethod
    def of(cls, mode: object) -> NewModes:
        """Parse the option ``mode``: the bits of files as a number, or as octal digits; None for the default.

        Raises:
            ValueError: the bits do not let the owner read and write, or are more than ``0o666``.
        """
        if mode is None:
            return cls()
        bits = mode if isinstance(mode, int) else _octal(mode)
        if bits & 0o600 != 0o600 or bits & ~0o666:
            raise ValueError(
                f"mode must be the permission bits of files from 0600 to 0666, such as the text '0640', not {mode!r}"
            )
        return cls(bits, bits | (bits & 0o444) >> 2)


def _octal(mode: object) -> int:
    try:
        return int(str(mode), 8)
    except ValueError:
        return 0


def set_bits(file: int, bits: int) -> None:
    """Set the permission bits of an open new file or directory; the set-group-id bit of a directory stays."""
    found = stat.S_IMODE(os.fstat(file).st_mode)
    if (wanted := bits | found & stat.S_ISGID) != found:
        os.fchmod(file, wanted)
