"""Storage for the memory of AI agents: small text files on local disk, in memory and on S3.

`AgentMemoryService` manages the memories of many agents on one root; `AgentMemory` is a single memory. Both have
an async twin. `agent_memory.backend` defines the contract for backends, `agent_memory.hookspecs` the hooks for
plugins.
"""

from agent_memory.backend import ABSENT, ANY, PRESENT, Capabilities, Entry, ETag
from agent_memory.core.actor import acting_as
from agent_memory.core.expiring import ExpiredFile
from agent_memory.core.limits.count import Usage
from agent_memory.core.limits.settings import Budget, Limits
from agent_memory.core.precondition import SHA256
from agent_memory.core.statistics import OperationStatistics, Statistics
from agent_memory.core.versions.origin import MadeBy
from agent_memory.core.versions.redact import RedactResult
from agent_memory.core.versions.settings import VersionLimits
from agent_memory.core.versions.states import FileVersion
from agent_memory.core.versions.undo import Left, Undone, UndoResult
from agent_memory.errors import (
    DISTRIBUTION,
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    AgentNotFoundError,
    AppendError,
    BackendNotAvailableError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    FileTooLargeError,
    InvalidAgentIdError,
    InvalidContentError,
    InvalidPathError,
    OperationDenied,
    OutcomeUnknownError,
    PartialOperationError,
    PathTraversalError,
    ReadError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.hookspecs import Operation, Outcome, hookimpl
from agent_memory.key import agent_id, decode_segment, encode_segment, external_id
from agent_memory.memory import AgentMemory, AsyncAgentMemory, RecordedResult, TreeResult, WriteResult
from agent_memory.service import AgentMemoryService, AsyncAgentMemoryService

__all__ = [
    "ABSENT",
    "ANY",
    "PRESENT",
    "SHA256",
    "AgentMemory",
    "AgentMemoryError",
    "AgentMemoryFileNotFoundError",
    "AgentMemoryService",
    "AgentNotFoundError",
    "AppendError",
    "AsyncAgentMemory",
    "AsyncAgentMemoryService",
    "BackendNotAvailableError",
    "Budget",
    "Capabilities",
    "ConflictError",
    "ETag",
    "Entry",
    "ExpiredFile",
    "FileAlreadyExistsError",
    "FileOperationError",
    "FileTooLargeError",
    "FileVersion",
    "InvalidAgentIdError",
    "InvalidContentError",
    "InvalidPathError",
    "Left",
    "Limits",
    "MadeBy",
    "Operation",
    "OperationDenied",
    "OperationStatistics",
    "Outcome",
    "OutcomeUnknownError",
    "PartialOperationError",
    "PathTraversalError",
    "ReadError",
    "RecordedResult",
    "RedactResult",
    "Statistics",
    "TreeResult",
    "UndoResult",
    "Undone",
    "UnsupportedOperationError",
    "Usage",
    "VersionLimits",
    "WriteError",
    "WriteResult",
    "acting_as",
    "agent_id",
    "decode_segment",
    "encode_segment",
    "external_id",
    "hookimpl",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version(DISTRIBUTION)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
