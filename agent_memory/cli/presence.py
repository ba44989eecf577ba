"""Check that a store, an agent or a file exists: a mistyped name is an error, and a near name is suggested."""

from __future__ import annotations

import os
import shlex
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes, urlsplit

import click

from agent_memory.audit.location import DIRECTORY
from agent_memory.backend import AnyBackend
from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.cli.inspection import first_page
from agent_memory.cli.output import Explained
from agent_memory.core.conversation_marks import marks_of
from agent_memory.core.limits.ledger import ledgers_of
from agent_memory.core.protected_names import ProtectedNames
from agent_memory.core.receipts import receipts_of
from agent_memory.core.versions.record import records_of
from agent_memory.errors import AgentMemoryError, AgentMemoryFileNotFoundError, FileOperationError
from agent_memory.key import AGENTS, RESERVED, Key
from agent_memory.service import AgentMemoryService
from agent_memory.tools._protected import KEPT

_MOST_AGENTS = 5
_NEAR_NAME = 0.75
_MOST_NAMES = 1000
_OF_NO_PROGRAM = (".DS_Store", ".gitignore", ".gitkeep")


def require_store(backend: AnyBackend, url: str, agent: str | None = None) -> None:
    """Raise if there is no store: on the local disk no directory, elsewhere no name below the root.

    Elsewhere the tree of ``agent``, or that of all agents, is listed before the root, because the credentials may
    allow only that. A store in memory is new in every process, and always exists.

    Raises:
        AgentMemoryFileNotFoundError: there is no store.
        FileOperationError: the storage failed.
    """
    if _is_missing(backend, url, agent):
        raise AgentMemoryFileNotFoundError(
            f"there is no store at {url!r}; the first write creates it, --url or AGENT_MEMORY_URL selects another"
        )


def require_agent(service: AgentMemoryService, backend: AnyBackend, url: str, agent: str) -> None:
    """Raise if there is no store, as `require_store`, or if it has nothing of an agent: the name may be mistyped.

    A store in memory is new in every process, so its agents are not checked.

    Raises:
        AgentMemoryFileNotFoundError: there is no store, or the agent has no files and nothing else in it.
        FileOperationError: the storage failed.
    """
    if _is_in_memory(url) or _is_listed(backend, Key.agent(agent)):
        return
    require_store(backend, url, agent)
    if not has_own_data(backend, agent):
        raise AgentMemoryFileNotFoundError(without_files(service, backend, agent))


def has_own_data(backend: AnyBackend, agent: str) -> bool:
    """Whether the store keeps data of an agent beside its files: versions, receipts, marks or a ledger."""
    try:
        return any(
            _is_listed(backend, tree)
            for tree in (records_of(agent), receipts_of(agent), marks_of(agent), ledgers_of(agent))
        )
    except FileOperationError:
        return True  # the credentials may allow listing only the agent's tree


def refuse_inside_a_store(root: Path) -> None:
    """Raise `click.UsageError` if the default root is a directory for the own data of a store, or of another program.

    The default root has the name of the directory for a store's own data. So a command without ``--url`` that is run in
    a store would use that directory, or make it. Other programs use this name too.
    """
    try:
        if _is_root(root):
            return
        inside = _has_only_directories(root.parent / AGENTS.storage)
        is_own_data = (root / STORE_RECORD.name).exists()
        is_used = root.is_dir() and any(each.name not in _OF_NO_PROGRAM for each in root.iterdir())
    except OSError:
        return  # the operation itself reports the error
    if inside:
        raise click.UsageError("the current directory is itself a store: '--url .' opens it")
    if is_own_data:
        raise click.UsageError(f"{root} has the own data of another store: --url selects a store")
    if is_used:
        raise click.UsageError(
            f"{root} exists and is no store, so another program may use it: --url selects a store; "
            f"'--url ./{root}' makes one there"
        )


def suggested(error: AgentMemoryFileNotFoundError, backend: AnyBackend, agent: str, path: str) -> Explained | None:
    """The error of a missing file, with the name of a file that may be meant; None if there is no near name."""
    near = _near_name(backend, agent, path)
    return Explained(error, f"did you mean {near!r}?", {"suggestion": near}) if near else None


def _near_name(backend: AnyBackend, agent: str, path: str) -> str | None:
    """The path of the file, or else of the directory, with the nearest name in the directory of a missing path.

    Hidden files and the files of a conversation are never suggested. Only the first 1,000 names of the directory
    are compared. None if there is no near name, or if the directory cannot be listed.
    """
    try:
        missing = Key.agent(agent).join(path)
        page = first_page(backend, missing.parent, limit=_MOST_NAMES)
    except AgentMemoryError:
        return None
    if missing in page.directories or any(entry.key == missing for entry in page.entries):
        return None  # the name is right, and a version of it is missing
    hidden = ProtectedNames(map(Key.agent(agent).join, KEPT), readable=False)
    for keys in ([entry.key for entry in page.entries], page.directories):
        names = {key.name: key for key in keys if not key.name.startswith(".") and not hidden.holds(key)}
        nearness = {name: SequenceMatcher(None, *_stems(missing.name, name)).ratio() for name in names}
        best = max(nearness, key=nearness.__getitem__, default=None)
        if best and nearness[best] >= _NEAR_NAME:
            return names[best].relative_to(Key.agent(agent)).path
    return None


def _stems(one: str, other: str) -> tuple[str, str]:
    """Two names without case, and without an ending that they share: it would make short names alike."""
    one, other = one.casefold(), other.casefold()
    ending = PurePosixPath(one).suffix
    if ending and ending == PurePosixPath(other).suffix:
        return one.removesuffix(ending), other.removesuffix(ending)
    return one, other


def _has_only_directories(path: Path) -> bool:
    """Whether it looks like the directory of all agents; a Python package has files."""
    found = [*path.iterdir()] if path.is_dir() else []
    return bool(found) and all(each.is_dir() for each in found)


def _is_root(path: Path) -> bool:
    return (path / AGENTS.storage).exists() or (path / RESERVED).exists()


def without_files(service: AgentMemoryService, backend: AnyBackend, agent: str) -> str:
    """A message for an agent without files. It names agents with files, because the name may be mistyped."""
    try:
        agents = service.agent_ids()
        others = agents == () and _is_listed(backend, Key.tree())
    except FileOperationError:  # the credentials may allow listing only the agent's own tree
        return f"agent {agent!r} has no files"
    more = f", ... ({len(agents):,})" if len(agents) > _MOST_AGENTS else ""
    has = f"there are files of {', '.join(agents[:_MOST_AGENTS])}{more}" if agents else "no agent has any"
    outside = "; a tree without agents (AgentMemory.open) is not shown" if others else ""
    return f"agent {agent!r} has no files; {has}{outside}"


def _is_missing(backend: AnyBackend, url: str, agent: str | None) -> bool:
    if root := local_root(url):
        try:
            root.stat()
        except FileNotFoundError:
            return True
        except OSError:
            return False  # the operation itself reports the error
        return False
    return not (lists_everything(url) or _holds_something(backend, agent))


def lists_everything(url: str) -> bool:
    """Whether a store keeps nothing of a file that its listing does not show: the local disk and memory."""
    return local_root(url) is not None or _is_in_memory(url)


def _is_in_memory(url: str) -> bool:
    return url.lower().startswith("memory://")


def _holds_something(backend: AnyBackend, agent: str | None) -> bool:
    if _is_listed(backend, AGENTS if agent is None else Key.agent(agent)):
        return True
    try:
        return _is_listed(backend, Key.tree()) or _is_listed(backend, Key.internal(DIRECTORY))
    except FileOperationError:
        if agent is None:
            raise
        return True  # the credentials may allow listing only the agent's tree


def _is_listed(backend: AnyBackend, prefix: Key) -> bool:
    page = first_page(backend, prefix)
    return bool(page.entries or page.directories or page.skipped or page.next)


def local_root(url: str) -> Path | None:
    """The directory of a store on the local disk; None for any other store."""
    if "://" not in url:
        return Path(url).expanduser()
    parts = urlsplit(url)
    return Path(os.fsdecode(unquote_to_bytes(parts.path))) if parts.scheme.lower() in ("file", "local") else None


def shown_path(path: Path) -> str:
    """A path quoted for a shell; relative if it is below the current directory."""
    try:
        return shlex.quote(f"./{path.absolute().relative_to(Path.cwd())}")
    except ValueError:
        return shlex.quote(str(path))
