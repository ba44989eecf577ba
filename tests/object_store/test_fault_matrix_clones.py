"""Clones of one image of a process lose nothing, in every race, on S3 and on local disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService
from tests.object_store.matrix import CLONED_PLACES, CLONES_OF_AN_IMAGE, NOT_CLONED_BY_OBSTORE, Cell, Cells
from tests.support.cloned_races import AGENT, CLONES, RACES, Race, changed, fill, prepared, told
from tests.support.images import CAN_CLONE, from_image
from tests.support.servers import Root, S3Server

pytestmark = pytest.mark.skipif(not CAN_CLONE, reason="needs the system call clone of Linux")
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the clones are other processes
QUICK = ("local", "append", True)
TRIALS = [
    pytest.param(place, race, warm, id=f"{place}-{race.name}-{'warm' if warm else 'cold'}",
                 marks=() if (place, race.name, warm) == QUICK else pytest.mark.long)
    for place, warm in CLONED_PLACES
    for race in RACES
    if not (place == "obstore" and race.name in NOT_CLONED_BY_OBSTORE)
]  # fmt: skip


@pytest.mark.parametrize(("place", "race", "warm"), TRIALS)
def test_clones_of_one_image_lose_nothing(
    place: str, race: Race, warm: bool, tmp_path: Path, cells: Cells, request: pytest.FixtureRequest
) -> None:
    root = Root(str(tmp_path / "root"), {})
    if place != "local":
        server: S3Server = request.getfixturevalue("ministack")
        root = Root(server.new_url(), server.by(place).options)
    if not warm:
        with AgentMemoryService(root.url, storage_options=root.options) as service:
            fill(service.agent(AGENT))
    results = from_image(tmp_path, CLONES, prepared, changed, root, race.name, warm, False)
    kept = told(root, race, results)
    cells[place, race.name, CLONES_OF_AN_IMAGE, warm] = Cell(kept, 0, 0.0)
    assert kept == race.expected
