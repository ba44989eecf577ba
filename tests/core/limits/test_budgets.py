"""Budgets: their checks, their form in the record of the store, and that they refuse nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest

from agent_memory import AgentMemoryService, Budget, Limits, ReadError
from agent_memory.core.limits.settings import limit_setting_in, with_file_limits
from agent_memory.core.store_record import StoreRecord
from tests.support.servers import Root

BUDGETS = {"MEMORY.md": Budget(lines=200), "notes/**": Budget(bytes=9_000, lines=50), "/": Budget(files=100)}


@pytest.mark.parametrize(
    ("warn_at", "told"),
    [
        (5, "warn_at must be a mapping of patterns to budgets, not int"),
        ({"a": 5}, "warn_at of 'a' must be a Budget, not int"),
        ({5: Budget(lines=1)}, "warn_at: a pattern must be a string, not 5"),
        ({"a:b": Budget(lines=1)}, "'a:b' matches no path"),
        ({"../a": Budget(lines=1)}, "'../a' matches no path"),
        ({"a/": Budget(lines=1)}, "'a/' matches no path"),
        ({"": Budget(lines=1)}, "warn_at: "),
        ({"a": Budget(files=1)}, "warn_at of 'a' takes bytes and lines, not files"),
        ({"/": Budget(lines=1)}, "warn_at of '/' takes bytes and files, not lines"),
        ({"/": Budget(files=5_001)}, "files is at most 5,000"),
        ({f"{'x' * 200}{n}": Budget(lines=1) for n in range(100)}, "may have 16,384 bytes in all"),
    ],
)
def test_a_budget_that_is_not_possible_is_refused(warn_at: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"limits: .*{told}"):
        Limits(warn_at=warn_at)


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ({}, "a budget needs bytes, lines or files"),
        ({"lines": 0}, "lines must be a positive whole number, not 0"),
        ({"bytes": True}, "bytes must be a positive whole number, not True"),
        ({"files": 1.0}, "files must be a positive whole number, not 1.0"),
        ({"bytes": 1 << 63}, "bytes must be at most 4,611,686,018,427,387,904"),
    ],
)
def test_an_amount_that_is_not_possible_is_refused(amounts: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Budget(**amounts)


def test_limits_copy_their_budgets_and_nothing_changes_them() -> None:
    given = dict(BUDGETS)
    limits = Limits(warn_at=given)
    given.clear()
    assert limits.warn_at == BUDGETS
    frozen: Any = limits.warn_at
    changes: list[Callable[[], object]] = [
        lambda: frozen.update(a=1), lambda: frozen.pop("/"), lambda: frozen.clear(), lambda: frozen.setdefault("a", 1),
        lambda: frozen.__setitem__("a", 1), lambda: frozen.__delitem__("/"), lambda: frozen.__ior__({}),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(TypeError, match="limits cannot be changed"):
            change()
    with pytest.raises(FrozenInstanceError):
        limits.warn_at = {}  # type: ignore[misc]
    for same in (copy.deepcopy(limits), pickle.loads(pickle.dumps(limits)), replace(limits), Limits(warn_at=BUDGETS)):
        assert (same, hash(same)) == (limits, hash(limits))
    assert asdict(limits)["warn_at"]["MEMORY.md"] == {"bytes": None, "lines": 200, "files": None}


@pytest.mark.parametrize("root", ["local", "memory", "ministack"], indirect=True)
def test_budgets_are_stored_with_the_limits_and_refuse_nothing(root: Root) -> None:
    limits = Limits(warn_at={"*.md": Budget(bytes=1, lines=1), "/": Budget(files=1, bytes=1)})
    with AgentMemoryService(root.url, storage_options=root.options, limits=limits) as service:
        memory = service.agent("ann")
        memory.write("a.md", "one\ntwo\n")
        memory.append("b.md", "x" * 1_000)
    with AgentMemoryService(root.url, storage_options=root.options) as other:
        assert other.limits() == limits
        other.set_limits(replace(limits, agent_files=3))
        assert other.limits() == replace(limits, agent_files=3)


def test_a_record_without_budgets_has_the_form_of_an_older_release() -> None:
    record = with_file_limits(StoreRecord.new(), Limits(file_bytes=5))
    written: Any = record.others["limits"]
    assert written.keys() == {"file_bytes", "agent_bytes", "agent_files", "count_versions", "id", "since"}
    found = limit_setting_in(record)
    assert found
    assert found.limits == Limits(file_bytes=5)
    found = limit_setting_in(with_file_limits(record, Limits(warn_at=BUDGETS)))
    assert found
    assert (found.limits.warn_at, list(found.limits.warn_at)) == (BUDGETS, list(BUDGETS))


@pytest.mark.parametrize(
    "wrong", [5, [], {"a": 5}, {"a": {}}, {"a": {"lines": 0}}, {"a": {"words": 3}}, {"a:b": {"lines": 3}}]
)
def test_damaged_budgets_in_a_record_are_an_error(wrong: object) -> None:
    record = with_file_limits(StoreRecord.new(), Limits(file_bytes=5))
    damaged = record.using("limits", {**record.others["limits"], "warn_at": wrong})  # type: ignore[dict-item]
    with pytest.raises(ReadError):
        limit_setting_in(damaged)
