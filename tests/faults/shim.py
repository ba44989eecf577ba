"""Build and call ``shim.c``."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tests.faults import building
from tests.faults.plans import Call, Plan

_SOURCE = Path(__file__).with_name("shim.c")


class ShimError(Exception):
    """The shim cannot be used here; the message is the reason."""


def build(directory: Path) -> Path:
    """The compiled shim."""
    return building.build(_SOURCE, directory / "shim.so", "-shared", "-fPIC")


class Shim:
    """The shim of this process."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fault_name.restype = ctypes.c_char_p

    def arm(self, plan: Plan) -> None:
        """Watch this thread until it ends; allowed only once per process.

        Raises:
            ShimError: the system does not allow a process to filter its own system calls.
        """
        refused = self._library.fault_arm(plan.fault, plan.at, plan.error, plan.older)
        if refused:
            raise ShimError(f"no seccomp filter here, which the fault tests need: {os.strerror(refused)}")

    def disarm(self) -> tuple[Call, ...]:
        """Stop affecting calls; return the calls made since `arm`."""
        made = range(self._library.fault_disarm())
        return tuple(Call(self._name(index), bool(self._library.fault_creates(index))) for index in made)

    def _name(self, index: int) -> str:
        name: bytes = self._library.fault_name(index)
        return name.decode()
