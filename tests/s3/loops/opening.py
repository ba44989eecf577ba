"""A backend by obstore on a place of its own."""

from __future__ import annotations

from agent_memory.registry import open_backend
from agent_memory_obstore import ObstoreBackend
from tests.servers import S3Server


def opened(server: S3Server, options: dict[str, object] | None = None) -> ObstoreBackend:
    backend = open_backend(server.new_url(), options or server.options)
    assert isinstance(backend, ObstoreBackend)
    return backend
