"""Resets state in the child of a fork, where the threads of the parent do not exist."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

T = TypeVar("T")


def call_in_child(function: Callable[[], object]) -> None:
    """Call a function in the child of every fork from now on."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=function)


def renewed_in_child(renew: Callable[[T], object]) -> WeakSet[T]:
    """Return a weak set of objects; in the child of a fork, ``renew`` is called with each object that still exists."""
    members: WeakSet[T] = WeakSet()

    def renew_all() -> None:
        for member in members:
            renew(member)

    call_in_child(renew_all)
    return members
