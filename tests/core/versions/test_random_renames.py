"""Undo and forget follow files through random renames of files and directories, restorations and new files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import pytest

from agent_memory import AgentMemory, AgentMemoryError, FileVersion
from agent_memory.key import is_at_or_below
from tests.core.versions.helpers import ON, files, list_with_few_times
from tests.support import sizes

FILES = ("a", "d/f", "e/f")
DIRECTORIES = ("d", "e", "h")
REWRITES = ("write", "write", "delete")
CHANGES = (*REWRITES, "rename", "rename", "rename a directory", "restore")
CHANGES_OF_FILES = (*REWRITES, "rename", "rename")  # what is restored is a copy: within a second it has no order
SEEDS = range(6000 if sizes.is_long else 300)


def test_an_undo_of_the_last_call_restores_every_file_or_says_what_it_left() -> None:
    for seed in SEEDS:
        random = Random(seed)
        with AgentMemory.open("memory://", versions=ON, actor="ann") as memory, pytest.MonkeyPatch.context() as patched:
            has_few_times = random.random() < 0.5  # as on S3, where a directory is renamed file by file
            changes, names = (CHANGES_OF_FILES, FILES[:2]) if has_few_times else (CHANGES, FILES)
            _change(memory, random, changes, 14, names)
            before = files(memory)
            _change(memory.acting_as("bob"), random, REWRITES, 5, names)
            if has_few_times:
                _list_with_few_times(patched, random)
            left = {each.path for each in memory.versions.undo(actor="bob").left}
            after = files(memory)
            assert _without(after, left) == _without(before, left), f"seed {seed}"


def test_a_forget_erases_all_below_a_path_and_no_state_of_a_file_that_lives_elsewhere() -> None:
    for seed in SEEDS:
        random = Random(seed)
        with AgentMemory.open("memory://", versions=ON) as memory, pytest.MonkeyPatch.context() as patched:
            _change(memory, random, [each for each in CHANGES if each != "restore"], 14)  # what is restored is a copy
            path = random.choice((*FILES, *DIRECTORIES))
            elsewhere = {name: text for name, text in files(memory).items() if not is_at_or_below(name, path)}
            states = {name: _own(memory.versions.list(name)) for name in elsewhere}
            if random.random() < 0.5:
                _list_with_few_times(patched, random)
            with suppress(AgentMemoryError):
                memory.forget(path)
            patched.undo()
            assert files(memory) == elsewhere, f"seed {seed}"
            assert not [each.path for each in memory.versions.list() if is_at_or_below(each.path, path)], f"seed {seed}"
            for name, own in states.items():
                if own and not is_at_or_below(own[0].path, path):
                    kept = {each.id for each in own if not is_at_or_below(each.path, path)}
                    assert kept <= {each.id for each in memory.versions.list(name)}, f"seed {seed}"


def _change(
    memory: AgentMemory, random: Random, changes: Sequence[str], most: int, names: Sequence[str] = FILES
) -> None:
    """Make up to so many random changes; those that are impossible are left out."""
    for _ in range(random.randint(2, most)):
        change, path = random.choice(changes), random.choice(names)
        with suppress(AgentMemoryError):
            if change == "write":
                memory.write(path, str(random.random()))
            elif change == "delete":
                memory.delete(path)
            elif change == "rename":
                memory.rename(path, random.choice(names))
            elif change == "rename a directory":
                memory.rename(*random.sample(DIRECTORIES, 2))
            elif earlier := [each for each in memory.versions.list(path) if each.ended_by]:
                memory.versions.restore(path, random.choice(earlier))


def _list_with_few_times(patched: pytest.MonkeyPatch, random: Random) -> None:
    cuts = random.sample(range(1, 10), random.randint(0, 3))
    list_with_few_times(patched, cuts, is_reversed=random.random() < 0.5)


def _without(texts: dict[str, str], left: set[str]) -> dict[str, str]:
    return {path: text for path, text in texts.items() if path not in left}


def _own(versions: tuple[FileVersion, ...]) -> list[FileVersion]:
    """The earlier states of the current file, latest first; a listing also tells those of earlier files of its name."""
    by_id, found = {each.id: each for each in versions}, []
    previous = versions[0].previous
    while previous in by_id:
        found.append(by_id[previous])
        previous = found[-1].previous
    return found
