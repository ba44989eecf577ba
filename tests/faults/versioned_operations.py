"""The operations on a store that keeps versions, with the contents that each file's versions may have afterwards."""

from __future__ import annotations

from collections.abc import Callable

from agent_memory import AgentMemory, PartialOperationError, ReadError, VersionLimits
from tests.core.versions.hostile import clock
from tests.faults.operations import NEW, OLD, OTHER, RECORD, Operation

OLDEST = "the oldest line\n" * 500
REDACTED = "(redacted)"
_BESIDE = {"other.md": OTHER}


def _written(**texts: tuple[str, ...]) -> Callable[[AgentMemory], None]:
    """Write the states of files one after the other; ``__`` in a name is a slash."""

    def prepare(memory: AgentMemory) -> None:
        memory.write("other.md", OTHER)
        for name, states in texts.items():
            for text in states:
                memory.write(f"{name.replace('__', '/')}.md", text)

    return prepare


def _with_one_version(**texts: tuple[str, ...]) -> Callable[[AgentMemory], None]:
    def prepare(memory: AgentMemory) -> None:
        _written(**texts)(memory)
        memory.versions.set_limits(VersionLimits(keep=1))

    return prepare


def _prune_in_two_hours(memory: AgentMemory) -> None:
    with clock(7200):
        memory.versions.prune()


def _changed_by_bob(memory: AgentMemory) -> None:
    _written(a=(OLDEST,))(memory)
    for path, text in (("a.md", OLD), ("b.md", RECORD)):
        memory.acting_as("bob").write(path, text)


def _undo_all_of_bob(memory: AgentMemory) -> None:
    """An undo tells in its result what it left; raise `PartialOperationError` if it left something."""
    if left := memory.versions.undo(actor="bob").left:
        raise PartialOperationError(f"left: {left[0].reason}")


def _first(memory: AgentMemory) -> str:
    """The id of the first version of ``a.md``; raises `ReadError` if its record cannot be read, so is not listed."""
    for each in memory.versions.list("a.md"):
        if not each.number:
            return each.id
    raise ReadError("the first version is not listed")


VERSIONED = {
    operation.name: operation
    for operation in (
        Operation(
            "write, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.write("a.md", NEW),
            {**_BESIDE, "a.md": NEW},
            prepare=_written(a=(OLD,)),
            kept={"a.md": ((OLD,), (OLD, NEW))},
        ),
        Operation(
            "edit, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.edit("a.md", lambda text: text.replace("old", "edited")),
            {**_BESIDE, "a.md": OLD.replace("old", "edited")},
            prepare=_written(a=(OLD,)),
            kept={"a.md": ((OLD,), (OLD, OLD.replace("old", "edited")))},
        ),
        Operation(
            "append, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.append("a.md", RECORD),
            {**_BESIDE, "a.md": OLD + RECORD},
            again={**_BESIDE, "a.md": OLD + RECORD + RECORD},
            appends="a.md",
            prepare=_written(a=(NEW, OLD)),
            kept={"a.md": ((NEW, OLD), (NEW, OLD + RECORD))},
        ),
        Operation(
            "delete, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.delete("a.md"),
            _BESIDE,
            prepare=_written(a=(OLDEST, OLD)),
            kept={"a.md": ((OLDEST, OLD), (OLDEST, OLD))},
        ),
        Operation(
            "delete_tree, versions",
            {**_BESIDE, "d/a.md": OLD, "d/b.md": NEW},
            lambda m: m.delete_tree("d"),
            _BESIDE,
            between=({**_BESIDE, "d/a.md": OLD}, {**_BESIDE, "d/b.md": NEW}),
            prepare=_written(d__a=(OLD,), d__b=(OLDEST, NEW)),
            kept={"d/a.md": ((OLD,),), "d/b.md": ((OLDEST, NEW),)},
        ),
        Operation(
            "rename, a file, versions",
            {**_BESIDE, "d/a.md": OLD},
            lambda m: m.rename("d/a.md", "n/b.md"),
            {**_BESIDE, "n/b.md": OLD},
            prepare=_written(d__a=(OLDEST, OLD)),
            kept={"d/a.md": ((OLDEST, OLD), (OLDEST,)), "n/b.md": ((), (OLDEST, OLD))},
        ),
        Operation(
            "rename, a directory, versions",
            {**_BESIDE, "d/a.md": OLD, "d/e/b.md": NEW},
            lambda m: m.rename("d", "n"),
            {**_BESIDE, "n/a.md": OLD, "n/e/b.md": NEW},
            prepare=_written(d__a=(OLDEST, OLD), d__e__b=(OLD, NEW)),
            kept={"n/a.md": ((), (OLDEST, OLD)), "n/e/b.md": ((), (OLD, NEW))},
        ),
        Operation(
            "restore, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.versions.restore("a.md", _first(m)),
            {**_BESIDE, "a.md": OLDEST},
            prepare=_written(a=(OLDEST, OLD)),
            kept={"a.md": ((OLDEST, OLD), (OLDEST, OLD, OLDEST))},
        ),
        Operation(
            "redact, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.versions.redact("a.md", _first(m), reason="a key"),
            {**_BESIDE, "a.md": OLD},
            prepare=_written(a=(OLDEST, NEW, OLD)),
            kept={"a.md": ((OLDEST, NEW, OLD), (REDACTED, NEW, OLD))},
        ),
        Operation(
            "forget, versions",
            {**_BESIDE, "a.md": OLD},
            lambda m: m.forget("a.md"),
            _BESIDE,
            prepare=_written(a=(OLDEST, NEW, OLD)),
            kept={"a.md": ((OLDEST, NEW, OLD), (NEW, OLD), (OLD,), ())},
        ),
        Operation(
            "prune, versions",
            {**_BESIDE, "a.md": RECORD},
            _prune_in_two_hours,
            {**_BESIDE, "a.md": RECORD},
            prepare=_with_one_version(a=(OLDEST, NEW, OLD, RECORD)),
            kept={"a.md": ((OLDEST, NEW, OLD, RECORD), (NEW, OLD, RECORD), (OLDEST, OLD, RECORD), (OLD, RECORD))},
        ),
        Operation(
            "undo, versions",
            {**_BESIDE, "a.md": OLD, "b.md": RECORD},
            _undo_all_of_bob,
            {**_BESIDE, "a.md": OLDEST},
            between=({**_BESIDE, "a.md": OLDEST, "b.md": RECORD}, {**_BESIDE, "a.md": OLD}),
            prepare=_changed_by_bob,
            kept={"a.md": ((OLDEST, OLD), (OLDEST, OLD, OLDEST)), "b.md": ((RECORD,), (RECORD,))},
        ),
    )
}


def contents(memory: AgentMemory, path: str) -> tuple[str, ...]:
    """The contents of a file's versions, oldest first, with the present one."""
    return tuple(
        REDACTED
        if each.reason is not None
        else memory.read(path)
        if each.ended_by is None
        else memory.versions.read(path, each.id)
        for each in reversed(memory.versions.list(path))
    )


def wrong_versions(memory: AgentMemory, operation: Operation, *, is_done: bool) -> list[str]:
    """The files with versions that are neither those before the operation nor those after it."""
    faults = []
    for path, allowed in operation.kept.items():
        found = contents(memory, path)
        if found not in (allowed[-1:] if is_done else allowed):
            faults.append(f"{path} has versions of {[len(text) for text in found]} characters")
    return faults
