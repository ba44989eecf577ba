"""In hostile histories every acknowledged state is listed, and nothing connected with a forgotten file is left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, VersionLimits
from agent_memory.core.versions import find, order
from agent_memory.core.versions.archive import Archive
from agent_memory.core.versions.forget import Forgetting
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.states import CurrentFile
from tests.core.versions.hostile import History, Killed, Storage, StorageInMemory, StorageOnS3, killing
from tests.support import sizes
from tests.support.servers import S3Server

_STEPS = 25
_PLANTED = 400
_NONE = logging.CRITICAL + 1


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of histories log the errors that they provoke."""
    logging.disable(_NONE)
    yield
    logging.disable(logging.NOTSET)


def failures(make: Callable[[int], Storage], seeds: Iterable[int]) -> Iterator[str]:
    for seed in seeds:
        history = History(make(seed), seed)
        history.play(_STEPS)
        if history.faults:
            yield "\n".join([f"seed {seed}", *history.steps, *history.faults])


in_blocks = pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 10))])


@in_blocks
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_no_history_loses_a_state_or_keeps_what_was_forgotten(kind: str, block: int, tmp_path: Path) -> None:
    def make(seed: int) -> Storage:
        root = tmp_path / str(seed)
        root.mkdir()
        return Storage(root) if kind == "disk" else StorageInMemory()

    seeds = range(block * 200, (block + 1) * 200) if sizes.is_long else range(50)
    assert next(failures(make, seeds), None) is None


@in_blocks
def test_no_history_on_s3_loses_a_state_or_keeps_what_was_forgotten(ministack: S3Server, block: int) -> None:
    seeds = range(block * 20, (block + 1) * 20) if sizes.is_long else range(4)
    assert next(failures(lambda _: StorageOnS3(ministack), seeds), None) is None


async def nothing_is_compared(*_: Any) -> bool:
    return True


def the_newest_goes_first(self: Forgetting, selected: Any) -> Iterator[Any]:
    yield from [*_phases(self, selected)][::-1]


def a_copied_history_is_of_one_file(records: Any, place: str, previous: Any, existing: Any) -> Any:  # noqa: ARG001
    return list(records)


async def no_mark_is_written(*_: Any, **__: Any) -> None: ...


def an_origin_begins_a_history(self: Origin, by: Any, size: int, data: Any) -> Origin:  # noqa: ARG001
    return Origin.first(by, size, data)


def the_makers_clocks_order_the_states(records: Any) -> list[Any]:
    return sorted(records, key=lambda each: each.record.made_by.time if each.record.made_by else 0.0, reverse=True)


def every_state_is_of_its_origin(self: CurrentFile) -> CurrentFile:
    return self


_phases = Forgetting._phases


@pytest.mark.parametrize(
    ("where", "name", "defect", "first"),
    [
        (find.Histories, "begins", nothing_is_compared, 0),
        (Archive, "write_mark", no_mark_is_written, 200),  # no earlier history finds it
        (Origin, "next", an_origin_begins_a_history, 0),
        (order, "newest_first", the_makers_clocks_order_the_states, 0),
        (CurrentFile, "with_known_origin", every_state_is_of_its_origin, 0),
    ],
    ids=["hidden by id alone", "no mark", "no history", "order by clocks", "maker by origin alone"],
)
def test_a_planted_defect_is_found(
    where: Any, name: str, defect: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, defect)
    found = failures(lambda _: StorageInMemory(), range(first, _PLANTED))
    assert next(found, None) is not None


ENDS: dict[str, Callable[[Storage, AgentMemory], object]] = {
    "is there": lambda _, m: m.append("c.md", "canary-last\n"),
    "is deleted": lambda _, m: m.delete("c.md"),
    "is deleted by a tool": lambda s, _: s.remove("c.md"),
    "lost its origin": lambda s, _: s.replace("c.md", "canary-last\n"),
    "was renamed by a tool": lambda s, _: s.move("c.md", "d.md") or s.move("d.md", "c.md"),  # type: ignore[func-returns-value]
    "lost the settings": lambda s, _: s.lose_settings(),
}


def forgets_although_killed(storage: Storage, end: str, number: int, after: bool) -> bool:
    """Forget a file with three names, killed at a call of the storage, and again; return whether it was killed."""
    with AgentMemory.open(storage.url, versions=VersionLimits()) as memory:
        for name, earlier in (("a.md", None), ("b.md", "a.md"), ("c.md", "b.md")):
            if earlier:
                memory.rename(earlier, name)
            for change in range(2 if name != "c.md" else 0):
                memory.write(name, f"canary of {name} {change}\n")
        ENDS[end](storage, memory)
    with AgentMemory.open(storage.url) as memory:
        try:
            with killing(memory, number, after):
                memory.forget("c.md")
            was_killed = False
        except Killed:
            was_killed = True
    with AgentMemory.open(storage.url) as memory:
        memory.forget("c.md")
    left = [place for place, data in storage.contents() if b"canary" in data]
    assert left == [], f"killed {'after' if after else 'before'} call {number}"
    return was_killed


def forgets_at_every_kill(end: str) -> None:
    for after in (False, True):
        number = 1
        while forgets_although_killed(StorageInMemory(), end, number, after):
            number += 1
        assert number > 10


@pytest.mark.parametrize("end", ENDS)
def test_a_forget_that_is_killed_at_any_call_is_completed_by_a_repetition(end: str) -> None:
    forgets_at_every_kill(end)


def test_an_erasing_that_begins_with_the_newest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forgetting, "_phases", the_newest_goes_first)
    with pytest.raises(AssertionError, match="killed"):
        forgets_at_every_kill("is deleted")


@pytest.mark.parametrize("names", [("a.md", "b.md"), ("b.md", "a.md"), ("q.md", "z.md")])
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_redaction_that_is_killed_at_any_call_is_completed_by_a_repetition(
    kind: str, names: tuple[str, str], tmp_path: Path
) -> None:
    """It also completes what it began under the names of copies."""
    one, copy = names
    was_killed, number = True, 0
    while was_killed:
        root = tmp_path / f"{(number := number + 1)}"
        root.mkdir()
        storage = Storage(root) if kind == "disk" else StorageInMemory()
        with AgentMemory.open(storage.url, versions=VersionLimits()) as memory:
            memory.write(one, "canary")
            storage.copy(one, copy)
            for name in names:
                memory.write(name, f"clean {name}")
            version = memory.versions.list(one)[1].id
            try:
                with killing(memory, number, after=False):
                    memory.versions.redact(one, version, reason="a key")
                was_killed = False
            except Killed:
                memory.versions.redact(one, version, reason="a key")
            assert not [place for place, data in storage.contents() if b"canary" in data], (number, names)
    assert number > 10


@pytest.mark.parametrize("forgotten", ["g", "g/x", "g/x/a.md"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_the_files_of_a_renamed_directory_are_forgotten_after_another_program_removed_them(
    kind: str, others: bool, forgotten: str, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    storage = Storage(tmp_path / "root") if kind == "disk" else StorageInMemory()
    with AgentMemory.open(storage.url, versions=VersionLimits()) as memory:
        for text in ("canary 1", "canary 2"):
            memory.write("d/x/a.md", text)
        if others:
            memory.write("d/x/b.md", "other")
        memory.rename("d", "f")
        memory.rename("f", "g")
        storage.remove("g/x/a.md")
        memory.forget(forgotten)
        assert not [place for place, data in storage.contents() if b"canary" in data]
