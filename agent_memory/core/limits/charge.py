"""`Charge`: what one operation takes from the lease of its agent, and the facts that a `Quota` needs for it."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from agent_memory.backend import ETag
from agent_memory.core.limits.count import Count
from agent_memory.core.limits.ledger import Amount, Ledger
from agent_memory.errors import AgentMemoryError, OutcomeUnknownError
from agent_memory.key import Key

if TYPE_CHECKING:
    from agent_memory.core.limits.quota import Quota

T = TypeVar("T")


class CountedState(NamedTuple):
    """A state of a file, and the amount that the ledger counts of it; ``etag`` is None if it is not known."""

    etag: ETag | None
    amount: Amount


class LimitReachedError(Exception):
    """An agent has not enough room.

    Attributes:
        need: what the operation adds.
        used: what the agent has, by a count.
        reserved: what processes at work may still add.
    """

    def __init__(self, need: Amount, ledger: Ledger, carried: Amount, count: Count) -> None:
        super().__init__()
        self.need = need
        self.used = count.amount
        self.reserved = ledger.reserved.plus(carried)


class Replaced(Protocol):
    """A file that an operation replaces."""

    @property
    def key(self) -> Key: ...

    async def need(self, counted: int) -> Amount:
        """Look at the file, of which the count contains ``counted`` bytes, and return what the operation adds."""
        ...


@dataclass
class Charge:
    """What one operation adds; it is taken from the lease before the operation writes.

    Attributes:
        until: when the lease ends, by the clock of the run; the write must begin before.
    """

    quota: Quota
    amount: Amount
    until: float

    def keep(self) -> None:
        """The operation has added it."""
        self.quota.settle(self.amount)

    def give_back(self) -> None:
        """The operation has added nothing."""
        self.quota.settle(self.amount, returned=True)

    def leave_in_doubt(self) -> None:
        """The operation may still add it."""
        self.quota.settle(self.amount, in_doubt=True)


async def settled(charge: Charge, write: Awaitable[T]) -> T:
    """Await a write, and end its charge: only a write that certainly failed adds nothing."""
    try:
        result = await write
    except OutcomeUnknownError:
        charge.leave_in_doubt()
        raise
    except AgentMemoryError:
        charge.give_back()
        raise
    except BaseException:
        charge.leave_in_doubt()
        raise
    charge.keep()
    return result
