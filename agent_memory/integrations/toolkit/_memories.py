"""Views of a memory for an adapter, checks of its arguments, and the errors that a framework expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import TypeAlias

from agent_memory.core.sync_facade import sync_facade
from agent_memory.errors import (
    DISTRIBUTION,
    AgentMemoryError,
    BackendNotAvailableError,
    InvalidContentError,
    install_hint,
)
from agent_memory.memory import AgentMemory, AsyncAgentMemory

AnyMemory: TypeAlias = AgentMemory | AsyncAgentMemory


def async_view(memory: AnyMemory) -> AsyncAgentMemory:
    """Return a memory for the async methods of an adapter.

    Raises:
        TypeError: ``memory`` is no memory.
    """
    return _checked(memory).as_async()


def sync_view(memory: AnyMemory) -> AsyncAgentMemory:
    """Return a memory whose methods never suspend, so that `step` runs the logic of an adapter's sync methods.

    Raises:
        TypeError: ``memory`` is no memory.
    """
    return sync_facade(_checked(memory).as_sync())


def _checked(memory: AnyMemory) -> AnyMemory:
    if not isinstance(memory, AgentMemory | AsyncAgentMemory):
        raise TypeError(f"an adapter takes an AgentMemory or an AsyncAgentMemory, not {type(memory).__name__}")
    return memory


def checked_id(name: str, text: str) -> str:
    """Return an id that a caller gave.

    Raises:
        TypeError: it is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    return text


def checked_bytes(content: bytes) -> bytes:
    """Return the content of a file of bytes.

    Raises:
        InvalidContentError: it is no bytes-like object.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidContentError(f"content must be bytes, not {type(content).__name__}")
    return bytes(content)


def unusable(framework: str, extra: str, error: ImportError) -> BackendNotAvailableError:
    """Return the error for a framework that is missing, or that does not have the names which an adapter imports.

    Args:
        framework: the framework's name on the package index.
        extra: the extra that installs it.
        error: the failed import.
    """
    try:
        found = metadata.version(framework)
    except metadata.PackageNotFoundError:
        return BackendNotAvailableError(f"{framework} is missing: {install_hint(extra)}")
    return BackendNotAvailableError(
        f"{framework} {found} does not fit this adapter, which needs {_bounds(framework)} ({error.msg}): "
        f"{install_hint(extra)}"
    )


def _bounds(framework: str) -> str:
    """The versions that this distribution allows, as written in its metadata."""
    requirements = (line.partition(";")[0].strip() for line in metadata.requires(DISTRIBUTION) or ())
    return next((each for each in requirements if each.startswith(framework)), framework)


@contextmanager
def mapped_errors(table: Mapping[type[AgentMemoryError], Callable[[AgentMemoryError], Exception]]) -> Iterator[None]:
    """Raise the error that a framework expects instead of ours, which becomes its cause.

    Args:
        table: makes the framework's error from ours; the first entry whose type fits is used.
    """
    try:
        yield
    except AgentMemoryError as error:
        for kind, make in table.items():
            if isinstance(error, kind):
                raise make(error) from error
        raise
