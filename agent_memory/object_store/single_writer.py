"""`SingleWriterStore`: preconditions that the client checks, for a bucket with a single writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from agent_memory.object_store.engine import (
    NotFound,
    Object,
    ObjectStore,
    PreconditionFailed,
    SupportsMultipart,
    SupportsVersions,
)


class SingleWriterStore:
    """A store whose preconditions are checked before the request; safe only if no other process writes there."""

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
