"""The state of the audit log's chain, and files against the log: verified in a thread, one at a time, on request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from agent_memory.audit import LogLocation, Verdict, verify
from agent_memory.audit.files import FileFinding, FileVerifier, Progress
from agent_memory.errors import AgentMemoryError
from agent_memory.runtime.threads import in_thread

T = TypeVar("T")
MOST_FINDINGS: Final = 200
"""The findings that a page shows."""
_WAIT: Final = 1.0


class _EndedError(Exception):
    """The pages end, and with them a verification."""


class WatchedProgress(Progress):
    """The progress of a verification that can be ended."""

    ended: threading.Event | None = None

    def __setattr__(self, name: str, value: object) -> None:
        if self.ended is not None and self.ended.is_set():
            raise _EndedError
        super().__setattr__(name, value)


@dataclass
class ComparedFiles:
    """The files that were compared with the log, and the first findings."""

    progress: WatchedProgress = field(default_factory=WatchedProgress)
    findings: list[FileFinding] = field(default_factory=list)
    more: int = 0


class Background(Generic[T]):
    """A work that one thread does for all requests.

    Attributes:
        result: the last result; None before the first one.
        at: when it was there, in POSIX seconds.
        problem: why there is none.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.result: T | None = None
        self.at = 0.0
        self.problem = ""
        self._work = work
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the work is being done now."""
        return self._task is not None and not self._task.done()

    async def ask(self) -> None:
        """Begin the work unless it is running, and wait at most one second for its end."""
        if not self.is_running:
            self._task = asyncio.create_task(self._run())
        await self.wait()

    async def wait(self) -> None:
        """Wait at most one second for the end of the work."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_WAIT)

    async def _run(self) -> None:
        try:
            self.result, self.problem = await in_thread(self._work), ""
            self.at = time.time()
        except (AgentMemoryError, ValueError) as error:
            self.result, self.problem = None, str(error)
        except _EndedError:
            self.result = None
        except Exception as error:  # noqa: BLE001 - the page says that it failed, instead of waiting for ever
            self.result, self.problem = None, f"It failed: {type(error).__name__}."


class Chain:
    """The verifications of one log.

    Attributes:
        records: the verification of the records.
        files: the comparison of the files with the records.
        compared: the progress of that comparison.
    """

    def __init__(self, location: LogLocation, agent: str | None) -> None:
        self._location = location
        self._agent = agent
        self._ended = threading.Event()
        self.compared = ComparedFiles()
        self.records: Background[Verdict] = Background(lambda: verify(location))
        self.files: Background[ComparedFiles] = Background(self._compare)

    def end(self) -> None:
        """End a comparison of files soon."""
        self._ended.set()

    def _compare(self) -> ComparedFiles:
        found = self.compared = ComparedFiles()
        found.progress.ended = self._ended
        agents = None if self._agent is None else [self._agent]
        with suppress(StopIteration):
            for finding in FileVerifier(self._location, self._location.store).verify(agents, progress=found.progress):
                if len(found.findings) < MOST_FINDINGS:
                    found.findings.append(finding)
                else:
                    found.more += 1
        return found

    def facts(self) -> dict[str, Any]:
        """The facts for the page."""
        verdict = self.records.result
        findings = sorted(verdict.findings, key=lambda each: each.is_harmless) if verdict else []
        return {
            "chain": self, "verdict": verdict, "findings": findings[:MOST_FINDINGS],
            "left": max(0, len(findings) - MOST_FINDINGS),
        }  # fmt: skip
