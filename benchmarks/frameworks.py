"""Count what survives when four processes add to one store of an agent framework, for its own local store and for ours.

    python benchmarks/frameworks.py [--root URL]

Compares the frameworks that are installed. Each of four processes makes 25 additions at once: items of a session, lines
of a file, values, versions. The framework's own store is on disk; ours is in the directory or at the URL of ``--root``,
by default on disk. "kept" is counted afterwards by a new store; "refused" counts raised exceptions and reported errors.
The seconds are those from the start of all processes, without their imports, to the end of the last one. Each addition
opens no store: a process opens one and uses it for all its additions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import inspect
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from agent_memory import AgentMemory, AgentMemoryService

warnings.simplefilter("ignore")
PROCESSES, ADDITIONS = 4, 25
ADAPTERS = "agent_memory.integrations"


class Contract(NamedTuple):
    """What a framework asks of a store: opens its own store on disk and ours, adds to one, and counts what it keeps."""

    package: str
    own: str
    open_own: Callable[[str], Any] | None
    ours: str
    open_ours: Callable[[AgentMemory], Any]
    add: Callable[[Any, str], Any]
    kept: Callable[[Any], Any]


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def adapter(path: str, *args: object) -> Callable[[AgentMemory], Any]:
    return lambda memory: named(f"{ADAPTERS}.{path}")(memory, *args)


# deepagents: lines that edits add to one file
def edit(store: Any, text: str) -> None:
    answer = store.edit("/list.md", "END", f"{text}\nEND")
    if answer.error:
        raise RuntimeError(answer.error)


def of_file(store: Any) -> int:
    return len(set(store.read("/list.md", 0, 1000).file_data["content"].split("\n")) - {"END", ""})


def opened_file(store: Any) -> Any:
    if store.read("/list.md").error:
        store.write("/list.md", "END")
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


async def lines_of(store: Any) -> int:
    found = await store.read("main/MEMORY.md", max_chars=100_000)
    return len(set(found.content.splitlines()))


def file_store(directory: str) -> Any:
    workspace = named("pydantic_ai.workspaces.LocalWorkspaceBackend")(directory)
    return named("pydantic_ai_harness.memory.FileStore")("notes", workspace=workspace)


# Google ADK: versions of one artifact
ARTIFACT = {"app_name": "app", "user_id": "ann", "session_id": "1", "filename": "report.md"}


async def save(store: Any, text: str) -> None:
    await store.save_artifact(**ARTIFACT, artifact=named("google.genai.types.Part")(text=text))


async def versions(store: Any) -> int:
    numbers = await store.list_versions(**ARTIFACT)
    parts = [await store.load_artifact(**ARTIFACT, version=number) for number in numbers]
    return len({part.text for part in parts if part})


KEY = {"project_key": "p", "session_id": "s"}
SESSION: tuple[Callable[..., Any], ...] = (
    lambda store, text: store.add_items([{"role": "user", "content": text}]),
    lambda store: _unique(store.get_items(), lambda item: item["content"]),
)
ITEMS: tuple[Callable[..., Any], ...] = (
    lambda store, text: store.put(("facts",), text, {"text": text}),
    lambda store: len(store.search(("facts",), limit=1000)),
)
FILES: tuple[Callable[..., Any], ...] = (
    lambda store, text: store.write(f"notes/{text}.md", text.encode()),
    lambda store: _unique(store.list("notes/"), str),
)
TEXTS: tuple[Callable[..., Any], ...] = (
    lambda store, text: store.write(f"notes/{text}.md", text, overwrite=False),
    lambda store: _unique(store.list_children("notes"), lambda each: each.name),
)
VALUES: tuple[Callable[..., Any], ...] = (
    lambda store, text: store.mset([(text, text.encode())]),
    lambda store: len(list(store.yield_keys())),
)


async def _unique(coming: Any, of: Callable[[Any], str]) -> int:
    return len({of(each) for each in await coming})


@contextlib.contextmanager
def sqlite_store(directory: str) -> Iterator[Any]:
    with named("langgraph.store.sqlite.SqliteStore").from_conn_string(f"{directory}/items.db") as store:
        store.setup()
        yield store


async def append_entry(store: Any, text: str) -> None:
    await store.append(KEY, [{"type": "note", "uuid": text}])


async def entries_of(store: Any) -> int:
    return len({entry["uuid"] for entry in await store.load(KEY)})


FRAMEWORKS = {
    "deepagents": Contract(
        "deepagents",
        "FilesystemBackend",
        lambda d: opened_file(named("deepagents.backends.FilesystemBackend")(root_dir=d, virtual_mode=True)),
        "AgentMemoryBackend",
        lambda memory: opened_file(adapter("deepagents.AgentMemoryBackend")(memory)),
        edit,
        of_file,
    ),
    "langgraph": Contract(
        "langgraph-checkpoint",
        "SqliteStore",
        sqlite_store,
        "AgentMemoryStore",
        adapter("langgraph.AgentMemoryStore"),
        *ITEMS,
    ),
    "langchain": Contract(
        "langchain-core",
        "LocalFileStore",
        lambda d: named("langchain_classic.storage.LocalFileStore")(d),
        "AgentMemoryByteStore",
        adapter("langchain.AgentMemoryByteStore"),
        *VALUES,
    ),
    "openai_agents": Contract(
        "openai-agents",
        "SQLiteSession",
        lambda d: named("agents.SQLiteSession")("s", f"{d}/s.db"),
        "AgentMemorySession",
        adapter("openai_agents.AgentMemorySession", "s"),
        *SESSION,
    ),
    "pydantic_ai_memory": Contract(
        "pydantic-ai-harness",
        "FileStore",
        file_store,
        "AgentMemoryMemoryStore",
        adapter("pydantic_ai_memory.AgentMemoryMemoryStore"),
        append_line,
        lines_of,
    ),
    "google_adk": Contract(
        "google-adk",
        "FileArtifactService",
        lambda d: named("google.adk.artifacts.file_artifact_service.FileArtifactService")(d),
        "AgentMemoryArtifactService",
        adapter("google_adk.AgentMemoryArtifactService"),
        save,
        versions,
    ),
    "claude_agent_sdk": Contract(
        "claude-agent-sdk",
        "none on disk",
        None,
        "AgentMemorySessionStore",
        adapter("claude_agent_sdk.AgentMemorySessionStore"),
        append_entry,
        entries_of,
    ),
    "strands": Contract(
        "strands-agents",
        "LocalFileStorage",
        lambda d: named("strands.storage.LocalFileStorage")(d),
        "AgentMemoryStorage",
        adapter("strands.AgentMemoryStorage"),
        *FILES,
    ),
    "agent_framework": Contract(
        "agent-framework-core",
        "FileSystemAgentFileStore",
        lambda d: named("agent_framework.FileSystemAgentFileStore")(d),
        "AgentMemoryFileStore",
        adapter("agent_framework.AgentMemoryFileStore"),
        *TEXTS,
    ),
}


@contextlib.contextmanager
def opened(framework: str, ours: bool, root: str) -> Iterator[Any]:
    contract = FRAMEWORKS[framework]
    with contextlib.ExitStack() as stack:
        if ours:
            service = stack.enter_context(AgentMemoryService(root))
            yield contract.open_ours(service.agent("bench").subtree(framework))
            return
        assert contract.open_own
        store = contract.open_own(root)
        yield stack.enter_context(store) if hasattr(store, "__enter__") else store


def finished(result: Any) -> Any:
    async def wait() -> Any:
        return await result

    return asyncio.run(wait()) if inspect.isawaitable(result) else result


def work(framework: str, ours: bool, root: str, number: int, ready: Any, refused: Any) -> None:
    failed = 0
    with opened(framework, ours, root) as store:
        ready.wait()
        for addition in range(ADDITIONS):
            try:
                finished(FRAMEWORKS[framework].add(store, f"{number}-{addition}"))
            except Exception:  # noqa: BLE001 - any exception counts as a reported failure
                failed += 1
    with refused.get_lock():
        refused.value += failed


def measured(framework: str, ours: bool, root: str) -> None:
    contract, spawn = FRAMEWORKS[framework], multiprocessing.get_context("spawn")
    ready, refused = spawn.Barrier(PROCESSES + 1, timeout=120), spawn.Value("i", 0)
    with opened(framework, ours, root):
        pass  # makes the first-time files
    given = [(framework, ours, root, number, ready, refused) for number in range(PROCESSES)]
    processes = [spawn.Process(target=work, args=each) for each in given]
    for process in processes:
        process.start()
    ready.wait()
    started = time.perf_counter()
    for process in processes:
        process.join()
    took = time.perf_counter() - started
    with opened(framework, ours, root) as store:
        kept = finished(contract.kept(store))
    package, name = f"{contract.package} {version(contract.package)}", contract.ours if ours else contract.own
    counts = f"{kept:>4} of {PROCESSES * ADDITIONS} kept, {refused.value:>3} refused, {took:5.1f} s"
    print(f"{package:<32}{name:<30}{counts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="a URL for our store; credentials come from the environment")
    root = parser.parse_args().root
    for framework, contract in FRAMEWORKS.items():
        try:
            importlib.import_module(f"{ADAPTERS}.{framework}")
        except ImportError:
            continue
        with tempfile.TemporaryDirectory() as directory:
            if contract.open_own and root is None:
                Path(directory, "own").mkdir()
                measured(framework, False, f"{directory}/own")
            measured(framework, True, root or f"{directory}/ours")


if __name__ == "__main__":
    main()
