"""The S3 bill of a memory: the requests of each operation, the prices, and their sum for a month.

The requests are those of a process that has changed a file in the same directory before, and that nothing disturbs: no
lost race, no lost answer. ``tests/object_store/test_bill.py`` compares them with the requests that a proxy counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

DAYS: Final = 30
"""The days of a month."""
SHARED_APPEND: Final = "shared append"
"""An append to a file that another process wrote last."""
REQUESTS: Final[Mapping[str, Mapping[str, int]]] = {
    "read": {"GET": 1},
    "write": {"PUT": 1},
    "append": {"PUT": 1},
    SHARED_APPEND: {"GET": 1, "PUT": 1},
    "edit": {"GET": 1, "PUT": 1},
    "delete": {"HEAD": 1, "DELETE": 1},
    "list": {"LIST": 1},
}
"""The requests of one operation on a file under 5 MiB; of a list, those of a page of 1,000 names."""
MORE_WITH_VERSIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "write": {"GET": 1, "PUT": 1},
    "edit": {"PUT": 1},
    "delete": {"GET": 1, "PUT": 1},
}
"""The requests that a store with versions adds to operations that replace or delete a file."""
HOURLY_WITH_VERSIONS: Final[Mapping[str, int]] = {"LIST": 1}
"""The requests that the first of these operations in an hour adds for each of up to 1,000 agents of a process."""
_HOURS: Final = 24
_MEGABYTES: Final = 1024
"""Megabytes in a gigabyte, as S3 counts."""
_CLASSES: Final = {"PUT": "put", "LIST": "put", "GET": "get", "HEAD": "get", "DELETE": "delete"}


class Prices(NamedTuple):
    """Prices in US dollars; a DELETE is free.

    Attributes:
        put: of 1,000 requests PUT, COPY, POST or LIST.
        get: of 1,000 requests GET or HEAD.
        gigabyte: of a gigabyte, stored for a month.
        source: where the prices are from, with their date.
    """

    put: float
    get: float
    gigabyte: float
    source: str


LIST_PRICES: Final = Prices(0.005, 0.0004, 0.023, "S3 Standard, us-east-1, 2025-01")
"""The list prices for the first 50 TB."""


class Bill(NamedTuple):
    """The bill of a month.

    Attributes:
        requests: their number by class: ``put``, ``get`` and ``delete``.
        gigabytes: what is stored.
        prices: what they cost.
    """

    requests: Mapping[str, float]
    gigabytes: float
    prices: Prices

    @property
    def dollars(self) -> dict[str, float]:
        """The amounts: of each class of requests, of the storage, and the total."""
        amounts = {
            "put": self.requests["put"] / 1000 * self.prices.put,
            "get": self.requests["get"] / 1000 * self.prices.get,
            "delete": 0.0,
            "storage": self.gigabytes * self.prices.gigabyte,
        }
        return {**amounts, "total": sum(amounts.values())}


def requests_of(operation: str, *, versions: bool) -> Counter[str]:
    """The requests of one operation; ``versions``: in a store that keeps versions."""
    more = MORE_WITH_VERSIONS.get(operation, {}) if versions else {}
    return Counter(REQUESTS[operation]) + Counter(more)


def monthly_bill(
    agents: int, operations: Mapping[str, float], megabytes: float, prices: Prices, *, versions: bool
) -> Bill:
    """The bill of some agents that all do the same.

    Args:
        agents: their number.
        operations: how many operations one agent makes in a day, by the names in `REQUESTS`.
        megabytes: what one agent stores.
        prices: what a request and a gigabyte cost.
        versions: whether the store keeps versions.
    """
    requests = dict.fromkeys(_CLASSES.values(), 0.0)
    for request, number in _daily(operations, versions).items():
        requests[_CLASSES[request]] += number * agents * DAYS
    return Bill(requests, agents * megabytes / _MEGABYTES, prices)


def _daily(operations: Mapping[str, float], versions: bool) -> Mapping[str, float]:
    """The requests of one agent in a day."""
    sums: defaultdict[str, float] = defaultdict(float)
    for operation, count in operations.items():
        for request, number in requests_of(operation, versions=versions).items():
            sums[request] += number * count
    if versions:
        ending = sum(count for operation, count in operations.items() if operation in MORE_WITH_VERSIONS)
        for request, number in HOURLY_WITH_VERSIONS.items():
            sums[request] += number * min(ending, _HOURS)
    return sums
