"""The errors of this package, grouped by the caller's next step.

::

    AgentMemoryError                             .kind: a stable string
    ├── InvalidPathError (ValueError)            choose another name: .rule, .suggestion
    │   ├── PathTraversalError                   the name leads outside its tree
    │   └── InvalidAgentIdError (+ AgentNotFoundError)
    ├── AgentNotFoundError (LookupError)
    ├── InvalidContentError (ValueError)         send text; nothing was read or written
    ├── AgentMemoryFileNotFoundError (FileNotFoundError)
    ├── FileAlreadyExistsError (FileExistsError)
    ├── ConflictError                            read again; nothing was written
    ├── FileTooLargeError                        more bytes than the limit
    ├── OperationDenied (PermissionError)        a guard's veto, with its reason
    ├── UnsupportedOperationError                the backend does not promise it
    ├── BackendNotAvailableError (ImportError)   names the extra to install
    └── FileOperationError (OSError)             the storage failed: .__cause__
        ├── ReadError
        ├── WriteError
        ├── AppendError
        ├── PartialOperationError                .done, .left
        └── OutcomeUnknownError                  the write may have happened

A builtin error in parentheses is a base class, so ``except FileNotFoundError`` works. ``str(error)`` begins with the
path, relative to the memory that was called. No message contains a host path, a credential or an agent's content. All
errors can be pickled.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

DISTRIBUTION: Final = "agent-memory-files"
"""The name on the package index, where another project has the name ``agentmemory``."""


def install_hint(extra: str) -> str:
    """The command that installs one of the extras."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class AgentMemoryError(Exception):
    """Base class of every error this package raises.

    Attributes:
        kind: the error's stable name, for logs and metrics.
        path: the file or directory, relative to the memory that was called; "" is the whole memory; None if unknown.
        agent: the agent's id; None if unknown.
        operation: the kind of operation, one of `agent_memory.hookspecs.OperationKind`; None if unknown.
    """

    kind: ClassVar[str] = "error"
    _errno: ClassVar[int | None] = None
    agent: str | None = None
    operation: str | None = None

    def __init__(self, message: str = "", *args: object, path: str | None = None) -> None:
        super().__init__(message, *args)
        if isinstance(self, OSError):  # which takes two arguments for a number and a text
            error: Any = self
            error.errno = self._errno
        self.path = path
        self._is_about_path = path is not None

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        if not self._is_about_path:
            return message
        return f"{self.path!r}: {message}" if self.path else f"the whole tree: {message}"

    def with_subject(self, path: str, what: str) -> Self:
        """Change an error about an internal file to one about the caller's file; return it.

        ``what`` begins the message.
        """
        self.args = (f"{what}: {self.args[0]}" if self.args else what, *self.args[1:])
        self.path, self._is_about_path = path, True
        return self

    def with_location(self, operation: str, agent: str | None, path: str | None, top: str) -> Self:
        """Set the operation, agent and path that failed; return the error. A second call changes nothing.

        Args:
            operation: the kind of operation.
            agent: its agent.
            path: its path, for an error without a path; the message does not change.
            top: the directory that the memory shows as its whole tree; it is removed from the error's path.
        """
        if self.operation is None:
            self.operation, self.agent = operation, agent
            found = path if self.path is None else self.path
            self.path = None if found is None else without_top(found, top)
        return self


def without_top(path: str, top: str) -> str:
    """Return a path relative to a directory; a path outside that directory is returned unchanged."""
    return path[len(top) :].removeprefix("/") if f"{path}/".startswith(f"{top}/") else path


class AgentNotFoundError(AgentMemoryError, LookupError):
    """No agent can have this id; raised as `InvalidAgentIdError`: an agent with a valid id needs no creation."""

    kind = "agent_not_found"


class InvalidPathError(AgentMemoryError, ValueError):
    """The name breaks a rule of the key grammar.

    Attributes:
        rule: the stable name of the broken rule, one of `agent_memory.key.RULES`.
        suggestion: a similar valid name; the storage never renames a file by itself.
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
    """The name leads outside its tree, as written or once decoded."""

    kind = "path_traversal"


class InvalidAgentIdError(InvalidPathError, AgentNotFoundError):
    """The text is not a valid agent id; ``suggestion`` is the result of `agent_memory.agent_id` for it."""

    kind = "invalid_agent_id"


class InvalidContentError(AgentMemoryError, ValueError):
    """The content cannot be stored as UTF-8 text; raised before any I/O."""

    kind = "invalid_content"


class AgentMemoryFileNotFoundError(AgentMemoryError, FileNotFoundError):
    """No file has this name."""

    kind = "file_not_found"
    _errno = errno.ENOENT


TakenBy: TypeAlias = Literal["file", "directory", "file_above", "other_case"]


class FileAlreadyExistsError(AgentMemoryError, FileExistsError):
    """The name is taken; nothing was written.

    Attributes:
        taken_by: "file": a file has the name; "directory": there are files below the name; "file_above": the name lies
            below the name of a file; "other_case": the storage ignores case, and a name differs only by case.
    """

    kind = "file_exists"
    _errno = errno.EEXIST

    def __init__(self, message: str = "", taken_by: TakenBy = "file", *, path: str | None = None) -> None:
        super().__init__(message, taken_by, path=path)
        self.taken_by = taken_by


class ConflictError(AgentMemoryError):
    """The file changed since it was read; nothing was written."""

    kind = "conflict"


class FileTooLargeError(AgentMemoryError):
    """The content has more bytes than one read or write allows; nothing was written."""

    kind = "file_too_large"


class OperationDenied(AgentMemoryError, PermissionError):
    """A guard (a plugin, or a read-only view) refused the operation; nothing was read or written."""

    kind = "operation_denied"
    _errno = errno.EACCES


class UnsupportedOperationError(AgentMemoryError):
    """The backend does not promise this operation; it is refused, because an imitation could lose a race."""

    kind = "unsupported_operation"


class BackendNotAvailableError(AgentMemoryError, ImportError):
    """No installed backend can open this URL; the message names the package to install."""

    kind = "backend_not_available"


class FileOperationError(AgentMemoryError, OSError):
    """The storage failed; the cause is attached as ``__cause__``."""

    kind = "file_operation"


class ReadError(FileOperationError):
    """The storage failed to read, or the file is not UTF-8 text."""

    kind = "read"


class WriteError(FileOperationError):
    """The storage failed to write; the old content is intact."""

    kind = "write"


class AppendError(FileOperationError):
    """The storage failed to append; the old content is intact."""

    kind = "append"


class PartialOperationError(FileOperationError):
    """An operation on many files finished only some of them; nothing is lost.

    Attributes:
        done: the paths of the finished files.
        left: the paths of the other files.
    """

    kind = "partial_operation"

    def __init__(self, message: str, done: tuple[str, ...] = (), left: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.done = done
        self.left = left

    def with_location(self, operation: str, agent: str | None, path: str | None, top: str) -> Self:
        """See `AgentMemoryError.with_location`."""
        if self.operation is None:
            self.done = tuple(without_top(each, top) for each in self.done)
            self.left = tuple(without_top(each, top) for each in self.left)
        return super().with_location(operation, agent, path, top)


class OutcomeUnknownError(FileOperationError):
    """The write may or may not have happened: its reply was lost, and the storage could not tell the outcome."""

    kind = "outcome_unknown"
