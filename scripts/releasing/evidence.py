"""The page of evidence, docs/evidence/release.md: what was built, with which tools, and what was run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PAGE: Final = """\
# The last release

Written by `scripts/release` on {date} at commit `{commit}`, {tag}.

| file | bytes | SHA-256 |
|---|---|---|
{files}

Two builds of both archives, and of the wheel from the sdist, are byte-equal. `twine check --strict` and the check of
the contents passed. Tools: {tools}.

Each row is a fresh environment and an empty directory. All passed.

| `pip install` | page | run |
|---|---|---|
{results}
"""


class Result(NamedTuple):
    """What was run after an installation, and on which pages its command stands."""

    command: str
    pages: tuple[str, ...]
    ran: tuple[str, ...]

    def __str__(self) -> str:
        return f"| `{self.command}` | {', '.join(self.pages)} | {', '.join(self.ran)} |"


def sha256(file: Path) -> str:
    """Return the hash of a file, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def sums(files: Iterable[Path]) -> str:
    """Return the text of SHA256SUMS, which `sha256sum --check` reads."""
    return "".join(f"{sha256(file)}  {file.name}\n" for file in files)


def evidence_page(
    commit: str, date: str, tag: str, files: Iterable[Path], tools: Iterable[str], results: Iterable[Result]
) -> str:
    """Return the page.

    Args:
        commit: its hash.
        date: the day of the run.
        tag: the tag of the commit, or "" if it has none yet.
        files: the archives and the SBOM.
        tools: each with its version.
        results: what was run, all of it with success.
    """
    return _PAGE.format(
        date=date,
        commit=commit[:12],
        tag=f"tag `{tag}`" if tag else "before it had a tag",
        files="\n".join(f"| {file.name} | {file.stat().st_size:,} | `{sha256(file)}` |" for file in files),
        tools=", ".join(tools),
        results="\n".join(map(str, results)),
    )
