"""The differences of Azure Blob Storage from S3: names of metadata, ranges from the end, and pages of a listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.object_store.engine import NoResponse, NotSatisfiable, Object, PreconditionFailed
from agent_memory_obstore._client import WHOLE, ObstoreStore


class AzureStore(ObstoreStore):
    """An `agent_memory.object_store.engine.ObjectStore` of one container."""

    called = "Azure"

    def __init__(self, store: Any, container: str, server: str, *, trusted: bool, patient: bool) -> None:
        super().__init__(store, container, server, trusted=trusted, patient=patient)
        self._in_order = False  # obstore cannot start a listing of Azure at a name
        self.most_listed = WHOLE

    async def get(
        self, name: str, *, span: str | None = None, if_match: str | None = None, most: int | None = None
    ) -> Object:
        if span is None or not span.startswith("bytes=-"):
            return await self._get(name, span, if_match, most)
        found = await self.head(name)  # Azure has no ranges that count from the end
        if not found.size:
            raise NotSatisfiable
        first = max(0, found.size - int(span.removeprefix("bytes=-")))
        try:
            return await self._get(name, f"bytes={first}-", if_match or found.etag, most)
        except (PreconditionFailed, NotSatisfiable):
            if if_match is not None:
                raise
            raise NoResponse("the file changed between two requests", sent=False) from None

    async def _get(self, name: str, span: str | None, if_match: str | None, most: int | None) -> Object:
        try:
            return await super().get(name, span=span, if_match=if_match, most=most)
        except PreconditionFailed:
            await self.head(name)  # Azurite also sends this if the object does not exist
            raise

    async def put(
        self, name: str, data: bytes, metadata: Mapping[str, str], *, if_match: str | None = None, absent: bool = False
    ) -> str:
        identifiers = {field.replace("-", "_"): value for field, value in metadata.items()}
        return await super().put(name, data, identifiers, if_match=if_match, absent=absent)
