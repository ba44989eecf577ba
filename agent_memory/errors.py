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

Each error is a builtin error too, so ``except FileNotFoundError`` works. Messages name the path
within the agent's tree; none carries a host path, a credential or an agent's content. All of them can be pickled.
"""

from __future__ import annotations

from typing import ClassVar


class AgentMemoryError(Exception):
    """Base of every error this package raises; ``kind`` is stable and fit for logs and metrics."""

    kind: ClassVar[str] = "error"


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

    def __init__(self, message: str, rule: str = "", suggestion: str = "", refused: str = "") -> None:
        super().__init__(message, rule, suggestion, refused)
        self.rule = rule
        self.suggestion = suggestion
        self.refused = refused

    def __str__(self) -> str:
        return str(self.args[0])


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


class OutcomeUnknownError(FileOperationError):
    """The write may or may not have happened: its reply was lost and could not be settled."""

    kind = "outcome_unknown"
