"""A compaction removes the oldest lines of a history, moves them to an archive, and changes no other byte."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import (
    AgentMemory,
    AgentMemoryError,
    FileTooLargeError,
    InvalidContentError,
    InvalidPathError,
    Limits,
    Operation,
    OperationDenied,
    VersionLimits,
    hookimpl,
)
from agent_memory.conversation import CompactResult, ConversationMemory, Message
from agent_memory.core.flows import sha256
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.testing import RecordingPlugin
from agent_memory_memory import MemoryBackend
from tests.conversation import naive
from tests.conversation.histories import HISTORY, KINDS, Kind, line, lines, opened, root_on
from tests.conversation.strategies import cases
from tests.support.servers import Root
from tests.support.sizes import examples

sync_and_async = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
ARCHIVE = "2026/history.jsonl"
STEPS = [
    ("read", ARCHIVE), ("read", HISTORY), ("create", ARCHIVE),
    ("read", ARCHIVE), ("edit", HISTORY), ("write", ARCHIVE),
]  # fmt: skip
DAY = timedelta(days=1)


@pytest.fixture(params=["local", "memory", "ministack"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    return root_on(request, tmp_path)


def stored(data: bytes, *plugins: object, limits: Limits | None = None) -> tuple[AgentMemory, ConversationMemory]:
    backend = MemoryBackend()
    AgentMemory.open(backend).write(HISTORY, data)
    memory = AgentMemory.open(backend, plugins=plugins, limits=limits)
    return memory, ConversationMemory(memory)


def content(memory: AgentMemory, path: str) -> bytes:
    return memory.read_bytes(path) if memory.exists(path) else b""


def removed_of(data: bytes, **which: Any) -> bytes:
    """The lines that a compaction moves to its archive; the others stay as they are."""
    memory, conversation = stored(data)
    conversation.compact(archive_to=ARCHIVE, **which)
    kept, archived = content(memory, HISTORY), content(memory, ARCHIVE)
    assert archived + kept == data
    return archived


def said(role: str, *calls: str, answers: str | None = None) -> bytes:
    return Message(role, tool_calls=[{"id": each} for each in calls] or None, tool_call_id=answers).to_line().encode()


# Which lines stay.


@sync_and_async
def test_the_last_messages_stay_and_the_others_go_to_the_archive(root: Root, kind: Kind) -> None:
    memory = opened(root)
    memory.write(HISTORY, lines(10))
    conversation = kind(root).conversation
    assert conversation.compact(keep_last=4, archive_to=ARCHIVE) == CompactResult(kept=4, removed=6, archived=6)
    assert memory.read_bytes(HISTORY) == b"".join(lines(10).splitlines(keepends=True)[6:])
    assert memory.read_bytes(ARCHIVE) == lines(6)
    conversation.append_message(Message("user", "more"))
    assert conversation.compact(keep_last=1, archive_to=ARCHIVE) == CompactResult(kept=1, removed=4, archived=4)
    assert memory.read_bytes(ARCHIVE) == lines(10)
    assert [message.content for message in conversation.load_history()] == ["more"]


@sync_and_async
def test_without_an_archive_the_lines_are_deleted(root: Root, kind: Kind) -> None:
    memory = opened(root)
    memory.write(HISTORY, lines(3))
    assert kind(root).conversation.compact(keep_last=1) == CompactResult(kept=1, removed=2, archived=0)
    assert [(entry.path, entry.size) for entry in memory.list()] == [(HISTORY, len(lines(1)))]


@pytest.mark.parametrize("archive", [None, ARCHIVE])
@pytest.mark.parametrize("data", [None, b"", line(), b"damaged\n\n"])
def test_a_history_with_nothing_to_remove_is_not_written(data: bytes | None, archive: str | None) -> None:
    recorder = RecordingPlugin()
    memory = AgentMemory.open("memory://", plugins=[recorder])
    if data is not None:
        memory.write(HISTORY, data)
    recorder.before.clear()
    result = ConversationMemory(memory).compact(keep_last=5, archive_to=archive)
    assert (result.removed, result.archived) == (0, 0)
    assert {operation.kind for operation in recorder.before} == {"read"}
    assert not memory.exists(ARCHIVE)


@examples(200)
@given(cases(), st.integers(1, 8))
def test_the_last_messages_of_any_history_are_the_same_after_a_compaction(case: tuple[bytes, str], last: int) -> None:
    data, _ = case
    memory, conversation = stored(data)
    result = conversation.compact(keep_last=last, archive_to=ARCHIVE)
    kept, archived = content(memory, HISTORY), content(memory, ARCHIVE)
    assert archived + kept == data
    assert conversation.load_history(last) == naive.last_messages(data, last)
    assert result.skipped == naive.bad_lines(kept)
    assert len(naive.last_messages(kept, None)) == min(last, len(naive.last_messages(data, None)))
    assert result == CompactResult(len(kept.splitlines()), len(archived.splitlines()), len(archived.splitlines())) or (
        b"\r" in data or b"\x0b" in data or b"\x1c" in data  # splitlines counts more ends of lines
    )


def test_lines_without_a_message_go_with_the_message_before_them() -> None:
    first, second, bad = line("1"), line("2"), b"damaged\n\n"
    assert removed_of(bad + first + bad + second + bad, keep_last=1) == bad + first + bad
    assert removed_of(bad + first + bad, keep_last=1) == b""
    too_long = line("x" * (16 << 20))
    assert removed_of(first + too_long + second, keep_last=1) == first + too_long


def test_messages_older_than_an_age_are_removed_up_to_the_first_newer_one() -> None:
    now = datetime.now(UTC)
    old, new = ((now - days * DAY).isoformat() for days in (3, 1))
    without_zone = (now - 3 * DAY).astimezone().replace(tzinfo=None).isoformat()
    history = line("a", timestamp=old) + line("b", timestamp=without_zone) + line("c", timestamp="0001-01-01")
    rest = line("d", timestamp=new) + line("e", timestamp=old)
    assert removed_of(history + rest, older_than=2 * DAY) == history
    assert removed_of(history + rest, older_than=4 * DAY) == b""
    assert removed_of(history + rest, older_than=DAY / 2) == history + line("d", timestamp=new), "the last one stays"
    assert removed_of(history + rest, older_than=2 * DAY, keep_last=4) == line("a", timestamp=old)


def test_system_messages_count_only_if_the_conversation_shows_them() -> None:
    data = line("1") + line("2", role="system") + line("3")
    assert removed_of(data, keep_last=2) == b""
    memory, _ = stored(data)
    assert ConversationMemory(memory, system_messages=True).compact(keep_last=2).removed == 1


def test_a_tool_call_and_its_results_are_not_separated() -> None:
    call, first, second, other = (
        said("assistant", "a", "b"),
        *(said("tool", answers=each) for each in "ab"),
        said("user"),
    )
    data = b"\n".join((other, call, first, second, other, other))
    assert removed_of(data, keep_last=5) == other + b"\n"
    assert removed_of(data, keep_last=4) == removed_of(data, keep_last=3) == other + b"\n"
    assert removed_of(data, keep_last=2) == b"\n".join((other, call, first, second, b""))
    assert removed_of(b"\n".join((call, other, call, first, first)), keep_last=2) == call + b"\n" + other + b"\n"


def test_calls_at_the_end_stay_until_their_results_are_there() -> None:
    call, first, second, other = (
        said("assistant", "a", "b"),
        *(said("tool", answers=each) for each in "ab"),
        said("user"),
    )
    for waiting in (call, call + b"\n" + first):
        assert removed_of(other + b"\n" + waiting, keep_last=1) == other + b"\n"
    for ended in (call + b"\n" + first + b"\n" + second, call):
        assert removed_of(ended + b"\n" + other, keep_last=1) == ended + b"\n"


@examples(300)
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.sampled_from([None, "a", "b"])), max_size=9), st.data()
)
def test_no_pair_of_any_history_is_separated_and_no_line_stays_without_need(
    rows: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    keep = data.draw(st.integers(1, 9))
    history = [said("x", *calls, answers=answer) + b"\n" for calls, answer in rows]
    removed = removed_of(b"".join(history), keep_last=keep).count(b"\n")

    def splits(end: int) -> bool:
        seen: dict[str, int] = {}
        for place, (calls, answer) in enumerate(rows):
            if answer in seen and seen[answer] < end <= place:
                return True
            seen |= dict.fromkeys(calls, place)
        last = max((place for place, (_, answer) in enumerate(rows) if answer is None), default=0)
        answered = {answer for _, answer in rows[last:]}
        return end > last and not {*(rows[last][0] if rows else "")} <= answered

    allowed = [end for end in range(max(0, len(rows) - keep) + 1) if not splits(end)]
    assert removed == max(allowed)


# The archive.


def test_the_archive_is_a_history_of_its_own(root: Root) -> None:
    memory = opened(root)
    memory.write(HISTORY, lines(6).removesuffix(b"\n"))
    ConversationMemory(memory).compact(keep_last=1, archive_to=ARCHIVE)
    archive = ConversationMemory(memory.subtree("2026"))
    assert (len(archive.load_history()), archive.load_history().skipped) == (5, 0)


def test_the_lines_begin_on_a_new_line_of_the_archive() -> None:
    memory, conversation = stored(lines(2))
    memory.write("old.jsonl", "# without a line end")
    conversation.compact(keep_last=1, archive_to="old.jsonl")
    assert memory.read_bytes("old.jsonl") == b"# without a line end\n" + lines(1)


def test_lines_that_are_appended_during_each_step_stay() -> None:
    class Writer:
        other: AgentMemory

        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            ConversationMemory(self.other).append_message(Message("user", f"during {operation.kind}"))

    writer = Writer()
    memory, conversation = stored(lines(3), writer)
    writer.other = AgentMemory.open(memory._tree.backend)
    assert conversation.compact(keep_last=1, archive_to=ARCHIVE).archived >= 3
    assert [message.content for message in conversation.load_history(1)] == ["during read"]
    told = content(writer.other, ARCHIVE) + content(writer.other, HISTORY)
    found = [message.content for message in naive.messages(told)]
    assert found[:3] == ["0", "1", "2"]
    assert found[3:] == [*(f"during {kind}" for kind, _ in STEPS), "during read"]


@pytest.mark.parametrize("step", sorted(set(STEPS)))
def test_a_refused_step_raises_and_a_later_call_completes(step: tuple[str, str]) -> None:
    class Guard:
        @hookimpl
        def agent_memory_before_operation(self, operation: Operation) -> None:
            if (operation.kind, operation.path) == step:
                raise OperationDenied("no")

    memory, conversation = stored(lines(3))
    guarded = ConversationMemory(AgentMemory.open(memory._tree.backend, plugins=[Guard()]))
    with pytest.raises(OperationDenied):
        guarded.compact(keep_last=1, archive_to=ARCHIVE)
    conversation.compact(keep_last=1, archive_to=ARCHIVE)
    assert (content(memory, ARCHIVE), content(memory, HISTORY)) == (lines(2), lines(3)[len(lines(2)) :])


def test_an_interrupted_call_is_completed_before_the_next_one_begins() -> None:
    memory, conversation = stored(lines(4))
    history, note = lines(4), b'{"removal": {"size": %d, "of": %d, "sha256": "%s"}}\n'
    memory.write(ARCHIVE, lines(3) + note % (len(lines(3)), len(history), sha256(history).encode()))
    assert conversation.compact(keep_last=1000, archive_to=ARCHIVE) == CompactResult(kept=1, removed=3, archived=3)
    assert (content(memory, ARCHIVE), content(memory, HISTORY)) == (lines(3), history[len(lines(3)) :])


@pytest.mark.parametrize(
    ("size", "of"),
    [(10**14, 0), (0, 0), (1, 1), (10, len(lines(1))), (len(lines(3)), len(lines(1))), (len(lines(2)), 10**14)],
)
def test_a_forged_note_removes_nothing_and_disappears(size: int, of: int) -> None:
    memory, conversation = stored(lines(3))
    digest = sha256(lines(3)[:of])
    memory.write(
        ARCHIVE, line("before") + b'{"removal": {"size": %d, "of": %d, "sha256": "%s"}}' % (size, of, digest.encode())
    )
    assert conversation.compact(keep_last=3, archive_to=ARCHIVE).removed == 0
    assert (content(memory, ARCHIVE), content(memory, HISTORY)) == (line("before"), lines(3))


# Everything passes the memory's operations.


def test_hooks_see_each_step() -> None:
    recorder = RecordingPlugin()
    _, conversation = stored(lines(3), recorder)
    conversation.compact(keep_last=1, archive_to=ARCHIVE)
    assert [(operation.kind, operation.path) for operation in recorder.before] == STEPS


def test_a_plugin_may_redact_what_goes_into_the_archive() -> None:
    secret = "ghp_" + "a" * 36
    memory, conversation = stored(line(secret) * 2 + line("last"), RedactionPlugin())
    assert conversation.compact(keep_last=1, archive_to=ARCHIVE).archived == 2
    assert secret.encode() not in memory.read_bytes(ARCHIVE)
    assert len(naive.messages(memory.read_bytes(ARCHIVE))) == 2


def test_a_plugin_that_changes_the_note_stops_the_compaction() -> None:
    class Upper:
        @hookimpl
        def agent_memory_filter_content(self, operation: Operation, content: bytes) -> bytes:
            return content.replace(b"removal", b"REMOVAL") if operation.path == ARCHIVE else content

    memory, conversation = stored(lines(3), Upper())
    with pytest.raises(InvalidContentError, match="nothing was removed from the history: exclude the file"):
        conversation.compact(keep_last=1, archive_to=ARCHIVE)
    assert memory.read_bytes(HISTORY) == lines(3)


def test_a_limit_that_refuses_the_archive_keeps_the_history() -> None:
    memory, conversation = stored(lines(9), limits=Limits(file_bytes=len(lines(2))))
    with pytest.raises(OperationDenied, match="a file may have"):
        conversation.compact(keep_last=1, archive_to=ARCHIVE)
    assert (memory.read_bytes(HISTORY), memory.exists(ARCHIVE)) == (lines(9), False)
    assert conversation.compact(keep_last=1).removed == 8, "a history over its limit may become smaller"


def test_versions_keep_the_history_before_a_compaction() -> None:
    memory = AgentMemory.open("memory://", versions=VersionLimits())
    memory.write(HISTORY, lines(3))
    ConversationMemory(memory).compact(keep_last=1)
    assert memory.versions.read_bytes(HISTORY, memory.versions.list(HISTORY)[-1].id) == lines(3)


# Wrong arguments.


@sync_and_async
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "give keep_last, older_than, or both"),
        ({"keep_last": 0}, ValueError, "keep_last must be a positive whole number, not 0"),
        ({"keep_last": True}, ValueError, "keep_last must be a positive whole number, not True"),
        ({"keep_last": 1.0}, ValueError, "keep_last must be a positive whole number, not 1.0"),
        ({"older_than": 3}, TypeError, "older_than must be a timedelta, not int"),
        ({"older_than": timedelta(0)}, ValueError, "older_than must be positive, not 0:00:00"),
        ({"older_than": timedelta.max}, ValueError, "older_than is too long"),
        ({"keep_last": 1, "archive_to": "./history.jsonl"}, ValueError, "archive_to must be another file"),
        ({"keep_last": 1, "archive_to": "cron//jobs.json"}, ValueError, "archive_to must be another file"),
        ({"keep_last": 1, "archive_to": "../old.jsonl"}, InvalidPathError, "path|name"),
        ({"keep_last": 1, "archive_to": "history.jsonl/old"}, AgentMemoryError, "."),
        ({"keep_last": 1, "archive_to": ""}, InvalidPathError, "path|name"),
        ({"keep_last": 1, "archive_to": 5}, InvalidPathError, "path|name"),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_changes(
    tmp_path: Path, kind: Kind, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    root = Root(str(tmp_path), {})
    opened(root).write(HISTORY, lines(3))
    with pytest.raises(error, match=message):
        kind(root).conversation.compact(**arguments)
    assert [(entry.path, entry.size) for entry in opened(root).list()] == [(HISTORY, len(lines(3)))]


def test_a_read_only_view_and_a_large_history_are_refused() -> None:
    memory, conversation = stored(lines(3))
    with pytest.raises(OperationDenied):
        ConversationMemory(memory.read_only()).compact(keep_last=1)
    memory._tree.backend.max_bytes = 10
    with pytest.raises(FileTooLargeError, match="a compaction reads the whole file"):
        conversation.compact(keep_last=1)


# A process that is killed.


class Killed(BaseException):
    """The process ends here."""


def dying(at: int) -> Callable[[MemoryBackend], MemoryBackend]:
    """Make a backend die before its call number ``at``."""

    def armed(backend: MemoryBackend) -> MemoryBackend:
        left = iter(range(at))

        def before(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **options: Any) -> Any:
                if next(left, None) is None:
                    raise Killed
                return call(*args, **options)

            return called

        for name in ("read", "write", "delete", "list", "stat"):
            setattr(backend, name, before(getattr(backend, name)))
        return backend

    return armed


@pytest.mark.parametrize("versions", [None, VersionLimits()])
def test_after_a_kill_before_any_request_a_second_call_loses_no_line_and_archives_each_once(
    tmp_path: Path, versions: VersionLimits | None
) -> None:
    done, at = False, 0
    while not done:
        at += 1
        name = f"{tmp_path.name}-{at}"
        with AgentMemory.open(f"memory://{name}", versions=versions) as memory:
            memory.write(HISTORY, lines(6))
            memory.write(ARCHIVE, line("before"))
            doomed = AgentMemory.open(dying(at)(MemoryBackend(name)))
            try:
                ConversationMemory(doomed).compact(keep_last=2, archive_to=ARCHIVE)
                done = True
            except Killed:
                pass
            conversation = ConversationMemory(memory)
            conversation.append_message(Message("user", "later"))
            conversation.compact(keep_last=2, archive_to=ARCHIVE)
            whole = naive.messages(memory.read_bytes(ARCHIVE) + memory.read_bytes(HISTORY))
            assert [message.content for message in whole] == ["before", *"012345", "later"], f"killed at {at}"
            assert len(naive.messages(memory.read_bytes(HISTORY))) == 2
    assert at > 6
