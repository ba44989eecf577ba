"""Helpers of the conversation tests: histories as bytes, plugins, and one interface to sync and async classes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, Operation, hookimpl
from agent_memory.conversation import (
    AsyncConversationMemory,
    AsyncMemoryContext,
    AsyncMemoryWriteTool,
    AsyncSearchHistoryTool,
    ConversationMemory,
    MemoryContext,
    MemoryWriteTool,
    Message,
    SearchHistoryTool,
)
from tests.support.servers import Root, S3Server

HISTORY: Final = "history.jsonl"
MEMORY: Final = "workspace/MEMORY.md"
JOBS: Final = "cron/jobs.json"
NOON: Final = "2026-03-01T12:00:00+00:00"


def line(content: object = "hi", role: str = "user", timestamp: str = NOON, **fields: object) -> bytes:
    """One line of a history as another writer stores it, with non-ASCII characters escaped."""
    return json.dumps({"role": role, "content": content, "timestamp": timestamp, **fields}).encode() + b"\n"


def lines(count: int, size: int = 0) -> bytes:
    """A number of lines, each with its number as content and ``size`` bytes in a field of another writer."""
    return b"".join(line(f"{number}", filler="." * size) for number in range(count))


def contents(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in messages]


def root_on(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """An empty root on the backend that a fixture parameter names; for S3 the parameter is the name of a server."""
    name: str = request.param
    if name == "local":
        return Root(str(tmp_path / "root"), {})
    if name == "memory":
        return Root(f"memory://{tmp_path.name}-{os.getpid()}", {})
    server: S3Server = request.getfixturevalue(name)
    return Root(server.new_url(), server.options)


_open = ExitStack()


def opened(root: Root, *plugins: object) -> AgentMemory:
    """Open a memory that is closed at the end of the test."""
    return _open.enter_context(AgentMemory.open(root.url, storage_options=root.options, plugins=plugins))


def close_all() -> None:
    _open.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """This package's log messages of level WARNING and above; clears the log."""
    records = [record for record in caplog.records if record.name == "agent_memory"]
    caplog.clear()
    return [f"{record.levelname} {record.getMessage()}" for record in records if record.levelno >= logging.WARNING]


class Failing:
    """A guard that fails every operation of one kind on one file."""

    def __init__(self, kind: str, path: str) -> None:
        self._kind, self._path = kind, path

    @hookimpl
    def agent_memory_before_operation(self, operation: Operation) -> None:
        if (operation.kind, operation.path) == (self._kind, self._path):
            raise OSError("the disk is on fire")


@dataclass(frozen=True)
class Surfaces:
    """The objects that an agent loop calls, on one root."""

    conversation: ConversationMemory
    context: MemoryContext
    search: SearchHistoryTool
    write: MemoryWriteTool


def sync_surfaces(root: Root, *plugins: object) -> Surfaces:
    conversation = ConversationMemory(opened(root, *plugins))
    context = MemoryContext(conversation)
    return Surfaces(conversation, context, SearchHistoryTool(conversation), MemoryWriteTool(conversation))


def async_surfaces(root: Root, *plugins: object) -> Surfaces:
    memory = AsyncAgentMemory.open(root.url, storage_options=root.options, plugins=plugins)
    _open.callback(lambda: asyncio.run(memory.aclose()))
    conversation = AsyncConversationMemory(memory)
    return Surfaces(
        cast(ConversationMemory, Awaited(conversation)),
        cast(MemoryContext, Awaited(AsyncMemoryContext(conversation))),
        cast(SearchHistoryTool, Awaited(AsyncSearchHistoryTool(conversation))),
        cast(MemoryWriteTool, Awaited(AsyncMemoryWriteTool(conversation))),
    )


Kind = Callable[..., Surfaces]
KINDS: Final[dict[str, Kind]] = {"sync": sync_surfaces, "async": async_surfaces}


class Awaited:
    """A sync interface to an async object; each call runs in a new event loop."""

    def __init__(self, twin: object) -> None:
        self._twin = twin

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._twin, name)

        def call(*args: Any, **options: Any) -> Any:
            return asyncio.run(_awaited(method(*args, **options)))

        return call


async def _awaited(answer: Any) -> Any:
    return [item async for item in answer] if isinstance(answer, AsyncIterator) else await answer
