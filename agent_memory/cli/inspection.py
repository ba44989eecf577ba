"""Inspect a store without hooks and views: agents, names that are not valid keys, and conflicting names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from agent_memory.audit.log import DIRECTORY
from agent_memory.backend import AnyBackend, Entry, Page
from agent_memory.backend._pages import Markers
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import AGENTS, Key, is_agent_id

_LIMIT: Final = 100_000


@dataclass
class Agents:
    """The agents' directory: agent ids, other names and files, and the number of names that are not valid keys."""

    ids: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    skipped: int = 0


@dataclass
class AgentTree:
    """One agent's tree: the number of files and of invalid names, and the names that are both file and directory."""

    agent: str
    files: int = 0
    skipped: int = 0
    doubles: list[str] = field(default_factory=list)


@dataclass
class LogSize:
    """The size of an audit log in a store; an audit log is never deleted."""

    files: int = 0
    bytes: int = 0


def log_size(backend: AnyBackend) -> LogSize:
    """The size of the store's own audit log."""
    entries = [entry for page in pages(backend, Key.internal(DIRECTORY)) for entry in page.entries]
    return LogSize(len(entries), sum(entry.size for entry in entries))


def pages(backend: AnyBackend, prefix: Key, *, recursive: bool = True) -> Iterator[Page]:
    """All pages of a listing."""
    after: str | None = None
    markers = Markers(prefix)
    while True:
        page = _page(backend, prefix, recursive, after)
        yield page
        after = page.next
        if after is None:
            return
        markers.go_on(after)


def first_page(backend: AnyBackend, prefix: Key, limit: int = 1) -> Page:
    """A page with the first names of this level."""
    return _page(backend, prefix, False, None, limit=limit)


def _page(backend: AnyBackend, prefix: Key, recursive: bool, after: str | None, limit: int = _LIMIT) -> Page:
    return BlockingStore(backend).list(prefix, recursive=recursive, after=after, limit=limit)


def agents_of(backend: AnyBackend) -> Agents:
    """The agents of a store, and the other entries of their directory."""
    found = Agents()
    for page in pages(backend, AGENTS, recursive=False):
        for directory in page.directories:
            name = directory.relative_to(AGENTS).path
            (found.ids if is_agent_id(name) else found.strays).append(name)
        found.strays += (entry.key.relative_to(AGENTS).path for entry in page.entries)
        found.skipped += page.skipped
    return found


def tree_of(backend: AnyBackend, agent: str) -> AgentTree:
    """Inspect the tree of one agent."""
    entries: list[Entry] = []
    skipped = 0
    for page in pages(backend, Key.agent(agent)):
        entries += page.entries
        skipped += page.skipped
    files = {entry.path for entry in entries}
    directories = {parent for path in files for parent in _parents(path)}
    return AgentTree(agent, len(files), skipped, sorted(files & directories))


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
