"""What the operations of a service did, as numbers."""

from __future__ import annotations

from agent_memory.core.flows import Effect
from agent_memory.hookspecs import WRITING, OperationKind, Outcome


def bytes_written(kind: OperationKind, given: int | None, result: Effect | Outcome) -> int | None:
    """The bytes of content that a successful operation wrote; None for another operation.

    Args:
        kind: the kind of the operation.
        given: the bytes that the caller gave.
        result: its result, or its outcome.
    """
    if kind not in WRITING or result.size is None or result.replayed:
        return None
    if kind == "append":
        return given
    if kind == "edit" and result.sha256 == result.before_sha256:
        return None  # it changed nothing
    return result.size


def conflicts_of(attempts: int, error: str | None) -> int:
    """The number of times that another writer was faster: each but the last attempt, and that one if it failed so."""
    return attempts - 1 + (error == "conflict")
