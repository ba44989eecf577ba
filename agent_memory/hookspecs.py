"""The hooks that a plugin may implement, and the frozen data classes that hooks receive.

Hooks are called in one place (`agent_memory.core.hooks`), once per operation, never inside a backend and never
per request. They are plain functions marked with ``hookimpl``; wrappers and ``async def`` are refused when
the plugin is registered. A hook causes no extra request and no second read.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

import pluggy

from agent_memory.backend import BackendFactory, ETag, hookimpl

__all__ = [
    "PROJECT", "READING", "WRITING", "BackendFactory", "Operation", "OperationKind", "Outcome",
    "Plugin", "hookimpl", "hookspec",
]  # fmt: skip

PROJECT: Final = hookimpl.project_name
hookspec = pluggy.HookspecMarker(PROJECT)

OperationKind: TypeAlias = Literal[
    "read", "stat", "exists", "list", "agent_ids", "write", "create", "append", "edit", "delete", "delete_tree",
    "rename", "copy", "forget", "versions", "read_version", "restore", "redact", "set_versions", "set_limits",
    "prune",
]  # fmt: skip
READING: Final[frozenset[OperationKind]] = frozenset(
    {"read", "stat", "exists", "list", "agent_ids", "versions", "read_version"}
)
"""The kinds of operations that change no file."""
WRITING: Final[frozenset[OperationKind]] = frozenset({"write", "create", "append", "edit", "restore"})
"""The kinds of operations that write content to one file."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The facts of one call, without its content.

    ``time`` is in POSIX seconds; ``agent`` is None for a tree without agents; ``path`` and ``target`` are relative
    to the agent's tree, "" is the whole tree, and only rename and copy have a ``target``; ``size`` is the number of
    bytes that were given to write, before filters, None for an operation without content and for an edit; ``remote``:
    the backend is async, because it reaches its storage over a network.
    """

    id: str
    time: float
    kind: OperationKind
    agent: str | None
    path: str
    target: str | None = None
    size: int | None = None
    actor: str | None = None
    tool_call_id: str | None = None
    remote: bool = False

    @property
    def changes(self) -> bool:
        """Whether an operation of this kind can change files."""
        return self.kind not in READING


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation. Sizes are in bytes, durations in seconds, digests are hexadecimal SHA-256.

    ``duration`` is what the caller waited, from the call until the observers are called, with waits for a thread, a
    queue or a guard; ``storage_duration`` is the part of it for the storage, with retries and waits for locks.
    ``status`` is "denied" if a guard or the view refused the operation: this is no error, and nothing was changed. It
    is "unknown" after `OutcomeUnknownError`, or if the caller was cancelled or interrupted while the storage worked.
    ``size`` is the size of the file after the operation, also after an append.
    ``sha256`` is the digest of the written bytes (of an append: the appended bytes); ``before_sha256`` is the digest of
    the old content, only if the operation read it anyway. ``error`` is the error's ``kind``, None for a denied
    operation. ``files`` is the number of files of an operation on many; ``skipped`` is the number of names in storage
    that are not valid keys, or of records of versions that cannot be read. ``replayed``: the operation changed nothing,
    because an earlier one with the same idempotency key had made the change; then sizes, digests and ``etag`` are None.
    ``version_id`` is the id (`FileVersion.id`) of the version that an append appended to, if the store keeps versions.
    ``versions_searched`` is False if a forget or a redaction did not look for the storage's own versions, because it
    says that it has none.
    """

    status: Literal["ok", "denied", "error", "unknown"]
    duration: float
    size: int | None = None
    etag: ETag | None = None
    sha256: str | None = None
    before_sha256: str | None = None
    attempts: int = 1
    files: int | None = None
    skipped: int = 0
    error: str | None = None
    replayed: bool = False
    version_id: str | None = None
    versions_searched: bool = True
    storage_duration: float = 0.0


class Plugin:
    """A base class for plugins: the optional attributes and methods beside the hooks, with defaults.

    A plugin may be any object with hooks. In such an object, attributes and methods with these names mean the same.

    When a service is closed, it closes its plugins. It leaves a plugin open if another open service uses it, or if
    the plugin was entered by ``with``; then the end of the ``with`` block closes it.

    Attributes:
        required: whether a caller gets `OutcomeUnknownError` if this observer fails; otherwise the failure is logged.
        is_shared: whether services leave the plugin open, because other code closes it.
    """

    required: bool = False
    is_shared: bool = False

    def listening(self) -> bool:
        """Whether this observer currently needs plain successes: status "ok", nothing skipped."""
        return True

    def flush(self) -> None:
        """Write all buffered data; called when a service with this plugin is closed."""

    def close(self) -> None:
        """Release all resources; called by the last service that is closed, unless the plugin is shared.

        An implementation must allow a second call.
        """

    def __enter__(self) -> Self:
        self.is_shared = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@hookspec
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add backends: call ``register(scheme, factory)``; the scheme ``*`` is used if no other scheme matches.

    A package found by entry point may implement only this hook. A scheme registered twice is an error.
    """


@hookspec
def agent_memory_before_operation(operation: Operation) -> None:
    """Called after the names are parsed and before any I/O; raise `OperationDenied` to refuse the operation.

    Any other exception refuses it too: guards fail closed. Before an edit deletes its file, the hook is called again,
    with the same ``id`` and the kind "delete"; the outcome of such an edit has no ``size`` and one file.
    """


@hookspec
def agent_memory_filter_content(operation: Operation, content: bytes) -> bytes | None:
    """Called with the bytes to write (for an append: the bytes to append); returns the bytes to write instead.

    None leaves them unchanged. Filters form a chain: each filter receives the result of the filter before it, and
    ``agent_memory_check_content`` receives the last result. A filter must be a pure function of the content. It may
    receive its own earlier result again: an edit calls it once per attempt, with the whole new content. A filter that
    raises, or returns neither bytes nor None, refuses the operation.
    """


@hookspec
def agent_memory_check_content(operation: Operation, content: bytes) -> None:
    """Called with the bytes to write (for an append: the bytes to append); raise to refuse the operation.

    An edit calls it once per attempt, with the whole new content.
    """


@hookspec
def agent_memory_check_read(operation: Operation, content: bytes, start: int, size: int) -> None:
    """Called with the bytes that a read found, before the caller gets them; raise to refuse the operation.

    ``content`` begins at the byte ``start`` of a file, or of an earlier version, that has ``size`` bytes. So a read of
    a whole file has the start 0 and ``size`` bytes of content; a read in ranges calls the hook for each range that has
    bytes. An edit calls it once per attempt, before the caller's function gets the old content. Operations that give
    no content to the caller, such as a rename, do not call it.
    """


@hookspec
def agent_memory_check_size(operation: Operation, size: int) -> None:
    """Called instead of the two hooks above for content written in parts, with its size in bytes; raise to refuse it.

    Such content is never in memory as a whole, so no filter and no guard can see it. It is refused if a plugin
    implements one of those two hooks and not this one.
    """


@hookspec
def agent_memory_operation_context(operation: Operation) -> AbstractContextManager[object] | None:
    """Return a context manager that is entered around the storage's part of the operation; None for none.

    It is entered after the guards and the first filters, and left before ``agent_memory_after_operation`` is called,
    with the operation's exception if there is one. The storage's requests see the context variables that it sets. It
    is entered and left in the thread or task of the operation, so it must not block: for an async caller it runs in
    the caller's event loop, or in a thread. There an operation that waits for a lock may continue in another thread,
    with the same context variables.

    It only observes. If it fails, the failure is logged; it cannot suppress an exception. An interrupt that it raises
    when it is entered prevents the operation. It is entered for no operation that is refused before, and it is not left
    if the event loop of an async caller is dropped, or closed without cancelling the caller.
    """


@hookspec
def agent_memory_after_operation(operation: Operation, outcome: Outcome) -> None:
    """Called exactly once per operation: after success, failure or cancellation.

    Exception: if the event loop of an async caller is dropped, or closed without cancelling the caller, the hook is
    not called, because nothing can run there any more.

    An implementation that raises does not stop the others. Its exception is logged, unless its plugin is
    `Plugin.required`: then the caller gets `OutcomeUnknownError` with the cause attached or, if the operation itself
    failed, that operation's error with a note. While `Plugin.listening` of every observer returns False, the hook is
    not called for plain successes (status "ok", nothing skipped).

    The hook is called once. An interrupt (an exception that is no `Exception`) may skip implementations that are not
    required, and it is raised at the end. If it ends the call of a required observer, that observer is called once more
    with the same operation.
    """


@hookspec
def agent_memory_key_rejected(agent: str | None, text: str, reason: str, actor: str | None) -> None:
    """Called when a name is refused, for security logs.

    ``text`` is the name, escaped to ASCII, quoted and cut to 80 characters; ``reason`` is one of
    `agent_memory.key.RULES`.
    """
