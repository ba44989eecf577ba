"""Servers that do not keep preconditions: found out before they lose a write, and used by a single writer only."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from agent_memory.errors import UnsupportedOperationError
from agent_memory.key import TEMPORARY_SUFFIX
from agent_memory.object_store._attempts import Attempts
from agent_memory.object_store._store import NO_ETAG, KeepsVersions, Missing, Object, ObjectStore, Racing, Refused

_IGNORED = "this server ignores preconditions, so concurrent writers would lose each other's writes"
ADVICE = "if a single process writes here, say so by the storage option allow_single_writer"


async def refusal(store: ObjectStore, name: str, attempts: Attempts) -> str | None:
    """Why a store is not safe for several writers, or None if it is: it refuses what has to be refused.

    One request to a store that is not trusted, which writes nothing if it is refused.

    Args:
        store: the engine.
        name: an object beside which the trial lies, so that whoever may write it may try.
        attempts: the time there is.
    """
    if await attempts.until_answered(store.is_trusted):
        return None
    trial = f"{name}.{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    try:
        await attempts.until_answered(lambda: store.put(trial, b"", {}, if_match=NO_ETAG))
    except (Missing, Refused, Racing):
        return None
    except UnsupportedOperationError as error:
        return f"{error}; {ADVICE}"
    await attempts.until_answered(lambda: store.delete(trial))
    return f"{_IGNORED}; {ADVICE}"


class SingleWriterStore:
    """A store whose preconditions are looked at before the request, because nobody else writes meanwhile."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        if isinstance(store, KeepsVersions):
            self.list_versions, self.delete_version = store.list_versions, store.delete_version
            self.list_uploads, self.abort_upload = store.list_uploads, store.abort_upload
        self.resends = store.resends
        self.conditional_delete = True
        self.most_listed = store.most_listed
        self.identity = store.identity
        self.is_trusted = store.is_trusted
        self.get = store.get
        self.head = store.head
        self.list = store.list
        self.now = store.now
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

    async def _require(self, name: str, etag: str | None) -> None:
        found: Object | None
        try:
            found = await self._store.head(name)
        except Missing:
            found = None
        if (found and found.etag) != etag:
            raise Refused if found else Missing
