"""`Forgetting`: finds and erases the earlier versions of a file, or of the files of a directory.

No setting, key or clock decides what is erased, and nothing is written. A call that was interrupted is completed by a
repetition, because what it uses to find the records goes last: of each history the older records first, then the newest
one, then the marks, and after all of them the file itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from agent_memory.backend import Backend
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.core import tree_flows
from agent_memory.core.versions.find import Histories
from agent_memory.core.versions.reader import ListedRecord
from agent_memory.core.versions.record import OF_DIRECTORIES, Mark, Name
from agent_memory.core.versions.states import current_file
from agent_memory.errors import WriteError
from agent_memory.key import Key, is_at_or_below
from agent_memory.runtime.run import Run

_MOST_LISTINGS: Final = 10


class Forgotten(NamedTuple):
    """The earlier versions that a `forget` erases: their number, and how many of them are under which other names."""

    versions: int
    other_names: tuple[tuple[str, int], ...]


class Forgetting:
    """The erasing of the earlier versions of one file, or of the files of one directory.

    Args:
        store: the storage, not a `VersionedStore`.
        run: runs its primitives.
        histories: the records.
        key: the file or directory.

    Attributes:
        files: the number of current files; known after `plan`.
        unknown: the number of records that stay because they are damaged, so that nothing tells their file.
        has_erased: whether something was erased.
    """

    def __init__(self, store: Backend, run: Run, histories: Histories, key: Key) -> None:
        self._store = store
        self._run = run
        self._histories = histories
        self._key = key
        self._paths: dict[str, str | None] = {}
        """The path of each digest that was looked up; None if no record of it can be read."""
        self._meant: set[str] = set()
        """The histories that are erased as a whole."""
        self._found: list[ListedRecord] = []
        self._is_file = False
        self.files = 0
        self.unknown = 0
        self.has_erased = False

    async def plan(self) -> None:
        """Find what is to be erased, before anything is.

        Raises:
            FileOperationError: the storage fails to read a record that may be of one of these files.
        """
        history = await self._current_history(self._key)
        self._is_file = history is not None
        files = () if self._is_file else (await tree_flows.list_all(self._store, self._run, self._key)).entries
        keys = [entry.key for entry in files]
        self.files = 1 if self._is_file else len(keys)
        found = [history, *await self._run.map(self._current_history, keys, tree_flows.AT_ONCE)]
        self._meant |= {history for history in found if history}
        self._paths |= {self._histories.place(key.path): key.path for key in (self._key, *keys)}
        self._found = await self._selected()

    @property
    def forgotten(self) -> Forgotten:
        """The versions that were found so far."""
        versions = [each.name.path for each in self._found if not each.name.is_mark]
        others = Counter(self._paths.get(place) or "?" for place in versions if not self._is_meant(place))
        return Forgotten(len(versions), tuple(sorted(others.items())))

    async def erase(self) -> None:
        """Erase the records and marks of the plan."""
        await self._erase(self._found)

    async def erase_rest(self) -> None:
        """Erase what other writers added since the plan, until a listing shows nothing.

        Raises:
            WriteError: other writers add records as fast as they are erased, or the storage still lists an erased one.
        """
        for _ in range(_MOST_LISTINGS):
            if not (selected := await self._selected()):
                await self._histories.erase_unlisted(self._is_selected)
                return
            self._found += selected
            await self._erase(selected)
        raise WriteError("the storage still lists versions that it said it had erased", path=self._key.path)

    async def _erase(self, selected: list[ListedRecord]) -> None:
        async def one(each: ListedRecord) -> None:
            with renewed_deadline(self._run.now()):
                erased = await tree_flows.forget(self._store, self._run, each.key)
            self.has_erased |= bool(erased.files)

        for phase in self._phases(selected):
            await self._run.map(one, phase, tree_flows.AT_ONCE)

    async def _current_history(self, key: Key) -> str | None:
        with renewed_deadline(self._run.now()):
            found = await current_file(self._store, self._run, key)
        return found.origin.history if found else None

    async def _selected(self) -> list[ListedRecord]:
        """The records to erase, and the marks, in a new listing."""
        listed = await self._histories.names()
        if not self._key.path:
            return listed
        if not self._is_file:
            await self._look_up_paths(listed)
            self._histories.require_read(each.key for each in listed if self._paths[each.name.path] is None)
        for history, newest in _newest(listed).items():
            if any(self._is_meant(each.name.path) for each in newest):
                self._meant.add(history)
        self._meant |= await self._marked(listed)
        found = [each for each in listed if self._is_selected(each.name)]
        stays = {each.name.path for each in listed} - {each.name.path for each in found}
        if not self._is_file:
            self.unknown = sum(each.name.path in stays and self._paths[each.name.path] is None for each in listed)
        await self._look_up_paths(found)
        return found

    def _is_selected(self, name: Name) -> bool:
        return name.history in self._meant or self._is_meant(name.path)

    def _is_meant(self, place: str) -> bool:
        """Whether a digest is that of a path to forget."""
        if not self._key.path:
            return True  # the whole tree
        path = self._paths.get(place)
        return path is not None and is_at_or_below(path, self._key.path)

    async def _look_up_paths(self, listed: Iterable[ListedRecord]) -> None:
        """Read one record of each path that is not known yet: of a directory, the digest does not tell the files."""
        unknown = defaultdict[str, list[ListedRecord]](list)
        for each in listed:
            if each.name.path not in self._paths:
                unknown[each.name.path].append(each)
        found = await self._run.map(self._path_of, list(unknown.values()), tree_flows.AT_ONCE)
        self._paths |= dict(zip(unknown, found, strict=True))

    async def _path_of(self, those: list[ListedRecord]) -> str | None:
        for each in those:
            if each.name.is_mark:
                if mark := await self._histories.read_mark(each):
                    return mark.target
            elif stored := await self._histories.read([each]):
                return stored[0].record.path
        return None

    async def _marked(self, listed: Sequence[ListedRecord]) -> set[str]:
        """The histories that a mark leads to a path to forget, if no file with another name has them."""
        marks = [each for each in listed if each.name.is_mark]
        of_directories = [each for each in marks if each.name.history == OF_DIRECTORIES]
        of_files = [each for each in marks if each.name.history != OF_DIRECTORIES]
        names = defaultdict[str, set[str]](set)
        for each in listed:
            if path := self._paths.get(each.name.path):
                names[each.name.history].add(path)
        led: set[str] = set()
        known = -1
        while (count := sum(map(len, names.values()))) > known:  # a name may lead to others by an earlier mark
            known = count
            for each in of_directories:
                if mark := await self._histories.read_mark(each):
                    self._follow(mark, names)
                    led |= {history for history, place in mark.files if self._is_meant(place)}
            led |= {each.name.history for each in of_files if self._is_meant(each.name.path)}
            for each in of_files:
                if each.name.history in led and (mark := await self._histories.read_mark(each)):
                    names[each.name.history] |= {mark.source, mark.target}
        self._histories.require_read(each.key for each in marks)
        return {history for history in led - self._meant if not await self._lives_elsewhere(history, names[history])}

    def _follow(self, mark: Mark, names: defaultdict[str, set[str]]) -> None:
        """Find the names of the files in the mark of a directory, from their other names."""
        for history, place in mark.files:
            for path in {*map(mark.new_path, names[history])} - names[history]:
                if path is not None and self._histories.place(path) == place:
                    self._paths[place] = path
                    names[history].add(path)

    async def _lives_elsewhere(self, history: str, paths: Iterable[str]) -> bool:
        for path in paths:
            is_other = not is_at_or_below(path, self._key.path)
            if is_other and await self._current_history(self._histories.key(path)) == history:
                return True
        return False

    def _phases(self, selected: list[ListedRecord]) -> Iterator[list[ListedRecord]]:
        """The records in the order in which they are erased."""
        newest = {each.key for those in _newest(selected).values() for each in those}
        marks = [each for each in selected if each.name.is_mark]
        last = [each for each in selected if each.key in newest]
        yield [each for each in selected if each.key not in newest and not each.name.is_mark]
        yield [each for each in last if not self._is_meant(each.name.path)]
        yield [each for each in last if self._is_meant(each.name.path)]
        yield marks


def _newest(listed: Iterable[ListedRecord]) -> dict[str, list[ListedRecord]]:
    """The records of the last state of each history; several if a copy of the file went on for itself."""
    found: dict[str, list[ListedRecord]] = {}
    for each in listed:
        if each.name.is_mark:
            continue
        others = found.get(each.name.history)
        if not others or each.name.number > others[0].name.number:
            found[each.name.history] = [each]
        elif each.name.number == others[0].name.number:
            others.append(each)
    return found
