"""Interrupts at every place where CPython can run the Python handler of a signal.

CPython looks for signals when a Python function begins, when a call of a C function has returned, and at the end of a
loop's round. A profile function is called at the first two, so an exception that it raises arrives like that of a
signal's handler: inside or outside of the same ``with`` and ``try`` blocks. (A trace function would also raise where
no signal can: between the end of a ``with`` block and the call of ``__exit__``.) A call of the system that has not
begun yet stands for one that a signal ended before it had an effect.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType

_ROOT = Path(__file__).parents[2]
_OURS = (f"{_ROOT / 'agent_memory'}/", f"{_ROOT / 'backends'}/")
_EVENTS = ("call", "c_call", "c_return")
_SYSTEM = ("posix", "fcntl", "time")


class Interrupt(KeyboardInterrupt):
    """What the handler raises."""


@dataclass(frozen=True)
class Place:
    """Where a call was interrupted: the event of the profile function, what was called, and the code it happened in."""

    event: str
    called: str
    file: str
    function: str

    def __str__(self) -> str:
        return f"{self.event} of {self.called} in {self.function}, {self.file}"


def count_places(call: Callable[[], object]) -> int:
    """How many places a call of our code has; it runs to its end."""
    return _traced(call, 0, [])


def interrupted_where(place: int, call: Callable[[], object]) -> Place | None:
    """The same as `interrupted_at`; where it was, or None if the call ended before it came there."""
    found: list[Place] = []
    with suppress(Exception, Interrupt):
        _traced(call, place, found)
    return found[0] if found else None


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Run a call and interrupt it at a place, counted from 1; False if it ended before it came there.

    The interrupt, and whatever our code raises instead of it, is swallowed.
    """
    return interrupted_where(place, call) is not None


def handled_at(place: int, call: Callable[[], object], handler: Callable[[], object]) -> None:
    """Run a call, and at a place a handler that raises nothing."""
    _traced(call, place, [], handler)


def _interrupting() -> None:
    raise Interrupt


def _traced(
    call: Callable[[], object], place: int, found: list[Place], handler: Callable[[], object] = _interrupting
) -> int:
    seen = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        if event == "c_call" and not _is_system_call(argument):
            return
        if event in _EVENTS and frame.f_code.co_filename.startswith(_OURS):
            seen += 1
            if seen == place:
                found.append(_place(frame, event, argument))
                handler()

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def _is_system_call(function: object) -> bool:
    """Whether a signal may end a C function before it has an effect: a call of the system, or a wait for a lock."""
    owner = getattr(function, "__self__", None)
    module = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
    waits = getattr(function, "__name__", "") in ("acquire", "wait")
    return module in _SYSTEM or (waits and module == "_thread")


def _place(frame: FrameType, event: str, argument: object) -> Place:
    code = frame.f_code
    called = code.co_name if event == "call" else getattr(argument, "__name__", repr(argument))
    return Place(event, called, Path(code.co_filename).name, code.co_name)
