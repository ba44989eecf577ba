"""What the files of one agent, and this package's data about them, amount to, by listings of bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent_memory.backend import Backend, Entry
from agent_memory.core.limits.ledger import NOTHING, Amount
from agent_memory.core.limits.settings import Limits
from agent_memory.core.receipts import receipts_of
from agent_memory.core.tree_flows import pages
from agent_memory.core.versions.record import Name, records_of
from agent_memory.key import Key
from agent_memory.runtime.run import Run

MOST_STATES: Final = 32
"""The maximum number of an agent's files whose counted state is remembered."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a memory has, and may have.

    Attributes:
        files: the number of files.
        bytes: their bytes.
        oldest: the time of the file that was changed longest ago, in POSIX seconds by the storage's clock; None if
            there is no file.
        newest: the time of the file that was changed last.
        versions: the number of kept earlier versions of the agent's files.
        version_bytes: their bytes, with their facts.
        limits: the limits of the store; None if it has none.
    """

    files: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None
    versions: int = 0
    version_bytes: int = 0
    limits: Limits | None = None


@dataclass
class Count:
    """The result of a count.

    Attributes:
        amount: the bytes and files.
        entries: the first files of the listing.
        size: the bytes of the file that was asked for; None if there is no such file.
    """

    amount: Amount = NOTHING
    entries: list[Entry] = field(default_factory=list)
    size: int | None = None

    def larger(self, other: Count) -> Count:
        """The larger one of two counts, in each number."""
        amount = Amount(*map(max, self.amount, other.amount))
        sizes = [each for each in (self.size, other.size) if each is not None]
        return replace(self, amount=amount, size=min(sizes) if len(sizes) > 1 else None)

    def add(self, entry: Entry, about: Key | None) -> None:
        self.amount = Amount(self.amount.bytes + entry.size, self.amount.files + 1)
        if len(self.entries) < MOST_STATES:
            self.entries.append(entry)
        if entry.key == about:
            self.size = entry.size


async def count_agent(
    store: Backend, run: Run, agent: str | None, about: Key | None = None, *, with_versions: bool = False
) -> Count:
    """List the files of an agent; ``with_versions`` adds the bytes of its versions and receipts."""
    found = Count()
    async for page in pages(store, run, Key.tree() if agent is None else Key.agent(agent)):
        for entry in page.entries:
            found.add(entry, about)
    if with_versions:
        kept = 0
        for tree in trees_beside(agent):
            async for page in pages(store, run, tree):
                kept += sum(entry.size for entry in page.entries)
                found.size = next((entry.size for entry in page.entries if entry.key == about), found.size)
        found.amount = Amount(found.amount.bytes + kept, found.amount.files)
    return found


def trees_beside(agent: str | None) -> tuple[Key, ...]:
    """The trees of an agent's versions and receipts."""
    return records_of(agent), receipts_of(agent)


async def usage_of(store: Backend, run: Run, top: Key, agent: str | None, limits: Limits | None) -> Usage:
    """List the files below a directory, and the kept versions of the agent's files."""
    found = kept = NOTHING
    oldest, newest = math.inf, -math.inf
    async for page in pages(store, run, top):
        found = found.plus(_amount_of(page.entries))
        times = [entry.modified for entry in page.entries]
        oldest, newest = min([oldest, *times]), max([newest, *times])
    async for page in pages(store, run, records_of(agent)):
        names = [(entry, Name.parse(entry.key)) for entry in page.entries]
        kept = kept.plus(_amount_of([entry for entry, name in names if name and not name.is_mark]))
    of_files = Usage(found.files, found.bytes, oldest, newest) if found.files else Usage()
    return replace(of_files, versions=kept.files, version_bytes=kept.bytes, limits=limits)


def _amount_of(entries: Sequence[Entry]) -> Amount:
    return Amount(sum(entry.size for entry in entries), len(entries))
