"""The stores of agent frameworks that `lost_updates.py` compares: each framework's own local store, and our adapter.

An addition is what the framework's contract has for it: an edit, an item, a value, a message, a file, a version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from _lost_update_stores import END, FILE, Store, finished, named

INTEGRATIONS = "agent_memory.integrations"


class Contract(NamedTuple):
    """The calls of one framework: open its own store on disk and ours, add to a store, and read what it keeps."""

    packages: tuple[str, ...]
    own: str
    open_own: Callable[[str], Any] | None
    ours: str
    open_ours: Callable[[Any], Any]
    calls: str
    add: Callable[[Any, str], Any]
    found: Callable[[Any], Any]


def adapter(path: str, *args: object) -> Callable[[Any], Any]:
    return lambda memory: named(f"{INTEGRATIONS}.{path}")(memory, *args)


# deepagents: lines that edits add to one file
def edit(store: Any, text: str) -> None:
    answer = store.edit(f"/{FILE}", END, f"{text}\n{END}")
    if answer.error:
        raise RuntimeError(answer.error)


def lines_of_file(store: Any) -> list[str]:
    content: str = store.read(f"/{FILE}", 0, 1000).file_data["content"]
    return [line for line in content.split("\n") if line not in (END, "")]


def opened_file(store: Any) -> Any:
    if store.read(f"/{FILE}").error:
        store.write(f"/{FILE}", END)
    return store


# Pydantic AI: lines that compare-and-set writes add to one file
async def append_line(store: Any, text: str) -> None:
    conflict = named("pydantic_ai_harness.memory.MemoryConflictError")
    while True:
        found = await store.read("main/MEMORY.md", max_chars=100_000)
        content = f"{found.content if found else ''}{text}\n"
        with contextlib.suppress(conflict):
            await store.write("main/MEMORY.md", content, expected_version=found.version if found else None)
            return


async def lines_of_memory(store: Any) -> list[str]:
    found = await store.read("main/MEMORY.md", max_chars=100_000)
    return list(found.content.splitlines())


def file_store(directory: str) -> Any:
    workspace = named("pydantic_ai.workspaces.LocalWorkspaceBackend")(directory)
    return named("pydantic_ai_harness.memory.FileStore")("notes", workspace=workspace)


# Google ADK: versions of one artifact
ARTIFACT = {"app_name": "app", "user_id": "ann", "session_id": "1", "filename": "report.md"}


async def save(store: Any, text: str) -> None:
    await store.save_artifact(**ARTIFACT, artifact=named("google.genai.types.Part")(text=text))


async def versions(store: Any) -> list[str]:
    numbers = await store.list_versions(**ARTIFACT)
    parts = [await store.load_artifact(**ARTIFACT, version=number) for number in numbers]
    return [part.text for part in parts if part]


# Claude Agent SDK: entries of one transcript
KEY = {"project_key": "p", "session_id": "s"}


async def append_entry(store: Any, text: str) -> None:
    await store.append(KEY, [{"type": "note", "uuid": text}])


async def entries(store: Any) -> list[str]:
    return [entry["uuid"] for entry in await store.load(KEY)]


async def items(store: Any) -> list[str]:
    return [item["content"] for item in await store.get_items()]


async def files(store: Any) -> list[str]:
    return [PurePosixPath(key).stem for key in await store.list("notes/")]


async def children(store: Any) -> list[str]:
    return [PurePosixPath(each.name).stem for each in await store.list_children("notes")]


@contextlib.contextmanager
def sqlite_store(directory: str) -> Iterator[Any]:
    with named("langgraph.store.sqlite.SqliteStore").from_conn_string(f"{directory}/items.db") as store:
        store.setup()
        yield store


CONTRACTS = {
    "deepagents": Contract(
        ("deepagents",),
        "FilesystemBackend",
        lambda d: opened_file(named("deepagents.backends.FilesystemBackend")(root_dir=d, virtual_mode=True)),
        "AgentMemoryBackend",
        lambda memory: opened_file(adapter("deepagents.AgentMemoryBackend")(memory)),
        "`edit(file, END, line + END)` of one file; it has no append",
        edit,
        lines_of_file,
    ),
    "langgraph": Contract(
        ("langgraph-checkpoint-sqlite", "langgraph-checkpoint"),
        "SqliteStore",
        sqlite_store,
        "AgentMemoryStore",
        adapter("langgraph.AgentMemoryStore"),
        "`put` of a new item for each line",
        lambda store, text: store.put(("facts",), text, {"text": text}),
        lambda store: [item.key for item in store.search(("facts",), limit=1000)],
    ),
    "langchain": Contract(
        ("langchain-classic", "langchain-core"),
        "LocalFileStore",
        lambda d: named("langchain_classic.storage.LocalFileStore")(d),
        "AgentMemoryByteStore",
        adapter("langchain.AgentMemoryByteStore"),
        "`mset` of a new key for each line",
        lambda store, text: store.mset([(text, text.encode())]),
        lambda store: list(store.yield_keys()),
    ),
    "openai_agents": Contract(
        ("openai-agents",),
        "SQLiteSession",
        lambda d: named("agents.SQLiteSession")("s", f"{d}/s.db"),
        "AgentMemorySession",
        adapter("openai_agents.AgentMemorySession", "s"),
        "`add_items` of one item to one session",
        lambda store, text: store.add_items([{"role": "user", "content": text}]),
        items,
    ),
    "pydantic_ai_memory": Contract(
        ("pydantic-ai-harness",),
        "FileStore",
        file_store,
        "AgentMemoryMemoryStore",
        adapter("pydantic_ai_memory.AgentMemoryMemoryStore"),
        "`read`, then `write` with `expected_version`, again after a conflict",
        append_line,
        lines_of_memory,
    ),
    "google_adk": Contract(
        ("google-adk",),
        "FileArtifactService",
        lambda d: named("google.adk.artifacts.file_artifact_service.FileArtifactService")(d),
        "AgentMemoryArtifactService",
        adapter("google_adk.AgentMemoryArtifactService"),
        "`save_artifact` of a new version of one artifact",
        save,
        versions,
    ),
    "claude_agent_sdk": Contract(
        ("claude-agent-sdk",),
        "none on disk",
        None,
        "AgentMemorySessionStore",
        adapter("claude_agent_sdk.AgentMemorySessionStore"),
        "`append` of one entry to one transcript",
        append_entry,
        entries,
    ),
    "strands": Contract(
        ("strands-agents",),
        "LocalFileStorage",
        lambda d: named("strands.storage.LocalFileStorage")(d),
        "AgentMemoryStorage",
        adapter("strands.AgentMemoryStorage"),
        "`write` of a new key for each line",
        lambda store, text: store.write(f"notes/{text}.md", text.encode()),
        files,
    ),
    "agent_framework": Contract(
        ("agent-framework-core",),
        "FileSystemAgentFileStore",
        lambda d: named("agent_framework.FileSystemAgentFileStore")(d),
        "AgentMemoryFileStore",
        adapter("agent_framework.AgentMemoryFileStore"),
        "`write(overwrite=False)` of a new file for each line",
        lambda store, text: store.write(f"notes/{text}.md", text, overwrite=False),
        children,
    ),
}


class FrameworkStore(Store):
    """A store by the contract of a framework."""

    def __init__(self, framework: str, ours: bool, place: str) -> None:
        self._contract = CONTRACTS[framework]
        with contextlib.ExitStack() as stack:
            if ours:
                service = stack.enter_context(named("agent_memory.AgentMemoryService")(place))
                self._store = self._contract.open_ours(service.agent("bench").subtree(framework))
            else:
                assert self._contract.open_own
                store = self._contract.open_own(place)
                self._store = stack.enter_context(store) if hasattr(store, "__enter__") else store
            self._open = stack.pop_all()

    def add(self, line: str) -> None:
        finished(self._contract.add(self._store, line))

    def lines(self) -> list[str]:
        return list(finished(self._contract.found(self._store)))

    def close(self) -> None:
        self._open.close()
