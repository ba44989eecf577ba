"""`AgentMemoryPath`: the class of ``UPath("agentmemory://...")``, which universal-pathlib finds by its entry point."""

from __future__ import annotations

from upath import UPath

__all__ = ["AgentMemoryPath"]


class AgentMemoryPath(UPath):
    """A path in a memory; its options are those of `agent_memory.integrations.fsspec.AgentMemoryURLFileSystem`."""

    __slots__ = ()
