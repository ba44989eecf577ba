"""Interrupts at every place where CPython can run the Python handler of a signal.

CPython checks for signals when a Python function begins, when a call of a C function has returned, and at the end of a
loop iteration. A profile function is called at the first two, so its exception arrives like that of a signal handler:
inside or outside of the same ``with`` and ``try`` blocks. (A trace function would also raise where no signal can:
between the end of a ``with`` block and the call of ``__exit__``.) An interrupt before a system call stands for a system
call that a signal ended before it had an effect.

The garbage collector is off while a call is traced, because it would also finalize what other tests have left.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType

from tests.support.descriptors import open_files

_ROOT = Path(__file__).parents[2]
_OURS = (f"{_ROOT / 'agent_memory'}/", f"{_ROOT / 'backends'}/")
_EVENTS = ("call", "c_call", "c_return")
_SYSTEM = ("posix", "fcntl", "time")


class Interrupt(KeyboardInterrupt):
    """The exception of the handler."""


@dataclass(frozen=True)
class Place:
    """The place of an interrupt: the event of the profile function, the called function, and the surrounding code."""

    event: str
    called: str
    file: str
    function: str

    def __str__(self) -> str:
        return f"{self.event} of {self.called} in {self.function}, {self.file}"


def count_places(call: Callable[[], object]) -> int:
    """Run a call to its end and count its places."""
    return _traced(call, 0, [])


def interrupted_where(place: int, call: Callable[[], object]) -> Place | None:
    """Like `interrupted_at`, but return the place, or None if the call ended before it reached the place."""
    found: list[Place] = []
    with suppress(Exception, Interrupt):
        _traced(call, place, found)
    return found[0] if found else None


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Run a call and interrupt it at a place, counted from 1; False if it ended before it reached the place.

    The interrupt, and any exception that the code raises instead, is caught here.
    """
    return interrupted_where(place, call) is not None


def handled_at(place: int, call: Callable[[], object], handler: Callable[[], object]) -> None:
    """Run a call, and at a place a handler that returns normally."""
    _traced(call, place, [], handler)


def closed_below(directory: Path) -> list[str]:
    """Close the files below a directory that this process has still open, and return their names."""
    found = {number: path for number, path in open_files().items() if path.is_relative_to(directory)}
    for number in found:
        os.close(number)
    return [str(path.relative_to(directory)) for path in found.values()]


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

    gc.disable()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


def _is_system_call(function: object) -> bool:
    """Whether a signal may end a C function before it has an effect: a system call or a wait for a lock."""
    owner = getattr(function, "__self__", None)
    module = owner.__name__ if isinstance(owner, ModuleType) else type(owner).__module__
    waits = getattr(function, "__name__", "") in ("acquire", "wait")
    return module in _SYSTEM or (waits and module == "_thread")


def _place(frame: FrameType, event: str, argument: object) -> Place:
    code = frame.f_code
    called = code.co_name if event == "call" else getattr(argument, "__name__", repr(argument))
    return Place(event, called, Path(code.co_filename).name, code.co_name)
