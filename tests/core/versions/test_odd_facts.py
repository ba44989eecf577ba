"""One odd stored fact of one file stops no call on another file: it is left out, and told once."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from agent_memory import AgentMemory, AgentMemoryError, ReadError, VersionLimits
from agent_memory.backend import Snapshot
from agent_memory.backend.helpers import translating
from agent_memory.core.versions.origin import Origin
from agent_memory.core.versions.record import digest_of_path, records_of
from agent_memory.key import Key
from agent_memory_local import LocalBackend
from tests.support import sizes
from tests.support.odd_facts import SIXTY_MB, WHOLE_FILES, odd_lists, odd_objects

_ORIGIN = "user.agent_memory.origin"
Plant: TypeAlias = Callable[[Path], None]


def opened(root: Path) -> AgentMemory:
    return AgentMemory.open(f"{root.as_uri()}?durability=process", versions=VersionLimits(), actor="ann")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with facts of two files, odd.md and other.md."""
    root = tmp_path / "store"
    with opened(root) as memory:
        for name in ("odd", "other"):
            memory.write(f"{name}.md", "1")
            memory.once(f"key of {name}").write(f"{name}.md", "2")
            memory.rename(f"{name}.md", f"new {name}.md")
            memory.write(f"new {name}.md", "3")
            memory.append(f"new {name}.md", "4")
    return root


def facts_below(root: Path, path: str) -> list[Path]:
    """The records and marks of one name."""
    place = digest_of_path(None, path)
    return sorted(each for each in (root / records_of(None).base).glob("*/*") if place in each.name)


def is_mark(file: Path) -> bool:
    return file.name[-2] == "m"


def use_another_file(root: Path) -> None:
    """Make every call that reads stored facts, on the file that has none that are odd."""
    with opened(root) as memory:
        found = memory.versions.list("new other.md")
        assert [each.size for each in found] == [2, 1, 1], found
        assert memory.versions.read("new other.md", found[1].id) == "2"
        memory.versions.diff("new other.md", found[1].id)
        assert {each.path for each in memory.versions.list()} >= {"other.md", "new other.md"}
        assert memory.read("new other.md") == "34"
        assert {entry.path for entry in memory.list()} == {"new odd.md", "new other.md"}
        memory.versions.restore("new other.md", found[1].id)
        memory.once("a new key").write("other.md", "x")
        memory.once("a new key").write("other.md", "x")
        memory.edit("new other.md", lambda text: text + "!")
        memory.versions.redact("new other.md", found[1].id, reason="a reason")
        memory.versions.undo(actor="bob")
        memory.versions.prune()
        memory.rename("other.md", "d/other.md")
        memory.forget("new other.md")
        memory.delete("d/other.md")
        memory.forget("")


def failing(store: Path, planted: Iterator[tuple[str, Plant]]) -> list[str]:
    """The names of the odd facts with which a call on another file failed."""
    failed = []
    for name, plant in planted:
        root = store.with_name("copy")
        shutil.copytree(store, root)
        try:
            plant(root)
            use_another_file(root)
        except Exception as error:  # noqa: BLE001 - the test reports every failing member
            failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        shutil.rmtree(root)
    return failed


def whole_files(file: str) -> Iterator[tuple[str, Plant]]:
    for data in WHOLE_FILES:
        yield f"whole {data[:10]!r}", partial(put, file, data)
    lengths = (0, 1, 9_999, SIXTY_MB - 100, 99_999_999) if sizes.is_long else (SIXTY_MB - 100,)
    for end in (b"", *(b"\n%08d\n" % length for length in lengths)):
        yield f"60 MB, ends with {end!r}", partial(put_large, file, end)


def put(file: str, data: bytes, root: Path) -> None:
    (root / file).write_bytes(data)


def put_large(file: str, end: bytes, root: Path) -> None:
    os.truncate(root / file, SIXTY_MB)
    with (root / file).open("ab") as out:
        out.write(end)


def put_origin(data: bytes, root: Path) -> None:
    os.setxattr(root / "new odd.md", _ORIGIN, data[:3000])


def written(
    file: str, forms: Iterator[tuple[str, bytes]], shape: Callable[[bytes], bytes]
) -> Iterator[tuple[str, Plant]]:
    for name, data in forms:
        yield name, partial(put, file, shape(data))


def as_record(facts: bytes) -> bytes:
    return b"1\n%b\n%08d\n" % (facts, len(facts))


def test_an_odd_record_of_a_version(store: Path) -> None:
    (file,) = facts_below(store, "odd.md")
    data = file.read_bytes()
    facts = json.loads(data.splitlines()[-2])
    name = file.relative_to(store).as_posix()
    assert failing(store, written(name, odd_objects(facts), as_record)) == []
    assert failing(store, whole_files(name)) == []


@pytest.mark.long
def test_an_odd_record_of_a_rename(store: Path) -> None:
    file = next(each for each in facts_below(store, "new odd.md") if is_mark(each))
    name = file.relative_to(store).as_posix()
    assert failing(store, written(name, odd_objects(json.loads(file.read_bytes())), bytes)) == []
    assert failing(store, whole_files(name)) == []


def test_an_odd_receipt_of_a_repeated_call(store: Path) -> None:
    old = time.time() - 2 * 86_400
    receipts = list((store / ".agent-memory/receipts/-").iterdir())
    for name in receipts:
        os.utime(name, (old, old))  # a sweep reads it
    odd = next(name for name in receipts if json.loads(name.read_bytes())["path"] == "odd.md")
    file = odd.relative_to(store).as_posix()
    assert failing(store, written(file, odd_objects(json.loads((store / file).read_bytes())), bytes)) == []
    assert failing(store, whole_files(file)) == []


def test_an_odd_origin_of_a_file(store: Path) -> None:
    origin = json.loads(os.getxattr(store / "new odd.md", _ORIGIN))

    planted = [(name, partial(put_origin, data)) for name, data in odd_lists(origin)]
    planted += [(repr(data[:10]), partial(put_origin, data)) for data in WHOLE_FILES]
    assert failing(store, iter(planted)) == []


def test_an_odd_record_of_the_store_is_refused_in_words(store: Path) -> None:
    file = store / ".agent-memory/store.json"
    facts = json.loads(file.read_bytes())
    around = json.dumps({**facts, "versions": "*"}).encode()
    settings = [(name, around.replace(b'"*"', data)) for name, data in odd_objects(facts["versions"])]
    odd = [*odd_objects(facts), *settings, *((repr(data), data) for data in WHOLE_FILES)]
    wrong = []
    for name, data in odd:
        file.write_bytes(data)
        for call in ("write", "versions"):
            try:
                with opened(store) as memory:
                    memory.write("other.md", "x") if call == "write" else memory.versions.list("new other.md")
            except AgentMemoryError:
                continue
            except Exception as error:  # noqa: BLE001 - the test reports every failing member
                wrong.append(f"{call} {name}: {type(error).__name__}: {error}")
    assert wrong == []


def test_odd_records_are_told_once(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    for file in [*facts_below(store, "odd.md"), *facts_below(store, "new odd.md")]:
        file.write_bytes(b"odd")  # two records; the mark of the rename is not read
    with opened(store) as memory, caplog.at_level(logging.WARNING, "agent_memory"):
        assert [each.path for each in memory.versions.list("new odd.md")] == ["new odd.md"]
        assert [each.message[:2] for each in caplog.records if "left out" in each.message] == ["2 "]


# Records that the storage fails to read


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names, in the storage, of files that the storage fails to read."""
    names: set[str] = set()
    read = LocalBackend.read

    def failing_read(self: LocalBackend, key: Key, *args: Any, **options: Any) -> Snapshot:
        if key.storage in names:
            with translating(key, ReadError, OSError):
                raise PermissionError(errno.EACCES, "Permission denied")
        return read(self, key, *args, **options)

    monkeypatch.setattr(LocalBackend, "read", failing_read)
    return names


def test_an_unreadable_record_or_receipt_stops_no_call_on_another_file(store: Path, unreadable: set[str]) -> None:
    old = time.time() - 2 * 86_400
    receipts = list((store / ".agent-memory/receipts/-").iterdir())
    for name in receipts:
        os.utime(name, (old, old))  # a sweep reads it
    odd = facts_below(store, "odd.md")
    odd += [each for each in receipts if json.loads(each.read_bytes())["path"] == "odd.md"]
    unreadable |= {each.relative_to(store).as_posix() for each in odd}
    assert len(unreadable) == 2
    use_another_file(store)


def test_an_unreadable_record_is_left_out_of_its_files_versions_and_told_once(
    store: Path, unreadable: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    with opened(store) as memory:
        ids = [each.id for each in memory.versions.list("new odd.md")]
        for file in (*facts_below(store, "odd.md"), *facts_below(store, "new odd.md")):
            unreadable.add(file.relative_to(store).as_posix())
            with caplog.at_level(logging.WARNING, "agent_memory"):
                assert ids[0] in [each.id for each in memory.versions.list("new odd.md")]
                assert {each.path for each in memory.versions.list()} >= {"other.md", "new other.md"}
                memory.versions.undo(actor="bob")
            told = [each.message[:2] for each in caplog.records if "left out" in each.message]
            assert {*told} == (set() if is_mark(file) else {"1 "})
            assert len(told) <= 3, "once in each call"
            caplog.clear()
            unreadable.clear()


def test_a_version_that_cannot_be_read_is_an_error_about_its_file(store: Path, unreadable: set[str]) -> None:
    with opened(store) as memory:
        earlier = memory.versions.list("new odd.md")[1]
        unreadable |= {each.relative_to(store).as_posix() for each in facts_below(store, "new odd.md")}
        with pytest.raises(ReadError, match=r"^'new odd\.md': .*Permission denied"):
            memory.versions.read("new odd.md", earlier.id)


def test_a_redaction_is_refused_if_a_mark_that_tells_another_name_cannot_be_read(
    store: Path, unreadable: set[str]
) -> None:
    with opened(store) as memory:
        memory.rename("new odd.md", "d/odd.md")
        earlier = memory.versions.list("d/odd.md")[1]
        unreadable |= {e.relative_to(store).as_posix() for e in facts_below(store, "d/odd.md")}
        with pytest.raises(ReadError, match=r"^'d/odd\.md': "):
            memory.versions.redact("d/odd.md", earlier.id, reason="a reason")
        unreadable.clear()
        assert memory.read("d/odd.md") == "34"
        assert len(memory.versions.list("d/odd.md")) == 3


def test_forgetting_a_directory_is_refused_if_an_unreadable_record_may_be_of_a_file_below(
    store: Path, unreadable: set[str]
) -> None:
    with opened(store) as memory:
        memory.write("d/gone.md", "secret")
        memory.write("d/there.md", "1")
        memory.delete("d/gone.md")
        unreadable |= {each.relative_to(store).as_posix() for each in facts_below(store, "d/gone.md")}
        with pytest.raises(ReadError, match=r"^'d': the records of earlier versions: .*Permission denied"):
            memory.forget("d")
        memory.forget("d/there.md")
        memory.forget("")
    assert not list((store / ".agent-memory").glob("versions/-/*"))


def test_forgetting_a_file_erases_a_receipt_that_cannot_be_read(store: Path, unreadable: set[str]) -> None:
    receipts = list((store / ".agent-memory/receipts/-").iterdir())
    unreadable |= {each.relative_to(store).as_posix() for each in receipts}
    with opened(store) as memory:
        memory.forget("new odd.md")
    assert [each for each in receipts if each.exists()] == []


def test_forgetting_a_file_erases_its_damaged_records(store: Path) -> None:
    file = next(each for each in facts_below(store, "new odd.md") if not is_mark(each))
    renamed = file.parent.with_name("0" * 23 + "1") / file.name  # no history tells whose it is
    renamed.parent.mkdir()
    file.rename(renamed)
    renamed.write_bytes(b"secret, and no facts")
    with opened(store) as memory:
        memory.forget("new other.md")
        assert renamed.exists()
        memory.forget("new odd.md")
        assert not renamed.exists()


@pytest.mark.parametrize("name", ["id", "history", "number", "size"])
def test_a_record_that_does_not_agree_with_its_name_or_size_is_left_out(store: Path, name: str) -> None:
    (file,) = facts_below(store, "odd.md")
    data = file.read_bytes()
    facts: dict[str, Any] = json.loads(data.splitlines()[-2])
    value = facts[name]
    facts[name] = value + 1 if isinstance(value, int) else "0" * len(value)
    file.write_bytes(as_record(json.dumps(facts).encode()))
    with opened(store) as memory:
        assert len(memory.versions.list("new odd.md")) == 2


def test_an_origin_of_another_type_is_none() -> None:
    assert Origin.parse("[" * 100) is None


def test_forgetting_a_directory_counts_the_damaged_records_whose_file_nothing_tells(store: Path) -> None:
    with opened(store) as memory:
        for path in ("d/gone.md", "e/gone.md"):
            memory.write(path, "secret")
            memory.delete(path)
        (damaged,) = facts_below(store, "d/gone.md")
        damaged.write_bytes(b"secret, and no facts")
        done = memory.forget("e", dry_run=True), memory.forget("e")
        assert [(each.versions, each.skipped) for each in done] == [(1, 1)] * 2
        assert memory.forget("d").skipped == 1
        assert memory.forget("d/gone.md").skipped == 0
        assert not damaged.exists()
