"""A process that merges, prunes, closes or restarts a log on S3 and is killed before any of its requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from agent_memory import AgentMemory
from agent_memory.audit import LogLocation
from agent_memory.audit import merging as merging_module
from agent_memory.audit.merging import merge
from tests.audit.test_merging import Later
from tests.audit.trial import FAR, Trial, lose
from tests.object_store.killing import Killed
from tests.object_store.proxy import Proxy
from tests.support.servers import Root, S3Server

pytestmark = pytest.mark.long


class OpenTrial(Trial):
    """A log that is open already."""

    def __init__(self, log: LogLocation, directory: Path) -> None:
        super().__init__("", directory)
        self._log = log

    @property
    def location(self) -> LogLocation:
        return self._log


def merged(trial: Trial) -> object:
    with patch.object(merging_module, "time", Later):
        return merge(trial.location)


CALLS: dict[str, Callable[[Trial], object]] = {
    "merge": merged,
    "prune": lambda trial: trial.renewal().prune(FAR),
    "close": lambda trial: trial.renewal().close(),
    "restart": lambda trial: trial.renewal().restart("lost a line"),
}


def call_on_log(memory: AgentMemory, name: str) -> None:
    """Make a call on the log of a memory; ``name`` has the call and the directory of the checkpoints."""
    call, _, directory = name.partition(" ")
    CALLS[call](OpenTrial(LogLocation.below(memory._tree.backend), Path(directory)))


@pytest.mark.parametrize("call", CALLS)
def test_a_process_killed_before_any_request_leaves_a_whole_log(ministack: S3Server, tmp_path: Path, call: str) -> None:
    at, is_done = 0, False
    with Proxy(ministack.endpoint) as proxy:
        while not is_done:
            at += 1
            trial = Trial(ministack.new_url(), tmp_path / str(at), ministack.options)
            trial.heads.parent.mkdir()
            trial.write(2)
            trial.write(1, "eve")
            if call == "restart":
                lose(trial.location)
            before, name = trial.appends(), f"{call} {trial.heads.parent}"
            is_done = Killed(proxy, Root(str(trial.target), ministack.through(proxy)), call_on_log, name, at).is_done
            verdict, kept = trial.verdict(), trial.appends()
            assert verdict.is_intact or (call == "restart" and not is_done), f"before request {at}: {verdict}"
            assert kept == before or (call in ("prune", "close") and set(kept) < set(before)), f"before request {at}"
            if not (call == "restart" and verdict.is_intact):
                CALLS[call](trial)
            trial.write(1, "zoe")
            assert trial.verdict().is_intact, f"repeated after a kill before request {at}: {trial.verdict()}"
            expected = 1 if call in ("prune", "close") else len(before) + 1
            assert len(trial.appends()) == len(set(trial.appends())) == expected, f"before request {at}"
    assert at > 5
