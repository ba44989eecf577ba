"""Makes the steps of an undo: each is an operation of its own, with its hooks, on the state that was planned for."""

from __future__ import annotations

from agent_memory.backend import ABSENT
from agent_memory.core.precondition import ANY_STATE, Precondition
from agent_memory.core.tree import Tree
from agent_memory.core.versions.attribution import without
from agent_memory.core.versions.undo import Left, RecordedAppends, Selection, Step, Undone, UndoResult
from agent_memory.core.versions.undo_plan import CHANGED_MEANWHILE
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    OutcomeUnknownError,
    without_top,
)
from agent_memory.runtime.run import Run


async def undo(
    tree: Tree, run: Run, selection: Selection, appends: RecordedAppends | None, dry_run: bool
) -> UndoResult:
    """Take back what the selected operations did; see `agent_memory.AgentMemory.undo`."""
    plan = await tree.plan_undo(run, selection, appends)
    if plan is None:
        return UndoResult((), ())
    done: list[Undone] = []
    left = [Left(without_top(path, tree.top.path), reason) for path, reason in plan.left]
    stopped = set[str]()
    for step in plan.steps:
        step = step.below(tree.top.path)
        path = step.undone.path
        reason = None if dry_run or path in stopped else await _reason_to_leave(tree, run, step)
        if reason:
            stopped.add(path)
            left.append(Left(path, reason))
        elif path not in stopped:
            done.append(step.undone)
    return UndoResult(tuple(done), tuple(left))


async def _reason_to_leave(tree: Tree, run: Run, step: Step) -> str | None:
    """Make a step; return why it was not made."""
    try:
        await _make(tree, run, step)
    except (ConflictError, AgentMemoryFileNotFoundError):
        return CHANGED_MEANWHILE
    except FileAlreadyExistsError:
        return CHANGED_MEANWHILE if step.undone.new_path is None else f"{step.undone.new_path!r} is taken"
    except OutcomeUnknownError:
        return "it is unknown whether this step was made"
    except AgentMemoryError as error:
        return f"refused: {error.args[0]}"
    return None


async def _make(tree: Tree, run: Run, step: Step) -> None:
    path, action, version, new_path, _ = step.undone
    expected = ANY_STATE if step.expected is None else Precondition(version=step.expected)
    if action == "restore":
        await tree.restore(run, new_path or path, version or "", step.expected or ABSENT, step.cut, path)
    elif action == "rename":
        await tree.rename(run, path, new_path or "")
    elif action == "delete":
        await tree.delete(run, path, expected)
    else:
        await tree.edit(run, path, lambda _key, data: without(data, step.cut), expected=expected)
