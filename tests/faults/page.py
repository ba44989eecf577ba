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
# What was killed, failed and switched off

Every number is a try of one run; the page is written by that run and by nobody else:

```sh
{command}
```

{facts}

"34 of 34" is 34 tries that kept every promise: what is there is the old or the new state, never a torn one; what was
acknowledged is there; nothing beside the root was touched; listings show no temporary file; the same operation works
again, and so does the next. {failures}

## Processes killed

`kill -9` before the 1st, 2nd, … call of an operation, and right after it acknowledged. The calls are those that reach
the kernel: a seccomp filter hands each one to `tests/faults/shim.c`. They were counted first. *Half-way* is a kill when
half of a write's bytes are written; an append's line may then be torn, and the next record still begins a new one. An
*older system* has no `openat2`, no `renameat2` and no nameless files (`O_TMPFILE`).

{kills}

*Audited* is the same with an `AuditPlugin(required=True, intent=True)`, its log's calls included: what was acknowledged
has a record, what changed anything was announced by one, and the log verifies after the next process went on in it.

*Audited, interrupted* is an exception at each place where Python can run a signal's handler: the log is intact, what
changed anything has its record, and the next operation works.

A process that goes on writing, killed at a random moment: each record that was acknowledged is there once, whole.

{loops}

## Interrupts

An exception like that of a signal's handler (Ctrl-C), raised at every place of an operation where CPython can run such
a handler: when a function of ours begins, before and after each call of C code. What is there is the old or the new
state, no lock is left that the next call would wait for, and the same operation works again, in the same process.

{interrupts}

Python cannot promise that no descriptor stays open: between the system call that opens one and the statement that
keeps its number, and at the beginning of the function that closes it, no `with` and no `finally` is in force.
{descriptors} At every other place none stayed open.

## Calls that fail

Each call of an operation failed with EIO, and those that need room also with ENOSPC and EDQUOT, also after half a
write. An error is a `FileOperationError`, the old content is there (an `OutcomeUnknownError` may mean the new one), no
temporary is left, and no message names a host path. *Short writes*: every write takes half of what it is given. *File
size limit* is `RLIMIT_FSIZE`; *full* is a filesystem without a free byte.

{failing}

## Machines switched off

A filesystem on a loop device, stopped by its shutdown ioctl without a flush of the journal, or with one (then what was
renamed is on the disk and what was not synced may not be), mounted again and read. The moments: before each call that
changes something, and right after the acknowledgement.

{power}

## Links put there while we work

Another process exchanges a real directory, or the file itself, with a symbolic link to the outside as fast as it can,
at four places on the way to a file, while an operation is tried again and again. An escape would be a byte of the
outside read, a name of it listed, or anything in it changed. The controls resolve a path first and open it later: they
have to be seen to escape.

{swaps}

## What has to be found out

Without this the numbers above would show nothing: plain code that does not keep the promises, under the same tests.
"1 of 1" means that its loss was seen.

{controls}
"""


def page(results: Results, command: str) -> str:
    """The page of one run."""
    facts = {"Kernel": f"{platform.system()} {platform.release()}", "Python": platform.python_version()}
    names = ("ext4", "XFS", "tmpfs")
    failures = f"**{results.failures} tries did not; the run names them.**" if results.failures else "All did."
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
