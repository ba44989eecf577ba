"""Versions are listed, read, compared and restored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryFileNotFoundError,
    AsyncAgentMemory,
    ConflictError,
    FileAlreadyExistsError,
    Operation,
    OperationDenied,
    VersionLimits,
    hookimpl,
)
from agent_memory.backend import ABSENT, ANY
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import Record, records_of
from agent_memory.runtime.run import step
from agent_memory.testing.recording import RecordingPlugin
from tests.core.versions.helpers import ON, contents, digest, opened, operations, records
from tests.core.versions.hostile import Killed, killing
from tests.support.loops import looped
from tests.support.servers import Root


def test_a_version_is_restored_as_a_new_one(memory: AgentMemory) -> None:
    memory.write("a", "good")
    memory.write("a", "bad")
    good = memory.versions.list("a")[1]
    result = memory.versions.restore("a", good.id)
    assert (result.path, result.size, result.sha256) == ("a", 4, digest("good"))
    assert contents(memory, "a") == ["good", "bad", "good"]
    assert operations(memory.versions.list("a"))[:2] == [("restore", None), ("write", "restore")]
    memory.delete("a")
    memory.versions.restore("a", good.id)
    assert memory.read("a") == "good"


def test_plugins_see_a_restored_content_and_may_refuse_it(root: Root) -> None:
    class Guard:
        @hookimpl
        def agent_memory_check_content(self, operation: Operation, content: bytes) -> None:
            if operation.kind == "restore" and b"bad" in content:
                raise OperationDenied("refused")

    seen = RecordingPlugin()
    memory = opened(root, plugins=[Guard(), seen])
    for text in ("bad", "fine", "last"):
        memory.write("a", text)
    _, fine, bad = memory.versions.list("a")
    with pytest.raises(OperationDenied):
        memory.versions.restore("a", bad.id)
    memory.versions.restore("a", fine.id)
    assert contents(memory, "a") == ["bad", "fine", "last", "fine"]
    assert {"versions", "restore", "read_version"} <= {operation.kind for operation, _ in seen.after}


def test_each_call_is_one_operation_and_a_read_only_view_only_reads(root: Root) -> None:
    seen = RecordingPlugin()
    memory = opened(root, plugins=[seen], actor="ann")
    memory.write("a", "one\n")
    memory.write("a", "two\n")
    one = memory.versions.list("a")[1].id
    calls: dict[str, tuple[Callable[[AgentMemory], object], list[str]]] = {
        "versions": (lambda m: m.versions.list("a"), ["versions"]),
        "read_version": (lambda m: m.versions.read("a", one), ["read_version"]),
        "read_version_bytes": (lambda m: m.versions.read_bytes("a", one), ["read_version"]),
        "diff": (lambda m: m.versions.diff("a", one), ["read_version", "read"]),
        "versions of all files": (lambda m: m.versions.list(), ["versions"]),
        "restore": (lambda m: m.versions.restore("a", one), ["restore"]),
        "redact": (lambda m: m.versions.redact("a", one, reason="x"), ["redact"]),
        "keep_versions": (lambda m: m.versions.set_limits(ON), ["set_versions"]),
        "prune_versions": (lambda m: m.versions.prune(), ["prune"]),
    }
    for name, (call, kinds) in calls.items():
        seen.before.clear()
        seen.after.clear()
        call(memory)
        assert [operation for operation, _ in seen.after] == seen.before
        assert [(operation.kind, operation.actor) for operation in seen.before] == [(kind, "ann") for kind in kinds]
        assert {outcome.status for _, outcome in seen.after} == {"ok"}
        if name in ("restore", "redact", "keep_versions", "prune_versions"):
            with pytest.raises(OperationDenied, match="read-only"):
                call(memory.read_only())
        else:
            call(memory.read_only())
    assert memory.read("a") == "one\n"


def test_differences_are_shown_line_by_line(memory: AgentMemory) -> None:
    memory.write("a", "one\ntwo\n")
    memory.write("a", "one\n2")
    memory.write("a", "one\n3\n")
    _, second, first = memory.versions.list("a")
    assert memory.versions.diff("a", first.id, second.id) == (
        f"--- a@{first.id}\n+++ a@{second.id}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n"
    )
    assert memory.versions.diff("a", first.id).endswith("\n one\n-two\n+3\n")
    assert memory.versions.diff("a", first.id, first.id) == ""
    memory.write("a", "one\x1e1\u2028\n")
    assert memory.versions.diff("a", memory.versions.list("a")[1].id).endswith("\n-one\n-3\n+one\x1e1\u2028\n")


@looped("limit", [0, -1, True, 1.5, "x"])
def test_a_limit_of_a_list_is_a_positive_whole_number(memory: AgentMemory, limit: Any) -> None:
    memory.write("a.md", "1")
    for path in ("a.md", ""):
        with pytest.raises(ValueError, match="limit must be a positive whole number"):
            memory.versions.list(path, limit=limit)


def test_an_unknown_version_is_not_found(memory: AgentMemory, root: Root) -> None:
    memory.write("a", "x")
    memory.write("b", "x")
    memory.write("b", "y")
    for version in ("0" * 16, "", "../x", memory.versions.list("b")[1].id):
        for call in (memory.versions.read, memory.versions.restore, memory.versions.diff):
            with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
                call("a", version)
    with pytest.raises(AgentMemoryFileNotFoundError, match="no version"):
        opened(Root(f"{root.url}-other", root.options), None).versions.read("a", "0" * 16)
    assert memory.read("a") == "x"


@pytest.mark.asyncio
async def test_the_async_twin_has_the_same_calls(root: Root) -> None:
    memory = AsyncAgentMemory.open(root.url, storage_options=root.options, versions=ON)
    await memory.write("a", "one\n")
    await memory.write("a", "two\n")
    newest, oldest = await memory.versions.list("a")
    assert await memory.versions.list("a", limit=1) == (newest,)
    assert (await memory.versions.read("a", oldest.id), await memory.versions.read_bytes("a", oldest.id)) == (
        "one\n",
        b"one\n",
    )
    assert (await memory.versions.diff("a", oldest.id)).endswith("-one\n+two\n")
    await memory.versions.restore("a", oldest.id)
    assert await memory.read("a") == "one\n"
    await asyncio.gather(*(memory.edit("a", lambda text: text + "+") for _ in range(8)))
    assert [each.size for each in await memory.versions.list("a")] == [12, 11, 10, 9, 8, 7, 6, 5, 4, 4, 4]
    assert await memory.versions.prune() == 0
    await memory.versions.set_limits(None)
    await memory.write("a", "three")
    assert len(await memory.versions.list("a")) == 11


@pytest.mark.parametrize("root", ["local", "memory", pytest.param("ministack", marks=pytest.mark.long)], indirect=True)
def test_the_newest_of_many_versions_need_one_listing_and_no_other_record(
    root: Root, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = 3 if root.url.startswith("s3:") else 1  # other storages list all names at once
    count = pages * 1_000 if pages > 1 else 10_000 if pytestconfig.getoption("--long") else 1_100
    memory = opened(root, VersionLimits(keep=20_000))
    memory.write("a", "0")
    memory.write("a", "1")
    backend: Any = memory._tree.backend
    directory = records_of(None)
    first = directory.join(records(root)[0].path)

    async def copy_record() -> None:
        data = (await memory._run.call(backend.read, first)).data
        record = Record.parse(first, None, data, len(data))
        for number in range(1, count):
            previous = record.id if number == 1 else f"{number - 1:016x}"
            copied = replace(record, id=f"{number:016x}", number=number, previous=previous)
            place = first.parent.join(str(copied.new_name(None)))
            await memory._run.call(backend.write, place, b"0" + copied.trailer())
        state = (await memory._run.call(backend.read, memory._tree.top.join("a"))).origin
        origin = Origin.parse(state)
        assert origin
        last = replace(origin, number=count, previous=f"{count - 1:016x}")
        await memory._run.call(backend.write, memory._tree.top.join("a"), b"1", ANY, lambda _: last.at(1.0))

    step(copy_record())
    counts: Counter[str] = Counter()
    for verb in ("list", "read"):
        monkeypatch.setattr(backend, verb, _counting(counts, verb, getattr(backend, verb)))
    found = memory.versions.list("a", limit=20)
    assert [each.number for each in found[1:]] == list(range(count - 1, count - 20, -1))
    assert counts["list"] == pages
    assert counts["read"] == 19 + 1, "the records that are returned, and the current file"
    for number in (found[-1].number, count // 2, 22, 11):  # the last page is shorter
        counts.clear()
        page = memory.versions.list("a", limit=20, after=f"{number:016x}")
        assert [each.number for each in page] == list(range(number))[::-1][:20]
        assert counts["read"] == 1 + len(page) + 1, "the version before the page, the page, and the current file"


@pytest.mark.parametrize("earlier", [0, 3])
def test_pages_of_any_size_have_all_versions_in_their_order(memory: AgentMemory, earlier: int) -> None:
    for number in range(earlier):
        memory.write("a", f"earlier {number}")
    if earlier:
        memory.delete("a")
    for number in range(7):
        memory.write("a", f"{number}")
    whole = memory.versions.list("a")
    assert len(whole) == 7 + earlier
    for limit in range(1, 9):
        found = list(memory.versions.list("a", limit=limit))
        while page := memory.versions.list("a", limit=limit, after=found[-1]):
            found += page
        assert found == list(whole)


@pytest.mark.parametrize("after", [False, True], ids=["before a call", "after a call"])
def test_pages_go_on_after_a_write_that_was_killed(memory: AgentMemory, after: bool) -> None:
    """The record of the state that it would have ended is kept before the change, and the change was not made."""
    was_killed, number, left = True, 0, 0
    while was_killed:
        path = f"{(number := number + 1)}"
        for text in range(4):
            memory.write(path, f"{text}")
        try:
            with killing(memory, number, after=after):
                memory.write(path, "killed")
            was_killed = False
        except Killed:
            left += memory.read(path) == "3"
        whole = memory.versions.list(path)
        for limit in (1, 2, 10):
            assert memory.versions.list(path, limit=limit, after=whole[0]) == whole[1 : 1 + limit]
    assert left > 1


def _counting(counts: Counter[str], name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        counts[name] += 1
        return verb(*args, **options)

    return counted


def test_a_state_that_a_repeated_request_brings_back_is_listed_with_both_contents(memory: AgentMemory) -> None:
    backend: Any = memory._tree.backend
    key = memory._tree.top.join("a")
    memory.write("a", "one\n")

    async def origin() -> Any:
        return (await memory._run.call(backend.read, key)).origin

    text = step(origin())
    memory.append("a", "1\n")
    memory.delete("a")

    async def create_again() -> None:
        await memory._run.call(backend.write, key, b"one\n", ABSENT, lambda _: text)

    step(create_again())
    memory.append("a", "2\n")
    memory.append("a", "3\n")
    memory.delete("a")
    found = memory.versions.list("a")
    assert {memory.versions.read("a", each.id) for each in found} == {"one\n1\n", "one\n2\n3\n"}
    assert sorted(len(each.id) for each in found) == [16, 24]
    assert {each.id for each in memory.versions.list()} == {each.id for each in found}
    assert len(memory.versions.list("", after=found[-1].id)) == 0
    memory.versions.restore("a", next(each.id for each in found if len(each.id) == 24))
    assert memory.read("a") == "one\n1\n"
    memory.versions.redact("a", next(each.id for each in found if len(each.id) == 24), reason="x")
    assert [bool(each.redacted_by) for each in memory.versions.list("a")] == [False, True]


def test_a_restore_is_made_only_of_the_state_that_is_expected(memory: AgentMemory) -> None:
    memory.write("a", "one")
    memory.write("a", "two")
    old, etag = memory.versions.list("a")[1], memory.stat("a").etag
    assert etag
    memory.write("a", "three")
    with pytest.raises(ConflictError):
        memory.versions.restore("a", old, when=etag)
    with pytest.raises(FileAlreadyExistsError):
        memory.versions.restore("a", old, when=ABSENT)
    memory.delete("a")
    with pytest.raises((ConflictError, AgentMemoryFileNotFoundError)):
        memory.versions.restore("a", old, when=etag)
    memory.versions.restore("a", old, when=ABSENT)
    assert memory.read("a") == "one"
