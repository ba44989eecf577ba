"""Write docs/other-filesystems.md from results of the contract and doctor: ``python -m tests.other_filesystems``.

Prints the page, and its progress on stderr. Takes half an hour; run it as root on Debian with samba installed.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from agent_memory.cli.doctor import Observation, diagnosed
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend
from agent_memory.testing.conformance import Promise, conform
from tests.other_filesystems.places import KINDS, Kind

_ROUNDS = 5
_HEAD = """# Other filesystems

This page lists the guarantees of `agent_memory_fsspec` on filesystems of fsspec that have no backend of their own. A
run of the whole [backend contract](backends.md) and of `agent-memory doctor` measured them. To repeat it, call
`python -m tests.other_filesystems` as root on Debian with samba and the extra `ecosystem`; it takes half an hour.

fsspec {fsspec}, Python {python}. "plainly" means without options: operations that no filesystem of fsspec guarantees
(creating, appending, editing, renaming, preconditions) are refused, and a reader may see half a write. "single writer"
means `allow_single_writer`: the caller declares that no other process writes there. These operations then check before
they write, under a lock of the process. In both cases directories go file by file, and `forget` is refused, because no
filesystem promises that nothing is kept.
"""
_ARCHIVES = """
The numbers are tests: kept, broken, not promised. fsspec opens an archive either for reading or for writing: a memory
can list and read an archive, and operations that need a write are broken.
"""
_RACES = """
Two results in one cell are those plainly and with a single writer. The races were between threads of one process. The
state after a crash was not tested.
"""
_LONGEST_DETAIL = 160


class Run(NamedTuple):
    """The results of one filesystem, opened in one way."""

    kind: Kind
    single: bool
    promises: Sequence[Promise]
    findings: Sequence[Observation]

    @property
    def broken(self) -> list[Promise]:
        return [each for each in self.promises if each.outcome == "broken"]

    @property
    def opened(self) -> str:
        return "single writer" if self.single else "plainly"

    def counted(self) -> list[str]:
        counts = Counter(each.outcome for each in self.promises)
        return [str(counts[outcome]) for outcome in ("kept", "broken", "not promised")]


def run_of(kind: Kind, single: bool) -> Run:
    with tempfile.TemporaryDirectory() as name, kind.open(Path(name)) as place:
        options = {**place.options, **({"allow_single_writer": True} if single else {})}
        promises, _ = conform(place.url, options, rounds=_ROUNDS)
        backend = open_backend(place.url, options)
        findings = diagnosed(backend, _ROUNDS).findings
        close_backend(backend)
    return Run(kind, single, promises, findings)


def page(runs: Sequence[Run]) -> str:
    lines = [_HEAD.format(fsspec=version("fsspec"), python=platform.python_version()), "## The contract", ""]
    lines += ["| filesystem | client | tried on | plainly | single writer |", "|---|---|---|---|---|"]
    pairs = list(zip(runs[::2], runs[1::2], strict=True))
    for plain, single in pairs:
        counts = [", ".join(run.counted()) for run in (plain, single)]
        lines.append(_row([plain.kind.name, plain.kind.client, plain.kind.server, *counts]))
    lines += [_ARCHIVES, "## What doctor saw", ""]
    promises = [finding.promise for finding in runs[0].findings]
    lines += [_row(["filesystem", *(promise.replace("_", " ") for promise in promises)])]
    lines += ["|---" * (len(promises) + 1) + "|"]
    for plain, single in pairs:
        seen = [{finding.promise: finding.seen for finding in run.findings} for run in (plain, single)]
        cells = ["; ".join(dict.fromkeys(each[promise] for each in seen)) for promise in promises]
        lines.append(_row([plain.kind.name, *cells]))
    lines += [_RACES, "## Broken", ""]
    lines += list(_broken(runs)) or ["Nothing."]
    return "\n".join(lines) + "\n"


def _broken(runs: Iterable[Run]) -> Iterable[str]:
    for run in runs:
        by_detail: dict[str, list[Promise]] = {}
        for each in run.broken:
            by_detail.setdefault(each.detail.partition(": ")[0].rpartition(".")[2], []).append(each)
        for error, promises in by_detail.items():
            first = promises[0]
            more = f" and {len(promises) - 1} more" if len(promises) > 1 else ""
            where = f"{run.kind.name}, {run.opened}, {error}: {first.part}: {first.text}{more}"
            yield f"- {where}: `{textwrap.shorten(first.detail.replace('`', ''), _LONGEST_DETAIL)}`"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    runs = []
    for kind in KINDS.values():
        for single in (False, True):
            runs.append(run_of(kind, single))
            sys.stderr.write(f"{kind.name} {runs[-1].opened} {runs[-1].counted()}\n")
    sys.stdout.write(page(runs))


if __name__ == "__main__":
    main()
