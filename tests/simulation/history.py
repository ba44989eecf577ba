"""The history of one file, and a check that one order of its operations explains all results (linearizability).

A file is a tuple of lines, or None if it does not exist; every line is unique. The check goes through the history in
time order with the set of all states that the file can have, each with the operations in progress (Wing and Gong 1993,
in the manner of Lowe 2017). An operation with an unknown outcome may take effect at any time after it began, or never.

`agent_memory.AgentMemory.write` without a precondition, and an append that such a write wiped out, may take effect
again until they return: the contract allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import Final, Literal, NamedTuple, TypeAlias

File: TypeAlias = tuple[str, ...] | None
Kind: TypeAlias = Literal["append", "prepend", "swap", "create", "write", "read"]
Result: TypeAlias = Literal["done", "nothing", "unknown"]


class HistoryStep(NamedTuple):
    """One operation of one writer, with times of the simulated clock.

    ``seen`` is the result of a read, the content that a swap expects to replace, and otherwise empty. The result
    ``nothing`` says that the operation was refused and had no effect. ``why`` is the error, if one was raised.
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
    """A possible state of the file, and the operations in progress that have taken effect in it."""

    file: File
    applied: frozenset[int] = frozenset()


def explained(history: list[HistoryStep], end: File) -> bool:
    """Whether one order of the operations, each within its time, explains all results.

    ``end`` is the file after all operations. After the last plain write, every state is a part of ``end``, because the
    other operations only add lines before or after it.
    """
    history = [*history, HistoryStep("end", "read", "", _EVER, _EVER, "done", end)]
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


def _closed(cases: set[_Case], under_way: set[int], history: list[HistoryStep], end: File | EllipsisType) -> set[_Case]:
    """The cases, and all cases that follow from them when operations in progress take effect.

    Only cases that are a part of ``end`` are kept, or all if ``end`` is ``...``.
    """
    found, fresh = set(cases), list(cases)
    while fresh:
        case = fresh.pop()
        for following in _following(case, under_way, history):
            if following not in found and (end is ... or _is_part(following.file, end)):
                found.add(following)
                fresh.append(following)
    return found


def _following(case: _Case, under_way: set[int], history: list[HistoryStep]) -> Iterator[_Case]:
    for number in under_way:
        step = history[number]
        if number in case.applied and not _again(step, case.file):
            continue
        if step.result != "nothing" and _possible(step, case.file):
            yield _Case(_EFFECT[step.kind](case.file, step.line), case.applied | {number})


def _again(step: HistoryStep, file: File) -> bool:
    if step.kind == "write":
        return file != (step.line,)
    return step.kind == "append" and step.line not in (file or ())


def _possible(step: HistoryStep, file: File) -> bool:
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
