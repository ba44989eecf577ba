"""`Uncopied`: a base of classes whose instances own a descriptor, a lock, a thread or a connection."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Uncopied:
    """Refuses to be copied and pickled, before anything of it is shared.

    A copy would have the same descriptor without the same owner: the first of the two to go closes it for both.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # what copy, deepcopy and pickle all ask for
        kind = type(self).__name__
        raise TypeError(f"{kind} cannot be pickled or copied, for it holds open storage: make another one instead")
