"""`Quota`: what this process may still add to one agent's files, by a lease in the agent's `Ledger`.

Most operations take what they add from the lease and need no request for it. A new lease is taken when the old one is
used up or over; if the limit leaves no room, the files are counted again first.

Only bytes that are counted are given back: a state of a file is counted if this process wrote it, or listed it in a
count. So a file of another program that is replaced or deleted makes no room before the next count.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from agent_memory.backend import ABSENT, Backend, ETag, Snapshot
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.backend.helpers import HostClock, Uncopied
from agent_memory.core import tree_flows
from agent_memory.core.flows import Effect, moves_files, moves_trees, read_if_present, until_won
from agent_memory.core.limits.charge import Charge, CountedState, LimitReachedError, Replaced
from agent_memory.core.limits.count import MOST_STATES, Count, count_agent
from agent_memory.core.limits.ledger import (
    END_SECONDS,
    LEASE_SECONDS,
    NOTHING,
    Amount,
    Lease,
    Ledger,
    ledger_of,
    limit_of_agent,
    portion_of,
    total,
)
from agent_memory.core.limits.settings import LimitSetting, new_id
from agent_memory.errors import AgentMemoryError, ConflictError, FileAlreadyExistsError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.runtime.fork import renewed_in_child
from agent_memory.runtime.io_loop import AsyncIORun
from agent_memory.runtime.run import Run
from agent_memory.runtime.threaded import ThreadedRun

_WAIT_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.002
_NO_LEASE: Final = ""


class _Closed(NamedTuple):
    """A lease from which no operation can take.

    Attributes:
        lease: its id.
        added: what was added by it.
        carried: what operations in progress took from it, or may still add: the next lease contains it, because a count
            by another process may not see it.
        free: what no operation took.
        freed: what is given back.
        count_id: the id of the count of which it is given back.
        number: how often the lease was closed: only the last one who did may open it again.
    """

    lease: str
    added: Amount
    carried: Amount
    free: Amount
    freed: Amount
    count_id: str
    number: int


class _LeaseClaim:
    """Who takes a lease now."""

    def __init__(self, thread: int) -> None:
        self.thread: Final = thread


class _Stored(NamedTuple):
    """The ledger as this process wrote it last."""

    ledger: Ledger
    etag: ETag


class Quota(Uncopied):
    """The lease of one agent in this process, and the counted states of its files.

    If several threads take a lease at once, earlier ones stay in the ledger until the next count (`_own`).

    Attributes:
        count: the id of the count that the ledger had last.
    """

    def __init__(self, agent: str | None) -> None:
        self._key = ledger_of(agent)
        self._agent = agent
        self._host_clock = HostClock()
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Begin without a lease, also in the child of a fork, which has no operation and no lease of its parent."""
        self._lock = threading.RLock()  # a signal handler may perform an operation
        self._busy = NOTHING
        self._doubts: deque[tuple[float, Amount]] = deque()
        self._claims: dict[Key, _LeaseClaim] = {}
        self._closes = 0
        self.forget()

    def forget(self) -> None:
        """Forget the lease and the states; operations in progress stay known."""
        self._lease, self._until = _NO_LEASE, 0.0
        self._granted = self._free = self._freed = NOTHING
        self._own: frozenset[str] = frozenset()
        self.count = self._setting = ""
        self._stored: _Stored | None = None
        self._states: OrderedDict[str, CountedState] = OrderedDict()

    def known(self) -> Amount | None:
        """What the agent has by the ledger that this process wrote last, without a request; None if it wrote none.

        Another process may have added more; deleted files may count until the next count.
        """
        if self._stored is None:
            return None
        own = self._granted.minus(self._free).minus(self._freed)
        return self._stored.ledger.used.plus(own).positive()

    def state_of(self, key: Key) -> CountedState | None:
        """The counted state of a file, if it is known."""
        return self._states.get(key.storage)

    def learn(self, key: Key, etag: ETag | None, amount: Amount) -> None:
        """Remember the counted state of a file."""
        with self._lock:
            self._states[key.storage] = CountedState(etag, amount)
            self._states.move_to_end(key.storage)
            if len(self._states) > MOST_STATES:
                self._states.popitem(last=False)

    def unlearn(self, key: Key) -> None:
        """Forget the counted states of a file, and of the files below it."""
        below = f"{key.storage}/"
        with self._lock:
            for name in [name for name in self._states if name == key.storage or name.startswith(below)]:
                self._states.pop(name, None)

    def settle(self, amount: Amount, *, returned: bool = False, in_doubt: bool = False) -> None:
        """End a charge: it is given back to the lease, or it may still take effect, or else it was added."""
        if in_doubt:
            self._doubts.append((time.monotonic() + END_SECONDS, amount))
        with self._lock:
            self._add("_busy", NOTHING.minus(amount))
            if returned:
                self._add("_free", amount)

    def credit(self, amount: Amount, count: str) -> None:
        """Note that counted bytes and files are gone; the next change of the ledger frees them.

        ``count`` is the `count` when the operation began: if files were counted since, that may have seen the change.
        """
        with self._lock:
            if count == self.count:
                self._add("_freed", amount)

    async def charge(
        self, store: Backend, run: Run, setting: LimitSetting, need: Amount, replaced: Replaced | None = None
    ) -> Charge:
        """Take an amount that an operation adds; negative numbers need nothing.

        Args:
            store: the storage.
            run: runs its primitives.
            setting: the limits of the store.
            need: the amount.
            replaced: the file that the operation replaces; it makes the need smaller, if there is no room.

        Raises:
            LimitReachedError: the limit leaves less.
            FileOperationError: the ledger, or the files, cannot be listed, read or written.
        """
        need = need.positive()
        if need == NOTHING:
            return Charge(self, need, math.inf)
        if setting.id != self._setting:
            self._setting, self._until = setting.id, 0.0  # the lease is of earlier limits
        taken = self._taken(need, run.now())

        async def attempt() -> Effect:
            nonlocal taken
            taken = self._taken(need, run.now()) or await self._renewed(store, run, setting, need, replaced)
            return Effect()

        if taken is None:
            claim = await self._claimed(run)
            try:
                await until_won(store, run, self._key, attempt)
            finally:
                self._unclaim(claim)
        assert taken is not None  # noqa: S101 - `attempt` sets it, or raises
        return taken

    async def release(self, store: Backend, run: Run) -> None:
        """End the lease, so that other processes can use the rest of it; after an error it ends by its time."""
        if not self._lease:
            return

        async def attempt() -> Effect:
            closed = self._close()
            before, ledger = await self._read(store, run)
            if before and ledger and closed.lease in ledger.leases:
                after, old = self._after(ledger, closed), ledger.leases[closed.lease]
                if closed.carried != NOTHING:
                    after = after.with_lease(closed.lease, Lease(closed.carried, old.until))
                await self._write(store, run, after, before)
            return Effect()

        with suppress(AgentMemoryError):
            await until_won(store, run, self._key, attempt)
        self.forget()

    async def erase(self, store: Backend, run: Run) -> None:
        """Erase the ledger of an agent that is forgotten; a process that has a lease may still use it for its time."""
        self.forget()
        await tree_flows.forget(store, run, self._key)

    async def fold(self, store: Backend, run: Run) -> None:
        """Move what was added by the lease to what is used, so that another process does not count it twice.

        If another process changed the ledger, or it cannot be written, the next lease moves it.
        """
        stored = self._stored
        closed = self._close()
        if stored is None or closed.lease not in stored.ledger.leases or closed.added == NOTHING:
            self._open_again(closed)
            return
        freed = closed.freed if stored.ledger.count == closed.count_id else NOTHING
        after = stored.ledger.folded(closed.lease, closed.added, freed)
        try:
            etag = await run.call(store.write, self._key, after.to_bytes(), when=stored.etag)
        except AgentMemoryError as error:
            if not isinstance(error, OutcomeUnknownError):
                self._open_again(closed)
            return
        with self._lock:
            if closed.lease == self._lease:
                self._granted = self._granted.minus(closed.added)
                self._add("_free", closed.free if closed.number == self._closes else NOTHING)
                self._stored = _Stored(after, etag)

    def _taken(self, need: Amount, now: float) -> Charge | None:
        """Take an amount from the lease; None if it does not suffice, or is over."""
        if self._host_clock.was_set():
            self._until = 0.0  # another image of this process may have the same lease
        with self._lock:
            self._add("_busy", need)  # first: what is taken is never forgotten
            while now < self._until and (free := self._free).suffices(need):
                left = free.minus(need)
                if self._free is free:  # else a signal handler took from it
                    self._free = left
                    return Charge(self, need, self._until)
            self._add("_busy", NOTHING.minus(need))
        return None

    def _add(self, name: str, amount: Amount) -> None:
        """Add to one of the amounts, also while a signal handler does the same in this thread."""
        state = self.__dict__
        while True:
            before = state[name]
            after = before.plus(amount)
            if state[name] is before:
                state[name] = after
                return

    async def _claimed(self, run: Run) -> object:
        """Wait while another thread of this process takes a lease; not long, because this only avoids conflicts."""
        end, claim = run.now() + _WAIT_SECONDS, _LeaseClaim(threading.get_ident())
        while (holder := self._claims.setdefault(self._key, claim)) is not claim:  # one step of the dict
            interrupted = holder.thread == claim.thread and not isinstance(run, AsyncIORun | ThreadedRun)
            if interrupted or run.now() >= end:
                break  # a signal handler must not wait for what it interrupted
            await run.sleep(_POLL_SECONDS)
        return claim

    def _unclaim(self, claim: object) -> None:
        if self._claims.get(self._key) is claim:
            self._claims.pop(self._key, None)

    async def _renewed(
        self, store: Backend, run: Run, setting: LimitSetting, need: Amount, replaced: Replaced | None
    ) -> Charge:
        """Take a new lease, and the need from it.

        Raises:
            ConflictError: another process changed the ledger.
            LimitReachedError: there is no room, also after a count.
        """
        began, limit = run.now(), limit_of_agent(setting.limits)
        before, ledger = await self._read(store, run)
        closed = self._close()
        count: Count | None = None
        try:
            after = self._after(ledger, closed) if ledger else None
            is_known = after and not after.is_old(setting, time.time())
            if after is None or not is_known or not after.room(limit, closed.carried).suffices(need):
                count, after = await self._counted(store, run, setting, ledger, replaced)
            room = after.room(limit, closed.carried)
            if count and replaced and not room.suffices(need):
                need = (await replaced.need(count.size or 0)).positive()
            if not room.suffices(need):
                raise LimitReachedError(need, after, closed.carried, cast(Count, count))
            portion = portion_of(room.minus(need), limit, len(after.leases))
            granted = closed.carried.plus(need).plus(portion)
            lease = new_id()
            after = after.with_lease(lease, Lease(granted, time.time() + END_SECONDS))
            with renewed_deadline(run.now()):
                etag = await self._write(store, run, after, before)
        except (AgentMemoryError, LimitReachedError) as error:
            if not isinstance(error.__cause__, OutcomeUnknownError):
                self._open_again(closed)
            raise
        if count and count.amount.files <= MOST_STATES:
            for entry in count.entries:  # only now the ledger contains them
                self.learn(entry.key, entry.etag, Amount(entry.size, 1))
        with self._lock:
            self._own = frozenset((lease, *(self._own & after.leases.keys())))
            if self.count != after.count:
                self.count, self._freed = after.count, NOTHING  # the count may have seen what was freed
            self._lease, self._until, self._stored = lease, began + LEASE_SECONDS, _Stored(after, etag)
            self._granted, self._free = granted, portion
            self._add("_busy", need)
        return Charge(self, need, began + LEASE_SECONDS)

    async def _counted(
        self,
        store: Backend,
        run: Run,
        setting: LimitSetting,
        ledger: Ledger | None,
        replaced: Replaced | None,
    ) -> tuple[Count, Ledger]:
        """Count the files, and return the ledger after that."""
        about, with_versions = replaced.key if replaced else None, setting.limits.count_versions
        count = await count_agent(store, run, self._agent, about, with_versions=with_versions)
        if any(moves(cast(Any, store)) for moves in (moves_files, moves_trees)):  # a listing may miss a file that moves
            count = count.larger(await count_agent(store, run, self._agent, about, with_versions=with_versions))
        before = ledger or Ledger(NOTHING, new_id(), 0.0, setting.id)
        return count, before.recounted(count.amount, self._own, time.time(), setting.id)

    def _close(self) -> _Closed:
        """Let no operation take from the lease."""
        now = time.monotonic()
        with self._lock:
            while self._doubts and self._doubts[0][0] <= now:
                self._doubts.popleft()
            carried = self._busy.plus(total(amount for _, amount in self._doubts))
            added = self._granted.minus(self._free).minus(carried)
            self._closes += 1
            closed = _Closed(self._lease, added, carried, self._free, self._freed, self.count, self._closes)
            self._free = self._freed = NOTHING
        return closed

    def _open_again(self, closed: _Closed) -> None:
        with self._lock:
            if closed.count_id == self.count:  # else a count may have seen it
                self._add("_freed", closed.freed)
            if (closed.lease, closed.number) == (self._lease, self._closes):
                self._add("_free", closed.free)

    def _after(self, ledger: Ledger, closed: _Closed) -> Ledger:
        freed = closed.freed if ledger.count == closed.count_id else NOTHING  # a count since then may have seen it
        return ledger.without(closed.lease, closed.added, freed, time.time())

    async def _read(self, store: Backend, run: Run) -> tuple[Snapshot | None, Ledger | None]:
        found = await read_if_present(store, run, self._key)
        return found, Ledger.parse(found.data) if found else None

    async def _write(self, store: Backend, run: Run, ledger: Ledger, before: Snapshot | None) -> ETag:
        """Write the ledger in the place of the one that was read; raises `ConflictError` if that is not possible."""
        try:
            return await run.call(store.write, self._key, ledger.to_bytes(), when=before.etag if before else ABSENT)
        except (FileAlreadyExistsError, OutcomeUnknownError) as error:
            raise ConflictError("another writer changed it", path=self._key.path) from error


_all = renewed_in_child(Quota._begin)
