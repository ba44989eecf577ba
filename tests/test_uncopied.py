"""Objects with a descriptor, a lock or a thread cannot be copied or pickled; checked for every class by reflection."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

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
from agent_memory.backend import AnyBackend, Uncopied
from agent_memory.cli.folder import Folder
from agent_memory.filesystem import filesystem
from agent_memory.integrations.anthropic import AgentMemoryTool, AsyncAgentMemoryTool
from agent_memory.plugins import audit, checkpoints, expiry, limits, logging, readonly, redaction
from agent_memory.registry import open_backend
from agent_memory_fsspec import FsspecBackend
from agent_memory_local._descriptor import Descriptor
from agent_memory_local._files import StagedFile
from agent_memory_local._locked_path import LockedPath
from agent_memory_local._trees import DirectoryTree
from tests.support.reaching import our_classes, reached

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
OF_ONE_CALL = set(
    """
    backend._deadline.deadline_scope backend._pages.PageBuilder backend._markers.Markers
    backend._try_later.trying_later core.idempotency._Claim core.tree.Call core.hooks.Report core.part_flows.Blocks
    core.versions.history.Histories core.versions.store.VersionedStore core.versions.flowing.VersionedRun
    object_store.race.Races object_store.race._Tally object_store.upload_trial.UploadTrial
    object_store.scratch.ScratchUpload
    core.versions.store._VersionedParts core.versions.flowing.Flowing
    core.versions.redacting._ContentSearch core.versions.undo_plan.Plan core.versions.undo_plan._Names
    core.versions.undo_file.FileUndo core.versions.timeline.Timelines core.versions.links.Links
    tools._version_tools.VersionTools tools._model_text.ModelText
    key.patterns._Example
    agent_memory_obstore._answers.ObstoreRequest agent_memory_s3._answers.S3Request
    agent_memory_s3._connection._NoRedirects agent_memory_memory._StagedParts audit.verify.Verifier
    audit.chains.RecordChain audit.chains.WriterChains audit.chains.Numbered audit.recorded_salts.RecordedSalts
    conversation.search.HistorySearch conversation.stream.Batch filesystem._confined._OneTransaction
    filesystem._files._Unclosed mcp_server._http._Guarded mcp_server._http._CountedCalls mcp_server._http._Server
    mcp_server._stdio._Writer mcp_server._stdio._Client
    mcp_server._stdio._ClientLine mcp_server._connections.HttpConnection mcp_server._sessions.Sessions
    object_store.retry.Attempts object_store.bucket.KeyOperation object_store.erasing._Erasing
    object_store.conditional_write.Write object_store.scratch.ScratchObject object_store.upload.UploadInParts
    plugins.redaction._Decoded reading.reader.Reader reading.prefilter.SearchPrefilter runtime.threaded.ThreadedFlow
    tools._toolset.Toolset tools._file_search.FileSearch tools._line_queries.Expression tools._line_queries.Text
    tools._line_queries.TextIgnoringCase
    """.split()  # noqa: SIM905
)
"""Created and dropped within one call of this package; no other code sees them."""
OF_A_MODULE = set(
    """
    runtime.queues.KeyedThreadLocks runtime.io_loop.AsyncIORun runtime.io_loop.SyncIORun runtime.threaded.ThreadedRun
    runtime.threaded._WaitingFlows
    """.split()  # noqa: SIM905
)
"""One object per process, in a module variable."""
VALUES = set(
    """
    backend._types.Snapshot conversation.context.ContextMessages conversation.messages.History
    conversation.messages.Skipped conversation.jobs.CronJobs conversation.search.Matches integrations.toolkit.Records
    """.split()  # noqa: SIM905
)
NOT_HERE = {
    "agent_memory_obstore._azure.AzureStore": "an ObstoreStore",
    "audit.log.BatchedLog": "for stores without append, which are tried in tests/audit",
    "integrations.fsspec.AgentMemoryURLFileSystem": "it can be pickled: tests/integrations/test_fsspec.py",
    "integrations.upath.AgentMemoryPath": "a path, which holds no storage: tests/integrations/test_fsspec.py",
    "object_store.single_writer.SingleWriterStore": "a store of a server that ignores conditions",
}
HELPERS = ("agent_memory.testing.", "agent_memory.cli.")


@pytest.fixture(scope="module")
def tops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[object]]:
    """At least one object of every class whose objects outlive a call."""
    with ExitStack() as stack:
        yield list(_made(tmp_path_factory.mktemp("uncopied"), stack))


def _made(directory: Path, stack: ExitStack) -> Iterator[object]:
    plugins = [
        audit.AuditPlugin(str(directory / "audit"), required=True),
        expiry.ExpiryPlugin({"scratch/**": 7}),
        limits.LimitsPlugin(max_file_bytes=1_000, max_bytes=10_000, root=directory / "root"),
        checkpoints.CheckpointFile(directory / "checkpoints"),
        checkpoints.CheckpointLogger(),
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


def test_this_module_tests_or_excludes_every_class_of_the_packages(tops: list[object]) -> None:
    made = {type(found) for found in reached(*tops)}
    left = {
        _name(cls)
        for cls in our_classes() - made
        if not any(cls in other.__mro__ for other in made)
        and not issubclass(cls, BaseException | Enum | tuple | type)
        and not cls.__module__.startswith(HELPERS)
        and not hasattr(cls, "__dataclass_fields__")
        and Protocol not in cls.__mro__
    }
    assert sorted(left - OF_ONE_CALL - OF_A_MODULE - VALUES - NOT_HERE.keys()) == []


def test_objects_with_a_descriptor_a_lock_or_a_thread_cannot_be_copied_or_pickled(tops: list[object]) -> None:
    ours = our_classes()
    first = {type(found): found for found in reached(*tops) if type(found) in ours}
    holding = {cls: found for cls, found in first.items() if any(isinstance(each, OWNED) for each in reached(found))}
    assert len(holding) > 40
    shared = []
    for cls, found in holding.items():
        for way in WAYS[1:] if issubclass(cls, tuple) else WAYS:  # a copied tuple shares its items
            with suppress(TypeError):
                way(found)
                shared.append((_name(cls), way))
    assert shared == []


def test_copying_is_refused_before_any_part_is_copied(tops: list[object]) -> None:
    """Each object refuses itself, and does not rely on an inner object that refuses in the middle of the copy."""
    ours = our_classes()
    for found in reached(*tops):
        if type(found) in ours and not isinstance(found, tuple) and any(isinstance(e, OWNED) for e in reached(found)):
            assert isinstance(found, Uncopied), _name(type(found))
            with pytest.raises(TypeError, match=type(found).__name__):
                copy.deepcopy(found)
