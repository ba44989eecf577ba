"""An agent's memory as one SQLite database, ``sqlite:///path/memory.db``: every verb is one transaction."""

import sqlite3
import time
from contextlib import closing, contextmanager
from typing import Any

from agent_memory import Capabilities, Entry, backend, errors, hookimpl
from agent_memory.backend import ANY, Page, ReadWhen, Snapshot, Version, WriteWhen
from agent_memory.key import Key

_TABLE = "CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY AUTOINCREMENT, path UNIQUE, data BLOB, time REAL)"
_FILES = "SELECT path, length(data), time, id FROM files WHERE path >= :top AND path < :top || char(0x10ffff)"
_TAKEN = f"{_FILES} OR path || '/' < :top AND path || '/' = substr(:top, 1, length(path) + 1)"
_WRITE = "REPLACE INTO files (path, data, time) VALUES (?, ?, ?)"


class SqliteBackend(backend.BlockingBackend):
    capabilities = Capabilities(atomic_write=True, atomic_create=True, compare_and_swap=True, durability="full",
                                exclusive_names=True, case_sensitive=True, read_after_write=True)  # fmt: skip

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._begun(key, errors.ReadError, when) as (sql, (_, size, _, row)):
            backend.refuse_larger(key, len(range(size)[start:end]), self.max_bytes)
            with sql.blobopen("files", "data", row, readonly=True) as blob:
                return Snapshot(blob[start:end], Version(str(row)), size)

    def stat(self, key: Key) -> Entry:
        with self._begun(key, errors.ReadError) as (_, (_, size, modified, row)):
            return Entry(key, size, modified, Version(str(row)))

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> Version:
        with self._begun(key, errors.WriteError, when, missing=None) as (sql, found):
            if (found and when is backend.ABSENT) or sql.execute(_TAKEN, {"top": key.storage + "/"}).fetchone():
                raise backend.taken_name(key)
            return Version(str(sql.execute(_WRITE, [key.storage, data, time.time()]).lastrowid))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        with self._begun(key, errors.WriteError, when) as (sql, (*_, row)):
            sql.execute("DELETE FROM files WHERE id = ?", [row])

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        builder, top = backend.PageBuilder(prefix), prefix.storage and prefix.storage + "/"
        with self._begun(prefix, errors.ReadError, missing=None) as (sql, _):
            found = [(path[len(top) :], *facts) for path, *facts in sql.execute(_FILES, {"top": top})]
        for name, size, modified, row in found:
            if recursive or "/" not in name:
                builder.file(name, size, modified, Version(str(row)))
        for name in {} if recursive else {name.partition("/")[0] for name, *_ in found if "/" in name}:
            builder.directory(name)
        return builder.page(after, limit)

    @contextmanager
    def _begun(self, key: Key, failed: Any, when: Any = ANY, missing: Any = errors.AgentMemoryFileNotFoundError) -> Any:
        try:
            with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as sql, sql:
                sql.execute("BEGIN IMMEDIATE").execute(_TABLE)
                found = sql.execute(f"{_FILES} AND path = :top", {"top": key.storage}).fetchone()
                if missing and not found:
                    raise missing(f"{key.path!r}: no such file")
                if isinstance(when, Version) and (not found or str(found[3]) != when.token):
                    raise errors.ConflictError(f"{key.path!r}: the file changed since it was read")
                yield sql, found
        except sqlite3.Error as cause:
            raise failed(f"{key.path!r}: the database failed: {cause}") from cause


@hookimpl
def agent_memory_register_backends(register: Any) -> None:
    register("sqlite", lambda url, options: SqliteBackend(url.partition("://")[2], **options))
