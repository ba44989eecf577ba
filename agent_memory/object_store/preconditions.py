"""`Preconditions`: refuses a change that relies on a precondition which the server does not enforce.

For a bucket with a single writer, `SingleWriterStore` checks the preconditions instead of the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from agent_memory.backend import ABSENT, ANY, Capabilities, WriteWhen
from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import Key
from agent_memory.object_store.bucket import Bucket
from agent_memory.object_store.engine import (
    NotFound,
    Object,
    ObjectStore,
    PreconditionFailed,
    SupportsMultipart,
    SupportsVersions,
)
from agent_memory.object_store.retry import Attempts
from agent_memory.object_store.trial import Trial
from agent_memory.object_store.trial.results import ADVICE, TrialResult, TrialResults
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
    """The preconditions of one backend's server, found out by a `Trial` that runs once.

    Args:
        bucket: its engine becomes a `SingleWriterStore` if the server does not enforce the preconditions of PUTs, and
            ``allow_single_writer`` is set.
        trial: finds out the preconditions that the server enforces.
        locks: let only one task at a time run the trial.
        allow_single_writer: accept a server that enforces no preconditions, because no other process writes there.
    """

    def __init__(self, bucket: Bucket, trial: Trial, locks: KeyedLocks, *, allow_single_writer: bool) -> None:
        self._bucket = bucket
        self._trial = trial
        self._locks = locks
        self.allow_single_writer = allow_single_writer

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the server enforces; before its trial, those that the engine can request."""
        if self._has_single_writer:
            return _SINGLE_WRITER
        known, untried = self._trial.known, (TrialResult.ENFORCED, TrialResult.NOT_TRIED)
        return replace(
            _CAPABILITIES,
            atomic_create=known.create in untried,
            compare_and_swap=known.swap in untried,
            conditional_delete=known.delete in untried,
        )

    async def find_out(self, key: Key, attempts: Attempts, *, deletes: bool = False) -> TrialResults:
        """The results of the trial, with scratch objects beside a key; ``deletes``: try a conditional DELETE, too.

        If a single writer is allowed and the server does not enforce conditions, the bucket gets a `SingleWriterStore`.
        """
        name = self._bucket.name(key)
        if self._trial.known.swap is TrialResult.NOT_TRIED:
            async with self._locks.lock(self, attempts.deadline.at):
                found = await self._trial.try_writes(name, attempts)
            are_enforced = found.create is found.swap is TrialResult.ENFORCED
            if self.allow_single_writer and not are_enforced and not self._has_single_writer:
                self._bucket.store = SingleWriterStore(self._bucket.store)
        if deletes:
            return await self._trial.try_deletes(name, attempts)
        return self._trial.known

    async def require(self, key: Key, attempts: Attempts, needed: tuple[str, ...]) -> None:
        """Raise `UnsupportedOperationError` unless the server enforces these fields of `TrialResults`."""
        self._require_enforced(key, await self.find_out(key, attempts, deletes="delete" in needed), needed)

    async def require_for_upload(self, key: Key, when: WriteWhen, attempts: Attempts) -> None:
        """Raise as `require`, for the completion of a multipart upload."""
        if when is ANY:
            return
        kind: Literal["create", "swap"] = "create" if when is ABSENT else "swap"
        await self.require(key, attempts, (kind,))
        if not self._has_single_writer:
            async with self._locks.lock(self, attempts.deadline.at):
                found = await self._trial.try_new_parts(self._bucket.name(key), attempts, kind)
            if isinstance(self._bucket.store, SupportsMultipart):
                self._require_enforced(key, found, (f"{kind}_upload",))

    async def enforces_upload(self, key: Key, when: WriteWhen, attempts: Attempts) -> bool:
        """Whether the server enforces a condition of a completed upload; False if the client checks it."""
        if self._has_single_writer:
            return False
        try:
            await self.require_for_upload(key, when, attempts)
        except UnsupportedOperationError:
            return False
        return isinstance(self._bucket.store, SupportsMultipart)

    @property
    def may_enforce_deletes(self) -> bool:
        """Whether the server decides the preconditions of deletions; true if this was not tried yet."""
        may_be_enforced = self._trial.known.delete in (TrialResult.ENFORCED, TrialResult.NOT_TRIED)
        return may_be_enforced and self._bucket.store.conditional_delete and not self._has_single_writer

    async def deletes_on_condition(self, key: Key, attempts: Attempts) -> bool:
        """Whether a deletion has a precondition."""
        return (await self.find_out(key, attempts)).delete is TrialResult.ENFORCED or self._has_single_writer

    def refuse_delete(self, key: Key) -> None:
        """Raise as `require`, for a conditional deletion with an engine that has none; sends nothing."""
        self._require_enforced(key, self._trial.known, ("delete",))

    @property
    def _has_single_writer(self) -> bool:
        return isinstance(self._bucket.store, SingleWriterStore)

    def _require_enforced(self, key: Key, results: TrialResults, needed: tuple[str, ...]) -> None:
        for name in needed:
            result: TrialResult = getattr(results, name)
            if result is not TrialResult.ENFORCED and not self.allow_single_writer:
                raise UnsupportedOperationError(f"{result.value} ({_REQUESTS[name]}); {ADVICE}", path=key.path)


class SingleWriterStore:
    """An engine that checks preconditions before the request; safe only if no other process writes there."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        if isinstance(store, SupportsVersions):
            self.list_versions, self.delete_version = store.list_versions, store.delete_version
            self.list_uploads, self.abort_upload = store.list_uploads, store.abort_upload
        if isinstance(store, SupportsMultipart):
            self.least_part = store.least_part
            self.begin_upload, self.put_part, self.copy_part = store.begin_upload, store.put_part, store.copy_part
            self.abort_upload = store.abort_upload
            self.complete_upload = partial(self._complete, store)
        self.resends = store.resends
        self.conditional_delete = True
        self.bare_etags = store.bare_etags
        self.most_listed = store.most_listed
        self.identity = store.identity
        self.is_trusted = store.is_trusted
        self.server = store.server
        self.get = store.get
        self.head = store.head
        self.list = store.list
        self.now = store.now
        self.clock_was_set = store.clock_was_set
        self.ahead_by = store.ahead_by
        self.aclose = store.aclose

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        if absent or if_match is not None:
            await self._require(name, if_match)
        return await self._store.put(name, data, metadata)

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        if if_match is not None:
            await self._require(name, if_match)
        await self._store.delete(name)

    async def _complete(
        self,
        store: SupportsMultipart,
        name: str,
        upload: str,
        parts: Sequence[str],
        *,
        if_match: str | None = None,
        absent: bool = False,
    ) -> str:
        if absent or if_match is not None:
            await self._require(name, if_match)
        return await store.complete_upload(name, upload, parts)

    async def _require(self, name: str, etag: str | None) -> None:
        found: Object | None
        try:
            found = await self._store.head(name)
        except NotFound:
            found = None
        if (found and found.etag) != etag:
            raise PreconditionFailed if found else NotFound
