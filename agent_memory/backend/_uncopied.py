"""`Uncopied`: base of classes whose instances own a descriptor, a lock, a thread or a connection."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Uncopied:
    """Base of classes whose instances cannot be copied or pickled.

    A copy would own the same descriptor a second time: when one of the two is closed, the descriptor of the other is
    closed too. A class that only leads to such an instance does not need this base, because a deep copy or a pickle
    ends at that instance, unless the class has a finaliser.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # copy, deepcopy and pickle all call it
        kind = type(self).__name__
        raise TypeError(f"{kind} cannot be pickled or copied, because it holds open storage: create a new one instead")
