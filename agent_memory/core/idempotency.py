"""The flow of a call with an idempotency key: it takes effect at most once, also if other processes repeat it.

1. Claim the key: create its receipt. Exactly one of several calls succeeds; the others wait for its result.
2. Make the change.
3. Finish the receipt with the result, or release it if the change was refused.

If the process ends between 1 and 3, the receipt does not tell whether the change took effect. No later call can find
out: an equal content may be another writer's. So a later call gets `OutcomeUnknownError`, and never makes the change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from agent_memory.backend import ABSENT, Backend, ETag, Snapshot, WriteWhen
from agent_memory.backend._deadline import deadline_scope
from agent_memory.backend.helpers import Deadline, deadline_or_default
from agent_memory.core import tree_flows
from agent_memory.core.call import Call, Flow
from agent_memory.core.flows import Effect, read_if_present
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.one_file import fails_alone
from agent_memory.core.receipts import SKEW_SECONDS, CallFacts, IdempotencyKey, Receipt, receipt_key, receipts_of
from agent_memory.errors import (
    AgentMemoryError,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run, RunAround
from agent_memory.runtime.threaded import ThreadedRun

_log = logging.getLogger("agent_memory")
RECEIPT_SECONDS: Final = 24 * 60 * 60.0
"""How long an idempotency key stays used."""
_FIRST_DELAY: Final = 0.01
_LONGEST_DELAY: Final = 0.5
_SWEPT_LATER: Final = 300.0
"""How long an expired receipt is kept for calls that began before it expired, in seconds."""
_RESERVE: Final = 0.1
_RESERVE_SECONDS: Final = 5.0
"""The time of a call that is kept for its receipt: a tenth, at most 5 seconds."""


P = ParamSpec("P")
T = TypeVar("T")


async def apply_once(
    store: Backend,
    run: Run,
    call: Call,
    flow: Flow,
    once: Once,
    arguments: tuple[str, ...],
) -> Effect:
    """Make a change unless a call with the same idempotency key has made it; then return that call's result.

    Raises:
        ConflictError: the key belongs to another call: one of its `CallFacts` or its fingerprint is different.
        OutcomeUnknownError: an earlier call with this key ended without a known result.
    """
    given = once.key
    await _sweep(store, run, call, once)
    claim = _Claim(store, run, call, once, CallFacts(call.kind, call.key.path, call.content, arguments))
    found = await claim.take()
    if found:
        return found.effect(given)
    try:
        with claim.time_for_the_change():
            effect = await flow(store, claim.run_while_valid(), call)
    except BaseException as error:
        if _changed_nothing(run, call, error):
            await claim.replace_receipt(claim.mine.released())
        raise
    await claim.replace_receipt(claim.finished(effect))
    return effect


def _changed_nothing(run: Run, call: Call, error: BaseException) -> bool:
    if error is call.raised_by_caller:
        return True
    if isinstance(error, asyncio.CancelledError):
        return isinstance(run, ThreadedRun)  # it is cancelled only while it waits to make the change
    return isinstance(error, AgentMemoryError) and not isinstance(error, OutcomeUnknownError)


class _Claim:
    """The claim of one call on its idempotency key."""

    def __init__(self, store: Backend, run: Run, call: Call, once: Once, facts: CallFacts) -> None:
        self._store = store
        self._run = run
        self._call = call
        self._given = once.key
        self._key = receipt_key(call.agent, once.key)
        self._facts = facts
        self._seconds = once.seconds
        self._deadline = deadline_or_default(run.now())
        until = self._now() + self._deadline.at - run.now()
        self.mine = Receipt.begun(once.key, facts, until, self._now() + once.seconds)
        self._etag: ETag | None = None

    async def take(self) -> Receipt | None:
        """Claim the key, or return the receipt of the call that has made the change; waits for a call under way."""
        if await self._create(ABSENT):
            return None
        delay, waited_for = _FIRST_DELAY, ""
        while True:
            snapshot = await self._read(is_again=delay > _FIRST_DELAY)
            if snapshot is None:
                if await self._create_after(waited_for):
                    return None
                await self._run.sleep(delay)
                continue
            found = Receipt.parse(self._key, snapshot.data)
            if found.is_over(self._call.time):
                if await self._create(snapshot.etag):
                    return None
            elif found.salt == self.mine.salt:  # the answer to the claim was lost
                self._etag = snapshot.etag
                return None
            elif not found.is_of_call(self._given, self._facts):
                raise ConflictError("the idempotency key belongs to another call; nothing was changed")
            elif found.done:
                return found
            else:
                await self._wait(found, delay)
                waited_for = found.salt
                delay = min(2 * delay, _LONGEST_DELAY)

    async def _create_after(self, waited_for: str) -> bool:
        """Claim a key whose receipt was swept or forgotten; not if this call waited for the result in it."""
        if waited_for:
            raise _undecided()
        return await self._create(ABSENT)

    async def _read(self, is_again: bool) -> Snapshot | None:
        try:
            return await read_if_present(self._store, self._run, self._key)
        except ReadError as error:
            if is_again and self._run.now() >= self._deadline.at:
                raise _undecided() from error  # the time is over while another call is under way
            raise

    async def _create(self, when: WriteWhen) -> bool:
        try:
            self._etag = await self._run.call(self._store.write, self._key, self.mine.to_bytes(), when=when)
        except (FileAlreadyExistsError, ConflictError, OutcomeUnknownError) as error:
            if isinstance(error, FileAlreadyExistsError) and error.taken_by != "file":
                raise WriteError(
                    "the receipt of the idempotency key has no free name", path=self._facts.path
                ) from error
            if self._run.now() >= self._deadline.at:
                raise _undecided() from error
            return False
        return True

    async def _wait(self, found: Receipt, delay: float) -> None:
        left = min(found.until + SKEW_SECONDS - self._now(), self._deadline.at - self._run.now())
        if left <= 0:
            raise _undecided()
        await self._run.sleep(min(delay * (0.5 + self._run.random() / 2), left))

    def run_while_valid(self) -> Run:
        """The call's run, which refuses to begin anything when the receipt may be gone."""
        return _RunWhileValid(self._run, self._run.now() + self.mine.expires - self._now() - SKEW_SECONDS)

    def finished(self, effect: Effect) -> Receipt:
        """The receipt with the call's result."""
        return self.mine.finished(self._given, effect, self._now() + self._seconds)

    def time_for_the_change(self) -> AbstractContextManager[None]:
        """The call's deadline, without the time to store the result."""
        seconds, at = self._deadline
        reserve = min(_RESERVE_SECONDS, seconds * _RESERVE)
        return deadline_scope(Deadline(seconds - reserve, at - reserve))

    async def replace_receipt(self, receipt: Receipt) -> None:
        """Replace the receipt; a failure only means that a repeated call gets `OutcomeUnknownError`."""
        assert self._etag is not None  # noqa: S101 - the claim was taken
        try:
            await self._run.call(self._store.write, self._key, receipt.to_bytes(), when=self._etag)
        except AgentMemoryError as error:
            kind, path = self._facts.kind, self._facts.path
            _log.warning("%s %a: its idempotency key stays undecided: %s", kind, path, error.args[0])

    def _now(self) -> float:
        return self._call.time + self._run.now() - self._call.started


class _RunWhileValid(RunAround):
    """A run for the change of a claim, until the claim ends, in seconds of the run's clock.

    The caller's function and plugins may take any time, and a change after the end could be a second one.
    """

    def __init__(self, run: Run, end: float) -> None:
        super().__init__(run)
        self._end = end

    async def call(self, primitive: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.now() >= self._end:
            raise WriteError("the call took longer than its idempotency key is kept; nothing more was changed")
        return await super().call(primitive, *args, **kwargs)


async def finished_receipt(store: Backend, run: Run, call: Call, given: IdempotencyKey) -> Receipt | None:
    """Return the receipt of the call with this idempotency key; None if none was made, or it changed nothing.

    Raises:
        ConflictError: the key belongs to another call: its fingerprint or its directory is different.
        OutcomeUnknownError: the call is under way, or ended without telling how.
    """
    key = receipt_key(call.agent, given)
    snapshot = await read_if_present(store, run, key)
    found = Receipt.parse(key, snapshot.data) if snapshot else None
    if found is None or found.is_over(call.time):
        return None
    if not (found.has_of(given) and is_at_or_below(found.path, call.key.path)):
        raise ConflictError("the idempotency key belongs to another call")
    if not found.done:
        raise OutcomeUnknownError("a call with this idempotency key is under way, or ended without a known result")
    return found


async def forget_receipts(store: Backend, run: Run, call: Call) -> None:
    """Erase the receipts of calls on a file, or on all files of a directory."""
    directory = receipts_of(call.agent)
    if not call.key.path:
        await tree_flows.forget(store, run, directory)
        return

    async def names_it(key: Key) -> bool:
        try:
            snapshot = await read_if_present(store, run, key)
        except AgentMemoryError as error:
            if not fails_alone(error):
                raise
            return True  # it may name any file
        return snapshot is not None and _names(key, snapshot.data, call.key.path)

    await tree_flows.forget_each(store, run, directory, names_it)


def _names(key: Key, data: bytes, directory: str) -> bool:
    """Whether a receipt names a file at or below a path; a damaged receipt may name any file."""
    try:
        return is_at_or_below(Receipt.parse(key, data).path, directory)
    except ReadError:
        return True


def _undecided() -> OutcomeUnknownError:
    return OutcomeUnknownError(
        "an earlier call with this idempotency key ended without a known result: it may or may not have taken effect"
    )


async def _sweep(store: Backend, run: Run, call: Call, once: Once) -> None:
    """Delete some expired receipts. Where the storage has no conditional delete they stay."""

    async def listed() -> list[Key]:
        listing = await tree_flows.list_all(store, run, receipts_of(call.agent))
        return [entry.key for entry in listing.entries if entry.modified + once.seconds < call.time]

    async def delete(key: Key) -> None:
        snapshot = await read_if_present(store, run, key)
        if snapshot and Receipt.parse(key, snapshot.data).is_over(call.time - _SWEPT_LATER):  # a damaged one stays
            with suppress(UnsupportedOperationError):
                await run.call(store.delete, key, when=snapshot.etag)

    await once.sweep.delete_a_few(run, call.agent, listed, delete)


@dataclass(frozen=True)
class Once:
    """How the changes of a view are made at most once.

    Attributes:
        key: the idempotency key.
        seconds: how long the key stays used after its call has ended.
        sweep: the sweep of the expired receipts of the store.
    """

    key: IdempotencyKey
    seconds: float
    sweep: Sweep
