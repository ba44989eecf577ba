"""`Races`: sends several changes of one scratch object at once, of which a precondition lets at most one through.

A server that checks a precondition first, and makes the change afterwards, makes more than one of them. Concurrent
writers would lose each other's changes there. Only answers count, and each change has content of its own. So a network
that loses or repeats requests makes no server look unsafe.

Ceph RGW 16.2 answers the losers by 412 or by 500, and on a busy machine all of them by 500. Several such races decide
together: after each, the object must be as the change that was answered by success has made it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from agent_memory.object_store.engine import (
    NoResponse,
    NotFound,
    PreconditionFailed,
    SupportsMultipart,
    WriteConflict,
)
from agent_memory.object_store.retry import Attempts, Cleanup
from agent_memory.object_store.trial.results import TrialResult
from agent_memory.object_store.trial.scratch import ScratchObject, scratch_upload
from agent_memory.runtime.tasks import gather_or_cancel

RACERS: Final = 4
OBJECTS: Final = 3
"""The number of scratch objects at once; with more, the requests for one object are less close to each other."""
PASSES: Final = 2
"""The races of each object; only one if the server limits the writes of an object, and answers one racer alone."""
_FAILED_ROUNDS: Final = 6
"""So many races in which the server failed for the losers decide as one in which it refused a loser."""
_SECONDS: Final = 5.0
"""After this time no other pass starts, unless a kind of changes is not decided yet."""
_log = logging.getLogger("agent_memory.object_store")
Change = Callable[[], Awaitable[str | None]]


class _End(Enum):
    """The answer to one change: made, refused, turned away without a decision (throttled), a failure, or none."""

    MADE = auto()
    REFUSED = auto()
    TURNED_AWAY = auto()
    FAILED = auto()
    UNANSWERED = auto()


class _Racer(NamedTuple):
    """The end of one change; ``etag`` is the object's new ETag, None if the change removed the object."""

    end: _End
    etag: str | None = None
    failure: NoResponse | None = None


class RacedChanges(NamedTuple):
    """One kind of changes to race.

    Attributes:
        changes: prepares the changes of a scratch object; the stack aborts their uploads.
        needs_object: whether the object has to exist before.
        deletes_at: the places of a DELETE among the changes, by turns; () for a kind without a DELETE.
    """

    changes: Callable[[ScratchObject, AsyncExitStack], Awaitable[Sequence[Change]]]
    needs_object: bool = True
    deletes_at: Sequence[int] = ()


@dataclass
class _Tally:
    """The rounds of one kind: ``fair`` had several answers, ``limited`` had one, and all others were turned away.

    In a ``failed`` one the server made one change, and failed for others, but refused none. With a DELETE, a round is
    fair only if the server decided about it; ``wanted`` are its places that no fair round had yet.
    """

    wanted: set[int]
    fair: int = 0
    limited: int = 0
    failed: int = 0
    is_broken: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the rounds in which the server failed for the losers are enough to decide."""
        return self.failed >= _FAILED_ROUNDS

    @property
    def is_decided(self) -> bool:
        is_shown = (self.fair > 0 and not self.wanted) or self.has_failed
        return self.is_broken or is_shown or self.limited >= OBJECTS

    @property
    def result(self) -> TrialResult:
        if self.is_broken:
            return TrialResult.NOT_ATOMIC
        return TrialResult.NOT_SHOWN if self.has_failed and self.wanted else TrialResult.ENFORCED

    def counts(self, racers: Sequence[_Racer], deletes_at: int | None) -> bool:
        """Count a round; False if it alone decides nothing, as too few changes were answered, or all were refused."""
        ends = [racer.end for racer in racers]
        made, writes = ends.count(_End.MADE), sum(racer.etag is not None for racer in racers)
        refused = ends.count(_End.REFUSED)
        is_fair = made + refused > 1 and refused < len(ends)
        if deletes_at is not None and is_fair:
            is_fair = ends[deletes_at] in (_End.MADE, _End.REFUSED)
            self.wanted.discard(deletes_at if is_fair else -1)
        is_limited = made == 1 and ends.count(_End.TURNED_AWAY) == len(ends) - 1
        self.is_broken |= writes > 1 or (writes > 0 and made > writes)
        self.fair += is_fair
        self.limited += is_limited
        return is_fair or is_limited

    def count_failures(self, racers: Sequence[_Racer], etag: str | None) -> None:
        """Count a round in which the server failed for the losers; ``etag`` is the ETag of the object afterwards."""
        ends = [racer.end for racer in racers]
        failed = ends.count(_End.FAILED)
        if ends.count(_End.MADE) != 1 or not failed or failed + ends.count(_End.TURNED_AWAY) != len(ends) - 1:
            return
        self.failed += 1
        self.is_broken |= racers[ends.index(_End.MADE)].etag != etag


class Races:
    """Races kinds of changes, `PASSES` times on `OBJECTS` scratch objects at once.

    Args:
        scratch: makes a scratch object, and removes it afterwards.
        attempts: the operation, for its deadline.
    """

    def __init__(self, scratch: Callable[[], AbstractAsyncContextManager[ScratchObject]], attempts: Attempts) -> None:
        self._scratch = scratch
        self._attempts = attempts.afresh()
        self._turns = count()

    async def run(self, kinds: Mapping[str, RacedChanges]) -> dict[str, TrialResult]:
        """`TrialResult.ENFORCED` or `TrialResult.NOT_ATOMIC` for each kind; they share their objects, in this order.

        Raises:
            UnsupportedOperationError, PermanentError: as `ObjectStore`.
            OutOfTimeError: as `Attempts`; a kind is not decided.
        """
        tallies = {name: _Tally(set(kind.deletes_at)) for name, kind in kinds.items()}
        loop, passes = asyncio.get_running_loop(), 0
        ends = loop.time() + _SECONDS
        while not all(tally.is_decided for tally in tallies.values()) or (
            0 < passes < PASSES and loop.time() < ends and not any(tally.limited for tally in tallies.values())
        ):
            await gather_or_cancel(self._pass(kinds, tallies) for _ in range(OBJECTS))
            passes += 1
        if limited := [name for name, each in tallies.items() if not (each.is_broken or each.fair or each.has_failed)]:
            _log.warning(
                "the server answers one of several writes of an object, and turns the others away; so its preconditions"
                " (%s) are not shown to hold in a race",
                ", ".join(limited),
            )
        return {name: tally.result for name, tally in tallies.items()}

    async def _pass(self, kinds: Mapping[str, RacedChanges], tallies: Mapping[str, _Tally]) -> None:
        async with self._scratch() as scratch:
            for name, kind in kinds.items():
                if not tallies[name].is_broken:
                    await self._round(kind, scratch, tallies[name])

    async def _round(self, kind: RacedChanges, scratch: ScratchObject, tally: _Tally) -> None:
        if kind.needs_object and scratch.etag is None:
            await scratch.takes(lambda: scratch.put(b"1"))
        async with AsyncExitStack() as stack:
            changes = [*await kind.changes(scratch, stack)]
            place = kind.deletes_at[next(self._turns) % len(kind.deletes_at)] if kind.deletes_at else None
            if place is not None:
                changes.insert(place, partial(scratch.delete, scratch.etag))
            scratch.may_exist = True
            racers = await self._raced(changes)
        failures = [racer.failure for racer in racers if racer.failure]
        if not tally.counts(racers, place):  # if the server fails late, the object is looked at later
            await (self._attempts.back_off(failures[0]) if failures else self._attempts.back_off_after_race())
        await _follow(scratch, racers)
        tally.count_failures(racers, scratch.etag)

    async def _raced(self, changes: Sequence[Change]) -> Sequence[_Racer]:
        """Send all changes at once; again if all were turned away, because then nothing was changed."""
        while True:
            racers = await gather_or_cancel(self._racer(change) for change in changes)
            away = [racer.failure for racer in racers if racer.end is _End.TURNED_AWAY and racer.failure]
            if len(away) < len(racers):
                return racers
            await self._attempts.back_off(away[0])

    async def _racer(self, change: Change) -> _Racer:
        try:
            return _Racer(_End.MADE, await self._attempts.once(change))
        except (PreconditionFailed, WriteConflict, NotFound):
            return _Racer(_End.REFUSED)
        except NoResponse as failure:
            if not failure.sent and failure.wait > 0:
                return _Racer(_End.TURNED_AWAY, failure=failure)
            return _Racer(_End.FAILED if failure.answered else _End.UNANSWERED, failure=failure)


async def _follow(scratch: ScratchObject, racers: Sequence[_Racer]) -> None:
    """Note the ETag that the object has after a race; read it unless the answers contain it."""
    made = [racer for racer in racers if racer.end is _End.MADE]
    if len(made) == 1 and not any(racer.end in (_End.UNANSWERED, _End.FAILED) for racer in racers):
        scratch.etag = made[0].etag
    else:
        await scratch.read_etag()


async def _creates(scratch: ScratchObject, _: AsyncExitStack) -> Sequence[Change]:
    return [partial(scratch.put, secrets.token_bytes(8), absent=True) for _ in range(RACERS)]


async def _swaps(scratch: ScratchObject, _: AsyncExitStack, count: int = RACERS) -> Sequence[Change]:
    return [partial(scratch.put, secrets.token_bytes(8), if_match=scratch.etag) for _ in range(count)]


CREATES: Final = RacedChanges(_creates, needs_object=False)
"""PUTs with ``If-None-Match: *``."""
SWAPS: Final = RacedChanges(_swaps)
"""PUTs with ``If-Match``."""
DELETES: Final = RacedChanges(partial(_swaps, count=RACERS - 1), deletes_at=(RACERS - 1, 0))
"""A DELETE with ``If-Match`` and PUTs with the same one; the DELETE is sent last and first by turns.

Ceph RGW lets both through most often if it is last; a server that decides a DELETE in two steps, if it is first.
"""


def completions(store: SupportsMultipart, cleanup: Cleanup, attempts: Attempts, *, absent: bool) -> RacedChanges:
    """Completed uploads with ``If-None-Match: *`` if ``absent``, else with ``If-Match``."""

    async def changes(scratch: ScratchObject, stack: AsyncExitStack) -> Sequence[Change]:
        begun = (stack.enter_async_context(scratch_upload(store, scratch, cleanup, attempts)) for _ in range(RACERS))
        uploads = [await each for each in begun]
        if_match = None if absent else scratch.etag
        return [partial(each.complete, if_match=if_match, absent=absent) for each in uploads]

    return RacedChanges(changes, needs_object=not absent)
