"""`Links`: the records of the renames that one operation makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from agent_memory.backend import ABSENT, Backend
from agent_memory.core.own_trees import about_callers_file
from agent_memory.core.versions.origin import MadeBy, Origin
from agent_memory.core.versions.record import Link, records_of_file
from agent_memory.errors import AgentMemoryError, OutcomeUnknownError
from agent_memory.key import Key
from agent_memory.runtime.run import Run


class Links:
    """The records of the renames of one operation: each is written before the move, and deleted if that is refused.

    Args:
        store: the storage.
        run: runs its primitives.
        agent: the agent whose files are renamed.
        secret: keys the digests of paths.
        by: the operation.
    """

    def __init__(self, store: Backend, run: Run, agent: str | None, secret: str, by: MadeBy) -> None:
        self._store = store
        self._run = run
        self._agent = agent
        self._secret = secret
        self._by = by
        self._names: dict[Key, Key] = {}
        self._unused: list[Key] = []

    async def write(
        self, source: Key, target: Key, history: str | None, before: Origin | None = None, after: Origin | None = None
    ) -> None:
        """Write the record of a rename; ``history`` is None for a directory, the origins are those of a copy."""
        ids = (before.id if before else None, after.id if after else None)
        link = Link(source.path, target.path, self._by.shortened(), history, *ids)
        name = records_of_file(self._agent, self._secret, target.path).join(link.name)
        with about_callers_file(source.path, "the rename cannot be recorded"):
            await self._run.call(self._store.write, name, link.to_bytes(), ABSENT)
        self._names[target] = name
        self._unused.append(name)

    @contextmanager
    def moving(self, target: Key) -> Iterator[None]:
        """Keep the record of a rename to a name, if the block gives a file this name, or may have done so."""
        try:
            yield
        except OutcomeUnknownError:
            self._keep(target)
            raise
        self._keep(target)

    def _keep(self, target: Key) -> None:
        self._unused = [name for name in self._unused if name != self._names.get(target)]

    def is_withdrawn(self, target: Key) -> None:
        """Do not keep the record of a rename after all: no file has the new name any more."""
        if target in self._names:
            self._unused.append(self._names[target])

    async def delete_unused(self) -> None:
        """Delete the records of renames that were refused."""
        for name in self._unused:
            with suppress(AgentMemoryError):
                await self._run.call(self._store.delete, name)
