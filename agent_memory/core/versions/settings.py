"""What a process knows of the store's record: may this release change the store, and the settings of versions."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple, Protocol, cast

from agent_memory.backend import Backend
from agent_memory.core.flows import checked_capabilities
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.limits.settings import (
    Limits,
    LimitSetting,
    checked_file_limits,
    limit_setting_in,
    with_file_limits,
)
from agent_memory.core.results import checked_count
from agent_memory.core.store_record import Feature, KnownStore, StoreRecord, damaged_record
from agent_memory.errors import AppendError, ReadError, UnsupportedOperationError
from agent_memory.hookspecs import OperationKind
from agent_memory.key import Key
from agent_memory.runtime.run import Run

_FEATURE: Final[Feature] = "versions"
_log = logging.getLogger("agent_memory")


@dataclass(frozen=True, kw_only=True)
class VersionLimits:
    """How many earlier versions a store keeps.

    Attributes:
        keep: the maximum number of versions of each file.
        days: the maximum days since a version was replaced or deleted.
        max_bytes: the maximum bytes of the versions of each agent; the oldest go first.

    Raises:
        ValueError: a limit is not a positive number.
    """

    keep: int = 100
    days: float = 30.0
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        checked_count("versions: keep", self.keep)
        checked_count("versions: max_bytes", self.max_bytes)
        days = self.days
        if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days <= sys.float_info.max:
            raise ValueError(f"versions: days must be a positive number, not {days!r}")


def limits_in(record: StoreRecord | None) -> VersionLimits | None:
    """Return the limits in the record of a store; None if it keeps no versions.

    Raises:
        ReadError: a field of the limits is wrong.
        UnsupportedOperationError: a newer release wrote them in another form.
    """
    if record is None or not (_FEATURE in record.features or _FEATURE in record.others):
        return None
    try:
        found = cast("dict[str, Any]", record.others[_FEATURE])["limits"]
        return (
            None if found is None else VersionLimits(**{each.name: found[each.name] for each in fields(VersionLimits)})
        )
    except (ValueError, TypeError, KeyError):
        record.require_known()
        raise damaged_record() from None


def _with_limits(record: StoreRecord, limits: VersionLimits | None) -> StoreRecord:
    """Return a record with these limits; fields of a newer release stay."""
    before = cast("dict[str, object]", record.others.get(_FEATURE, {}))
    return record.using(_FEATURE, {**before, "limits": None if limits is None else asdict(limits)})


class _Parsed(NamedTuple):
    """A record of a store, and the limits in it."""

    record: StoreRecord | None
    limits: VersionLimits | None
    file_limits: LimitSetting | None


class SettingsCall(Protocol):
    """The facts of a running operation that this module uses; see `agent_memory.core.call.Call`."""

    kind: OperationKind
    key: Key
    started: float


def checked_limits(limits: VersionLimits | None) -> VersionLimits | None:
    """Return limits that a caller gave; raises `TypeError` for another type."""
    if limits is None or isinstance(limits, VersionLimits):
        return limits
    raise TypeError(f"versions must be a VersionLimits or None, not {type(limits).__name__}")


class SettingsCache:
    """The settings of one store as this process knows them; `KnownStore` says when they are read again.

    Args:
        wanted: turn versions on, with these limits, before the first change, if they are off; None to leave them as
            the store has them.
        wanted_limits: the same for the limits of files and agents.

    Attributes:
        sweep: the deletion of the versions that the limits no longer keep.
    """

    def __init__(self, wanted: VersionLimits | None = None, wanted_limits: Limits | None = None) -> None:
        self.sweep = Sweep()
        self._wanted = checked_limits(wanted)
        self._wanted_limits = checked_file_limits(wanted_limits)
        self._store = KnownStore()
        self._parsed = _Parsed(None, None, None)

    @property
    def known_limits(self) -> Limits | None:
        """The limits of files and agents of the last change, without a request; None if there are none."""
        return self._parsed.file_limits.limits if self._parsed.file_limits else None

    async def permit(self, store: Backend, run: Run, call: SettingsCall) -> LimitSetting | None:
        """Raise unless this release may change the store; every operation that can change files calls it first.

        Return the limits of files and agents; set them first if that is wanted, and there are none.

        Raises:
            UnsupportedOperationError: this release is too old for the store.
            FileOperationError: the record of the store cannot be read, is damaged, or is that of another store.
        """
        try:
            wanted = self._wanted_limits  # a simultaneous call that sets limits clears it
            found = self._in(await self._store.permit(store, run)).file_limits
            if wanted is not None and found is None:
                found = await self.set_file_limits(store, run, call, wanted)
            elif wanted is not None and found is not None and wanted != found.limits:
                _log.warning("the store has other limits than the given ones, and keeps them: %s", found.limits)
            self._wanted_limits = None
        except ReadError as error:
            if call.kind != "append":
                raise
            raise AppendError(error.args[0], path=error.path) from (error.__cause__ or error)
        return found

    async def use(self, store: Backend, run: Run, feature: Feature) -> None:
        """Name a feature in the record of the store before its first file is written; errors as `permit`."""
        await self._store.use(store, run, feature)

    async def stored(self, store: Backend, run: Run, call: SettingsCall) -> VersionLimits | None:
        """Return the limits; None if the store keeps no versions."""
        return limits_in(await self._store.read(store, run, call.started))

    async def set_limits(
        self, store: Backend, run: Run, call: SettingsCall, limits: VersionLimits | None
    ) -> VersionLimits | None:
        """Turn versions on with the given limits, or off; return the limits.

        Raises:
            UnsupportedOperationError: they are turned on, and the store cannot keep them.
        """
        if limits is not None:
            await require_versions(store, run, call.key)
        elif await self.stored(store, run, call) is None:
            return None
        is_on = limits is not None
        record = await self._store.change(store, run, lambda found: _with_limits(found, limits), tries_origins=is_on)
        return limits_in(record)

    async def stored_file_limits(self, store: Backend, run: Run, call: SettingsCall) -> Limits | None:
        """Return the limits of files and agents; None if the store has none."""
        found = limit_setting_in(await self._store.read(store, run, call.started))
        return found.limits if found else None

    async def set_file_limits(
        self, store: Backend, run: Run, call: SettingsCall, limits: Limits | None
    ) -> LimitSetting | None:
        """Set the limits of files and agents, or remove them; return them.

        Raises:
            UnsupportedOperationError: the store cannot keep a limit of an agent.
        """
        if limits is not None and limits.of_agents:
            if not (await checked_capabilities(store, run, call.key)).compare_and_swap:
                raise UnsupportedOperationError("limits of agents need conditional writes; this backend has none")
        elif limits is None and await self.stored_file_limits(store, run, call) is None:
            return None
        record = await self._store.change(store, run, lambda found: with_file_limits(found, limits))
        return limit_setting_in(record)

    async def for_change(self, store: Backend, run: Run, call: SettingsCall) -> VersionLimits | None:
        """Return the limits for an operation that changes files; turn versions on first if that is wanted."""
        wanted = self._wanted  # a simultaneous call that turns versions on clears it during the read
        limits = self._in(await self._store.permit(store, run)).limits
        if wanted is not None and limits is None:
            limits = await self.set_limits(store, run, call, wanted)
        self._wanted = None
        return limits

    def _in(self, record: StoreRecord | None) -> _Parsed:
        """The limits in a record; a record that was not read again is not parsed again."""
        if self._parsed.record is not record:
            self._parsed = _Parsed(record, limits_in(record), limit_setting_in(record))
        return self._parsed


async def require_versions(store: Backend, run: Run, key: Key) -> None:
    """Raise unless a store can keep versions.

    Raises:
        UnsupportedOperationError: it has no conditional write or delete, or keeps no origins.
    """
    found = await checked_capabilities(store, run, key)
    needed = {
        "conditional writes": found.compare_and_swap,
        "conditional deletes": found.conditional_delete,
        "origins": store.keeps_origins,
    }
    if lacking := [name for name, has in needed.items() if not has]:
        raise UnsupportedOperationError(
            f"versions need {', '.join(needed)}; this backend has no {' and no '.join(lacking)}"
        )
