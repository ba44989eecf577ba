"""``shim.c``, built and called."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tests.faults import building
from tests.faults.plans import Call, Plan

_SOURCE = Path(__file__).with_name("shim.c")


class ShimError(Exception):
    """The shim cannot be used here; the message says why."""


def build(directory: Path) -> Path:
    """The compiled shim."""
    return building.build(_SOURCE, directory / "shim.so", "-shared", "-fPIC")


class Shim:
    """The shim of this process."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fault_name.restype = ctypes.c_char_p

    def arm(self, plan: Plan) -> None:
        """Watch this thread from now on, for the rest of its life; only once in a process.

        Raises:
            ShimError: the system does not let a process filter its own system calls.
        """
        refused = self._library.fault_arm(plan.fault, plan.at, plan.error, plan.older)
        if refused:
            raise ShimError(f"no seccomp filter here, which the fault tests need: {os.strerror(refused)}")

    def disarm(self) -> tuple[Call, ...]:
        """Let every call pass again; the calls made since `arm`."""
        made = range(self._library.fault_disarm())
        return tuple(Call(self._name(index), bool(self._library.fault_creates(index))) for index in made)

    def _name(self, index: int) -> str:
        name: bytes = self._library.fault_name(index)
        return name.decode()
