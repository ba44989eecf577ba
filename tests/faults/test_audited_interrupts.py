"""An interrupt at every place of an audited operation leaves a complete chain and a record of each change."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from agent_memory import AgentMemory
from agent_memory.audit import log_at, verify
from agent_memory.audit.record import facts_of
from tests.faults import page
from tests.faults.interrupts import closed_below, count_places, interrupted_at
from tests.faults.judging import Place, audit
from tests.faults.operations import CHANGES, Operation, Tree
from tests.faults.page import Results
from tests.support.sizes import long_except

_SHORT = ("append",)
pytestmark = pytest.mark.filterwarnings(  # Python prints and ignores an interrupt in `__del__`
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


@long_except(_SHORT, "operation", CHANGES)
def test_an_operation_interrupted_at_any_place_leaves_its_record_in_the_log(
    tmp_path: Path, results: Results, operation: Operation, long: bool
) -> None:
    last, _ = tried(tmp_path / "count", operation, 0)
    faults = [
        tried(tmp_path / str(place), operation, place)[1] for place in range(1, last + 1, 1 if long else last // 12)
    ]
    results.check(operation.name, page.AUDITED_INTERRUPTED, faults)


def tried(base: Path, operation: Operation, at: int) -> tuple[int, list[str]]:
    """The number of places of a complete run (``at`` 0), and the faults after an interrupt at place ``at``."""
    place, places = Place(base), 0
    place.prepare(operation)
    with audit(base) as plugin, AgentMemory.open(place.root, plugins=[plugin]) as memory:
        if at:
            interrupted_at(at, lambda: operation.run(memory))
        else:
            places = count_places(lambda: operation.run(memory))
        changed = shown(place.root) != operation.start
        told = {str(facts_of(line)["event"]) for line in written(base)}
        memory.write("next.md", "next")
    verdict = verify(log_at(base / "log" / "audit.jsonl"))
    faults = [] if verdict.is_intact and verdict.writers == 1 else [f"place {at}: the log: {verdict}"]
    if changed and not told >= {"intent", "operation"}:
        faults.append(f"place {at}: changed something, and the log has {told}")
    gc.collect()
    closed_below(base)
    place.remove()
    return places, faults


def shown(root: Path) -> Tree:
    """All files below a root, except the temporary files of an interrupted writer."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".agent-memory-tmp")]
    return {path.relative_to(root).as_posix(): path.read_text() for path in files}


def written(base: Path) -> list[bytes]:
    log = base / "log" / "audit.jsonl"
    return log.read_bytes().splitlines() if log.exists() else []
