"""Erases the earlier versions of a file, or of all files of a directory, under every name that they were kept."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory.backend import Backend
from agent_memory.core import tree_flows
from agent_memory.core.versions.history import Histories
from agent_memory.core.versions.record import Link, Record, is_link
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run


async def forget_records(store: Backend, run: Run, histories: Histories, path: str) -> None:
    """Erase the records of the files whose last name is at or below a path, and all that were kept under such a name.

    The record of a rename goes with the history of its file: a file that was moved on keeps its history. A damaged
    record may be of any file, and is erased.
    """
    keys = [entry.key for entry in await histories.entries()]
    links = await histories.stored_links([key for key in keys if is_link(key.name)])
    records = {each.key: each.record for each in await histories.read([key for key in keys if not is_link(key.name)])}
    meant = _histories_at(path, records.values(), links.values())

    async def is_meant(key: Key) -> bool:
        if record := records.get(key):
            return record.history in meant or is_at_or_below(record.path, path)
        if link := links.get(key):
            return link.history in meant if link.history else is_at_or_below(link.target, path)
        return key in keys

    await tree_flows.forget_each(store, run, histories.directory, is_meant)


def _histories_at(path: str, records: Iterable[Record], links: Iterable[Link]) -> set[str]:
    """The histories of the files whose last name is at or below a path."""
    last: dict[str, Record] = {}
    for record in records:
        if record.history not in last or record.number > last[record.history].number:
            last[record.history] = record
    names = {history: (record.path, record.ended_by.time) for history, record in last.items()}
    for link in sorted(links, key=lambda link: link.by.time):
        if link.history is not None:
            name, since = names.setdefault(link.history, (link.source, 0.0))
            if name == link.source:
                names[link.history] = link.target, since
            continue
        for history, (name, since) in names.items():
            if is_at_or_below(name, link.source) and link.by.time >= since:
                names[history] = link.target + name[len(link.source) :], since
    return {history for history, (name, _) in names.items() if is_at_or_below(name, path)}
