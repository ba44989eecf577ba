"""The flows over many files: listings, and directories copied, moved or deleted file by file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_memory.backend import ABSENT, Backend, Entry, Version
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileAlreadyExistsError,
    InvalidPathError,
    PartialOperationError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.flows import Effect, exists, sha256
from agent_memory.key import RULES, Key
from agent_memory.runners import Run

_LIST_LIMIT = 100_000
_AT_ONCE = 16


async def list_all(store: Backend, run: Run, prefix: Key, recursive: bool = True) -> Effect:
    """Every page of a listing, in the order of the paths' UTF-8 bytes; directories only if not recursive."""
    found: list[Entry] = []
    skipped = 0
    after: str | None = None
    while True:
        page = await run.call(store.list, prefix, recursive=recursive, after=after, limit=_LIST_LIMIT)
        found += page.entries
        found += (Entry(key, 0, 0.0, None, True) for key in page.directories)
        skipped += page.skipped
        after = page.next
        if after is None:
            break
    found.sort(key=lambda entry: entry.key.storage)
    return Effect(entries=tuple(found), files=len(found), skipped=skipped)


async def copy(store: Backend, run: Run, source: Key, target: Key) -> Effect:
    """Copy a file, or a directory file by file, to a name that must be free."""
    return await _transfer(store, run, source, target, _copy_file)


async def rename(store: Backend, run: Run, source: Key, target: Key) -> Effect:
    """Move a file, or a directory file by file, to a name that must be free.

    A file is copied if the target is absent, then exactly the copied version is deleted; if the source
    changed meanwhile, the copy is withdrawn. A crash may leave both names, never neither.
    """
    return await _transfer(store, run, source, target, _rename_file)


async def delete_tree(store: Backend, run: Run, prefix: Key, missing_ok: bool) -> Effect:
    """Delete every file below a prefix."""
    listing = await list_all(store, run, prefix)
    if not listing.entries and not missing_ok:
        raise AgentMemoryFileNotFoundError(f"{prefix.path!r}: no files below that name")

    async def one(entry: Entry) -> None:
        try:
            await run.call(store.delete, entry.key)
        except AgentMemoryFileNotFoundError:
            return  # somebody else deleted it: what was asked for is true

    await _each(run, listing.entries, one)
    return Effect(files=len(listing.entries), skipped=listing.skipped)


Transfer = Callable[[Backend, Run, Key, Key], Awaitable[Effect]]


async def _transfer(store: Backend, run: Run, source: Key, target: Key, file: Transfer) -> Effect:
    if target.is_below(source):
        raise InvalidPathError(f"{source.path!r} to {target.path!r}: {RULES['into-itself']}", "into-itself")
    try:
        return await file(store, run, source, target)
    except AgentMemoryFileNotFoundError:
        listing = await list_all(store, run, source)
        if not listing.entries:
            raise
    await _refuse_taken(store, run, target)

    async def one(entry: Entry) -> None:
        await file(store, run, entry.key, target.join(entry.key.relative_to(source).path))

    await _each(run, listing.entries, one)
    return Effect(files=len(listing.entries), skipped=listing.skipped)


async def _refuse_taken(store: Backend, run: Run, target: Key) -> None:
    taken = (await exists(store, run, target)).entries
    if taken or (await run.call(store.list, target, limit=1)).entries:
        raise FileAlreadyExistsError(f"{target.path!r}: the name is taken")


async def _copy_file(store: Backend, run: Run, source: Key, target: Key) -> Effect:
    snapshot = await run.call(store.read, source)
    version = await run.call(store.write, target, snapshot.data, when=ABSENT)
    return Effect(size=snapshot.size, sha256=sha256(snapshot.data), version=version, files=1)


async def _rename_file(store: Backend, run: Run, source: Key, target: Key) -> Effect:
    snapshot = await run.call(store.read, source)
    version = await run.call(store.write, target, snapshot.data, when=ABSENT)
    try:
        await run.call(store.delete, source, when=snapshot.version)
    except (WriteError, UnsupportedOperationError):
        await _withdraw(store, run, target, version)
        raise
    except (ConflictError, AgentMemoryFileNotFoundError) as error:
        await _withdraw(store, run, target, version)
        raise ConflictError(f"{source.path!r}: the file changed while it was renamed; it stays where it is") from error
    digest = sha256(snapshot.data)
    return Effect(size=snapshot.size, sha256=digest, before_sha256=digest, version=version, files=1)


async def _withdraw(store: Backend, run: Run, target: Key, version: Version) -> None:
    try:
        await run.call(store.delete, target, when=version)
    except AgentMemoryError:
        return  # somebody already made it theirs, or nothing can be deleted here: both names stay


async def _each(run: Run, entries: tuple[Entry, ...], one: Callable[[Entry], Awaitable[None]]) -> None:
    async def attempt(entry: Entry) -> AgentMemoryError | None:
        try:
            await one(entry)
        except AgentMemoryError as error:
            return error
        return None

    errors = await run.map(attempt, entries, _AT_ONCE)
    if first := next(filter(None, errors), None):
        done = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is None)
        left = tuple(e.path for e, error in zip(entries, errors, strict=True) if error is not None)
        if not done:
            raise first
        raise PartialOperationError(f"{len(left)} of {len(entries)} files are left: {first}", done, left) from first
