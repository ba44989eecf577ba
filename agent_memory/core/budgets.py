"""`nearly_full`: the budget or limit that a file or its agent has nearly used up, for the answer of a model's tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from agent_memory.backend import Backend
from agent_memory.core.call import Call
from agent_memory.core.flows import Effect
from agent_memory.core.limits.settings import MOST_FILES, TREE, Budget, Limits
from agent_memory.core.tree import Tree
from agent_memory.core.tree_flows import pages
from agent_memory.key import Key
from agent_memory.key.patterns import matches, segments
from agent_memory.runtime.run import Run

WARN_PERCENT: Final = 90
"""From this part of a budget or limit on there is a warning."""
MOST_COUNTED: Final = 1 << 20
"""The bytes at the beginning of a file in which lines are counted, so that one read is enough."""


class Amounts(NamedTuple):
    """What a file or an agent has; ``is_part``: there may be more that was not counted."""

    bytes: int
    lines: int = 0
    files: int = 0
    is_part: bool = False


class NearlyFull(NamedTuple):
    """A budget or limit that is nearly used up, or exceeded.

    Attributes:
        used: what was counted.
        most: the budget or limit.
        unit: "bytes", "lines" or "files".
        of_agent: whether it is one of the whole agent, and not of the file.
        at_least: whether there may be more than ``used``.
    """

    used: int
    most: int
    unit: str
    of_agent: bool
    at_least: bool


async def nearly_full(run: Run, tree: Tree, path: str | None, size: int | None, text: str | None) -> NearlyFull | None:
    """Return the fullest budget or limit of a changed file, else that of its agent; None if none is nearly full.

    It costs a request only for a budget: one read to count lines, or a listing of at most `MOST_FILES`.

    Args:
        run: runs the requests.
        tree: the tree of the file.
        path: the file; None if it was deleted.
        size: its bytes, if known.
        text: its whole text, if known.
    """
    limits = tree.settings.known_limits
    if limits is None:
        return None
    of_file = None if path is None else await _of_file(run, tree, limits, path, size, text)
    return of_file or await _of_agent(run, tree, limits)


async def _of_file(
    run: Run, tree: Tree, limits: Limits, path: str, size: int | None, text: str | None
) -> NearlyFull | None:
    name = segments(tree.top.join(path).path)
    budgets = [budget for pattern, budget in limits.warn_at.items() if matches(segments(pattern), name)]
    needs_lines = text is None and any(budget.lines for budget in budgets)
    if budgets and (size is None or needs_lines):
        found = await _counted(run, tree, path)
    elif size is not None:
        found = Amounts(size, _lines(text or ""))
    else:
        return None
    if limits.file_bytes is not None:
        budgets.append(Budget(bytes=limits.file_bytes))
    return _fullest(found, budgets, of_agent=False)


async def _of_agent(run: Run, tree: Tree, limits: Limits) -> NearlyFull | None:
    if limits.of_agents and (known := tree.quotas.of(tree.agent).known()):
        found = Amounts(known.bytes, files=known.files)
        if full := _fullest(found, [Budget(bytes=limits.agent_bytes, files=limits.agent_files)], of_agent=True):
            return full
    budget = limits.warn_at.get(TREE)
    return _fullest(await _listed(run, tree), [budget], of_agent=True) if budget else None


def _fullest(found: Amounts, budgets: Iterable[Budget], *, of_agent: bool) -> NearlyFull | None:
    full = list(_near(found, budgets, of_agent))
    return max(full, key=lambda each: each.used / each.most, default=None)


def _near(found: Amounts, budgets: Iterable[Budget], of_agent: bool) -> Iterator[NearlyFull]:
    for budget in budgets:
        for unit, most in budget.amounts():
            used: int = getattr(found, unit)
            if used * 100 >= most * WARN_PERCENT:
                is_part = found.is_part and (of_agent or unit == "lines")
                yield NearlyFull(used, most, unit, of_agent, is_part)


async def _counted(run: Run, tree: Tree, path: str) -> Amounts:
    async def work(store: Backend, run: Run, c: Call) -> tuple[Amounts, Effect]:
        found = await run.call(store.read, c.key, 0, MOST_COUNTED)
        lines = _lines(found.data.decode(errors="replace"))
        return Amounts(found.size, lines, is_part=len(found.data) < found.size), Effect(size=found.size)

    return await tree.find(run, "read", path, work)


async def _listed(run: Run, tree: Tree) -> Amounts:
    async def work(store: Backend, run: Run, _: Call) -> tuple[Amounts, Effect]:
        found, top = Amounts(0), Key.tree() if tree.agent is None else Key.agent(tree.agent)
        async for page in pages(store, run, top, limit=MOST_FILES):
            size = found.bytes + sum(entry.size for entry in page.entries)
            found = Amounts(size, files=found.files + len(page.entries), is_part=page.next is not None)
            if found.files >= MOST_FILES:
                break
        return found, Effect(files=found.files)

    return await tree.find(run, "list", "", work, directory=True)


def _lines(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))
