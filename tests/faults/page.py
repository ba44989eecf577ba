"""The results of a run, and the page made only from the results of that run."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date

KILLED = "killed before each system call, and after the acknowledgement"
HALFWAY = "killed half-way through a write"
OLDER = "killed before each call, without openat2, renameat2 and O_TMPFILE"
CHANGING = "killed before each system call that changes the disk"
BESIDE = "killed before every seventh system call, beside a process that writes"
AUDITED = "audited, with intent: killed before each call"
AUDITED_HALFWAY = "audited: killed half-way through a write"
AUDITED_INTERRUPTED = "audited: interrupted at each place where a signal handler can run"
FAILING = "each call fails: EIO, ENOSPC, EDQUOT, also after half of a write"
FAILING_OLDER = "each call fails, older system"
SHORT = "every write writes half of its bytes"
LIMIT = "RLIMIT_FSIZE"
FULL = "{} without a free byte"
POWER = "{} switched off, with and without a flush of its journal"
LOOPS = "kill -9 at a random moment"
INTERRUPTED = "interrupted on disk"
INTERRUPTED_IN_MEMORY = "interrupted in memory"
CONTROL = "controls: code without our care, whose loss must be detected"
LINKS = "links to the outside exchanged with names on the path"
CARELESS = "controls: code that resolves a path first, and must be seen to escape"


@dataclass
class Cell:
    """The number of tries of a kind that kept every promise."""

    passed: int = 0
    tried: int = 0
    not_run: str = ""


@dataclass
class Results:
    """All cells of a run, each of an operation and a kind of fault."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    swaps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The tries and the escapes of each operation, and of each control, while links are exchanged."""
    opened: Cell = field(default_factory=Cell)
    """Interrupts on disk that left a descriptor open, of all interrupts on disk."""

    def add(self, row: str, column: str, passed: int, tried: int) -> None:
        """Count tries in a cell."""
        cell = self.cells.setdefault((row, column), Cell())
        cell.passed += passed
        cell.tried += tried

    def merge(self, other: Results) -> None:
        """Count the tries of another process of the run as well."""
        for key, cell in other.cells.items():
            if cell.tried:
                self.add(*key, cell.passed, cell.tried)
            else:
                self.cells.setdefault(key, cell)
        self.facts |= other.facts
        self.swaps |= other.swaps
        self.opened.passed += other.opened.passed
        self.opened.tried += other.opened.tried

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

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """Each kind of fault, with its numbers of operations, of tries, and of tries that kept every promise."""
        for kind in sorted({kind for _, kind in self.cells}):
            cells = [cell for (_, seen), cell in self.cells.items() if seen == kind and cell.tried]
            yield kind, len(cells), sum(cell.tried for cell in cells), sum(cell.passed for cell in cells)
        raced = [figures for name, figures in self.swaps.items() if not name.startswith("control")]
        yield LINKS, len(raced), sum(tries for tries, _ in raced), sum(tries - escapes for tries, escapes in raced)
        escapes = [found for name, (_, found) in self.swaps.items() if name.startswith("control")]
        yield CARELESS, len(escapes), len(escapes), sum(map(bool, escapes))


_ROW = "| {} | {:,} | {:,} | {:,} |"
PAGE = """\
# Faults on local disk

Written by `.ci/run --long faults` on {date}: {facts}.

A try is one operation with a fault at one of its system calls or places. It kept every promise if its files are in the
old or the new state and every acknowledged change is stored, nothing beside the root was touched, no listing shows a
temporary file, and the same operation and a following one work. Of controls, code without our care, the last column
counts the losses that the method detected.

| fault | operations | tries | kept every promise |
|---|---:|---:|---:|
{rows}

After {opened} of {interrupts} interrupts on disk a descriptor stayed open: Python cannot protect the code between a
system call and the statement that stores its number.
"""


def page(results: Results) -> str:
    """The page of one run."""
    facts = {
        "Kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        **results.facts,
    }
    return PAGE.format(
        date=date.today(),  # noqa: DTZ011 - the machine's own date
        facts=", ".join(f"{name} {fact}" for name, fact in facts.items()),
        rows="\n".join(_ROW.format(*row) for row in results.rows()),
        opened=results.opened.passed,
        interrupts=results.opened.tried,
    )
