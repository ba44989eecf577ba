"""Owners of a descriptor, a lock or a thread refuse to be copied and pickled, and no other class says so."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    AsyncAgentMemory,
    AsyncAgentMemoryService,
    conversation,
    mcp_server,
    tools,
)
from agent_memory.backend import AnyBackend
from agent_memory.backend.helpers import Uncopied
from agent_memory.cli.folder import Folder
from agent_memory.filesystem import filesystem
from agent_memory.integrations.anthropic import AgentMemoryTool, AsyncAgentMemoryTool
from agent_memory.plugins import audit, logging, readonly, redaction
from agent_memory.registry import open_backend
from agent_memory_fsspec import FsspecBackend
from agent_memory_local._descriptor import Descriptor
from agent_memory_local._locked_path import LockedPath
from agent_memory_local._staged import StagedFile
from agent_memory_local._trees import DirectoryTree
from tests.support.reaching import our_classes, parts, reached

OWNED = (type(threading.Lock()), type(threading.RLock()), threading.Thread, threading.Condition, Descriptor)
WAYS: list[Callable[[object], object]] = [
    copy.copy,
    copy.deepcopy,
    *(lambda held, protocol=protocol: pickle.dumps(held, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
]
BACKENDS: dict[str, dict[str, object]] = {
    "memory://": {},
    "memory://uncopied": {},
    "s3://bucket/x": {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1"},
    "s3://bucket/y": {"engine": "obstore", "access_key_id": "k", "secret_access_key": "s"},
}
OWNERS_BY_OTHER_MEANS = {
    "agent_memory_local._descriptor.Descriptor": "the number of a descriptor",
    "agent_memory_obstore._client.ObstoreStore": "connections, which obstore holds",
    "agent_memory_s3._connection.Connection": "connections, which s3fs holds",
    "backend._Common": "each backend owns its storage",
    "cli.folder.Folder": "the number of a descriptor",
    "filesystem._confined.Confined": "fsspec's `__reduce__` would copy and pickle it",
    "filesystem._files.PendingFile": "`io` closes a half-made copy",
    "filesystem._files.PendingText": "`io` closes a half-made copy",
    "filesystem._files.RangedFile": "`io` closes a half-made copy",
}
OF_A_MODULE = {"runtime.queues.KeyedThreadLocks", "runtime.threaded._WaitingFlows"}
"""One object per process, in a module variable."""
OF_ONE_CALL = ("agent_memory.testing.", "agent_memory.cli.")
_MADE = re.compile(r"self\.\w+ = (threading\.(R?Lock|Condition|Thread|local)|allocate_lock|(Locked)?Descriptor)\(")


@pytest.fixture(scope="module")
def tops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[object]]:
    """At least one object of every class whose objects outlive a call."""
    with ExitStack() as stack:
        yield list(_made(tmp_path_factory.mktemp("uncopied"), stack))


def _made(directory: Path, stack: ExitStack) -> Iterator[object]:
    plugins = [
        audit.AuditPlugin(str(directory / "audit"), required=True, checkpoints=directory / "checkpoints"),
        logging.LoggingPlugin(),
        readonly.ReadOnlyPlugin("policies/**"),
        redaction.RedactionPlugin(),
    ]
    service = stack.enter_context(AgentMemoryService(directory / "root", plugins=plugins[:-2]))
    memory = service.agent("a")
    memory.write("kept.md", "x")
    backends: list[AnyBackend] = [open_backend(url, options) for url, options in BACKENDS.items()]
    backends.append(FsspecBackend(MemoryFileSystem(), "/uncopied", allow_single_writer=True))
    twin = AsyncAgentMemory.open(backends[0])
    yield from (service, memory, memory.subtree("x"), AsyncAgentMemoryService(backends[0]), twin, *backends, *plugins)
    AgentMemory.open(backends[-1]).write("kept.md", "x")
    yield from _surfaces(memory, twin, stack)
    yield stack.enter_context(Folder(str(directory)))
    yield from _of_the_disk(service, stack)


def _surfaces(memory: AgentMemory, twin: AsyncAgentMemory, stack: ExitStack) -> Iterator[object]:
    files = filesystem(memory)
    yield files
    for path, mode in (("kept.md", "rb"), ("new.md", "wb"), ("text.md", "w")):
        yield stack.enter_context(files.open(path, mode))
    yield from (AgentMemoryTool(memory), AsyncAgentMemoryTool(twin), mcp_server.mcp_server(twin))
    for module in (tools, conversation):
        for name in module.__all__:
            cls: Any = getattr(module, name)
            is_class = inspect.isclass(cls)
            wanted = next(iter(inspect.signature(cls).parameters), "") if is_class else ""
            over = twin if name.startswith("Async") else memory
            if wanted == "memory":
                yield cls(over)
            elif wanted == "conversation":
                yield cls(
                    conversation.AsyncConversationMemory(twin)
                    if over is twin
                    else conversation.ConversationMemory(memory)
                )


def _of_the_disk(service: AgentMemoryService, stack: ExitStack) -> Iterator[object]:
    backend: Any = service._backend
    key = service.agent("a")._tree.top.join("kept.md")
    with DirectoryTree(backend._walker, key) as tree:
        yield tree
    place = stack.enter_context(LockedPath(backend._walker, backend._locks, key, make=True, sync=False))
    new = StagedFile(place.open_directory, 1, nameless=False)
    stack.callback(new.close)
    parts = backend.write_in_parts(key, 1)
    stack.callback(parts.abort)
    yield from (place, new, parts)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("agent_memory.")


def _owners(tops: list[object]) -> set[str]:
    """The classes with an attribute that is a descriptor, a lock or a thread, by their text and by their objects."""
    ours = {cls for cls in our_classes() if not cls.__module__.startswith(OF_ONE_CALL)}
    by_text = {cls for cls in ours if _MADE.search(inspect.getsource(cls))}
    found = (each for each in reached(*tops) if type(each) in ours)
    by_object = {type(each) for each in found if any(isinstance(part, OWNED) for part in parts(each))}
    return {*map(_name, by_text | by_object)} - OF_A_MODULE


def test_exactly_the_owners_refuse_by_themselves(tops: list[object]) -> None:
    """A refusal by an owner deep inside also ends the copy, so no other class needs one."""
    refusing = {_name(cls) for cls in our_classes() if Uncopied in cls.__bases__}
    owners = _owners(tops)
    assert sorted(owners - _heirs(refusing)) == []
    assert sorted(refusing - owners) == sorted(OWNERS_BY_OTHER_MEANS)


def _heirs(names: set[str]) -> set[str]:
    return {_name(cls) for cls in our_classes() if any(_name(base) in names for base in cls.__mro__)}


def test_no_object_with_a_descriptor_a_lock_or_a_thread_is_copied_or_pickled_as_a_whole(tops: list[object]) -> None:
    ours = our_classes()
    first = {type(found): found for found in reached(*tops) if type(found) in ours}
    holding = {cls: found for cls, found in first.items() if any(isinstance(each, OWNED) for each in reached(found))}
    assert len(holding) > 40
    copied = []
    for cls, found in holding.items():
        for way in WAYS if isinstance(found, Uncopied) else WAYS[1:]:  # a plain copy shares the owner
            with suppress(TypeError, AttributeError, pickle.PicklingError):
                way(found)
                copied.append((_name(cls), way))
    assert copied == []


def test_the_refusal_names_the_owner_and_closes_nothing(tmp_path: Path) -> None:
    with AgentMemory.open(tmp_path) as memory:
        memory.write("a.md", "x")
        for way in WAYS[1:]:
            with pytest.raises(
                TypeError, match="LocalBackend cannot be pickled or copied, because it holds open storage"
            ):
                way(memory)
            gc.collect()
            assert memory.read("a.md") == "x"
