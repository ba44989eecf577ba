"""Whether a store exists: a mistyped path or URL is an error, and not an empty store."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from agent_memory.audit.log import DIRECTORY
from agent_memory.backend import AnyBackend
from agent_memory.cli.inspection import first_page
from agent_memory.errors import AgentMemoryFileNotFoundError, FileOperationError
from agent_memory.key import Key
from agent_memory.service import AgentMemoryService

_MOST_AGENTS = 5


def require_store(backend: AnyBackend, url: str, agent: str | None = None) -> None:
    """Raise if there is no store: no directory on the local disk, elsewhere nothing below the root.

    Elsewhere the tree of ``agent`` is listed first: credentials may be allowed to list that alone. A store in memory
    is a new one in every process, and exists.

    Raises:
        AgentMemoryFileNotFoundError: there is none.
        FileOperationError: the storage failed.
    """
    if _is_missing(backend, url, agent):
        raise AgentMemoryFileNotFoundError(
            f"there is no store at {url!r}; the first write makes one, --url or AGENT_MEMORY_URL names another"
        )


def without_files(service: AgentMemoryService, backend: AnyBackend, agent: str) -> str:
    """What to say of an agent that has no files: which agents have, since its name may be mistyped."""
    try:
        agents = service.agent_ids()
        others = agents == () and _is_listed(backend, Key.tree())
    except FileOperationError:  # credentials may be allowed to list the agent's own tree alone
        return f"agent {agent!r} has no files"
    more = f", ... ({len(agents):,})" if len(agents) > _MOST_AGENTS else ""
    has = f"there are files of {', '.join(agents[:_MOST_AGENTS])}{more}" if agents else "no agent has"
    outside = "; a tree without agents (AgentMemory.open) is not shown" if others else ""
    return f"agent {agent!r} has no files; {has}{outside}"


def _is_missing(backend: AnyBackend, url: str, agent: str | None) -> bool:
    if root := local_root(url):
        try:
            root.stat()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the operation itself tells what is wrong
        return False
    return not (url.lower().startswith("memory://") or _holds_something(backend, agent))


def _holds_something(backend: AnyBackend, agent: str | None) -> bool:
    if agent is not None and _is_listed(backend, Key.agent(agent)):
        return True
    try:
        return _is_listed(backend, Key.tree()) or _is_listed(backend, Key.internal(DIRECTORY))
    except FileOperationError:
        if agent is None:
            raise
        return True  # it may be that only the agent's tree may be listed


def _is_listed(backend: AnyBackend, prefix: Key) -> bool:
    page = first_page(backend, prefix)
    return bool(page.entries or page.directories or page.skipped or page.next)


def local_root(url: str) -> Path | None:
    """The directory of a store on the local disk; None for another."""
    if "://" not in url:
        return Path(url).expanduser()
    parts = urlsplit(url)
    return Path(os.fsdecode(unquote_to_bytes(parts.path))) if parts.scheme.lower() in ("file", "local") else None


def shown_path(path: Path) -> str:
    """A path as a shell takes it, below the current directory relative to it."""
    try:
        return shlex.quote(f"./{path.absolute().relative_to(Path.cwd())}")
    except ValueError:
        return shlex.quote(str(path))
