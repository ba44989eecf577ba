"""The results of the calls that change files."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.backend import ETag


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a writing call.

    Attributes:
        path: the file, relative to its tree.
        size: the file's new size in bytes.
        sha256: the digest of the written bytes, hexadecimal: of the whole file, or of an append the appended bytes;
            "" if an edit deleted the file.
        etag: the file's new etag, for ``when``; None if the storage does not tell it, as local disk after an append.
    """

    path: str
    size: int
    sha256: str
    etag: ETag | None = None


@dataclass(frozen=True, slots=True)
class RecordedResult:
    """The result of an earlier call, as recorded with its idempotency key.

    Attributes:
        path: the file or directory that the call named, relative to the tree.
        existed: whether the file existed before the call; None if the call did not find out, as a write.
        size: the size in bytes that the file had after the call; 0 if the call deleted it.
        sha256: as of `WriteResult`.
        etag: the file's etag after the call; None if the storage did not tell it.
    """

    path: str
    existed: bool | None
    size: int
    sha256: str
    etag: ETag | None


@dataclass(frozen=True, slots=True)
class TreeResult:
    """The result of an operation on one file, or on all files of a directory.

    Attributes:
        path: the file or directory, relative to its tree; for rename and copy the new name.
        files: the number of files.
        skipped: the number of names in storage that were left unchanged because they are not valid keys.
        versions_searched: False if a forget did not look for the storage's own earlier versions, because the storage
            has none: a server that neither lists versions nor keeps them in this bucket.
    """

    path: str
    files: int
    skipped: int
    versions_searched: bool = True
