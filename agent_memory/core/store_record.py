"""`StoreRecord`: the format, id and features of a store: one line of JSON, written before its other internal files.

A release that does not know the format or a feature of a store, or is older than the store requires, changes nothing
there. Fields that this release does not know stay as they are when it writes the record again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Literal, TypeAlias

from agent_memory.backend._store_id import record_fields
from agent_memory.backend.helpers import store_id
from agent_memory.errors import DISTRIBUTION, ReadError, UnsupportedOperationError

Feature: TypeAlias = Literal["audit", "no-conversation", "receipts", "versions"]
FORMAT: Final = 1
"""The layout of the internal files that this release reads and writes."""
LEAST_RELEASES: Final[Mapping[str, str]] = {
    "audit": "0.1",
    "no-conversation": "0.1",
    "receipts": "0.1",
    "versions": "0.1",
}
"""The features that this release knows, each with the first release that knew it."""
_FROM_THE_BEGINNING: Final[tuple[Feature, ...]] = ("no-conversation", "receipts")
"""Any call may bring an idempotency key or a mark, also with credentials that may not change the record."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_RELEASE: Final = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")
_MOST_NAMES: Final = 100
_MOST_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class StoreRecord:
    """The record of a store.

    Attributes:
        id: 24 random hexadecimal digits; "" if this release does not know the format.
        features: the names of the features with files in the store.
        least_release: the first release that may change the store.
        format: the layout of the internal files.
        others: the other fields; a feature's settings have the name of the feature.
    """

    id: str
    features: frozenset[str]
    least_release: str
    format: int = FORMAT
    others: Mapping[str, object] = field(default_factory=dict)

    @staticmethod
    def new() -> StoreRecord:
        """Return the record of a store that has none, with a new id."""
        least = max((LEAST_RELEASES[feature] for feature in _FROM_THE_BEGINNING), key=_numbers)
        return StoreRecord(secrets.token_hex(12), frozenset(_FROM_THE_BEGINNING), least)

    def using(self, feature: Feature, settings: object = None) -> StoreRecord:
        """Return the record with one more feature in use; ``settings`` replaces the feature's settings."""
        others = self.others if settings is None else {**self.others, feature: settings}
        least = max(self.least_release, LEAST_RELEASES[feature], key=_numbers)
        return replace(self, features=self.features | {feature}, least_release=least, others=others)

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        known = {"format": self.format, "id": self.id, "features": sorted(self.features)}
        return json.dumps({**known, "least_release": self.least_release, **self.others}).encode() + b"\n"

    def change_of(self, before: StoreRecord) -> bytes | None:
        """The fields that differ from an earlier record, as a line to append to it; None if the features differ."""
        if replace(self, others=before.others) != before:
            return None
        changed = {name: value for name, value in self.others.items() if before.others.get(name) != value}
        return json.dumps(changed).encode() + b"\n"

    def require_known(self) -> None:
        """Raise unless this release may change the store.

        Raises:
            UnsupportedOperationError: it does not know the format or a feature, or it is too old.
        """
        unknown = ", ".join(map(repr, sorted(self.features - LEAST_RELEASES.keys())))
        needs = f"uses {unknown}" if unknown else f"has format {self.format}" if self.format != FORMAT else ""
        if needs or _numbers(self.least_release) > _numbers(release()):
            raise UnsupportedOperationError(
                f"this store {needs or 'was changed by a newer release'}: only agent-memory {self.least_release} or "
                f"later may change it, this is {release()}; upgrade {DISTRIBUTION}; nothing was changed, and reading "
                "still works"
            )

    @staticmethod
    def parse(data: bytes) -> StoreRecord:
        """Return a stored record.

        Raises:
            ReadError: it is no record of a store.
        """
        try:
            return _parsed(data, record_fields(data[: _MOST_BYTES + 1]))
        except (ValueError, TypeError, KeyError):
            raise damaged_record() from None


def damaged_record() -> ReadError:
    """Return the error for a record with a wrong field."""
    return ReadError(
        "the record of the store is damaged; no change is made without it. 'agent-memory doctor' tells how to repair it"
    )


@cache
def release() -> str:
    """The number of this release, without a suffix such as ``rc1``."""
    try:
        found = _RELEASE.match(version(DISTRIBUTION))
    except PackageNotFoundError:  # a copy of the source that is not installed
        found = None
    return found[0] if found else max(LEAST_RELEASES.values(), key=_numbers)


def _parsed(data: bytes, fields: dict[str, Any]) -> StoreRecord:
    if len(data) > _MOST_BYTES:
        raise ValueError
    format_, least = fields.pop("format"), fields.pop("least_release")
    if type(format_) is not int or format_ < 1 or not _RELEASE.fullmatch(least):
        raise ValueError
    if format_ != FORMAT:  # the other fields may mean something else there
        return StoreRecord("", frozenset(), least, format_, fields)
    names, found = fields.pop("features"), store_id(data)
    if not isinstance(names, list) or len(names) > _MOST_NAMES or not all(map(_NAME.fullmatch, names)):
        raise ValueError
    if fields.pop("id") != found or found is None:
        raise ValueError
    return StoreRecord(found, frozenset(names), least, format_, fields)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [int(number) for number in text.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))
