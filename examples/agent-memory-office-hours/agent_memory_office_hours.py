"""A guard and an observer in one plugin: the guard refuses deletes at night, the observer counts changes by actor."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

from agent_memory import Operation, OperationDenied, Outcome, hookimpl


class OfficeHours:
    """Refuse to delete or forget outside of office hours, except for the actors in ``always``.

    Args:
        opens: the first hour in which deletes are allowed.
        closes: the hour from which they are refused.
        zone: the time zone, for example ``Europe/Berlin``.
        always: actors that may delete at any time.

    Raises:
        ValueError: the hours are not hours of a day, or are in the wrong order.
    """

    def __init__(self, opens: int = 9, closes: int = 17, zone: str = "UTC", always: tuple[str, ...] = ()) -> None:
        if not 0 <= opens < closes <= 24:
            raise ValueError(f"opens and closes are hours of a day, not {opens!r} and {closes!r}")
        self._opens, self._closes, self._zone = opens, closes, ZoneInfo(zone)
        self._always = frozenset(always)
        self.changes: Counter[str | None] = Counter()
        self._lock = threading.Lock()  # hooks run in several threads

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if operation.kind in ("delete", "delete_tree", "forget") and operation.actor not in self._always:
            hour = datetime.fromtimestamp(operation.time, self._zone).hour
            if not self._opens <= hour < self._closes:
                raise OperationDenied(f"deleted only from {self._opens} to {self._closes} o'clock", path=operation.path)

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation, outcome: Outcome) -> None:
        if outcome.status == "ok" and operation.changes:
            with self._lock:
                self.changes[operation.actor] += 1
