"""`View`: the base of `AgentMemory` and `AsyncAgentMemory`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from agent_memory.backend import AnyBackend, BlockingBackend, Capabilities
from agent_memory.core.actor import Actor
from agent_memory.core.conversation_marks import of_conversation, unreserved
from agent_memory.core.flows import content_bytes, decode, raw_bytes, text_bytes
from agent_memory.core.hooks import Hooks
from agent_memory.core.limits.settings import Limits
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.core.tree import Tree, checked_timeout
from agent_memory.core.tree_flows import AT_ONCE
from agent_memory.core.versions.settings import SettingsCache, VersionLimits
from agent_memory.key import Key
from agent_memory.plugins.logging import LoggingPlugin
from agent_memory.registry import open_backend

if TYPE_CHECKING:
    from agent_memory.memory import AgentMemory, AsyncAgentMemory


class View:
    """The base of the sync and the async class: the tree, and methods that make narrower views of it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | AnyBackend,
        *,
        storage_options: Mapping[str, object] | None = None,
        plugins: Iterable[object] = (),
        actor: str | None = None,
        timeout: float | None = None,
        versions: VersionLimits | None = None,
        limits: Limits | None = None,
    ) -> Self:
        """Open one tree without agents, for example a project's ``.claude/memories``.

        Args:
            root: a path, a URL or a backend; nothing is created before the first write.
            storage_options: options of the URL's backend; an unknown option is refused.
            plugins: guards and observers; the last plugin is called first. Logging is always on.
            actor: the person or program that acts; hooks receive it.
            timeout: see `with_timeout`.
            versions: turn on that the store keeps earlier versions, with these limits, before the first change.
            limits: set the limits of files and agents before the first change, if the store has none.

        Raises:
            BackendNotAvailableError: no installed backend opens the URL.
            TypeError: ``actor`` is neither a str nor None.
            ValueError: ``timeout`` is not a positive number.
        """
        default_actor = Actor.of(actor)
        hooks = Hooks([LoggingPlugin(), *plugins])
        backend = open_backend(root, storage_options, hooks)
        seconds = checked_timeout(timeout, backend)
        settings = SettingsCache(versions, limits)
        return cls(Tree(backend, hooks, Key.tree(), actor=default_actor, timeout=seconds, settings=settings))

    def subtree(self, path: str) -> Self:
        """Return a view confined to a directory; its paths are relative to that directory."""
        return type(self)(self._tree.subtree(path))

    def read_only(self) -> Self:
        """Return a view whose writing calls raise `OperationDenied`; views made from it are read-only too."""
        return type(self)(replace(self._tree, writable=False))

    def _protecting(self, names: Iterable[str], *, readable: bool) -> Self:
        """Return a view that never changes these names and reads them only if ``readable``; see `ProtectedNames`."""
        protected = ProtectedNames(map(self._tree.top.join, names), readable)
        return type(self)(replace(self._tree, protected=(*self._tree.protected, protected)))

    def _unreserved(self) -> Self:
        """Return a view for tools in a tree without a conversation; see `agent_memory.core.conversation_marks`."""
        return type(self)(unreserved(self._tree))

    def _of_conversation(self, directories: tuple[str, ...]) -> Self:
        """Return a view for a conversation with files in these directories; it is refused where a mark says so."""
        return type(self)(of_conversation(self._tree, directories))

    def acting_as(self, actor: str | None, tool_call_id: str | None = None) -> Self:
        """Return a view with a fixed actor and tool call for the hooks; it overrides `agent_memory.acting_as`.

        Raises:
            TypeError: an argument is neither a str nor None.
        """
        return type(self)(replace(self._tree, actor=Actor.of(actor, tool_call_id), bound=True))

    def with_timeout(self, seconds: float | None) -> Self:
        """Return a view whose calls give up after ``seconds``, including retries and waits for other writers.

        An operation on many files, or on ranges of a file, has this time for each file, each page of a listing and
        each range. None is the backend's default: 60 seconds on S3. On local disk the default limits only the wait
        for a lock, to 60 seconds.

        Raises:
            ValueError: ``seconds`` is not a positive number.
        """
        return type(self)(replace(self._tree, timeout=checked_timeout(seconds, self._tree.backend)))

    def as_sync(self) -> AgentMemory:
        """Return the same view for sync callers; both are closed together."""
        from agent_memory.memory.blocking import AgentMemory  # a class of this base

        return AgentMemory(self._tree)

    def as_async(self) -> AsyncAgentMemory:
        """Return the same view for async callers; both are closed together."""
        from agent_memory.memory.asynchronous import AsyncAgentMemory  # a class of this base

        return AsyncAgentMemory(self._tree)

    @property
    def capabilities(self) -> Capabilities:
        """The guarantees of the storage."""
        return self._tree.backend.capabilities

    @property
    def _at_once(self) -> int:
        """The number of files to work on concurrently."""
        return 1 if isinstance(self._tree.backend, BlockingBackend) else AT_ONCE

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._tree.top.storage or '.'!r}>"


def content_of(content: str | bytes) -> Callable[[], bytes]:
    """Content of a file from a text or bytes; it is checked and encoded when it is needed."""
    return partial(content_bytes, content)


def text_of(content: str) -> Callable[[], bytes]:
    """Content of a file from a text only; otherwise as `content_of`."""
    return partial(text_bytes, content)


def of_text(change: Callable[[str], str | None]) -> Callable[[Key, bytes], bytes | None]:
    """A function of a file's text as a function of its bytes."""

    def changed(key: Key, data: bytes) -> bytes | None:
        text = change(decode(key, data))
        return None if text is None else text_bytes(text)

    return changed


def of_bytes(change: Callable[[bytes], bytes | None]) -> Callable[[Key, bytes], bytes | None]:
    """A function of a file's bytes; its result is checked."""

    def changed(_: Key, data: bytes) -> bytes | None:
        new = change(data)
        return None if new is None else raw_bytes(new)

    return changed
