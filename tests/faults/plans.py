"""The faults planned for one try of an operation, and the report of the try."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path


class Fault(IntEnum):
    """The fault of the planned call; the numbers are those of ``shim.c``."""

    NONE = 0
    KILL = 1  # kill the process before the call
    FAIL = 2  # fail the call with an errno, without an effect
    SHORTEN = 3  # every write writes only half of its data
    KILL_HALFWAY = 4  # kill the process after half of the call's data
    FAIL_HALFWAY = 5  # fail the next write with an errno, after half of this call's data


@dataclass(frozen=True)
class Plan:
    """One fault.

    Attributes:
        at: the number of the affected call, counted from 1. A number after the last call kills the process right
            after the acknowledgement.
        older: refuse calls that older kernels and other filesystems lack: openat2, renameat2, ``O_TMPFILE``.
        largest_file: the process's ``RLIMIT_FSIZE`` in bytes.
    """

    fault: Fault = Fault.NONE
    at: int = 0
    error: int = 0
    older: bool = False
    largest_file: int | None = None

    @property
    def kills(self) -> bool:
        return self.fault in (Fault.KILL, Fault.KILL_HALFWAY)


@dataclass(frozen=True)
class Call:
    """A system call of an operation; ``creates``: it opens a file that may not exist."""

    name: str
    creates: bool = False

    @property
    def writes(self) -> bool:
        return self.name in {"write", "pwrite64", "sendfile", "copy_file_range", "splice"}

    @property
    def allocates(self) -> bool:
        """Whether a full disk or an exhausted quota can refuse the call."""
        names = ("mkdir", "link", "rename", "fsync", "fdatasync", "ftruncate", "fallocate")
        return self.creates or self.writes or self.name.startswith(names)

    @property
    def removes(self) -> bool:
        return self.name.startswith(("unlink", "rmdir"))

    @property
    def changes(self) -> bool:
        """Whether the call may change the disk."""
        return self.allocates or self.removes or self.name.startswith(("sync", "truncate"))

    def __str__(self) -> str:
        return f"{self.name} of a new file" if self.creates else self.name


@dataclass(frozen=True)
class Try:
    """A request to run an operation on a memory in a new process; ``audited``: with `audit` as a plugin."""

    base: Path
    url: str
    operation: str
    plan: Plan = field(default_factory=Plan)
    audited: bool = False


@dataclass(frozen=True)
class Loop:
    """A request to append or replace records, numbered from ``first``, until a kill after ``seconds``."""

    url: str
    kind: str
    first: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """The result of a request.

    Attributes:
        acknowledged: the number of acknowledged records of a loop; for a try, whether it returned.
        error: the exception of the operation.
        calls: the system calls of the operation; empty if it was killed.
    """

    acknowledged: int
    error: BaseException | None = None
    calls: tuple[Call, ...] = ()
