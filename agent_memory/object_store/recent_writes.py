"""`RecentWrites`: a cache of the states that this process wrote, so that an append need not read them."""

from __future__ import annotations

from collections import OrderedDict
from weakref import WeakValueDictionary

from agent_memory.object_store.conditional_write import Write
from agent_memory.object_store.states import State

MOST_BYTES = 16 << 20
_MOST_SHARED = 1024


class RecentWrites:
    """States by name, at most 16 MiB; the least recently written state is dropped first.

    A file is **shared** after an append of this process lost against another writer. No state of a shared file is
    remembered, because every append would begin with a refused request. The file is no longer shared when an append
    finds the state that this process left.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[str, State] = OrderedDict()
        self._shared: OrderedDict[str, str] = OrderedDict()
        self._begun: WeakValueDictionary[str, Write] = WeakValueDictionary()
        self._bytes = 0

    def begin(self, name: str, write: Write) -> State | None:
        """Begin a write: return the remembered state of a name, and forget it."""
        self._begun[name] = write
        state = self._states.get(name)
        self.forget(name)
        return state

    def keep(self, name: str, state: State, write: Write) -> None:
        """Remember the state after a write, unless its data is over a quarter of the limit.

        If another write began before this one ended, nothing is remembered: either of the writes, or a third one, may
        have made the current state.
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
        """Whether other processes wrote a shared file after this process; ``found`` is the state that was just read."""
        left = self._shared.get(name)
        return left is not None and (found is None or found.etag != left)

    def share(self, name: str, etag: str) -> None:
        """Mark a file as shared; ``etag`` is the ETag of this process's last write."""
        self.forget(name)
        self._shared[name] = etag
        self._shared.move_to_end(name)
        if len(self._shared) > _MOST_SHARED:
            self._shared.popitem(last=False)

    def forget_all(self, name: str, top: str) -> None:
        """Forget a name and all names that begin with ``top``; `keep` ignores the unfinished writes there."""
        for known in [*self._states, *self._begun]:
            if known == name or known.startswith(top):
                self.forget(known)
                self._begun.pop(known, None)

    def forget(self, name: str) -> None:
        """Forget the state of a name, because it is outdated."""
        if (state := self._states.pop(name, None)) is not None:
            self._bytes -= _cost(name, state)


def _cost(name: str, state: State) -> int:
    return len(state.data) + len(name) + 2_500  # the write log, and the overhead of the objects
