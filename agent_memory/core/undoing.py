"""Makes the steps of an undo: each is an operation of its own, with its hooks, on the state that the plan is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from agent_memory.backend import ABSENT, ETag
from agent_memory.core.tree import Tree
from agent_memory.core.versions.undo import Left, RecordedAppends, Selection, Step, Undone, UndoResult, without_ranges
from agent_memory.core.versions.undo_plan import CHANGED_MEANWHILE
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    UnsupportedOperationError,
    without_top,
)
from agent_memory.runtime.run import Run


async def undo(
    tree: Tree,
    run: Run,
    selection: Selection,
    appends: RecordedAppends | None,
    dry_run: bool,
    shown: Iterable[Undone] | None = None,
) -> UndoResult:
    """Undo the selected operations; see `agent_memory.memory.FileVersions.undo`."""
    if tree.once is not None:
        raise UnsupportedOperationError("undo takes no idempotency key: call it on the memory itself")
    plan = await tree.plan_undo(run, selection, appends)
    if shown is not None:
        _require_shown(tree, plan.steps, shown)
    done: list[Undone] = []
    left = [replace(each, path=without_top(each.path, tree.top.path)) for each in plan.left]
    stopped = set[str]()
    made: dict[str, ETag | None] = {}
    for step in plan.steps:
        step = _after(step.below(tree.top.path), made)
        path = step.undone.path
        reason = None if dry_run or path in stopped else await _reason_to_leave(tree, run, step, made)
        if reason:
            stopped.add(path)
            left.append(Left(path, reason))
        elif path not in stopped:
            done.append(replace(step.undone, etag=step.etag))
    return UndoResult(tuple(done), tuple(left))


def _require_shown(tree: Tree, steps: Iterable[Step], shown: Iterable[Undone]) -> None:
    """Raise `ConflictError` unless steps are those that were shown, for the same states of the files."""
    planned = [step.below(tree.top.path) for step in steps]
    if [(step.undone, step.etag) for step in planned] != [(each, each.etag) for each in shown]:
        raise ConflictError("the files changed since these steps were shown; nothing was undone")


def _after(step: Step, made: Mapping[str, ETag | None]) -> Step:
    """Return a step with the etag that an earlier step of this undo gave the file."""
    path = step.undone.path
    return step._replace(etag=made[path], state=None) if path in made else step


async def _reason_to_leave(tree: Tree, run: Run, step: Step, made: dict[str, ETag | None]) -> str | None:
    """Make a step, and note the new etag of the file; return the reason if the step was not made."""
    try:
        made[step.undone.path] = await _make(replace(tree, required_state=step.state), run, step)
    except (ConflictError, AgentMemoryFileNotFoundError, FileAlreadyExistsError):
        return CHANGED_MEANWHILE
    except OutcomeUnknownError:
        return "it is unknown whether this step was made"
    except AgentMemoryError as error:
        return f"refused: {error.args[0]}"
    return None


async def _make(tree: Tree, run: Run, step: Step) -> ETag | None:
    undone = step.undone
    path = undone.path
    if undone.action == "restore":
        return (await tree.restore(run, path, undone.version or "", step.etag or ABSENT, step.cut)).etag
    etag = cast(ETag, step.etag)  # the other steps are those of a current file
    if undone.action == "delete":
        await tree.delete(run, path, etag)
        return None
    edited = await tree.edit(run, path, lambda _key, data: without_ranges(data, step.cut), when=etag)
    return edited.etag
