"""The hooks: what a plugin may implement, and the frozen facts it is given.

Hooks are called in one place (`agent_memory.core.hooks`), once per operation, never inside a backend and never
per request. They are plain functions marked with ``hookimpl``; wrappers and ``async def`` are refused when
the plugin is registered. A hook costs no request and no second read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import pluggy

from agent_memory.backend import PROJECT, BackendFactory, Version, hookimpl

__all__ = [
    "PROJECT", "AuditCheckpoint", "BackendFactory", "Operation", "OperationKind", "Outcome", "Plugin", "hookimpl",
    "hookspec",
]  # fmt: skip

hookspec = pluggy.HookspecMarker(PROJECT)

OperationKind: TypeAlias = Literal[
    "read", "stat", "exists", "list", "agent_ids", "write", "create", "append", "edit", "delete", "delete_tree",
    "rename", "copy", "forget",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """What somebody asked for; sees no content.

    ``time`` is POSIX seconds; ``agent`` None for a tree without agents; ``path`` and ``target`` are relative
    to the agent's tree, ``target`` only for rename and copy; ``size`` is the bytes given, where some are.
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. Sizes in bytes, duration in seconds, digests hexadecimal SHA-256.

    ``status`` is "denied" when a guard or the view refused: no error, and nothing was changed. It is "unknown" when
    the caller was cancelled or interrupted while the storage was at work. ``sha256`` is of what was written (for an
    append: of the appended bytes), ``before_sha256`` of what was there before, only where the operation read it
    anyway. ``error`` is the error's ``kind``; None of what was denied. ``files`` counts the files of an operation on
    many; ``skipped`` the names in storage that no key can name.
    """

    status: Literal["ok", "denied", "error", "unknown"]
    duration: float
    size: int | None = None
    version: Version | None = None
    sha256: str | None = None
    before_sha256: str | None = None
    attempts: int = 1
    files: int | None = None
    skipped: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AuditCheckpoint:
    """How far one writer's chain in the audit log ``log`` is written: to record ``seq``, which has this hash.

    ``time`` is POSIX seconds. Kept where whoever can change the log cannot write, it vouches for all records up to it.
    """

    time: float
    writer: str
    seq: int
    hash: str
    log: str = ""


class Plugin:
    """A base class for plugins: what a plugin may have beside its hooks, with defaults.

    A plugin may be any object with hooks. There an attribute or method of one of these names means the same.

    A service that is closed closes its plugins. It leaves a shared plugin open: one that another open service has too,
    or that was entered by ``with``, whose block closes it.

    Attributes:
        required: whether a caller gets `OutcomeUnknownError` if this observer fails; otherwise the failure is logged.
        is_shared: whether services leave the plugin open, because other code closes it.
    """

    required: bool = False
    is_shared: bool = False

    def listening(self) -> bool:
        """Whether this observer wants to be told of plain successes now: status "ok", nothing skipped."""
        return True

    def flush(self) -> None:
        """Write everything that is held back; called when a service with this plugin is closed."""

    def close(self) -> None:
        """Release everything; called by the last service that is closed, unless the plugin is shared.

        A second call does nothing.
        """

    def send_checkpoints_to(self, receiver: Callable[[AuditCheckpoint], None]) -> None:
        """Send checkpoints to one more receiver: the hooks ``agent_memory_audit_checkpoint`` of a new service."""

    def __enter__(self) -> Self:
        self.is_shared = True
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@hookspec
def agent_memory_register_backends(register: Callable[[str, BackendFactory], None]) -> None:
    """Add backends: call ``register(scheme, factory)``; the scheme ``*`` is asked when no other fits.

    The only hook a package found by entry point may implement. A scheme registered twice is an error.
    """


@hookspec
def agent_memory_before_operation(operation: Operation) -> None:
    """Called with the names parsed and before any I/O; raise `OperationDenied` to veto.

    Any other exception stops the operation too: guards fail closed.
    """


@hookspec
def agent_memory_filter_content(operation: Operation, content: bytes) -> bytes | None:
    """Called with the bytes about to be written (for an append: to be appended); return others to write them instead.

    None leaves them as they are. Filters are chained: each sees what the one before returned, and the guards of content
    see the last. Has to be a pure function of the content, and is called anew on what it returned: for an edit once per
    attempt, with the whole new content. A filter that raises, or returns anything else, stops the operation.
    """


@hookspec
def agent_memory_check_content(operation: Operation, content: bytes) -> None:
    """Called with the bytes about to be written (for an append: to be appended); raise to veto.

    For an edit: once per attempt, with the whole new content.
    """


@hookspec
def agent_memory_check_size(operation: Operation, size: int) -> None:
    """Called instead of the two hooks above with the bytes of a content that is written in parts; raise to veto.

    Such a content is never in memory as a whole, so no filter and no guard sees it. A plugin that implements one of
    those hooks and not this one refuses it.
    """


@hookspec
def agent_memory_after_operation(operation: Operation, outcome: Outcome) -> None:
    """Called exactly once per operation: on success, failure or cancellation.

    Not for an async caller whose event loop is dropped, or closed without cancelling it: nothing runs there any more.

    Each implementation is called on its own. One that raises is logged and silences no other one, unless its plugin is
    `Plugin.required`: then the caller gets `OutcomeUnknownError`, with the cause attached; or, of an operation that
    failed anyway, its own error with a note. While `Plugin.listening` of every observer returns False, plain successes
    (status "ok", nothing skipped) are told to none.

    An interrupt (an exception that is no `Exception`) does not silence the others either, and is raised at the end. A
    required observer that an interrupt ended is called again with the same operation, at most three times in all.
    """


@hookspec
def agent_memory_key_rejected(agent: str | None, text: str, reason: str, actor: str | None) -> None:
    """Called when a name is refused: the security trail.

    ``text`` is the name, escaped to ASCII, quoted and cut to 80 characters; ``reason`` one of `agent_memory.key.RULES`.
    """


@hookspec
def agent_memory_audit_checkpoint(checkpoint: AuditCheckpoint) -> None:
    """Called when an audit log has come to a checkpoint: keep it in a second place.

    Each implementation is called on its own, with the failure policy of observers.
    """
