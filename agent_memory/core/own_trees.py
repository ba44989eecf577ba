"""The trees of this package's own data, and errors about its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agent_memory.errors import AgentMemoryError
from agent_memory.key import Key

_NO_AGENT: Final = "-"


def own_tree(name: str, agent: str | None, below: str = "") -> Key:
    """A tree with data of one agent, or of a tree without agents.

    It is a tree of its own, so that no backend asks for the names above it, which an agent's credentials may not read.
    """
    directory = Key.internal("/".join(filter(None, (name, _NO_AGENT if agent is None else agent, below))))
    return directory.relative_to(directory)


@contextmanager
def about_callers_file(path: str, what: str) -> Iterator[None]:
    """Apply `AgentMemoryError.set_subject` to an error about a file of the package's own."""
    try:
        yield
    except AgentMemoryError as error:
        error.set_subject(path, what)
        raise
