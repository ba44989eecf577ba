"""Filesystems of fsspec that take names of another case for the same, on a disk that does not."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FoldingFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A name in another case is the name that is there."""

    @staticmethod
    def fold(name: str) -> str:
        """What names have to have in common to be one."""
        return name.casefold()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return [cls._spelled(each) for each in stripped] if isinstance(stripped, list) else cls._spelled(stripped)

    @classmethod
    def _spelled(cls, path: str) -> str:
        found = Path("/")
        for name in Path(path).parts[1:]:
            there = () if (found / name).exists() or not found.is_dir() else found.iterdir()
            found /= next((each.name for each in there if cls.fold(each.name) == cls.fold(name)), name)
        return str(found)


class UpperCaseFileSystem(FoldingFileSystem):
    """Compares upper case, letter by letter, as NTFS does: ß is no SS."""

    @staticmethod
    def fold(name: str) -> str:
        """One letter for each."""
        return "".join(upper if len(upper := letter.upper()) == 1 else letter for letter in name)


class AsciiFileSystem(FoldingFileSystem):
    """Folds the letters of ASCII alone."""

    @staticmethod
    def fold(name: str) -> str:
        """Without accents: they stay as they are."""
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)


class DecomposingFileSystem(FoldingFileSystem):
    """Lists names in Unicode's decomposed form, and takes each form, as HFS+ does."""

    @staticmethod
    def fold(name: str) -> str:
        """Of either form."""
        return unicodedata.normalize("NFD", name).casefold()

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        """As listed there."""
        listed: list[Any] = super().ls(path, detail=detail, **kwargs)
        if detail:
            return [{**each, "name": unicodedata.normalize("NFD", each["name"])} for each in listed]
        return [unicodedata.normalize("NFD", each) for each in listed]
