"""Every error a caller can see, grouped by what the caller does next.

::

    AgentMemoryError                             .kind: a stable string
    ├── InvalidPathError (ValueError)            choose another name: .rule, .suggestion
    │   ├── PathTraversalError                   an escape attempt
    │   └── InvalidAgentIdError (+ AgentNotFoundError)
    ├── AgentNotFoundError (LookupError)
    ├── InvalidContentError (ValueError)         send text; nothing was read or written
    ├── AgentMemoryFileNotFoundError (FileNotFoundError)
    ├── FileAlreadyExistsError (FileExistsError)
    ├── ConflictError                            read again; nothing was written
    ├── FileTooLargeError                        over the configured size
    ├── OperationDenied (PermissionError)        a guard's veto, with its reason
    ├── UnsupportedOperationError                this backend does not promise that
    ├── BackendNotAvailableError (ImportError)   names the extra to install
    └── FileOperationError (OSError)             the storage failed; cause attached
        ├── ReadError
        ├── WriteError
        ├── AppendError
        ├── PartialOperationError                .done, .left
        └── OutcomeUnknownError                  the write may have happened

Each error is a builtin error too, so ``except FileNotFoundError`` works. ``str(error)`` begins with the path,
relative to the memory that was called; no message carries a host path, a credential or an agent's content. All of them
can be pickled.
"""

from __future__ import annotations

from typing import ClassVar, Final

DISTRIBUTION: Final = "agent-memory-files"
"""The name on the package index, where another project has the name ``agentmemory``."""


def install_hint(extra: str) -> str:
    """The command that installs one of the extras."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class AgentMemoryError(Exception):
    """Base of every error this package raises; ``kind`` is stable and fit for logs and metrics.

    Attributes:
        path: the file or directory, relative to the memory that was called; "" is the whole of it; None if unknown.
        agent: the agent, where one is known.
        operation: the kind of the operation, where one is known: one of `agent_memory.hookspecs.OperationKind`.
    """

    kind: ClassVar[str] = "error"
    agent: str | None = None
    operation: str | None = None

    def __init__(self, message: str = "", *args: object, path: str | None = None) -> None:
        super().__init__(message, *args)
        self.path = path
        self._is_about_path = path is not None

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        if not self._is_about_path:
            return message
        return f"{self.path!r}: {message}" if self.path else f"the whole tree: {message}"

    def set_place(self, operation: str, agent: str | None, path: str | None, top: str) -> None:
        """Say which call of a memory failed; a second call changes nothing.

        Args:
            operation: its kind.
            agent: its agent.
            path: its path, for an error that names none; the message stays as it is.
            top: the directory that the memory shows as its whole tree; it is taken off the error's path.
        """
        if self.operation is not None:
            return
        self.operation, self.agent = operation, agent
        found = path if self.path is None else self.path
        self.path = None if found is None else without_top(found, top)


def without_top(path: str, top: str) -> str:
    """A path relative to a directory; as it is, if it does not lie there."""
    return path[len(top) :].removeprefix("/") if f"{path}/".startswith(f"{top}/") else path


class AgentNotFoundError(AgentMemoryError, LookupError):
    """No such agent can exist; raised as `InvalidAgentIdError`, because an agent needs no creation."""

    kind = "agent_not_found"


class InvalidPathError(AgentMemoryError, ValueError):
    """A name the key grammar refuses.

    Attributes:
        rule: the stable name of the rule that refused it, one of `agent_memory.key.RULES`.
        suggestion: a valid name near the refused one; storage itself never renames.
        refused: the refused text, escaped to ASCII and cut to 80 characters.
    """

    kind = "invalid_path"

    def __init__(
        self, message: str, rule: str = "", suggestion: str = "", refused: str = "", *, path: str | None = None
    ) -> None:
        super().__init__(message, rule, suggestion, refused, path=path)
        self.rule = rule
        self.suggestion = suggestion
        self.refused = refused


class PathTraversalError(InvalidPathError):
    """A name that reaches, or in some encoding would reach, outside its tree."""

    kind = "path_traversal"


class InvalidAgentIdError(InvalidPathError, AgentNotFoundError):
    """A text that cannot be an agent id; ``suggestion`` is `agent_memory.agent_id` of it."""

    kind = "invalid_agent_id"


class InvalidContentError(AgentMemoryError, ValueError):
    """Content that cannot be stored as UTF-8 text; raised before any I/O."""

    kind = "invalid_content"


class AgentMemoryFileNotFoundError(AgentMemoryError, FileNotFoundError):
    """No file has this name."""

    kind = "file_not_found"


class FileAlreadyExistsError(AgentMemoryError, FileExistsError):
    """The name is taken, by a file or by a directory; nothing was written."""

    kind = "file_exists"


class ConflictError(AgentMemoryError):
    """The file changed since it was read; nothing was written."""

    kind = "conflict"


class FileTooLargeError(AgentMemoryError):
    """More bytes than one read or write may carry; nothing was written."""

    kind = "file_too_large"


class OperationDenied(AgentMemoryError, PermissionError):
    """A guard (a plugin, or a read-only view) refused the operation; nothing was read or written."""

    kind = "operation_denied"


class UnsupportedOperationError(AgentMemoryError):
    """The backend does not promise this operation; it is refused rather than imitated by a race."""

    kind = "unsupported_operation"


class BackendNotAvailableError(AgentMemoryError, ImportError):
    """No backend can open this URL here; the message names what to install."""

    kind = "backend_not_available"


class FileOperationError(AgentMemoryError, OSError):
    """The storage failed; the cause is attached as ``__cause__``."""

    kind = "file_operation"


class ReadError(FileOperationError):
    """The storage failed to read, or what it holds is not UTF-8 text."""

    kind = "read"


class WriteError(FileOperationError):
    """The storage failed to write; what was there before is still there."""

    kind = "write"


class AppendError(FileOperationError):
    """The storage failed to append; what was there before is still there."""

    kind = "append"


class PartialOperationError(FileOperationError):
    """An operation on many files stopped half-way; nothing is lost.

    Attributes:
        done: the paths it finished.
        left: the paths it did not.
    """

    kind = "partial_operation"

    def __init__(self, message: str, done: tuple[str, ...] = (), left: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.done = done
        self.left = left

    def set_place(self, operation: str, agent: str | None, path: str | None, top: str) -> None:
        if self.operation is None:
            self.done = tuple(without_top(each, top) for each in self.done)
            self.left = tuple(without_top(each, top) for each in self.left)
        super().set_place(operation, agent, path, top)


class OutcomeUnknownError(FileOperationError):
    """The write may or may not have happened: its reply was lost and could not be settled."""

    kind = "outcome_unknown"
