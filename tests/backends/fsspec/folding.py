"""fsspec filesystems that fold case, on a disk that does not."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FoldingFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A filesystem that treats names that differ by case alone as one name."""

    @staticmethod
    def fold(name: str) -> str:
        """The form in which two names are compared."""
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
    """Compare in upper case, letter by letter, like NTFS: ß is not SS."""

    @staticmethod
    def fold(name: str) -> str:
        """Fold each letter to exactly one letter."""
        return "".join(upper if len(upper := letter.upper()) == 1 else letter for letter in name)


class AsciiFileSystem(FoldingFileSystem):
    """Fold only ASCII letters."""

    @staticmethod
    def fold(name: str) -> str:
        """Fold ASCII letters only; other letters stay unchanged."""
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)


class DecomposingFileSystem(FoldingFileSystem):
    """List names in Unicode's decomposed form, and accept both forms, like HFS+."""

    @staticmethod
    def fold(name: str) -> str:
        """Fold both Unicode forms to one."""
        return unicodedata.normalize("NFD", name).casefold()

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        """List names in the decomposed form."""
        listed: list[Any] = super().ls(path, detail=detail, **kwargs)
        if detail:
            return [{**each, "name": unicodedata.normalize("NFD", each["name"])} for each in listed]
        return [unicodedata.normalize("NFD", each) for each in listed]
