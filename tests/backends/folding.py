"""A filesystem of fsspec that takes names of another case for the same, on a disk that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class FoldingFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """As on Windows or macOS: a name in another case is the name that is there."""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return [_spelled(each) for each in stripped] if isinstance(stripped, list) else _spelled(stripped)


def _spelled(path: str) -> str:
    found = Path("/")
    for name in Path(path).parts[1:]:
        there = () if (found / name).exists() or not found.is_dir() else found.iterdir()
        found /= next((each.name for each in there if each.name.casefold() == name.casefold()), name)
    return str(found)
