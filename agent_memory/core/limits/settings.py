"""`Limits`: the limits of a store, in its record, which every process follows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple, cast

from agent_memory.core.store_record import Feature, StoreRecord, damaged_record
from agent_memory.core.stored_facts import hexadecimal, moment

_FEATURE: Final[Feature] = "limits"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a store may contain; None is no limit.

    Attributes:
        file_bytes: the maximum bytes of each file.
        agent_bytes: the maximum bytes of all files of each agent.
        agent_files: the maximum number of files of each agent.
        count_versions: whether the bytes of the kept versions, and of the receipts of repeated calls, count as bytes of
            the agent.

    Raises:
        ValueError: a limit is no positive whole number; or versions count without a limit of bytes of an agent.
    """

    file_bytes: int | None = None
    agent_bytes: int | None = None
    agent_files: int | None = None
    count_versions: bool = False

    def __post_init__(self) -> None:
        for name in ("file_bytes", "agent_bytes", "agent_files"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"limits: {name} must be a positive whole number or None, not {value!r}")
        if not isinstance(self.count_versions, bool):
            raise ValueError(f"limits: count_versions must be true or false, not {self.count_versions!r}")
        if self.count_versions and self.agent_bytes is None:
            raise ValueError("limits: count_versions needs agent_bytes")

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
        limits = Limits(**{each.name: found[each.name] for each in fields(Limits)})
        return LimitSetting(limits, hexadecimal(16)(found["id"]), moment(found["since"]))
    except (ValueError, TypeError, KeyError):
        record.require_known()
        raise damaged_record() from None


def with_file_limits(record: StoreRecord, limits: Limits | None) -> StoreRecord:
    """Return a record with these limits."""
    return record.using(_FEATURE, {**asdict(limits), "id": new_id(), "since": time.time()} if limits else {})
