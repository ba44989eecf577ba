"""Where other programs keep memories and conversations on this host, and the names of these files in a memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Final

import click

from agent_memory.cli.folder import Folder
from agent_memory.cli.leaving_out import in_form_c
from agent_memory.conversation.memory import HISTORY
from agent_memory.errors import AgentMemoryError, InvalidPathError
from agent_memory.key import Key

_BANK: Final = "memory-bank"
_LINES: Final = (".jsonl", ".ndjson")
"""The ends of files whose lines are messages."""
_PACKED: Final = (".jsonl.gz", ".jsonl.zst")


@dataclass(frozen=True)
class Pattern:
    """A pattern of paths: the names of the directories, whether more of them may follow, and the name of the file."""

    above: tuple[str, ...]
    is_deep: bool
    file: str

    @staticmethod
    def of(text: str) -> Pattern:
        """Parse a pattern such as ``projects/*/memory/**/*.md``; ``**`` may stand only before the last name."""
        *above, file = text.split("/")
        is_deep = above[-1:] == ["**"]
        return Pattern(tuple(above[:-1] if is_deep else above), is_deep, file)

    def covers(self, path: str) -> bool:
        """Whether this is the path of a file that the pattern means; the case of the end is ignored."""
        name = path.rpartition("/")[2]
        return self.is_inside(path) and fnmatchcase(name.lower() if self.file.startswith("*") else name, self.file)

    def is_inside(self, path: str) -> bool:
        """Whether the path is below the directory of the pattern, at a depth where the pattern means files."""
        more = path.count("/") - len(self.above)
        return self._agrees(path.split("/")[:-1]) and (more == 0 or (self.is_deep and more > 0))

    def enters(self, directory: str) -> bool:
        """Whether a directory can contain such a file."""
        names = directory.split("/")
        return self._agrees(names) and (self.is_deep or len(names) <= len(self.above))

    def _agrees(self, names: Sequence[str]) -> bool:
        return all(map(fnmatchcase, names, self.above))


@dataclass
class FoundFiles:
    """The files of a source, as paths relative to its root.

    Attributes:
        files: those to import, sorted.
        others: symbolic links and special files in their place, and directories that cannot be opened.
        packed: the number of compressed files of messages.
        ignored: the number of other files beside them.
    """

    files: list[str] = field(default_factory=list)
    others: dict[str, AgentMemoryError] = field(default_factory=dict)
    packed: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class Source:
    """A place with memories or conversations.

    Attributes:
        root: the folder; nothing outside it is read.
        shown: the place for messages, without an absolute path of the host that the user did not give.
        patterns: the files to import.
        directory: the directory in the memory.
        advice: what to do if nothing is found.
        shorten: removes the part of a path that says nothing in the memory.
    """

    root: Path
    shown: str
    patterns: tuple[str, ...]
    directory: str
    advice: str
    shorten: Callable[[str], str] = str

    def find(self, folder: Folder) -> FoundFiles:
        """List the files of the source in its opened root."""
        patterns = [Pattern.of(text) for text in self.patterns]
        listed = folder.find(lambda directory: any(pattern.enters(directory) for pattern in patterns))
        deep = [pattern for pattern in patterns if pattern.is_deep]
        found = FoundFiles()
        for path in listed.files:
            if any(pattern.covers(path) for pattern in patterns):
                found.files.append(path)
            elif any(pattern.is_inside(path) for pattern in deep):
                found.packed += path.lower().endswith(_PACKED)
                found.ignored += not path.lower().endswith(_PACKED)
        found.others = {
            path: error
            for path, error in listed.others.items()
            if any(pattern.covers(path) or (pattern.enters(path) and _is_at(path, pattern)) for pattern in patterns)
        }
        return found

    def renames(self, path: str) -> bool:
        """Whether a file gets another name in the memory than it has."""
        return self.name_of(path) != f"{self.directory}/{self.shorten(path)}"

    def name_of(self, path: str) -> str:
        """The name of a file in the memory: its plain name, with a suggestion for each part that is invalid."""
        return "/".join(map(_valid, self.plain_name(path).split("/")))

    def plain_name(self, path: str) -> str:
        """The name of a file in the memory, perhaps an invalid one.

        A file of messages becomes the history of a directory, which the commands of a conversation can open.
        """
        short = self.shorten(in_form_c(path))
        if is_history(path):
            above, _, file = short.rpartition("/")
            stem = file[: file.rindex(".")] if file.lower().endswith(_LINES) else file
            short = f"{above}/{stem}/{HISTORY}".lstrip("/") if file != HISTORY else short
        return f"{self.directory}/{short}"


def is_history(path: str) -> bool:
    """Whether the lines of a file are messages."""
    return not path.lower().endswith(".md")


def _is_at(path: str, pattern: Pattern) -> bool:
    """Whether a directory is the one of the pattern, or below it; above it, directories are none of the source's."""
    return path.count("/") + 1 >= len(pattern.above)


def _valid(name: str) -> str:
    try:
        return Key.tree().join("x").join(name).name
    except InvalidPathError as error:
        return error.suggestion.replace("/", "-")


def source_of(text: str) -> Source:
    """The source that ``--from`` names.

    Raises:
        click.ClickException: it is neither a known source nor a path.
        click.UsageError: it is empty.
    """
    if not text:
        raise click.UsageError(f"--from takes {', '.join(_KNOWN)}, or a path")
    return known() if (known := _KNOWN.get(text)) else _of_path(text)


def _claude_code() -> Source:
    root, shown = _home_of("CLAUDE_CONFIG_DIR", ".claude")
    patterns = ("CLAUDE.md", "agent-memory/**/*.md", "projects/*/memory/**/*.md", "projects/**/*.jsonl")
    advice = "set CLAUDE_CONFIG_DIR if that is elsewhere"
    return Source(root, shown, patterns, "claude-code", advice, lambda path: path.removeprefix("projects/"))


def _codex() -> Source:
    root, shown = _home_of("CODEX_HOME", ".codex")
    patterns = ("AGENTS.md", "memories/**/*.md", HISTORY, "sessions/**/*.jsonl", "archived_sessions/**/*.jsonl")
    return Source(root, shown, patterns, "codex", "set CODEX_HOME if that is elsewhere")


def _memory_bank() -> Source:
    project = Path.cwd().name or "project"

    def shorten(path: str) -> str:
        first, _, rest = path.partition("/")
        return f"{project}/{rest}" if first == _BANK else f"{first}/{rest.partition('/')[2]}"

    patterns = (f"{_BANK}/**/*.md", f"*/{_BANK}/**/*.md")
    advice = "run the command in a project or in the directory above, or name the folder with --from PATH"
    return Source(Path(), "the current directory", patterns, _BANK, advice, shorten)


def _of_path(text: str) -> Source:
    path = Path(text)
    if path.is_dir():
        patterns = ("**/*.md", *(f"**/*{end}" for end in _LINES))
        return Source(path, text, patterns, _valid(in_form_c(path.resolve().name) or "files"), "give another folder")
    if not os.path.lexists(path):
        known = ", ".join(_KNOWN)
        raise click.ClickException(f"there is no file or folder {text!r}; --from takes {known}, or a path")
    parent = _valid(in_form_c(path.parent.resolve().name) or "files")
    return Source(path.parent, text, (escape(path.name),), parent, "give another file")


def _home_of(variable: str, name: str) -> tuple[Path, str]:
    if given := os.environ.get(variable):
        return Path(given), f"${variable}"
    return Path(os.path.expanduser(f"~/{name}")), f"~/{name}"  # noqa: PTH111 - no error without a home


_KNOWN: Final[dict[str, Callable[[], Source]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    _BANK: _memory_bank,
}
