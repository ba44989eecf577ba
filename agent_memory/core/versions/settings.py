"""The settings of versions: a part of the record of the store, which every process follows."""

from __future__ import annotations

import math
import secrets
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, cast

from agent_memory.core.store_record import Feature, StoreRecord, damaged_record

_FEATURE: Final[Feature] = "versions"
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True)
class VersionLimits:
    """How many earlier versions a store keeps.

    Attributes:
        keep: at most so many of each file.
        days: none that ended longer ago.
        max_bytes: at most so many bytes for each agent, the oldest go first.

    Raises:
        ValueError: a limit is not a positive number.
    """

    keep: int = 100
    days: float = 30.0
    max_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        limits = (("keep", self.keep, int), ("days", self.days, int | float), ("max_bytes", self.max_bytes, int))
        for name, value, kind in limits:
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:
                raise ValueError(f"versions: {name} must be a positive number, not {value!r}")


@dataclass(frozen=True)
class VersionSettings:
    """The settings of versions in the record of a store.

    Attributes:
        secret: keys the digests of paths; hexadecimal.
        limits: how many versions are kept; None if none are kept any more.
    """

    secret: str
    limits: VersionLimits | None

    @staticmethod
    def new(limits: VersionLimits | None) -> VersionSettings:
        """Return settings with a new secret."""
        return VersionSettings(secrets.token_hex(_SECRET_BYTES), limits)

    @staticmethod
    def of(record: StoreRecord | None) -> VersionSettings | None:
        """Return the settings in a record; None if versions were never on.

        Raises:
            ReadError: a field of the settings is wrong.
            UnsupportedOperationError: a newer release wrote them in another form.
        """
        if record is None or not (_FEATURE in record.features or _FEATURE in record.others):
            return None
        try:
            return _parsed(cast(Any, record.others[_FEATURE]))
        except (ValueError, TypeError, KeyError):
            record.require_known()
            raise damaged_record() from None

    def stored_in(self, record: StoreRecord) -> StoreRecord:
        """Return a record with these settings; fields of a newer release stay."""
        before = cast("dict[str, object]", record.others.get(_FEATURE, {}))
        return record.using(_FEATURE, {**before, **asdict(self)})


def _parsed(found: dict[str, Any]) -> VersionSettings:
    secret, limits = found["secret"], found["limits"]
    if len(bytes.fromhex(secret)) != _SECRET_BYTES:
        raise ValueError
    known = None if limits is None else {each.name: limits[each.name] for each in fields(VersionLimits)}
    return VersionSettings(secret, None if known is None else VersionLimits(**known))
