"""The flows over many files: list, copy, rename, delete and forget; rename and copy also serve single files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final, cast

from agent_memory.backend import ABSENT, ANY, Backend, DeletedTree, Entry, ETag, Page, ReadWhen
from agent_memory.backend._checks import content_sha256
from agent_memory.backend._deadline import renewed_deadline
from agent_memory.backend._pages import Markers, by_path
from agent_memory.backend.helpers import named, not_found, raise_failures, taken_name
from agent_memory.core import part_flows
from agent_memory.core.flows import (
    Effect,
    checked_capabilities,
    erases,
    exists,
    is_directory,
    moves_files,
    moves_trees,
    writes_copies,
)
from agent_memory.errors import (
    AgentMemoryError,
    AgentMemoryFileNotFoundError,
    ConflictError,
    FileOperationError,
    FileTooLargeError,
    InvalidPathError,
    OutcomeUnknownError,
    PartialOperationError,
    UnsupportedOperationError,
    WriteError,
)
from agent_memory.key import RULES, InternalPath, Key
from agent_memory.runtime.run import Run

_LIST_LIMIT = 10_000_000
_MOST_LISTINGS = 10
_OF_NO_FILE = ETag("the etag of no file")
AT_ONCE: Final = 16
"""The number of files processed concurrently over a network."""


async def pages(
    store: Backend, run: Run, prefix: Key, recursive: bool = True, limit: int = _LIST_LIMIT
) -> AsyncIterator[Page]:
    """List the names below a prefix, page by page; ``limit``: at most so many names in a page."""
    after: str | None = None
    markers = Markers(prefix)
    while True:
        with renewed_deadline(run.now()):
            page = await run.call(store.list, prefix, recursive=recursive, after=after, limit=limit)
        yield page
        after = page.next
        if after is None:
            return
        markers.go_on(after)


async def list_all(store: Backend, run: Run, prefix: Key, recursive: bool = True) -> Effect:
    """List all pages, in the order of the paths' UTF-8 bytes; with directories only if not recursive."""
    found: list[Entry] = []
    skipped = parts = 0
    async for page in pages(store, run, prefix, recursive):
        found += page.entries
        found += (Entry(key, 0, 0.0, None, True) for key in page.directories)
        skipped += page.skipped
        parts += 2 if page.directories else 1
    if parts > 1:
        found.sort(key=by_path)
    return Effect(entries=tuple(found), files=len(found), skipped=skipped)


async def copy(store: Backend, run: Run, source: Key, target: Key, when: ReadWhen = ANY) -> Effect:
    """Copy a file that is in the given state, or a directory file by file, to a free name."""
    try:
        _refuse_into_itself(source, target)
        return (await _copy(store, run, source, target, when))[0]
    except AgentMemoryFileNotFoundError:
        if when is not ANY:
            raise
        return await _transfer_tree(store, run, source, target, copy)


async def rename(store: Backend, run: Run, source: Key, target: Key, when: ReadWhen = ANY) -> Effect:
    """Move a file that is in the given state, or a directory, to a free name; in one step if the backend can do that.

    Otherwise a directory moves file by file. A file is copied if the target is absent, then exactly the copied
    state is deleted; if the source changed in between, the copy is deleted. A crash may leave both names, never
    neither.
    """
    try:
        _refuse_into_itself(source, target)
        return await _rename_file(store, run, source, target, when)
    except AgentMemoryFileNotFoundError:
        if when is not ANY:
            raise
        files = await _moved_in_one_step(store, run, source, target)
        if files is not None:
            return Effect(files=files)
    return await _transfer_tree(store, run, source, target, _rename_file)


async def _moved_in_one_step(store: Backend, run: Run, source: Key, target: Key) -> int | None:
    if not moves_trees(store):
        return None
    return await run.call(cast("Callable[[Key, Key], Awaitable[int | None]]", store.move_tree), source, target)


async def delete_tree(store: Backend, run: Run, prefix: Key, missing_ok: bool) -> Effect:
    """Delete every file below a prefix."""
    if moves_trees(store):
        deleted = await run.call(cast("Callable[[Key], Awaitable[DeletedTree]]", store.delete_tree), prefix)
        if not deleted.files and not missing_ok:
            raise _nothing_below(prefix)
        return Effect(files=deleted.files, skipped=deleted.skipped)
    listing = await list_all(store, run, prefix)
    if not listing.entries and not missing_ok:
        raise _nothing_below(prefix)

    await delete_each(store, run, listing.entries)
    return Effect(files=len(listing.entries), skipped=listing.skipped)


async def delete_each(store: Backend, run: Run, entries: tuple[Entry, ...]) -> None:
    """Delete files that a listing showed, first the states with its etags: then a backend need not look them up."""

    async def one(entry: Entry) -> None:
        with suppress(AgentMemoryFileNotFoundError):  # another writer deleted it: the result is the same
            if entry.etag is not None and store.capabilities.conditional_delete:
                with suppress(ConflictError, OutcomeUnknownError, UnsupportedOperationError):
                    await run.call(store.delete, entry.key, when=entry.etag)
                    return
            await run.call(store.delete, entry.key)

    await _each(run, entries, one)


@contextmanager
def reported_as_partial(key: Key, has_erased: Callable[[], bool]) -> Iterator[None]:
    """Raise `PartialOperationError` for a failure of an erasing, if an earlier step has erased something."""
    try:
        yield
    except FileOperationError as error:
        if error.left if isinstance(error, PartialOperationError) else not has_erased():
            raise  # it names the files, or nothing was erased
        message = error.args[0] if isinstance(error.path, InternalPath) else str(error)
        if not isinstance(error, PartialOperationError):
            message = f"a part was erased, then this failed: {message}"
        if key.is_internal:
            raise PartialOperationError(message) from error
        raise PartialOperationError(f"{named(key)}: {message}", (), (key.path,) if key.path else ()) from error


async def forget_each(store: Backend, run: Run, tree: Key, is_meant: Callable[[Key], Awaitable[bool]]) -> None:
    """Erase the files of a tree for which ``is_meant`` is true, until a listing shows none of them.

    Raises:
        WriteError: other writers add files as fast as they are erased, or the storage still lists an erased file.
        PartialOperationError: a file could not be erased, and others were.
    """
    kept: set[Key] = set()
    erased = 0

    async def one(entry: Entry) -> None:
        nonlocal erased
        with renewed_deadline(run.now()):
            if await is_meant(entry.key):
                erased += (await forget(store, run, entry.key)).files or 0
            else:
                kept.add(entry.key)

    with reported_as_partial(tree, lambda: bool(erased)):
        for _ in range(_MOST_LISTINGS):
            found = [entry for entry in (await list_all(store, run, tree)).entries if entry.key not in kept]
            if not found:
                return
            await run.map(one, found, AT_ONCE)
        raise WriteError("the storage still lists files that it said it had erased", path=tree.path)


async def forget(store: Backend, run: Run, prefix: Key) -> Effect:
    """Erase a file, or every file below a prefix, with everything that the storage keeps of them."""
    if not erases(store):
        raise UnsupportedOperationError(
            "this backend does not promise that it keeps nothing of a deleted file", path=prefix.path
        )
    erased = await run.call(cast("Callable[[Key], Awaitable[DeletedTree]]", store.erase), prefix)
    return Effect(files=erased.files, skipped=erased.skipped, versions_searched=erased.versions_searched)


def _nothing_below(prefix: Key) -> AgentMemoryFileNotFoundError:
    return AgentMemoryFileNotFoundError("no files below that name", path=prefix.path)


Transfer = Callable[..., Coroutine[Any, Any, Effect]]


def _refuse_into_itself(source: Key, target: Key) -> None:
    if target.is_below(source):
        raise InvalidPathError(f"{source.path!r} to {target.path!r}: {RULES['into-itself']}", "into-itself")


async def _transfer_tree(store: Backend, run: Run, source: Key, target: Key, transfer: Transfer) -> Effect:
    listing = await list_all(store, run, source)
    if not listing.entries:
        raise not_found(source)
    await _refuse_taken(store, run, target)

    async def one(entry: Entry) -> None:
        await transfer(store, run, entry.key, target.join(entry.key.relative_to(source).path))

    await _each(run, listing.entries, one)
    return Effect(files=len(listing.entries), skipped=listing.skipped)


async def _refuse_taken(store: Backend, run: Run, target: Key) -> None:
    if (await exists(store, run, target)).entries:
        raise taken_name(target, "file")
    if await is_directory(store, run, target):
        raise taken_name(target, "directory")


async def _copy(
    store: Backend, run: Run, source: Key, target: Key, when: ReadWhen = ANY, *, keeps_origin: bool = False
) -> tuple[Effect, Callable[[], ETag]]:
    """Copy a file, in parts if it is too large for one call; also return a function for the copied etag."""
    try:
        snapshot = await run.call(store.read, source, when=when)
    except FileTooLargeError:
        return await part_flows.copy(store, run, source, target, of=when, keeps_origin=keeps_origin)
    if writes_copies(store):
        origin = part_flows.same_origin(snapshot.origin) if keeps_origin else None
        etag: ETag = await run.call(cast(Any, store.write_copy), target, source, snapshot, origin)
    else:
        etag = await run.call(store.write, target, snapshot.data, when=ABSENT)
    digest = content_sha256(snapshot.data, etag)
    return Effect(size=snapshot.size, sha256=digest, etag=etag, files=1), lambda: snapshot.etag


async def _rename_file(store: Backend, run: Run, source: Key, target: Key, when: ReadWhen = ANY) -> Effect:
    size = await _file_moved_in_one_step(store, run, source, target, when)
    if size is not None:
        return Effect(size=size, files=1)
    await _refuse_without_conditional_delete(store, run, source)
    effect, copied = await _copy(store, run, source, target, when, keeps_origin=True)
    etag = cast(ETag, effect.etag)
    try:
        with renewed_deadline(run.now()) if cast(int, effect.size) > store.max_bytes else nullcontext():
            await run.call(store.delete, source, when=copied())
    except (WriteError, UnsupportedOperationError):
        await _withdraw(store, run, target, etag)
        raise
    except (ConflictError, AgentMemoryFileNotFoundError) as error:
        await _withdraw(store, run, target, etag)
        raise ConflictError("the file changed during the rename; it stays at its old name", path=source.path) from error
    effect.before_sha256 = effect.sha256
    return effect


async def _file_moved_in_one_step(store: Backend, run: Run, source: Key, target: Key, when: ReadWhen) -> int | None:
    if not moves_files(store):
        return None
    move = cast("Callable[..., Awaitable[int | None]]", store.move_file)
    return await run.call(move, source, target, *(() if when is ANY else (when,)))


async def _refuse_without_conditional_delete(store: Backend, run: Run, source: Key) -> None:
    """Raise before anything is copied, if the backend cannot delete a given etag.

    A delete with an impossible etag shows it: with a single writer, a backend can do more than its capabilities state.
    """
    if not (await checked_capabilities(store, run, source)).conditional_delete:
        with suppress(AgentMemoryFileNotFoundError, ConflictError):
            await run.call(store.delete, source, when=_OF_NO_FILE)


async def _withdraw(store: Backend, run: Run, target: Key, etag: ETag) -> None:
    try:
        await run.call(store.delete, target, when=etag)
    except AgentMemoryError:
        return  # another writer changed the copy, or deleting is impossible: both names stay


async def _each(run: Run, entries: tuple[Entry, ...], one: Callable[[Entry], Awaitable[None]]) -> None:
    async def attempt(entry: Entry) -> AgentMemoryError | None:
        try:
            with renewed_deadline(run.now()):
                await one(entry)
        except AgentMemoryError as error:
            return error
        return None

    raise_failures(entries, await run.map(attempt, entries, AT_ONCE))
