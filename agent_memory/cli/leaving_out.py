"""`Sieve`: which files of a host folder an import leaves out; and the manifest by which `export` lets some in again."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from agent_memory._json import parse_json
from agent_memory.cli.folder import Folder
from agent_memory.errors import AgentMemoryError
from agent_memory.key import RESERVED

_NAMES: Final = (".git", ".env", ".env.*", ".ds_store", "._*", "icon\r", "thumbs.db", "desktop.ini")
"""Patterns of names in lower case: a repository, credentials, and what macOS and Windows put into folders."""
_SAMPLES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")
"""Files without credentials, by convention."""
_MANIFEST: Final = f"{RESERVED}/exported.json"
_MOST_BYTES: Final = 50_000_000


class Sieve:
    """Decides for each path whether it is imported, and records the paths that are left out.

    Args:
        folder: the folder; its manifest of `export` is read.
        everything: whether a repository, credentials and files of desktops are imported too.
        patterns: more to leave out, with everything below. Without a ``/`` a pattern matches names at any depth, else
            whole paths.
        ignored: paths to leave out because git ignores them.

    Attributes:
        left_out: the paths that are left out, each with the option that is the reason. A directory is listed once.
    """

    def __init__(
        self, folder: Folder, *, everything: bool, patterns: Iterable[str], ignored: frozenset[str] = frozenset()
    ) -> None:
        self._folder = folder
        self._names = () if everything else _NAMES
        self._patterns = {pattern: in_form_c(pattern.strip("/")) for pattern in patterns}
        self._ignored = ignored
        self._exported = _exported(folder)
        self._unmatched = set(self._patterns)
        self.left_out: dict[str, str] = {}

    @property
    def unmatched(self) -> list[str]:
        """The patterns that matched no path."""
        return sorted(self._unmatched)

    @property
    def is_of_export(self) -> bool:
        """Whether the folder has a manifest of `export`."""
        return bool(self._exported)

    def takes(self, path: str) -> bool:
        """Whether to import a path."""
        segments = path.split("/")
        for depth in range(1, len(segments) + 1):
            if by := self._left_out_by("/".join(segments[:depth]), segments[depth - 1], path):
                self.left_out["/".join(segments[:depth]) + "/" * (depth < len(segments))] = by
                return False
        if path in self._ignored:
            self.left_out[path] = "--gitignore"
            return False
        return True

    def _left_out_by(self, above: str, name: str, path: str) -> str | None:
        for pattern, plain in self._patterns.items():
            if fnmatchcase(in_form_c(above if "/" in plain else name), plain):
                self._unmatched.discard(pattern)
                return "--exclude"
        if _is_special(name, self._names) and not self._is_exported(path):
            return "no --all"
        return None

    def _is_exported(self, path: str) -> bool:
        try:
            digest = self._exported.get(in_form_c(path))  # macOS may have stored the name in form D
            return digest is not None and self._folder.sha256(path) == digest
        except (AgentMemoryError, OSError):
            return False


def _is_special(name: str, names: Iterable[str] = _NAMES) -> bool:
    low = name.lower()
    return low not in _SAMPLES and any(fnmatchcase(low, pattern) for pattern in names)


def in_form_c(path: str) -> str:
    """A path of the host in Unicode's normal form C, as names of a memory are; macOS can store names in form D."""
    return unicodedata.normalize("NFC", path)


def _exported(folder: Folder) -> Mapping[str, str]:
    """The SHA-256 of files that `export` wrote and `import` would leave out, by path.

    The folder may be untrusted. An entry applies only to a file with this content, so a manifest admits no other file.
    """
    try:
        with folder.reading(_MANIFEST) as (size, blocks):
            found = parse_json(b"".join(blocks()))["files"] if size <= _MOST_BYTES else {}
    except (AgentMemoryError, OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def note_exported(folder: Folder, paths: Iterable[str]) -> None:
    """Record in the folder which of these files `import` would otherwise leave out; write nothing if there are none."""
    special = [path for path in paths if any(map(_is_special, path.split("/")))]
    if special:
        digests: dict[str, str] = {}
        for path in special:
            with suppress(AgentMemoryError, OSError):  # another program removed it
                digests[path] = folder.sha256(path)
        files = {**_exported(folder), **digests}
        data = json.dumps({"files": files}).encode("ascii")
        folder.put(_MANIFEST, len(data), lambda: [data], overwrite=True)
