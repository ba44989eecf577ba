"""The part of ``audit verify --files`` that compares the files of the store with the audit log."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import click

from agent_memory.audit import LogLocation
from agent_memory.audit.files import FileFinding, FileVerifier, Progress
from agent_memory.cli.output import counted, note
from agent_memory.cli.settings import Settings
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory.key.quoting import field
from agent_memory.registry import open_backend

_NOTHING: Final = ("nothing to compare", "all as the records tell")


class Compared(NamedTuple):
    """The files that were compared, and the findings."""

    progress: Progress
    findings: Sequence[FileFinding]
    lost: int

    @property
    def is_intact(self) -> bool:
        """Whether no file was changed, removed or added without a record."""
        return all(each.kind == "unvouched" for each in self.findings)

    def document(self) -> dict[str, Any]:
        """The result for ``--json``."""
        findings = [asdict(each) for each in self.findings]
        return {
            "compared": self.progress.files, "bytes": self.progress.size, "skipped": self.progress.skipped,
            "lost": self.lost, "findings": findings, "intact": self.is_intact,
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """The result as lines of text."""
        for each in self.findings:
            yield f"{field(f'{each.agent}/{each.path}')}: {each.kind}: {each.detail}"
        if self.lost:
            yield "a writer dropped records that it could not write, so that a finding may be its change"
        if self.progress.skipped:
            yield f"{counted(self.progress.skipped, 'name')} passed over: no agent and no record can have such a name"
        kinds = Counter(each.kind for each in self.findings)
        found = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or _NOTHING[bool(self.progress.files)]
        yield f"{counted(self.progress.files, 'file')} compared: {found}"


def compare(settings: Settings, location: LogLocation, after: str | None) -> Compared:
    """Compare the files of ``--agent``, or of all agents, with a log; after an interrupt, a note says how to go on."""
    agents = None if settings.chosen_agent is None else [settings.chosen_agent]
    begin, progress = _begin(after), Progress()
    with closing(BlockingStore(open_backend(settings.url, settings.storage_options()))) as store:
        verifier = FileVerifier(location, store)
        try:
            findings = list(verifier.verify(agents, begin, progress))
        except BaseException:
            if progress.files:
                last = shlex.quote(f"{progress.agent}/{progress.path}")
                note(f"go on with --after {last}; what was found before is lost")
            raise
    return Compared(progress, findings, verifier.states.lost)


def _begin(after: str | None) -> tuple[str, str]:
    agent, _, path = (after or "").partition("/")
    if agent:
        Key.agent(agent).join_prefix(path)
    elif after:
        raise click.UsageError("--after needs an agent and a path, such as bob/notes/a.md")
    return agent, path
