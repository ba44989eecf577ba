"""`Preconditions`: the preconditions that a server keeps, and the refusal of changes that rely on others."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from agent_memory.backend import ABSENT, ANY, Capabilities, WriteWhen
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.conditions import ADVICE, Condition, Conditions
from agent_memory.object_store.engine import SupportsMultipart
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.single_writer import SingleWriterStore
from agent_memory.object_store.trial import Trial
from agent_memory.runtime.queues import KeyedLocks

_CAPABILITIES = Capabilities(
    atomic_write=True,
    atomic_create=True,
    compare_and_swap=True,
    conditional_delete=True,
    durability="full",
    exclusive_names=False,
    case_sensitive=True,
    read_after_write=True,
)
_SINGLE_WRITER = replace(_CAPABILITIES, atomic_create=False, compare_and_swap=False, conditional_delete=False)
_REQUESTS = {
    "create": "If-None-Match of a PUT",
    "swap": "If-Match of a PUT",
    "delete": "If-Match of a DELETE",
    "create_upload": "If-None-Match of a completed upload",
    "swap_upload": "If-Match of a completed upload",
}


class Preconditions:
    """What one backend knows of its server, by a trial that runs once.

    Args:
        bucket: its engine is replaced by a `SingleWriterStore` if the server keeps too little and this is allowed.
        trial: asks the server.
        locks: so that only one task asks.
        allow_single_writer: accept a server that keeps no preconditions, because no other process writes there.
    """

    def __init__(self, bucket: Bucket, trial: Trial, locks: KeyedLocks, *, allow_single_writer: bool) -> None:
        self._bucket = bucket
        self._trial = trial
        self._locks = locks
        self.allow_single_writer = allow_single_writer

    @property
    def capabilities(self) -> Capabilities:
        """What the server keeps; before its trial, what the engine can request."""
        if self._has_single_writer:
            return _SINGLE_WRITER
        known, untried = self._trial.known, (Condition.KEPT, Condition.NOT_TRIED)
        return replace(
            _CAPABILITIES,
            atomic_create=known.create in untried,
            compare_and_swap=known.swap in untried,
            conditional_delete=known.delete in untried,
        )

    async def find_out(self, key: Key, attempts: Attempts, *, of_deletes: bool = False) -> Conditions:
        """The results of the trial, with scratch objects beside a key; with ``of_deletes`` also of deletions."""
        name = self._bucket.name(key)
        if self._trial.known.swap is Condition.NOT_TRIED:
            async with self._locks.lock(self, attempts.deadline.at):
                found = await self._trial.of_writes(name, attempts)
            kept = found.create is found.swap is Condition.KEPT
            if self.allow_single_writer and not kept and not self._has_single_writer:
                self._bucket.store = SingleWriterStore(self._bucket.store)
        if of_deletes:
            return await self._trial.of_deletes(name, attempts)
        return self._trial.known

    async def require(self, key: Key, attempts: Attempts, needed: tuple[str, ...]) -> None:
        """Raise `UnsupportedOperationError` unless the server keeps these fields of `Conditions`."""
        self._refuse_unkept(key, await self.find_out(key, attempts, of_deletes="delete" in needed), needed)

    async def require_for_upload(self, key: Key, when: WriteWhen, attempts: Attempts) -> None:
        """The same for the completion of a multipart upload."""
        if when is ANY:
            return
        kind: Literal["create", "swap"] = "create" if when is ABSENT else "swap"
        await self.require(key, attempts, (kind,))
        if not self._has_single_writer:
            async with self._locks.lock(self, attempts.deadline.at):
                found = await self._trial.of_new_parts(self._bucket.name(key), attempts, kind)
            if isinstance(self._bucket.store, SupportsMultipart):
                self._refuse_unkept(key, found, (f"{kind}_upload",))

    async def keeps_upload(self, key: Key, attempts: Attempts, when: WriteWhen) -> bool:
        """Whether the server keeps a condition of a completed upload; False for a single writer, who checks it."""
        if self._has_single_writer:
            return False
        try:
            await self.require_for_upload(key, when, attempts)
        except UnsupportedOperationError:
            return False
        return isinstance(self._bucket.store, SupportsMultipart)

    @property
    def may_send_with_delete(self) -> bool:
        """Whether deletions send a precondition that the server decides; true if this was not tried yet."""
        kept = self._trial.known.delete in (Condition.KEPT, Condition.NOT_TRIED)
        return kept and self._bucket.store.conditional_delete and not self._has_single_writer

    async def sends_with_delete(self, key: Key, attempts: Attempts) -> bool:
        """Whether a deletion sends a precondition."""
        return (await self.find_out(key, attempts)).delete is Condition.KEPT or self._has_single_writer

    def refuse_delete(self, key: Key) -> None:
        """`require` of a conditional deletion, for an engine that cannot request one; sends nothing."""
        self._refuse_unkept(key, self._trial.known, ("delete",))

    @property
    def _has_single_writer(self) -> bool:
        return isinstance(self._bucket.store, SingleWriterStore)

    def _refuse_unkept(self, key: Key, conditions: Conditions, needed: tuple[str, ...]) -> None:
        for name in needed:
            condition: Condition = getattr(conditions, name)
            if condition is not Condition.KEPT and not self.allow_single_writer:
                raise UnsupportedOperationError(f"{condition.value} ({_REQUESTS[name]}); {ADVICE}", path=key.path)
