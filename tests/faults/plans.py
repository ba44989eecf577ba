"""What one try of an operation is told to suffer, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path


class Fault(IntEnum):
    """What happens to the call a plan names; the numbers are ``shim.c``'s."""

    NONE = 0
    KILL = 1  # the process, before the call is made
    FAIL = 2  # the call, with an errno, nothing done
    SHORTEN = 3  # every write writes half of what it is given
    KILL_HALFWAY = 4  # the process, after half of what the call has to write
    FAIL_HALFWAY = 5  # the next write, with an errno, after half of what this call has to write


@dataclass(frozen=True)
class Plan:
    """One fault.

    Attributes:
        at: the call it happens to, counted from 1. A process to be killed after its last call is killed right
            after it acknowledged.
        older: refuse what older kernels and other filesystems lack: openat2, renameat2, nameless files.
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
    """A system call an operation made; ``creates``: it opens a file that need not exist."""

    name: str
    creates: bool = False

    @property
    def writes(self) -> bool:
        return self.name in {"write", "pwrite64", "sendfile", "copy_file_range", "splice"}

    @property
    def allocates(self) -> bool:
        """Whether a full disk or a used-up quota can refuse it."""
        names = ("mkdir", "link", "rename", "fsync", "fdatasync", "ftruncate", "fallocate")
        return self.creates or self.writes or self.name.startswith(names)

    @property
    def removes(self) -> bool:
        return self.name.startswith(("unlink", "rmdir"))

    @property
    def changes(self) -> bool:
        """Whether a disk is different after it."""
        return self.allocates or self.removes or self.name.startswith(("sync", "truncate"))

    def __str__(self) -> str:
        return f"{self.name} of a new file" if self.creates else self.name


@dataclass(frozen=True)
class Try:
    """A request: run an operation on a memory, in a process of its own; ``audited``: with `audit` as a plugin."""

    base: Path
    url: str
    operation: str
    plan: Plan = field(default_factory=Plan)
    audited: bool = False


@dataclass(frozen=True)
class Loop:
    """A request: go on appending or replacing records, numbered from ``first``, until killed after ``seconds``."""

    url: str
    kind: str
    first: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """What came of a request.

    Attributes:
        acknowledged: how many records of a loop were; of a try, whether it returned.
        error: what the operation raised.
        calls: what it made; unknown of a killed one.
    """

    acknowledged: int
    error: BaseException | None = None
    calls: tuple[Call, ...] = ()
