"""`Verdict`: the findings of a verification of an audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

FindingKind: TypeAlias = Literal[
    "edited", "missing", "reordered", "duplicated", "truncated", "foreign", "salt", "base", "torn", "unanchored"
]
HARMLESS: Final = ("torn", "unanchored")
"""Findings that a crash or a missing checkpoint can cause too."""


class Line(NamedTuple):
    """A line of a log: its file and its number, counted from 1; an empty ``part`` is the whole log."""

    part: str
    number: int

    def __str__(self) -> str:
        return f"{self.part}:{self.number}" if self.part else "the log"


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that is not as it was written, or that no checkpoint covers; ``last`` ends a range of lines."""

    kind: FindingKind
    line: Line
    detail: str
    last: Line | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether a crash or a missing checkpoint can explain it."""
        return self.kind in HARMLESS

    def __str__(self) -> str:
        return f"{self.line}{f' to {self.last}' if self.last else ''}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification: the findings, and the numbers of records, writers and branches.

    A branch is a chain that begins at a record of another one: processes that were restored from one image of a process
    are one writer. ``since`` is when the log was begun anew, in POSIX seconds, if it was: the verification covers the
    records after it. ``known`` are findings in the log before, which a person knew when the log was begun anew.
    """

    findings: tuple[Finding, ...]
    records: int
    writers: int
    branches: int = 0
    since: float | None = None
    known: tuple[Finding, ...] = ()

    @property
    def is_intact(self) -> bool:
        """Whether a crash or a missing checkpoint can explain all findings."""
        return all(finding.is_harmless for finding in self.findings)
