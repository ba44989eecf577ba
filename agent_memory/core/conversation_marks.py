"""Marks of directories that hold no conversation: tools may use the names of a conversation's files there.

Such a mark and a conversation exclude each other: a conversation is refused in a marked directory, and below it. A mark
is one file of the agent's own data, named after its directory.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import accumulate
from typing import Any, Final

from agent_memory.backend import ANY, Backend
from agent_memory.core import tree_flows
from agent_memory.core.call import Call, Content, Flow
from agent_memory.core.flows import Effect
from agent_memory.core.internal_trees import internal_tree
from agent_memory.core.tree import Tree
from agent_memory.errors import AgentMemoryFileNotFoundError, AppendError, OperationDenied, ReadError
from agent_memory.hookspecs import READING, OperationKind
from agent_memory.key import Key, encode_segment
from agent_memory.runtime.run import Run

DIRECTORY: Final = "no-conversation"
SECONDS: Final = 60.0
"""A process reads the marks again after this time, in seconds."""


def marks_of(agent: str | None) -> Key:
    """The directory of the marks of an agent's tree."""
    return internal_tree(DIRECTORY, agent)


@dataclass
class _Looked:
    """The time of the last read or write of the marks, by the clock of a run."""

    at: float = -math.inf


@dataclass(frozen=True)
class _LookingTree(Tree):
    """A tree whose operations look at its marks first, unless one of them did so in the last `SECONDS`."""

    looked: _Looked = field(default_factory=_Looked, kw_only=True)

    async def operate(
        self, run: Run, kind: OperationKind, path: str, flow: Flow, content: Content | None = None, **options: Any
    ) -> Call:
        return await super().operate(run, kind, path, partial(self._after_a_look, flow), content, **options)

    async def _after_a_look(self, flow: Flow, store: Backend, run: Run, call: Call) -> Effect:
        if run.now() >= self.looked.at + SECONDS and await self._look(store, run, call):
            self.looked.at = run.now()
        return await flow(store, run, call)

    async def _look(self, store: Backend, run: Run, call: Call) -> bool:
        """Look at the marks; False if this operation need not do so."""
        raise NotImplementedError


@dataclass(frozen=True)
class UnreservedTree(_LookingTree):
    """A tree that is declared to hold no conversation; its first change writes a mark.

    Attributes:
        marked: the directory.
    """

    marked: Key = field(kw_only=True)

    async def _look(self, store: Backend, run: Run, call: Call) -> bool:
        if call.kind in READING:
            return False
        path = self.marked.path
        await self.settings.use(store, run, "no-conversation")
        await run.call(store.write, _mark(call.agent, path), path.encode(), when=ANY)
        return True


@dataclass(frozen=True)
class ConversationTree(_LookingTree):
    """A tree that holds a conversation; its operations are refused if one of its directories is marked.

    Attributes:
        directories: the directories of the conversation's files.
    """

    directories: tuple[Key, ...] = field(kw_only=True)

    async def _look(self, store: Backend, run: Run, call: Call) -> bool:
        try:
            marked = await _refusing(store, run, call, self.directories)
        except ReadError as error:
            raise (AppendError(str(error)) if call.kind == "append" else error) from error.__cause__
        if marked:
            raise OperationDenied(
                f"{marked[0] or 'this memory'} is marked as holding no conversation: a model may have written the "
                "files of one; 'agent-memory conversation allow' shows them and takes the mark back",
                path=call.key.path,
            )
        return True


def unreserved(tree: Tree) -> UnreservedTree:
    """Return the view of a tree that is declared to hold no conversation."""
    if isinstance(tree, UnreservedTree):
        return tree
    return UnreservedTree(**_facts(tree), marked=tree.top)


def of_conversation(tree: Tree, directories: tuple[str, ...]) -> ConversationTree:
    """Return the view of a tree for a conversation with files in these directories."""
    return ConversationTree(**_facts(tree), directories=tuple(map(tree.top.join_prefix, directories)))


async def marks_above(tree: Tree, run: Run, directories: tuple[str, ...]) -> list[str]:
    """Return the marked directories at or above the given directories of a tree."""

    async def found(store: Backend, run: Run, call: Call) -> tuple[list[str], Effect]:
        return await _refusing(store, run, call, tuple(map(call.key.join_prefix, directories))), Effect()

    return await tree.find(run, "stat", "", found, directory=True)


async def take_back(tree: Tree, run: Run, paths: list[str]) -> None:
    """Delete the marks of directories.

    Raises:
        OperationDenied: the view is read-only.
        UnsupportedOperationError: this release may not change the store.
    """
    if not tree.writable:
        raise OperationDenied("this view is read-only")

    async def flow(store: Backend, run: Run, call: Call) -> Effect:
        await tree.settings.permit(store, run, call)  # an operation of the kind "stat" does not call it
        for path in paths:
            with suppress(AgentMemoryFileNotFoundError):  # another process deleted it
                await run.call(store.delete, _mark(call.agent, path))
        return Effect()

    await tree.operate(run, "stat", "", flow, directory=True)


async def _refusing(store: Backend, run: Run, call: Call, directories: tuple[Key, ...]) -> list[str]:
    listing = await tree_flows.list_all(store, run, marks_of(call.agent))
    found = {entry.key.path for entry in listing.entries}
    above = {path for directory in directories for path in ("", *accumulate(directory.path.split("/"), _joined))}
    return sorted(path for path in above if _mark(call.agent, path).path in found)


def _joined(above: str, name: str) -> str:
    return f"{above}/{name}"


def _mark(agent: str | None, path: str) -> Key:
    return marks_of(agent).join(encode_segment(path))


def _facts(tree: Tree) -> dict[str, Any]:
    return {each.name: getattr(tree, each.name) for each in fields(Tree)}
