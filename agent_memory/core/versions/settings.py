"""The settings of versions: one record in the store, which every process follows."""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import asdict, dataclass
from typing import Final

from agent_memory.core.stored_facts import fields_of, hexadecimal
from agent_memory.errors import ReadError
from agent_memory.key import Key

SETTINGS: Final = Key.internal("versions.json")
"""The file of the settings."""
FOLLOW_SECONDS: Final = 60.0
"""A process notices a change of the settings after at most this time."""


@dataclass(frozen=True, kw_only=True)
class Versions:
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
    """The stored settings.

    Attributes:
        secret: keys the digests of paths; hexadecimal.
        limits: how many versions are kept; None if none are kept any more.
    """

    secret: str
    limits: Versions | None

    def to_bytes(self) -> bytes:
        """The stored form: one line of JSON."""
        limits = None if self.limits is None else asdict(self.limits)
        return json.dumps({"v": 1, "secret": self.secret, "limits": limits}).encode() + b"\n"

    @staticmethod
    def parse(data: bytes) -> VersionSettings:
        """Return stored settings.

        Raises:
            ReadError: the file contains no settings.
        """
        try:
            facts = fields_of(data)
            if facts["v"] != 1:
                raise ValueError
            limits = facts["limits"]
            return VersionSettings(hexadecimal(64)(facts["secret"]), None if limits is None else Versions(**limits))
        except (ValueError, TypeError, KeyError):
            raise ReadError("the settings of versions are damaged; no change is made without them") from None


def new_settings(limits: Versions | None) -> VersionSettings:
    """Return settings with a new secret."""
    return VersionSettings(secrets.token_hex(32), limits)
