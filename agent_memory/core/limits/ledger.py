"""`Ledger`: the stored count of what one agent has, and of the portions that processes may still add.

It is one line of JSON beside the tree, changed by compare-and-swap. Its rule: the agent never has more than `used` and
all leases together. Only files that were changed without this package break it, until files are counted again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from agent_memory.core.internal_trees import internal_tree
from agent_memory.core.limits.settings import Limits, LimitSetting, new_id
from agent_memory.core.stored_facts import fields_of, hexadecimal, moment
from agent_memory.key import Key

DIRECTORY: Final = "limits"
LEASE_SECONDS: Final = 60.0
"""How long a process adds to files by one lease."""
END_SECONDS: Final = 180.0
"""How long a lease counts: an operation ends some time after its start, and the clocks of hosts differ."""
COUNT_SECONDS: Final = 3600.0
"""How long a count is used."""
_MOST_AHEAD: Final = 3600.0
"""A lease that ends later than this was written by a host whose clock is wrong."""
_PART_OF_ROOM: Final = 8
_PART_OF_LIMIT: Final = 64
_NEVER: Final = 1 << 62
_ID: Final = hexadecimal(16)


class Amount(NamedTuple):
    """Bytes and files."""

    bytes: int = 0
    files: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.bytes + other.bytes, self.files + other.files)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.bytes - other.bytes, self.files - other.files)

    def suffices(self, need: Amount) -> bool:
        """Whether it has enough of everything that is needed: a number that is not needed may be negative."""
        return (not need.bytes or self.bytes >= need.bytes) and (not need.files or self.files >= need.files)

    def exceeds(self, other: Amount) -> bool:
        """Whether one of both numbers is larger than the other's."""
        return self.bytes > other.bytes or self.files > other.files

    def within(self, most: int) -> Amount:
        """The amount with numbers from 0 to ``most``."""
        return Amount(min(max(0, self.bytes), most), min(max(0, self.files), most))

    def positive(self) -> Amount:
        """The amount with zeros in the place of negative numbers."""
        return self.within(_NEVER)


NOTHING: Final = Amount()


def total(amounts: Iterable[Amount]) -> Amount:
    """Add amounts."""
    found = NOTHING
    for each in amounts:
        found = found.plus(each)
    return found


def limit_of_agent(limits: Limits) -> Amount:
    """The limits of an agent as an amount; no limit is a very large number."""
    return Amount(
        _NEVER if limits.agent_bytes is None else limits.agent_bytes,
        _NEVER if limits.agent_files is None else limits.agent_files,
    )


class Lease(NamedTuple):
    """What a process may add; ``until`` is when it ends, in POSIX seconds by the clock of its host."""

    amount: Amount
    until: float

    def counts(self, now: float) -> bool:
        """Whether its process may still use it."""
        return now < self.until < now + _MOST_AHEAD


@dataclass(frozen=True)
class Ledger:
    """The ledger of one agent.

    Attributes:
        used: at least what the agent has, without what is added by the leases.
        count: the random id of the last count.
        counted: the time of the last count, in POSIX seconds.
        setting: the id of the setting of limits for which it was counted.
        leases: the leases by their random ids.
    """

    used: Amount
    count: str
    counted: float
    setting: str
    leases: Mapping[str, Lease] = field(default_factory=dict)

    @property
    def reserved(self) -> Amount:
        """What the leases allow to add."""
        return total(lease.amount for lease in self.leases.values())

    def room(self, limit: Amount, carried: Amount) -> Amount:
        """What is free below a limit, beside what operations of this process may still add."""
        return limit.minus(self.used).minus(self.reserved).minus(carried)

    def without(self, id_: str, added: Amount, freed: Amount, now: float) -> Ledger:
        """Return the ledger after a lease by which ``added`` was added; leases that are over count as used."""
        ended = {each for each, lease in self.leases.items() if not lease.counts(now)} - {id_}
        used = self.used.plus(total(self.leases[each].amount for each in ended)).minus(freed)
        if id_ in self.leases:
            used = used.plus(added)
        leases = {each: lease for each, lease in self.leases.items() if each != id_ and each not in ended}
        return replace(self, used=used.within(_NEVER), leases=leases)

    def recounted(self, used: Amount, own: Collection[str], now: float, setting: str) -> Ledger:
        """Return the ledger after a count: without the own leases, and without those that are over."""
        leases = {each: lease for each, lease in self.leases.items() if each not in own and lease.counts(now)}
        return Ledger(used.within(_NEVER), new_id(), now, setting, leases)

    def is_old(self, setting: LimitSetting, now: float) -> bool:
        """Whether the files have to be counted again.

        Other programs may have changed them; or processes that did not follow another setting yet.
        """
        if self.setting != setting.id or not now - COUNT_SECONDS < self.counted <= now + END_SECONDS:
            return True
        followed = setting.since + END_SECONDS
        return self.counted < followed <= now

    def folded(self, id_: str, added: Amount, freed: Amount) -> Ledger:
        """Return the ledger in which ``added`` is used, and not a part of its lease any more."""
        lease = self.leases[id_]
        leases = {**self.leases, id_: lease._replace(amount=lease.amount.minus(added))}
        return replace(self, used=self.used.plus(added).minus(freed).within(_NEVER), leases=leases)

    def with_lease(self, id_: str, lease: Lease) -> Ledger:
        """Return the ledger with one more lease."""
        return replace(self, leases={**self.leases, id_: lease})

    def to_bytes(self) -> bytes:
        """The stored form."""
        leases = {id_: [*lease.amount, round(lease.until, 3)] for id_, lease in self.leases.items()}
        count = {"used": [*self.used], "count": self.count, "counted": round(self.counted, 3)}
        facts = {**count, "setting": self.setting, "leases": leases}
        return json.dumps(facts).encode() + b"\n"

    @staticmethod
    def parse(data: bytes) -> Ledger | None:
        """Return a stored ledger; None if it is damaged: then files are counted again."""
        try:
            found = fields_of(data)
            leases = {_ID(id_): _lease(value) for id_, value in found["leases"].items()}
            counted, setting = moment(found["counted"]), _ID(found["setting"])
            return Ledger(_amount(found["used"]), _ID(found["count"]), counted, setting, leases)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def portion_of(room: Amount, limit: Amount, leases: int) -> Amount:
    """The part of a room that a process leases: small, so that processes that die block little of it."""
    most, share = portion_of_limit(limit), _PART_OF_ROOM * (1 + leases)
    return Amount(min(room.bytes // share, most.bytes), min(room.files // share, most.files)).positive()


def portion_of_limit(limit: Amount) -> Amount:
    """The largest portion of a limit that a process leases."""
    return Amount(limit.bytes // _PART_OF_LIMIT, max(1, limit.files // _PART_OF_LIMIT))


def ledgers_of(agent: str | None) -> Key:
    """The tree with the ledger of one agent."""
    return internal_tree(DIRECTORY, agent)


def ledger_of(agent: str | None) -> Key:
    """The file of the ledger of one agent."""
    return ledgers_of(agent).join("ledger.json")


def _amount(value: Any) -> Amount:
    bytes_, files = value
    return Amount(_number(bytes_), _number(files))


def _lease(value: Any) -> Lease:
    bytes_, files, until = value
    return Lease(Amount(_number(bytes_), _number(files)), moment(until))


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _NEVER:
        raise ValueError("not a number of bytes or files")
    return value
