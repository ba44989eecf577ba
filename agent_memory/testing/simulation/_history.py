"""What the writers of one file did and saw, and whether one order of it explains everything (linearizability).

A file is a tuple of lines, or None where there is none; every writer's lines are unlike all others. The check walks the
history in time with the set of all states the file can be in, each with what is under way (Wing and Gong 1993, in
the manner of Lowe 2017). An operation that was left unsettled may take effect at any time after it began, or never.

`agent_memory.AgentMemory.write` without a precondition, and an append that such a write wiped out, may take effect
again until they return: the contract says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Final, Literal, NamedTuple, TypeAlias

File: TypeAlias = tuple[str, ...] | None
Kind: TypeAlias = Literal["append", "prepend", "swap", "create", "write", "read"]
Result: TypeAlias = Literal["done", "nothing", "unknown"]


class Step(NamedTuple):
    """One operation of one writer; times by the simulated clock.

    ``seen`` is what a read returned, what a swap expected to replace, and empty otherwise; ``nothing`` as a result says
    that it was refused and had no effect; ``why`` is the error, if one was raised.
    """

    writer: str
    kind: Kind
    line: str
    began: float
    ended: float
    result: Result
    seen: File = ()
    why: str = ""

    def __str__(self) -> str:
        times = (
            f"{self.began:9.3f} - {self.ended:9.3f}" if self.ended < float("inf") else f"{self.began:9.3f} -   crash  "
        )
        shown = f" {self.seen}" if self.kind in ("read", "swap") else ""
        return f"{times}  {self.writer}  {self.kind} {self.line}{shown}: {self.result} {self.why}".rstrip()


_EVER: Final = 1e9


class _Case(NamedTuple):
    """One state the file may be in, and which of the operations under way have taken effect."""

    file: File
    applied: frozenset[int] = frozenset()


def explained(history: list[Step], end: File) -> bool:
    """Whether one order of the operations of one file, each within its time, explains all that was seen.

    ``end`` is the file when nothing was under way any more. Unless it was wiped out since, a file is a part of it:
    all that happens to it is that lines are put before and behind.
    """
    history = [*history, Step("end", "read", "", _EVER, _EVER, "done", end)]
    wiped_until = max((step.ended for step in history if step.kind == "write"), default=-1.0)
    events = sorted(
        [(step.began, 0, number) for number, step in enumerate(history)]
        + [(step.ended, 1, number) for number, step in enumerate(history) if step.result != "unknown"]
    )
    cases, under_way = {_Case(None)}, set[int]()
    for at, over, number in events:
        if not over:
            under_way.add(number)
            continue
        cases = _closed(cases, under_way, history, ... if at <= wiped_until else end)
        cases = {case for case in cases if (number in case.applied) == (history[number].result == "done")}
        under_way.discard(number)
        cases = {_Case(case.file, case.applied - {number}) for case in cases}
        if not cases:
            return False
    return True


def _is_part(file: File, whole: File) -> bool:
    if file is None or whole is None:
        return file is None
    return any(whole[start : start + len(file)] == file for start in range(len(whole) - len(file) + 1))


def _closed(cases: set[_Case], under_way: set[int], history: list[Step], end: File | EllipsisType) -> set[_Case]:
    """The cases, and all that follow from them when operations that are under way take effect.

    ``end`` is what they have to be a part of, or ``...``.
    """
    found, fresh = set(cases), list(cases)
    while fresh:
        case = fresh.pop()
        for following in _following(case, under_way, history):
            if following not in found and (end is ... or _is_part(following.file, end)):
                found.add(following)
                fresh.append(following)
    return found


def _following(case: _Case, under_way: set[int], history: list[Step]) -> Iterator[_Case]:
    for number in under_way:
        step = history[number]
        if number in case.applied and not _again(step, case.file):
            continue
        if step.result != "nothing" and _possible(step, case.file):
            yield _Case(_EFFECT[step.kind](case.file, step.line), case.applied | {number})


def _again(step: Step, file: File) -> bool:
    if step.kind == "write":
        return file != (step.line,)
    return step.kind == "append" and step.line not in (file or ())


def _possible(step: Step, file: File) -> bool:
    if step.kind in ("read", "swap"):
        return file == step.seen
    if step.kind == "create":
        return file is None
    return step.kind != "prepend" or file is not None


_EFFECT: dict[Kind, Callable[[File, str], File]] = {
    "append": lambda file, line: (*(file or ()), line),
    "prepend": lambda file, line: (line, *(file or ())),
    "swap": lambda file, line: (*(file or ()), line),
    "create": lambda _, line: (line,),
    "write": lambda _, line: (line,),
    "read": lambda file, _: file,
}
