"""What has to begin anew in the child of a fork, where the threads of the parent are gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

T = TypeVar("T")


def renewed_in_child(renew: Callable[[T], object]) -> WeakSet[T]:
    """A set of objects for each of which ``renew`` is called in a fork's child, as long as somebody holds it."""
    members: WeakSet[T] = WeakSet()

    def renew_all() -> None:
        for member in members:
            renew(member)

    os.register_at_fork(after_in_child=renew_all)
    return members
