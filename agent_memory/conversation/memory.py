"""`ConversationMemory`: a history, a memory document and a schedule, as three files of one `AgentMemory`.

File names and line format are those of an existing agent project, so that its directory opens without conversion.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from agent_memory.conversation.compacting import Compaction, CompactResult
from agent_memory.conversation.jobs import CronJob, CronJobs, job_values, load_jobs, saved_jobs
from agent_memory.conversation.messages import History, Message, Skipped
from agent_memory.conversation.search import HistorySearch, Matches
from agent_memory.conversation.selection import MessageSelection
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.errors import AgentMemoryFileNotFoundError, ConflictError, ReadError
from agent_memory.memory import AgentMemory, AsyncAgentMemory, WriteResult
from agent_memory.reading.lines import Lines, backwards, forwards, lines_at
from agent_memory.reading.reader import Reader
from agent_memory.tools._protected import HISTORY as HISTORY
from agent_memory.tools._protected import JOBS as JOBS

MEMORY: Final = "workspace/MEMORY.md"
_DIRECTORIES: Final = ("", JOBS.rpartition("/")[0])
"""The directories of the files that tools cannot change."""

_MARK = 1024
"""The bytes before a batch that must be unchanged when it is read."""
_log = logging.getLogger("agent_memory")


class ConversationMemory:
    """The memory of an agent loop: its history, memory document and scheduled jobs.

    Args:
        memory: the tree that holds ``history.jsonl``, ``workspace/MEMORY.md`` and ``cron/jobs.json``.
        system_messages: whether to return stored messages of the roles ``system`` and ``developer``. Otherwise they
            are left out, counted and logged: a model takes them for the program's own words, but every writer of the
            file can add them.

    Methods raise the errors of `AgentMemory`; a missing file counts as empty. `OperationDenied` refuses a conversation
    in a directory that is marked as holding none, or below one; see `agent_memory.tools.MemoryTool`.
    """

    def __init__(self, memory: AgentMemory, *, system_messages: bool = False) -> None:
        self._async = AsyncConversationMemory(sync_facade(memory), system_messages=system_messages)

    def append_message(self, message: Message) -> None:
        """Append one message to the history; see `append_messages`."""
        self.append_messages([message])

    def append_messages(self, messages: Iterable[Message]) -> None:
        """Append messages, for example an exchange, in one append: all or none, with no others between them.

        If a crash left an unfinished line, the messages begin on a new line.

        Raises:
            InvalidContentError: a message cannot be encoded as JSON, or its line is over 16 MiB; nothing was written.
        """
        step(self._async.append_messages(messages))

    def load_history(self, last_n: int | None = None) -> History:
        """Load the last ``last_n`` messages, oldest first; None loads all, 0 or less none.

        The history is read from its end in blocks: the cost depends on ``last_n``, not on the history's size. Lines
        without a message are skipped, counted in the result, and logged in one warning.
        """
        return step(self._async.load_history(last_n))

    def iter_history(self, skipped: Skipped | None = None) -> Iterator[Message]:
        """Iterate over all messages, oldest first, in bounded memory; each block is a separate operation.

        Args:
            skipped: counts the lines without a message during the iteration.

        Raises:
            ConflictError: the history was rewritten or deleted during the iteration; appends raise nothing.
        """
        messages = self._async.iter_history(skipped)
        while message := step(_next(messages)):
            yield message

    def search(self, query: str, *, since: float | None = None, max_results: int = 10) -> Matches:
        """Find the earliest messages of users and assistants that contain a text, ignoring case.

        Each match includes its neighbours of any role. The result counts the damaged lines.

        Args:
            query: the text, not empty.
            since: POSIX seconds; older messages, and those without a time, count as absent.
            max_results: the most matches.
        """
        return step(self._async.search(query, since=since, max_results=max_results))

    def compact(
        self, keep_last: int | None = None, older_than: timedelta | None = None, archive_to: str | None = None
    ) -> CompactResult:
        """Remove the oldest lines of the history, and first write them to an archive if its name is given.

        Lines that others append meanwhile stay, and so does the last message. No cut separates a tool call from its
        result; rather more lines stay. A line without a message goes with the message before it. After an interruption,
        the next call with the same archive first completes the removal; each line is archived once. Both files are read
        and written as a whole.

        Args:
            keep_last: the number of messages that stay; `load_history` counts them in the same way.
            older_than: the age of the messages to remove, by their timestamps; the first newer one and all after it
                stay. A message without a time goes with the message before it, at the beginning with the first one that
                has a time. With ``keep_last``, only lines are removed that both arguments let go.
            archive_to: the file of the same tree to which the lines are added.

        Raises:
            ConflictError: other writers were faster until the timeout.
            FileTooLargeError: the history or the archive has more than the backend's ``max_bytes``.
            InvalidContentError: a plugin changed the last line of the archive; nothing was removed.
            TypeError: ``older_than`` is no timedelta.
            ValueError: neither ``keep_last`` nor ``older_than``, one of them is not positive, or ``archive_to`` is a
                file of the conversation.
        """
        return step(self._async.compact(keep_last=keep_last, older_than=older_than, archive_to=archive_to))

    def load_global_memory(self) -> str:
        """Load the memory document, ``""`` if there is none."""
        return step(self._async.load_global_memory())

    def save_global_memory(self, content: str) -> WriteResult:
        """Replace the memory document in one atomic step."""
        return step(self._async.save_global_memory(content))

    def load_cron_jobs(self) -> CronJobs:
        """Load the scheduled jobs.

        Malformed jobs are left out, counted in the result, and logged in one warning. If the file is not a JSON list,
        there are no jobs, with a warning.
        """
        return step(self._async.load_cron_jobs())

    def save_cron_jobs(self, jobs: Iterable[CronJob]) -> WriteResult:
        """Replace the scheduled jobs in one atomic step; malformed jobs of the old file stay in it.

        Raises:
            InvalidContentError: a job cannot be encoded as JSON, or a field has the wrong type; nothing was written.
            ReadError: the old file is not a JSON list, so a person has to look at it first; nothing was written.
        """
        return step(self._async.save_cron_jobs(jobs))


class AsyncConversationMemory:
    """`ConversationMemory` for async callers, and with a facade of a sync memory its logic."""

    def __init__(self, memory: AsyncAgentMemory, *, system_messages: bool = False) -> None:
        self._memory = memory._of_conversation(_DIRECTORIES)
        self._system = system_messages

    async def append_message(self, message: Message) -> None:
        """See `ConversationMemory.append_message`."""
        await self.append_messages([message])

    async def append_messages(self, messages: Iterable[Message]) -> None:
        """See `ConversationMemory.append_messages`."""
        lines = "".join(message.to_line() + "\n" for message in messages)
        if lines:
            await self._memory.append(HISTORY, lines, separator="\n")

    async def load_history(self, last_n: int | None = None) -> History:
        """See `ConversationMemory.load_history`."""
        if last_n is not None and last_n <= 0:
            return History()
        skipped = Skipped()

        async def work(reader: Reader) -> list[Message]:
            return await _messages(reader, last_n, skipped, self._system)

        try:
            messages = await self._memory.scan(HISTORY, work)
        except AgentMemoryFileNotFoundError:
            return History()
        _warn(skipped)
        return History(messages, skipped.count, skipped.preview, skipped.withheld)

    async def iter_history(self, skipped: Skipped | None = None) -> AsyncIterator[Message]:
        """See `ConversationMemory.iter_history`."""
        last = _Batch()
        skipped = skipped or Skipped()
        while batch := await self._next_batch(last, skipped):
            for message in batch.messages:
                yield message
            last = batch
        _warn(skipped)

    async def _next_batch(self, last: _Batch, skipped: Skipped) -> _Batch | None:
        """Read the batch after ``last``; None at the end of the file, or before the first batch if there is no file.

        Raises:
            ConflictError: the file was rewritten or deleted after ``last`` was read.
        """

        async def work(reader: Reader) -> _Batch | None:
            if last.mark and await reader.read(last.end - len(last.mark), last.end) != last.mark:
                raise ConflictError("the file was rewritten while it was read", path=HISTORY)
            lines = await lines_at(reader, last.end)
            if lines is None:
                return None
            begin = max(lines.start, lines.end - _MARK)
            mark = lines.data[-_MARK:] if lines.data else await reader.read(begin, lines.end)
            return _Batch(_parsed(lines, skipped, self._system), lines.end, mark)

        try:
            return await self._memory.scan(HISTORY, work)
        except AgentMemoryFileNotFoundError:
            if last.end:
                raise ConflictError("the file was deleted while it was read", path=HISTORY) from None
            return None

    async def search(self, query: str, *, since: float | None = None, max_results: int = 10) -> Matches:
        """See `ConversationMemory.search`."""
        return await self._search(HistorySearch(query, since=since, max_results=max_results))

    async def _search(self, search: HistorySearch) -> Matches:
        try:
            return await self._memory.scan(HISTORY, search.run)
        except AgentMemoryFileNotFoundError:
            return Matches()

    async def compact(
        self, keep_last: int | None = None, older_than: timedelta | None = None, archive_to: str | None = None
    ) -> CompactResult:
        """See `ConversationMemory.compact`."""
        selection = MessageSelection.of(keep_last, older_than, system=self._system)
        if isinstance(archive_to, str) and PurePosixPath(archive_to).as_posix() in (HISTORY, JOBS, MEMORY):
            raise ValueError(f"archive_to must be another file than those of the conversation, not {archive_to!a}")
        return await Compaction(self._memory, HISTORY, selection, archive_to).run()

    async def load_global_memory(self) -> str:
        """See `ConversationMemory.load_global_memory`."""
        try:
            return await self._memory.read(MEMORY)
        except AgentMemoryFileNotFoundError:
            return ""

    async def save_global_memory(self, content: str) -> WriteResult:
        """See `ConversationMemory.save_global_memory`."""
        return await self._memory.write(MEMORY, content)

    async def load_cron_jobs(self) -> CronJobs:
        """See `ConversationMemory.load_cron_jobs`."""
        try:
            jobs = load_jobs(await self._memory.read_bytes(JOBS))
        except AgentMemoryFileNotFoundError:
            return CronJobs()
        except ValueError as error:
            _log.warning("%s: %s; no jobs were loaded", JOBS, error)
            return CronJobs()
        if jobs.skipped:
            _log.warning("%s: %d malformed jobs were left out", JOBS, jobs.skipped)
        return jobs

    async def save_cron_jobs(self, jobs: Iterable[CronJob]) -> WriteResult:
        """See `ConversationMemory.save_cron_jobs`."""
        values = job_values(jobs)

        def change(old: bytes) -> bytes:
            try:
                return saved_jobs(values, old)
            except ValueError as error:
                advice = "nothing was written: repair the file, or move it to another name, and save again"
                raise ReadError(f"{error}; {advice}", path=JOBS) from None

        return await self._memory.edit_bytes(JOBS, change, missing=b"[]")


class _Batch(NamedTuple):
    """Some messages of a history; the next batch begins at offset ``end``, directly after the bytes ``mark``."""

    messages: Sequence[Message] = ()
    end: int = 0
    mark: bytes = b""


async def _next(messages: AsyncIterator[Message]) -> Message | None:
    return await anext(messages, None)


def _parsed(lines: Lines, skipped: Skipped, system: bool) -> list[Message]:
    if lines.too_long:
        skipped.add(lines.too_long)
    return [message for line in lines.data.split(b"\n") if (message := skipped.parse(line, system=system))]


async def _messages(reader: Reader, last_n: int | None, skipped: Skipped, system: bool) -> list[Message]:
    if last_n is None:
        return [message async for lines in forwards(reader) for message in _parsed(lines, skipped, system)]
    found: list[Message] = []
    async for lines in backwards(reader):
        if lines.too_long:
            skipped.add(lines.too_long)
        for line in reversed(lines.data.split(b"\n")):
            if message := skipped.parse(line, system=system):
                found.append(message)
                if len(found) == last_n:
                    return found[::-1]
    return found[::-1]


def _warn(skipped: Skipped) -> None:
    if skipped.count:
        _log.warning("%s: %d lines hold no message; one begins: %s", HISTORY, skipped.count, skipped.preview)
    if skipped.withheld:
        advice = "ConversationMemory(system_messages=True) adds them"
        _log.warning("%s: %d system messages were left out; %s", HISTORY, skipped.withheld, advice)
