"""`HostClock`: tells that the host's clock was set, also while the process was an image of its memory."""

from __future__ import annotations

import time

_STEP_SECONDS = 1.0


class HostClock:
    """Compares the wall clock with the monotonic clock, which stands still in an image and in a sleeping machine."""

    def __init__(self) -> None:
        self._apart = _measured()

    def was_set(self) -> bool:
        """Whether the wall clock was set by more than a second since the last call."""
        apart = _measured()
        if abs(apart - self._apart) <= _STEP_SECONDS:
            return False
        self._apart = apart
        return True


def _measured() -> float:
    return time.time() - time.monotonic()
