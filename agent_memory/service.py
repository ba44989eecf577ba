"""`AgentMemoryService` and `AsyncAgentMemoryService`: the memories of many agents on one root.

An agent's tree is the directory ``{root}/agent_memory/{agent_instance_id}/``; its first write creates it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Self, TypeVar

from agent_memory.backend import AnyBackend, BlockingBackend, Capabilities, Entry
from agent_memory.core.actor import Actor, current_actor
from agent_memory.core.expiring import MOST_EXPIRED, ExpiredFile, Expiry, expire
from agent_memory.core.hooks import Hooks
from agent_memory.core.internal_trees import Sweep
from agent_memory.core.limits.count import Usage
from agent_memory.core.limits.quotas import Quotas
from agent_memory.core.limits.settings import Limits
from agent_memory.core.results import TreeResult, WriteResult
from agent_memory.core.statistics import Statistics
from agent_memory.core.tree import Tree, checked_timeout
from agent_memory.core.versions.settings import SettingsCache, VersionLimits
from agent_memory.errors import AgentMemoryFileNotFoundError, FileOperationError, InvalidAgentIdError, InvalidPathError
from agent_memory.key import AGENTS, Key
from agent_memory.memory import AgentMemory, AsyncAgentMemory
from agent_memory.plugins.logging import LoggingPlugin
from agent_memory.registry import open_backend
from agent_memory.runtime.run import Run
from agent_memory.runtime.runners import run_async, run_sync

M = TypeVar("M", AgentMemory, AsyncAgentMemory)


class _Service(Generic[M]):
    """The base of the sync and the async class."""

    _memory: type[M]

    def __init__(
        self,
        root: str | os.PathLike[str] | AnyBackend,
        *,
        storage_options: Mapping[str, object] | None = None,
        plugins: Iterable[object] = (),
        actor: str | None = None,
        timeout: float | None = None,
        versions: VersionLimits | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Open a root; nothing is created before the first write.

        Args:
            root: a path, a URL (``file://``, ``memory://name``, ``s3://bucket/prefix``) or a backend.
            storage_options: options of the URL's backend; an unknown option is refused.
            plugins: guards and observers; the last plugin is called first. Logging is always on.
            actor: the person or program that acts; hooks receive it.
            timeout: the seconds of each call; see `AgentMemory.with_timeout`.
            versions: turn on that the store keeps earlier versions, with these limits, before the first change.
            limits: set the limits of files and agents before the first change, if the store has none.

        Raises:
            BackendNotAvailableError: no installed backend opens the URL.
            InvalidPathError: the root is this package's own source checkout, or too long for its store.
            TypeError: ``actor`` is neither a str nor None.
            ValueError: ``timeout`` is not a positive number.
        """
        self._actor = Actor.of(actor)
        self._hooks = Hooks([LoggingPlugin(), *plugins])
        self._backend = open_backend(root, storage_options, self._hooks)
        self._timeout = checked_timeout(timeout, self._backend)
        self._sweep = Sweep()
        self._settings = SettingsCache(versions, limits)
        self._quotas = Quotas()
        _refuse_source_checkout(self._backend)

    def agent(self, agent_instance_id: str) -> M:
        """Return the memory of one agent; nothing is created.

        Raises:
            InvalidAgentIdError: the text is not a valid agent id; ``suggestion`` is a valid one.
        """
        try:
            top = Key.agent(agent_instance_id)
        except InvalidAgentIdError as error:
            self._hooks.key_rejected(None, error, current_actor(self._actor).actor)
            raise
        agent = top.base.rpartition("/")[2]  # plain text: a str subclass could have another __str__
        tree = Tree(
            self._backend, self._hooks, top, agent, self._actor,
            timeout=self._timeout, sweep=self._sweep, settings=self._settings, quotas=self._quotas,
        )  # fmt: skip
        return self._memory(tree)

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of the storage."""
        return self._backend.capabilities

    def statistics(self) -> Statistics:
        """Count the operations of this service since it was opened, by kind and status; needs no plugin and no I/O.

        Also the async service returns the numbers without ``await``.
        """
        return self._hooks.tally.statistics()

    @property
    def _agents(self) -> Tree:
        return Tree(
            self._backend, self._hooks, AGENTS, actor=self._actor,
            timeout=self._timeout, settings=self._settings, quotas=self._quotas,
        )  # fmt: skip


class AgentMemoryService(_Service[AgentMemory]):
    """The memories of many agents on one root; each method calls the method of `AgentMemory` on one agent's tree.

    Every method raises `InvalidAgentIdError` for an invalid id. An agent without files has no directory: reading its
    files raises `AgentMemoryFileNotFoundError`.
    """

    _memory = AgentMemory

    def read_memory_file(self, agent_instance_id: str, relative_file_path: str) -> str:
        """Read a text file; see `AgentMemory.read`."""
        return self.agent(agent_instance_id).read(relative_file_path)

    def write_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """Replace or create a text file; see `AgentMemory.write`."""
        return self.agent(agent_instance_id).write(relative_file_path, content)

    def append_to_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """Append to a text file, or create the file; see `AgentMemory.append`."""
        return self.agent(agent_instance_id).append(relative_file_path, content)

    def create_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """Write a file that must not exist; see `AgentMemory.create`."""
        return self.agent(agent_instance_id).create(relative_file_path, content)

    def delete_memory_file(self, agent_instance_id: str, relative_file_path: str) -> None:
        """Delete a file; see `AgentMemory.delete`."""
        self.agent(agent_instance_id).delete(relative_file_path)

    def rename_memory_file(
        self, agent_instance_id: str, relative_file_path: str, new_relative_file_path: str
    ) -> TreeResult:
        """Move a file or a directory to a free name; see `AgentMemory.rename`."""
        return self.agent(agent_instance_id).rename(relative_file_path, new_relative_file_path)

    def list_memory_files(self, agent_instance_id: str) -> tuple[Entry, ...]:
        """List all files of an agent; see `AgentMemory.list`."""
        return self.agent(agent_instance_id).list()

    def memory_file_exists(self, agent_instance_id: str, relative_file_path: str) -> bool:
        """Whether a file has this name; see `AgentMemory.exists`."""
        return self.agent(agent_instance_id).exists(relative_file_path)

    def forget_memory(self, agent_instance_id: str, relative_path: str = "") -> TreeResult:
        """Erase an agent's whole tree, or one file or directory in it; see `AgentMemory.forget`."""
        return self.agent(agent_instance_id).forget(relative_path)

    def agent_ids(self) -> tuple[str, ...]:
        """The ids of the agents that have files, in the order of their bytes."""
        return run_sync(self._backend, self._agents.agent_ids)

    def usage(self) -> Iterator[tuple[str, Usage]]:
        """Count what each agent has, one agent after the other; see `AgentMemory.usage`."""
        for agent in self.agent_ids():
            yield agent, self.agent(agent).usage()

    def limits(self) -> Limits | None:
        """The limits of the store; None if it has none."""
        return run_sync(self._backend, self._agents.limits)

    def set_limits(self, limits: Limits | None) -> None:
        """Set the limits of the store, or remove them; each process that uses the store follows within a minute.

        Raises:
            UnsupportedOperationError: the store cannot keep a limit of an agent.
        """
        run_sync(self._backend, lambda run: self._agents.set_limits(run, limits))

    def expire(
        self,
        pattern: str,
        *,
        older_than: timedelta,
        keep: Collection[str] = (),
        agents: Iterable[str] | None = None,
        limit: int = MOST_EXPIRED,
        dry_run: bool = False,
    ) -> tuple[ExpiredFile, ...]:
        """Delete the files that did not change for some time, and return them; hooks and versions see each deletion.

        The result does not contain a file that stays, because a writer changed it during the call or a guard protects
        it. The age is the difference between this host's clock and the time of the storage.

        Args:
            pattern: the files, in each agent's tree: ``*``, ``?`` and ``[...]`` within a segment, as in `fnmatch`, and
                ``**`` for any number of segments.
            older_than: the age.
            keep: patterns of files that stay.
            agents: the agents; None for all.
            limit: the maximum number of files; a call that returns so many has perhaps left some.
            dry_run: delete nothing.

        Raises:
            ValueError: no path can match a pattern, the age is not positive, or ``limit`` is no positive number.
            UnsupportedOperationError: the storage has no conditional deletions.
            PartialOperationError: the storage failed to delete a file of an agent; the agents after it were not looked
                at. Run it again.
        """
        expiry = Expiry.of(pattern, older_than, keep, limit)
        found: list[ExpiredFile] = []
        for agent in self.agent_ids() if agents is None else _agents(agents):
            tree, left = self.agent(agent)._tree, limit - len(found)
            if left:
                ended = run_sync(self._backend, _expiring(tree, replace(expiry, limit=left), dry_run))
                found += (ExpiredFile(agent, entry.path, entry.size, entry.modified) for entry in ended)
        return tuple(found)

    def close(self) -> None:
        """Flush and close the plugins, and release the backend's resources.

        The memories of its agents are closed too. A plugin stays open while another open service uses it, or if it
        is shared: see `agent_memory.hookspecs.Plugin`.
        """
        self._agents.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncAgentMemoryService(_Service[AsyncAgentMemory]):
    """`AgentMemoryService` for async callers: the same methods, awaited."""

    _memory = AsyncAgentMemory

    async def read_memory_file(self, agent_instance_id: str, relative_file_path: str) -> str:
        """See `AgentMemoryService.read_memory_file`."""
        return await self.agent(agent_instance_id).read(relative_file_path)

    async def write_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """See `AgentMemoryService.write_memory_file`."""
        return await self.agent(agent_instance_id).write(relative_file_path, content)

    async def append_to_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """See `AgentMemoryService.append_to_memory_file`."""
        return await self.agent(agent_instance_id).append(relative_file_path, content)

    async def create_memory_file(self, agent_instance_id: str, relative_file_path: str, content: str) -> WriteResult:
        """See `AgentMemoryService.create_memory_file`."""
        return await self.agent(agent_instance_id).create(relative_file_path, content)

    async def delete_memory_file(self, agent_instance_id: str, relative_file_path: str) -> None:
        """See `AgentMemoryService.delete_memory_file`."""
        await self.agent(agent_instance_id).delete(relative_file_path)

    async def rename_memory_file(
        self, agent_instance_id: str, relative_file_path: str, new_relative_file_path: str
    ) -> TreeResult:
        """See `AgentMemoryService.rename_memory_file`."""
        return await self.agent(agent_instance_id).rename(relative_file_path, new_relative_file_path)

    async def list_memory_files(self, agent_instance_id: str) -> tuple[Entry, ...]:
        """See `AgentMemoryService.list_memory_files`."""
        return await self.agent(agent_instance_id).list()

    async def memory_file_exists(self, agent_instance_id: str, relative_file_path: str) -> bool:
        """See `AgentMemoryService.memory_file_exists`."""
        return await self.agent(agent_instance_id).exists(relative_file_path)

    async def forget_memory(self, agent_instance_id: str, relative_path: str = "") -> TreeResult:
        """See `AgentMemoryService.forget_memory`."""
        return await self.agent(agent_instance_id).forget(relative_path)

    async def agent_ids(self) -> tuple[str, ...]:
        """See `AgentMemoryService.agent_ids`."""
        return await run_async(self._backend, self._agents.agent_ids)

    async def usage(self) -> AsyncIterator[tuple[str, Usage]]:
        """See `AgentMemoryService.usage`."""
        for agent in await self.agent_ids():
            yield agent, await self.agent(agent).usage()

    async def limits(self) -> Limits | None:
        """See `AgentMemoryService.limits`."""
        return await run_async(self._backend, self._agents.limits)

    async def set_limits(self, limits: Limits | None) -> None:
        """See `AgentMemoryService.set_limits`."""
        await run_async(self._backend, lambda run: self._agents.set_limits(run, limits))

    async def expire(
        self,
        pattern: str,
        *,
        older_than: timedelta,
        keep: Collection[str] = (),
        agents: Iterable[str] | None = None,
        limit: int = MOST_EXPIRED,
        dry_run: bool = False,
    ) -> tuple[ExpiredFile, ...]:
        """See `AgentMemoryService.expire`."""
        expiry = Expiry.of(pattern, older_than, keep, limit)
        found: list[ExpiredFile] = []
        for agent in await self.agent_ids() if agents is None else _agents(agents):
            tree, left = self.agent(agent)._tree, limit - len(found)
            if left:
                ended = await run_async(self._backend, _expiring(tree, replace(expiry, limit=left), dry_run))
                found += (ExpiredFile(agent, entry.path, entry.size, entry.modified) for entry in ended)
        return tuple(found)

    async def aclose(self) -> None:
        """See `AgentMemoryService.close`."""
        await self._agents.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


def _agents(agents: Iterable[str]) -> Iterable[str]:
    if isinstance(agents, str):
        raise TypeError("agents must be an iterable of ids, not a str")
    return agents


def _expiring(tree: Tree, expiry: Expiry, dry_run: bool) -> Callable[[Run], Coroutine[Any, Any, list[Entry]]]:
    return partial(expire, tree=tree, expiry=expiry, dry_run=dry_run)


def _refuse_source_checkout(backend: AnyBackend) -> None:
    if not isinstance(backend, BlockingBackend):
        return  # a source checkout is on a disk; on an object store the check would cost a request
    try:
        backend.stat(AGENTS.join("__init__.py"))
    except (AgentMemoryFileNotFoundError, FileOperationError):
        return
    raise InvalidPathError(
        "this root contains the Python package 'agent_memory': it is a source checkout; choose another root",
        "source-checkout",
    )
