"""The last versions this process wrote, so that an append to one need not read it first; bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from agent_memory.backend import Uncopied
from agent_memory.object_store.conditional_write import State, Write

MOST_BYTES = 16 << 20
_MOST_SHARED = 1024


class RecentWrites(Uncopied):
    """States by name; the one longest unused goes first.

    A file whose last version turned out not to be current any more is **shared**: until a version of it is found where
    it was left, to remember one would cost a refused request at every append.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[str, State] = OrderedDict()
        self._shared: OrderedDict[str, str] = OrderedDict()
        self._begun: WeakValueDictionary[str, Write] = WeakValueDictionary()
        self._bytes = 0

    def begin(self, name: str, write: Write) -> State | None:
        """The state of a name as a write begins, which is forgotten with this."""
        self._begun[name] = write
        state = self._states.get(name)
        self.forget(name)
        return state

    def keep(self, name: str, state: State, write: Write) -> None:
        """Remember what a write left, with its data, unless they would take more than a quarter of the room.

        Nothing is known, if another one began meanwhile, which did not wait: its state may be the last one, or neither.
        """
        self.forget(name)
        if self._begun.get(name) is not write:
            return
        self._shared.pop(name, None)
        if len(state.data) <= MOST_BYTES // 4:
            self._states[name] = state
            self._bytes += _cost(name, state)
        while self._bytes > MOST_BYTES and self._states:
            self.forget(next(iter(self._states)))

    def is_shared(self, name: str, found: State | None) -> bool:
        """Whether others have written a file since this process last did, as far as a read has told."""
        left = self._shared.get(name)
        return left is not None and (found is None or found.etag != left)

    def share(self, name: str, etag: str) -> None:
        """Others write the file too; ``etag`` is the version this process left."""
        self.forget(name)
        self._shared[name] = etag
        self._shared.move_to_end(name)
        if len(self._shared) > _MOST_SHARED:
            self._shared.popitem(last=False)

    def forget_all(self, name: str, top: str) -> None:
        """Forget a name, and all that begin with another, with what is being written there."""
        for known in [*self._states, *self._begun]:
            if known == name or known.startswith(top):
                self.forget(known)
                self._begun.pop(known, None)

    def forget(self, name: str) -> None:
        """What is known of a name is not true any more."""
        if (state := self._states.pop(name, None)) is not None:
            self._bytes -= _cost(name, state)


def _cost(name: str, state: State) -> int:
    return len(state.data) + len(name) + 2_500  # its table, and what Python needs to keep it
