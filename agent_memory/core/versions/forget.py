"""Erases the earlier versions of a file, or of all files of a directory, under all names that the files had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from agent_memory.backend import Backend
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.record import Link, Name, Record, is_link
from agent_memory.core.versions.states import current_file
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run


class ForgetPlan(NamedTuple):
    """The records to erase with a file, or with the files of a directory.

    Attributes:
        path: the file or the directory.
        histories: the histories of the files, of current and of deleted ones.
        others: the names of the records of other histories.
    """

    path: str
    histories: set[str]
    others: set[str]


async def plan_forget(store: Backend, run: Run, histories: Histories, path: str) -> ForgetPlan:
    """Find the histories of the files whose last name is at or below a path, before the files are erased.

    Raises:
        FileOperationError: the storage fails to read a record that may be of one of these files. Unreadable records of
            other files are no error if ``path`` is a current file.
    """
    keys = [entry.key for entry in await histories.entries()]
    links = await histories.read_links(of_renames := [key for key in keys if is_link(key.name)])
    histories.require_read(of_renames)
    records = [each.record for each in await histories.read([key for key in keys if not is_link(key.name)])]
    names, last = _names(records, links)
    if (others := histories.unreadable_of_others(last)) and not await current_file(store, run, histories.key(path)):
        histories.require_read(others)
    candidates = {history for history, name in last.items() if is_at_or_below(name, path)}

    async def lives_elsewhere(history: str) -> str | None:
        """Return the history if a file elsewhere has it, because a recorded rename was not made."""
        for name in names[history]:
            if not is_at_or_below(name, path):
                with renewed_deadline(run.now()):
                    found = await current_file(store, run, histories.key(name))
                if found and found.origin.id and found.origin.history == history:
                    return history
        return None

    elsewhere = await run.map(lives_elsewhere, list(candidates), tree_flows.AT_ONCE)
    meant = candidates - set(filter(None, elsewhere))
    return ForgetPlan(path, meant, {record.path for record in records if record.history not in meant})


async def forget_records(store: Backend, run: Run, histories: Histories, plan: ForgetPlan) -> None:
    """Erase all records of histories, the records that other files left under the same names, and the renames.

    The record of a rename stays while a history that stays needs it: a file that was moved away keeps its history.
    """
    path = plan.path

    async def is_meant(key: Key) -> bool:
        if is_link(key.name):
            link = next(iter(await histories.read_links([key])), None)
            histories.require_read([key])
            if link is None or link.history:
                return link is None or link.history in plan.histories
            is_needed = any(is_at_or_below(name, link.source) for name in plan.others)
            return is_at_or_below(link.target, path) and not is_needed
        if (name := Name.parse(key.name)) and name.history in plan.histories:
            return True
        stored = next(iter(await histories.read([key])), None)
        return is_at_or_below(stored.record.path, path) if stored else histories.is_left_out(key, path)

    await tree_flows.forget_each(store, run, histories.directory, is_meant)


def _names(records: Iterable[Record], links: Iterable[Link]) -> tuple[dict[str, set[str]], dict[str, str]]:
    """All names of each history, and the last one; a file that was deleted gets no other name."""
    names: dict[str, set[str]] = defaultdict(set)
    newest: dict[str, Record] = {}
    for record in records:
        names[record.history].add(record.path)
        if record.history not in newest or record.number > newest[record.history].number:
            newest[record.history] = record
    last = {history: record.path for history, record in newest.items()}
    for link in sorted(links, key=lambda link: link.by.time):
        for history in list(last) if link.history is None else [link.history]:
            ended = newest.get(history)
            name = last.setdefault(history, link.source)
            is_moved = is_at_or_below(name, link.source) if link.history is None else name == link.source
            if is_moved and not (ended and (ended.next is None or link.by.time < ended.ended_by.time)):
                last[history] = link.target + name[len(link.source) :]
            names[history] |= {last[history]} if link.history is None else {link.source, link.target}
    return names, last
