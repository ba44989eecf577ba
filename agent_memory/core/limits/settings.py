"""`Limits`: the limits of a store, in its record, which every process follows."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, NamedTuple, NoReturn, cast

from agent_memory.core.results import checked_count
from agent_memory.core.store_record import Feature, StoreRecord, damaged_record
from agent_memory.core.stored_facts import hexadecimal, moment
from agent_memory.key.patterns import require_possible

_FEATURE: Final[Feature] = "limits"
TREE: Final = "/"
"""The key of the budget of an agent's whole tree in `Limits.warn_at`."""
MOST_FILES: Final = 5_000
"""The files of an agent that are counted for its budget: a listing of five pages."""
_MOST: Final = 1 << 62
_MOST_PATTERNS: Final = 16_384
"""The maximum bytes of the patterns of all budgets together: the record of a store is small."""
_WARN_AT: Final = "warn_at"
_UNITS_OF_TREE: Final = ("bytes", "files")
_UNITS_OF_FILE: Final = ("bytes", "lines")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An amount of which the answers of a model's tools warn; it refuses nothing. None is no budget.

    Attributes:
        bytes: the bytes of a file, or of all files of an agent.
        lines: the lines of a file.
        files: the files of an agent.

    Raises:
        ValueError: an amount is not a positive whole number, or all are None.
    """

    bytes: int | None = None
    lines: int | None = None
    files: int | None = None

    def __post_init__(self) -> None:
        given = dict(self.amounts())
        for unit, amount in given.items():
            _require_amount(unit, amount)
        if not given:
            raise ValueError("a budget needs bytes, lines or files")

    def amounts(self) -> Iterator[tuple[str, int]]:
        """Each unit with its amount, without those that are None."""
        return ((each.name, amount) for each in fields(self) if (amount := getattr(self, each.name)) is not None)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("limits cannot be changed: make others, for example with dataclasses.replace")


_REFUSED: Final[Any] = _refuse


class _Budgets(dict[str, Budget]):
    """The budgets of `Limits`, which nothing changes; a dict, so that `dataclasses.asdict` copies it."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _REFUSED

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[_Budgets], tuple[dict[str, Budget]]]:
        return _Budgets, (dict(self),)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a store may contain, and of how much the tools of a model warn; None is no limit.

    Attributes:
        file_bytes: the maximum bytes of each file.
        agent_bytes: the maximum bytes of all files of each agent.
        agent_files: the maximum number of files of each agent.
        count_versions: whether the bytes of the kept versions, and of the receipts of repeated calls, count as bytes of
            the agent.
        warn_at: budgets, by a pattern of paths, as in `AgentMemoryService.expire`, for the bytes and lines of each
            matching file, or by ``"/"`` for the bytes and files of each agent. From 90 % on, the answer of a tool that
            changed a file warns the model. It is copied.

    Raises:
        ValueError: a limit is no positive whole number; versions count without a limit of bytes of an agent; or a
            budget is not possible.
    """

    file_bytes: int | None = None
    agent_bytes: int | None = None
    agent_files: int | None = None
    count_versions: bool = False
    warn_at: Mapping[str, Budget] = field(default_factory=_Budgets)

    def __post_init__(self) -> None:
        for name in ("file_bytes", "agent_bytes", "agent_files"):
            value = getattr(self, name)
            if value is not None:
                _require_amount(f"limits: {name}", value)
        if not isinstance(self.count_versions, bool):
            raise ValueError(f"limits: count_versions must be true or false, not {self.count_versions!r}")
        if self.count_versions and self.agent_bytes is None:
            raise ValueError("limits: count_versions needs agent_bytes")
        object.__setattr__(self, _WARN_AT, _checked_budgets(self.warn_at))

    @property
    def refuse(self) -> bool:
        """Whether there is a limit that refuses a change."""
        return self.file_bytes is not None or self.of_agents

    @property
    def of_agents(self) -> bool:
        """Whether there is a limit of an agent."""
        return self.agent_bytes is not None or self.agent_files is not None


class LimitSetting(NamedTuple):
    """The limits in a record.

    Attributes:
        limits: the limits.
        id: random, another one each time that limits are set: what was counted for earlier limits does not count.
        since: when they were set, in POSIX seconds.
    """

    limits: Limits
    id: str
    since: float


def new_id() -> str:
    """Return a random id."""
    return secrets.token_hex(8)


def _require_amount(name: str, value: object) -> None:
    checked_count(name, value)
    if cast(int, value) > _MOST:
        raise ValueError(f"{name} must be at most {_MOST:,}")


def _checked_budgets(budgets: object) -> _Budgets:
    if not isinstance(budgets, Mapping):
        raise ValueError(f"limits: {_WARN_AT} must be a mapping of patterns to budgets, not {type(budgets).__name__}")
    for pattern, budget in budgets.items():
        try:
            require_possible("*" if pattern == TREE else pattern)
        except ValueError as error:
            raise ValueError(f"limits: {_WARN_AT}: {error}") from None
        if not isinstance(budget, Budget):
            raise ValueError(f"limits: {_WARN_AT} of {pattern!a} must be a Budget, not {type(budget).__name__}")
        units = _UNITS_OF_TREE if pattern == TREE else _UNITS_OF_FILE
        if wrong := [unit for unit, _ in budget.amounts() if unit not in units]:
            raise ValueError(f"limits: {_WARN_AT} of {pattern!a} takes {' and '.join(units)}, not {wrong[0]}")
        if budget.files is not None and budget.files > MOST_FILES:
            raise ValueError(f"limits: {_WARN_AT} of {TREE!a}: files is at most {MOST_FILES:,}, as no more are counted")
    if len(json.dumps([*budgets])) > _MOST_PATTERNS:
        raise ValueError(f"limits: the patterns of {_WARN_AT} may have {_MOST_PATTERNS:,} bytes in all")
    return _Budgets(budgets)


def budgets_of(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Budget]:
    """Make budgets from a record or a configuration; raises as `Budget`, or `TypeError` for an unknown unit."""
    return {pattern: Budget(**amounts) for pattern, amounts in values.items()}


def checked_file_limits(limits: Limits | None) -> Limits | None:
    """Return limits that a caller gave; raises `TypeError` for another type."""
    if limits is None or isinstance(limits, Limits):
        return limits
    raise TypeError(f"limits must be a Limits or None, not {type(limits).__name__}")


def limit_setting_in(record: StoreRecord | None) -> LimitSetting | None:
    """Return the limits in the record of a store; None if it has none.

    Raises:
        ReadError: a field of the limits is wrong.
        UnsupportedOperationError: a newer release wrote them in another form.
    """
    if record is None or record.others.get(_FEATURE) in (None, {}):
        return None
    try:
        found = cast("Mapping[str, Any]", record.others[_FEATURE])
        known = {each.name: found[each.name] for each in fields(Limits) if each.name != _WARN_AT}
        limits = Limits(**known, warn_at=budgets_of(found.get(_WARN_AT, {})))
        return LimitSetting(limits, hexadecimal(16)(found["id"]), moment(found["since"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        record.require_known()
        raise damaged_record() from None


def with_file_limits(record: StoreRecord, limits: Limits | None) -> StoreRecord:
    """Return a record with these limits."""
    if limits is None:
        return record.using(_FEATURE, {})
    values = asdict(limits)
    values[_WARN_AT] = {pattern: dict(budget.amounts()) for pattern, budget in limits.warn_at.items()}
    if not limits.warn_at:
        del values[_WARN_AT]  # the form of a release without budgets
    return record.using(_FEATURE, {**values, "id": new_id(), "since": time.time()})
