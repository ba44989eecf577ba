"""A memory in one SQLite database, ``sqlite:///path/memory.db``; every verb is one transaction."""

import sqlite3
from contextlib import closing, contextmanager

from agent_memory import backend, errors, hookimpl
from agent_memory.backend import ANY, PRESENT, Entry, ETag, Key, Page, ReadWhen, Snapshot, WriteWhen, helpers

_TABLE = "CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY AUTOINCREMENT, path UNIQUE, data, time)"
_WRITE = "REPLACE INTO files (path, data, time) VALUES (?, ?, (julianday('now') - 2440587.5) * 86400)"
_FILES = "SELECT path, length(data), time, id FROM files WHERE path >= :top AND path < :top || char(0x10ffff)"
_TAKEN = f"{_FILES} OR path || '/' < :top AND path || '/' = substr(:top, 1, length(path) + 1)"


class SqliteBackend(backend.BlockingBackend):
    capabilities = backend.Capabilities(atomic_write=True, atomic_create=True, compare_and_swap=True, durability="full",
        conditional_delete=True, exclusive_names=True, case_sensitive=True, read_after_write=True)  # fmt: skip

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, key: Key, start: int | None = None, end: int | None = None, when: ReadWhen = ANY) -> Snapshot:
        with self._begun(key, errors.ReadError, PRESENT, when) as (db, (_, size, _, row)):
            helpers.refuse_larger_read(key, len(range(size)[start:end]), self.max_bytes)
            return Snapshot(db.blobopen("files", "data", row, readonly=True)[start:end], ETag(str(row)), size)

    def stat(self, key: Key) -> Entry:
        with self._begun(key, errors.ReadError, PRESENT) as (_, (_, size, modified, row)):
            return Entry(key, size, modified, ETag(str(row)))

    def write(self, key: Key, data: bytes, when: WriteWhen = ANY) -> ETag:
        with self._begun(key, errors.WriteError, when) as (db, _):
            if taken := db.execute(_TAKEN, {"top": (top := key.storage + "/")}).fetchone():
                raise helpers.taken_name(key, "directory" if taken[0].startswith(top) else "file_above")
            return ETag(str(db.execute(_WRITE, [key.storage, data]).lastrowid))

    def delete(self, key: Key, when: ReadWhen = ANY) -> None:
        with self._begun(key, errors.WriteError, PRESENT, when) as (db, _):
            db.execute("DELETE FROM files WHERE path = ?", [key.storage])

    def list(self, prefix: Key, *, recursive: bool = True, after: str | None = None, limit: int = 1000) -> Page:
        builder, top = helpers.PageBuilder(prefix, recursive), prefix.storage and prefix.storage + "/"
        with self._begun(prefix, errors.ReadError) as (db, _):
            for path, size, modified, row in db.execute(_FILES, {"top": top}):
                builder.file(path[len(top) :], size, modified, ETag(str(row)))
        return builder.page(after, limit)

    @contextmanager
    def _begun(self, key, error, *conditions):
        with helpers.translating(key, error, sqlite3.Error), closing(sqlite3.connect(self._path, timeout=60)) as db, db:
            db.execute("PRAGMA synchronous = EXTRA")  # durable without exception
            db.execute("BEGIN IMMEDIATE").execute(_TABLE)
            found = db.execute(f"{_FILES} AND path = :top", {"top": key.storage}).fetchone()
            helpers.require(key, ETag(str(found[3])) if found else None, *conditions)
            yield db, found


@hookimpl
def agent_memory_register_backends(register):
    register("sqlite", lambda url, options: SqliteBackend(url.partition("://")[2], **options))
