"""The subjects of `adapters.py`: how to open an adapter and the framework's own local store, and the calls of both."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict

from _lost_update_frameworks import adapter, file_store, sqlite_store
from _lost_update_stores import named
from local import TEXTS

TEXT = TEXTS["1 KB"]
BYTES = TEXT.encode()
FILES = [(f"{number}.md", TEXT + ("needle\n" if number % 10 == 0 else "")) for number in range(100)]
Call = Callable[[Any, int], Any]


class Subject(NamedTuple):
    """An adapter and the framework's own store; a call gets what `prepare` made of a store, and another number."""

    packages: tuple[str, ...]
    ours: str
    open_ours: Callable[[Any], Any]
    own: str
    open_own: Callable[[str], Any]
    prepare: Callable[[Any], Any]
    writes: Mapping[str, Call]
    reads: Mapping[str, Call]


def checked(result: Any) -> Any:
    if result.error:
        raise RuntimeError(result.error)
    return result


# LangGraph: 5,000 items in 50 namespaces; turns of a graph with two nodes
class State(TypedDict):
    text: str


def with_items(store: Any) -> Any:
    put = named("langgraph.store.base.PutOp")
    value = {"text": "likes green tea and trains"}
    store.batch([put(("n", f"u{i % 50}"), f"k{i}", {**value, "score": i % 10}) for i in range(5_000)])
    return store


@contextlib.contextmanager
def sqlite_saver(directory: str) -> Iterator[Any]:
    with named("langgraph.checkpoint.sqlite.SqliteSaver").from_conn_string(f"{directory}/threads.db") as saver:
        yield saver


def graph(saver: Any) -> Any:
    builder = named("langgraph.graph.StateGraph")(State)
    builder.add_node("one", lambda state: {"text": state["text"].swapcase()})
    builder.add_node("two", lambda state: {"text": state["text"].swapcase()})
    builder.set_entry_point("one")
    builder.add_edge("one", "two")
    app = builder.compile(checkpointer=saver)
    for _ in range(50):
        turn(app, "old")
    return app


def turn(app: Any, thread: str) -> Any:
    return app.invoke({"text": TEXT}, {"configurable": {"thread_id": thread}})


# OpenAI Agents SDK: a session that grows, and one of 100 items
ITEM = {"role": "user", "content": TEXT}


async def with_history(session: Callable[[str], Any]) -> tuple[Any, Any]:
    old = session("old")
    await old.add_items([ITEM] * 100)
    return session("new"), old


# Google ADK: a session that grows, and one of 50 events; artifacts of one session
SESSION = {"app_name": "app", "user_id": "ann"}


def event() -> Any:
    content = named("google.genai.types.Content")(role="user", parts=[named("google.genai.types.Part")(text=TEXT)])
    return named("google.adk.events.Event")(author="user", invocation_id="i", content=content)


async def with_events(service: Any) -> tuple[Any, Any]:
    old = await service.create_session(**SESSION, session_id="old")
    for _ in range(50):
        await service.append_event(old, event())
    return service, await service.create_session(**SESSION, session_id="new")


def save(service: Any, name: str) -> Any:
    part = named("google.genai.types.Part")(text=TEXT)
    return service.save_artifact(**SESSION, session_id="s", filename=name, artifact=part)


async def with_artifact(service: Any) -> Any:
    await save(service, "old.md")
    return service


# Files of the other frameworks
async def with_transcript(store: Any) -> Any:
    for number in range(100):
        await append_entry(store, "old", number)
    return store


def append_entry(store: Any, session: str, number: int) -> Any:
    entry = {"type": "user", "uuid": str(uuid.uuid4()), "message": {"content": TEXT}, "number": number}
    return store.append({"project_key": "p", "session_id": session}, [entry])


async def with_keys(storage: Any) -> Any:
    for name, text in FILES:
        await storage.write(f"notes/{name}", text.encode())
    return storage


async def with_files(store: Any) -> Any:
    for name, text in FILES:
        await store.write(f"notes/{name}", text)
    return store


def with_edited_file(backend: Any) -> Any:
    for name, text in FILES:
        checked(backend.write(f"/notes/{name}", text))
    checked(backend.write("/edited.md", f"{TEXT}state 0"))
    return backend


async def with_bytes(workspace: Any) -> tuple[Any, str]:
    directory = (await workspace.working_dir()).rstrip("/")
    await workspace.write_bytes(f"{directory}/old.md", BYTES)
    return workspace, directory


async def with_notes(store: Any) -> Any:
    for name, text in FILES:
        await store.write(f"notes/{name}", text, expected_version=None)
    return store


def write_note(store: Any, number: int) -> Any:
    """Write a file as the tools of `Memory` do."""
    operation = named("pydantic_ai_harness.memory.MemoryOperation")(f"call-{number}", "write")
    return store.write(f"new/{number}.md", TEXT, expected_version=None, operation=operation)


NOTES = Subject(
    ("pydantic-ai-harness",),
    "AgentMemoryMemoryStore",
    adapter("pydantic_ai_memory.AgentMemoryMemoryStore"),
    "FileStore",
    file_store,
    with_notes,
    {"write, with an operation": write_note},
    {
        "search 100 files": lambda s, _: s.search(
            "notes/", "needle", limit=10, max_files=1000, max_chars=10_000, max_file_chars=10_000
        )
    },
)
SUBJECTS = [
    Subject(
        ("langgraph-checkpoint", "langgraph-checkpoint-sqlite"),
        "AgentMemoryStore",
        adapter("langgraph.AgentMemoryStore"),
        "SqliteStore",
        sqlite_store,
        with_items,
        {"put": lambda s, n: s.put(("notes",), f"k{n}", {"text": TEXT})},
        {
            "get": lambda s, _: s.get(("n", "u7"), "k7"),
            "search one namespace, limit 10": lambda s, _: s.search(("n", "u7"), limit=10),
            "search 5,000 items by a filter, limit 100": lambda s, _: s.search(("n",), filter={"score": 3}, limit=100),
            "list_namespaces, of 50": lambda s, _: s.list_namespaces(prefix=("n",)),
        },
    ),
    Subject(
        ("langgraph", "langgraph-checkpoint-sqlite"),
        "AgentMemorySaver",
        adapter("langgraph_saver.AgentMemorySaver"),
        "SqliteSaver",
        sqlite_saver,
        graph,
        {
            "the first turn of a thread": lambda app, n: turn(app, f"{n}"),
            "a turn after 50 to 250 others": lambda app, _: turn(app, "old"),
        },
        {"get_state after 50 turns": lambda app, _: app.get_state({"configurable": {"thread_id": "old"}})},
    ),
    Subject(
        ("langchain-core", "langchain-classic"),
        "AgentMemoryByteStore",
        adapter("langchain.AgentMemoryByteStore"),
        "LocalFileStore",
        lambda d: named("langchain_classic.storage.LocalFileStore")(d),
        lambda store: store.mset([("old", BYTES)]) or store,
        {"mset one": lambda s, n: s.mset([(f"k{n}", BYTES)])},
        {"mget one": lambda s, _: s.mget(["old"])},
    ),
    Subject(
        ("openai-agents",),
        "AgentMemorySession",
        lambda memory: lambda name: adapter("openai_agents.AgentMemorySession", name)(memory),
        "SQLiteSession",
        lambda d: lambda name: named("agents.SQLiteSession")(name, f"{d}/sessions.db"),
        with_history,
        {"add_items, one": lambda s, _: s[0].add_items([ITEM])},
        {"get_items, 100": lambda s, _: s[1].get_items()},
    ),
    Subject(
        ("google-adk",),
        "AgentMemorySessionService",
        adapter("google_adk.AgentMemorySessionService"),
        "SqliteSessionService",
        lambda d: named("google.adk.sessions.sqlite_session_service.SqliteSessionService")(f"{d}/sessions.db"),
        with_events,
        {"append_event": lambda s, _: s[0].append_event(s[1], event())},
        {"get_session of 50 events": lambda s, _: s[0].get_session(**SESSION, session_id="old")},
    ),
    Subject(
        ("google-adk",),
        "AgentMemoryArtifactService",
        adapter("google_adk.AgentMemoryArtifactService"),
        "FileArtifactService",
        lambda d: named("google.adk.artifacts.file_artifact_service.FileArtifactService")(d),
        with_artifact,
        {"save_artifact": lambda s, n: save(s, f"{n}.md")},
        {"load_artifact": lambda s, _: s.load_artifact(**SESSION, session_id="s", filename="old.md")},
    ),
    Subject(
        ("claude-agent-sdk",),
        "AgentMemorySessionStore",
        adapter("claude_agent_sdk.AgentMemorySessionStore"),
        "InMemorySessionStore",
        lambda _: named("claude_agent_sdk.InMemorySessionStore")(),
        with_transcript,
        {"append one entry": lambda s, n: append_entry(s, "new", n)},
        {"load 100 entries": lambda s, _: s.load({"project_key": "p", "session_id": "old"})},
    ),
    Subject(
        ("strands-agents",),
        "AgentMemoryStorage",
        adapter("strands.AgentMemoryStorage"),
        "LocalFileStorage",
        lambda d: named("strands.storage.LocalFileStorage")(d),
        with_keys,
        {"write": lambda s, n: s.write(f"new/{n}.md", BYTES)},
        {"read": lambda s, _: s.read("notes/1.md"), "list 100 keys": lambda s, _: s.list("notes/")},
    ),
    Subject(
        ("agent-framework-core",),
        "AgentMemoryFileStore",
        adapter("agent_framework.AgentMemoryFileStore"),
        "FileSystemAgentFileStore",
        lambda d: named("agent_framework.FileSystemAgentFileStore")(d),
        with_files,
        {"write": lambda s, n: s.write(f"new/{n}.md", TEXT)},
        {
            "read": lambda s, _: s.read("notes/1.md"),
            "search 100 files": lambda s, _: s.search("notes", "needle"),
        },
    ),
    Subject(
        ("deepagents",),
        "AgentMemoryBackend",
        adapter("deepagents.AgentMemoryBackend"),
        "FilesystemBackend",
        lambda d: named("deepagents.backends.FilesystemBackend")(root_dir=d, virtual_mode=True),
        with_edited_file,
        {
            "write": lambda s, n: checked(s.write(f"/new/{n}.md", TEXT)),
            "edit": lambda s, n: checked(s.edit("/edited.md", f"state {n}", f"state {n + 1}")),
        },
        {
            "read": lambda s, _: checked(s.read("/notes/1.md")),
            "grep 100 files": lambda s, _: checked(s.grep("needle", "/notes")),
        },
    ),
    Subject(
        ("pydantic-ai-slim",),
        "AgentMemoryWorkspace",
        adapter("pydantic_ai.AgentMemoryWorkspace"),
        "LocalWorkspaceBackend",
        lambda d: named("pydantic_ai.workspaces.LocalWorkspaceBackend")(d),
        with_bytes,
        {"write_bytes": lambda s, n: s[0].write_bytes(f"{s[1]}/new/{n}.md", BYTES)},
        {"read_bytes": lambda s, _: s[0].read_bytes(f"{s[1]}/old.md")},
    ),
    NOTES,
    NOTES._replace(
        own="SqliteMemoryStore",
        open_own=lambda d: named("pydantic_ai_harness.memory.SqliteMemoryStore")(database=f"{d}/memory.db"),
    ),
]
