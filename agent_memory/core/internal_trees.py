"""The trees of this package's own data, and errors about its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from agent_memory.backend.helpers import STORE_RECORD
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    FileOperationError,
    WriteError,
)
from agent_memory.key import InternalPath, Key

_NO_AGENT: Final = "-"
_SUBJECTS: Final[Mapping[str, str]] = {
    "no-conversation": "the marks of directories without a conversation",
    "receipts": "the receipts of idempotency keys",
    "versions": "the records of earlier versions",
    STORE_RECORD.path: "the record of the store",
}


def internal_tree(name: str, agent: str | None, below: str = "") -> Key:
    """A tree with data of one agent, or of a tree without agents.

    It is a separate tree, so that no backend reads the names above it: an agent's credentials may not permit that.
    """
    directory = Key.internal("/".join(filter(None, (name, _NO_AGENT if agent is None else agent, below))))
    return directory.relative_to(directory)


def about_file(
    error: AgentMemoryError, path: str, what: str = "", kind: type[FileOperationError] = WriteError
) -> AgentMemoryError:
    """Return an error about a file of the package's own as one about the caller's file; any other one unchanged.

    Args:
        error: the error.
        path: the caller's file.
        what: begins the message; "" for the kind of the internal file.
        kind: the class of the new error, where the class of the given one would tell about the caller's file.
    """
    internal = error.path
    if not isinstance(internal, InternalPath):
        return error
    what = what or _SUBJECTS.get(internal.kind, "an internal file of the store")
    if isinstance(error, AgentMemoryFileNotFoundError | ConflictError | FileAlreadyExistsError):
        changed = kind(f"{what}: {error.args[0]}", path=path)
        changed.__cause__ = error
        return changed
    return error.with_subject(path, what)


@contextmanager
def about_callers_file(path: str, what: str) -> Iterator[None]:
    """Make each error about a file of the package's own one about a file; see `about_file`."""
    try:
        yield
    except AgentMemoryError as error:
        changed = about_file(error, path, what)
        if changed is error:
            raise
        raise changed from error
