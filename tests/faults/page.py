"""The results of a run, and the page made only from the results of that run."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field

KILLED = "killed before each call"
HALFWAY = "killed half-way through a write"
OLDER = "killed before each call, older system"
AUDITED = "audited, killed before each call"
AUDITED_HALFWAY = "audited, killed half-way through a write"
AUDITED_INTERRUPTED = "audited, interrupted at each place"
FAILING = "each call failing"
FAILING_OLDER = "each call failing, older system"
SHORT = "short writes"
LIMIT = "file size limit"
FULL = "full {}"
POWER = "power loss, {}"
LOOPS = "kill -9 at a random moment"
INTERRUPTED = "interrupted on disk"
INTERRUPTED_IN_MEMORY = "interrupted in memory"
CONTROL = "controls"


@dataclass
class Cell:
    """The number of tries of a kind that kept every promise."""

    passed: int = 0
    tried: int = 0
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.passed} of {self.tried}" if self.tried else f"not run: {self.not_run}"


@dataclass
class Results:
    """All cells of a run."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    swaps: dict[str, list[str]] = field(default_factory=dict)
    opened: Cell = field(default_factory=Cell)
    """Interrupts on disk that left a descriptor open, of all interrupts on disk."""

    def add(self, row: str, column: str, passed: int, tried: int) -> None:
        """Count tries in a cell."""
        cell = self.cells.setdefault((row, column), Cell())
        cell.passed += passed
        cell.tried += tried

    def check(self, row: str, column: str, faults: list[list[str]]) -> None:
        """Count tries by their faults; raises `AssertionError` if there is a fault."""
        passed = sum(not found for found in faults)
        if not faults:
            self.not_run(row, column, "it makes no such call")
        self.add(row, column, passed, len(faults))
        told = "\n".join(fault for found in faults for fault in found)
        assert not told, f"{row}, {column}: {passed} of {len(faults)}\n{told}"

    def not_run(self, row: str, column: str, reason: str) -> None:
        """Record why a cell has no count."""
        self.cells.setdefault((row, column), Cell(not_run=reason))

    def table(self, columns: Iterable[str]) -> str:
        """A Markdown table of the rows with at least one of the columns; a cell without a result stays empty."""
        columns = [column for column in columns if any(seen == column for _, seen in self.cells)]
        rows = dict.fromkeys(row for row, column in self.cells if column in columns)
        lines = [["operation", *columns], ["---"] * (len(columns) + 1)]
        lines += ([row, *(str(self.cells.get((row, column), "")) for column in columns)] for row in rows)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def swap_table(self) -> str:
        """A Markdown table of the races against links."""
        head = [["operation", "tries", "done", "refused", "swaps a second", "escapes"], ["---", *["---:"] * 5]]
        return "\n".join(f"| {' | '.join(line)} |" for line in [*head, *([row, *c] for row, c in self.swaps.items())])

    @property
    def descriptors(self) -> str:
        """The number of interrupts that left a descriptor open."""
        return f"There one stayed open after {self.opened.passed} of {self.opened.tried} interrupts."

    @property
    def failures(self) -> int:
        return sum(cell.tried - cell.passed for cell in self.cells.values())


PAGE = """\
# Faults on local disk

Every number counts tries of one run, which writes this page:

```sh
{command}
```

{facts}

"34 of 34" means that 34 tries kept every promise. The files are in the old or the new state, never in a mixture. Every
acknowledged change is stored. Nothing beside the root was touched. Listings show no temporary file. The same operation
and a following one work. {failures}

## Processes killed

The process gets `kill -9` before the 1st, 2nd, … system call of an operation, and right after the acknowledgement. A
seccomp filter passes each system call to `tests/faults/shim.c`; they are counted first. *Half-way*: half of the bytes
of a write are written. The last line of an append may then be torn, and the next append still begins a new line. An
*older system* has no `openat2`, no `renameat2` and no nameless files (`O_TMPFILE`).

{kills}

*Audited* is the same with an `AuditPlugin(required=True, intent=True)`, including the system calls of its log. Each
acknowledged operation has a record, and each change was announced by a record. The log verifies after the next process
has continued it.

*Audited, interrupted*: an exception is raised at each place where Python can run the handler of a signal. The log is
intact, each change has its record, and the next operation works.

In the next table a process writes without a pause until it is killed at a random moment. Each acknowledged record is
stored once and whole.

{loops}

## Interrupts

An exception like that of Ctrl-C is raised at every place of an operation where CPython can run the handler of a
signal: at the beginning of each function of this package, and before and after each call of C code. The files are in
the old or the new state, no lock is left, and the same operation works again in the same process.

{interrupts}

Python cannot promise that no descriptor stays open. Neither `with` nor `finally` protects the code between the system
call that opens a descriptor and the statement that stores its number, or the beginning of the function that closes it.
{descriptors} At all other places none stayed open.

## Calls that fail

Each system call of an operation fails with EIO; calls that need space also fail with ENOSPC and EDQUOT, also after
half of a write. The error is a `FileOperationError`, and the old content is stored; after `OutcomeUnknownError` it may
be the new content. No temporary file is left, and no message contains a host path. *Short writes*: every write writes
half of its bytes. *File size limit* is `RLIMIT_FSIZE`. *Full* is a filesystem without a free byte.

{failing}

## Machines switched off

A filesystem on a loop device is stopped by its shutdown ioctl, without or with a flush of the journal, then mounted
again and read. After a flush, renames are on the disk, and unsynced content may be missing. The moments are before
each system call that changes something, and right after the acknowledgement.

{power}

## Links exchanged during operations

Another process exchanges a directory, or the file itself, with a symbolic link to the outside as fast as it can, at
four places on the path of a file. Meanwhile an operation is repeated. An escape is a byte of the outside that was
read, a name of it that was listed, or a change in it. The controls resolve a path first and open it later; the test
must see them escape.

{swaps}

## Controls

Code that does not keep the promises runs under the same tests; otherwise the numbers above would prove nothing. "1 of
1" means that the test detected its loss.

{controls}
"""


def page(results: Results, command: str) -> str:
    """The page of one run."""
    facts = {
        "Kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
    }
    names = ("ext4", "XFS", "tmpfs")
    failures = f"**{results.failures} tries did not; the run names them.**" if results.failures else "All tries did."
    return PAGE.format(
        command=command,
        facts="\n".join(f"- {name}: {fact}" for name, fact in {**facts, **results.facts}.items()),
        failures=failures,
        kills=results.table([KILLED, HALFWAY, OLDER, AUDITED, AUDITED_HALFWAY, AUDITED_INTERRUPTED]),
        loops=results.table([LOOPS]),
        interrupts=results.table([INTERRUPTED, INTERRUPTED_IN_MEMORY]),
        descriptors=results.descriptors,
        failing=results.table([FAILING, FAILING_OLDER, SHORT, LIMIT, *(FULL.format(name) for name in names)]),
        power=results.table(POWER.format(name) for name in names),
        swaps=results.swap_table(),
        controls=results.table([CONTROL]),
    )
