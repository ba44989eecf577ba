"""Which preconditions each call takes, and what they decide, on every backend."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from agent_memory import (
    ABSENT,
    ANY,
    PRESENT,
    SHA256,
    AgentMemory,
    AgentMemoryFileNotFoundError,
    ConflictError,
    ETag,
    FileAlreadyExistsError,
    InvalidContentError,
)
from tests.support.servers import Root

OLD = "old"
CALLS: dict[str, tuple[Callable[[AgentMemory, Any], object], set[str]]] = {
    "write": (lambda m, when: m.write("file", "new", when=when), {"ANY", "ABSENT", "PRESENT", "etag", "sha256"}),
    "write bytes": (lambda m, when: m.write("file", b"new", when=when), {"ANY", "ABSENT", "PRESENT", "etag", "sha256"}),
    "write_blocks": (
        lambda m, when: m.write_blocks("file", [b"new"], 3, when=when),
        {"ANY", "ABSENT", "PRESENT", "etag", "sha256"},
    ),
    "append": (lambda m, when: m.append("file", "new", when=when), {"ANY", "PRESENT", "etag", "sha256"}),
    "edit": (lambda m, when: m.edit("file", str.upper, when=when), {"PRESENT", "etag", "sha256"}),
    "edit_bytes": (lambda m, when: m.edit_bytes("file", bytes.upper, when=when), {"PRESENT", "etag", "sha256"}),
    "edit a missing file": (lambda m, when: m.edit("file", str.upper, missing="x", when=when), {"ANY"}),
    "delete": (lambda m, when: m.delete("file", when=when), {"ANY", "etag", "sha256"}),
    "rename": (lambda m, when: m.rename("file", "moved", when=when), {"PRESENT", "etag"}),
    "copy": (lambda m, when: m.copy("file", "copied", when=when), {"PRESENT", "etag"}),
    "restore": (lambda m, when: m.versions.restore("file", "id", when=when), {"PRESENT", "ABSENT", "etag"}),
}
NEVER: dict[str, Any] = {
    "None": None,
    "a text": hashlib.sha256(OLD.encode()).hexdigest(),
    "a token": "etag",
    "a bool": True,
    "a name": "ANY",
    "bytes": b"x",
}


def opened(root: Root) -> AgentMemory:
    memory = AgentMemory.open(root.url, storage_options=root.options)
    memory.write("file", OLD)
    return memory


def states(memory: AgentMemory) -> dict[str, Any]:
    etag = memory.stat("file").etag
    digest = SHA256(hashlib.sha256(OLD.encode()).hexdigest())
    return {"ANY": ANY, "ABSENT": ABSENT, "PRESENT": PRESENT, "etag": etag, "sha256": digest}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_its_preconditions_and_no_others(call: str) -> None:
    change, allowed = CALLS[call]
    for name in ("ANY", "ABSENT", "PRESENT", "etag", "sha256"):
        memory = AgentMemory.open("memory://")
        memory.write("file", OLD)
        when = states(memory)[name]
        if name in allowed:
            try:
                change(memory, when)
            except (FileAlreadyExistsError, AgentMemoryFileNotFoundError):
                assert name == "ABSENT" or call == "restore"
        else:
            with pytest.raises(TypeError, match="when"):
                change(memory, when)
            assert memory.read("file") == OLD


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", NEVER)
def test_anything_else_is_a_type_error_and_changes_nothing(call: str, value: str) -> None:
    memory = AgentMemory.open("memory://")
    memory.write("file", OLD)
    with pytest.raises(TypeError, match="when must be"):
        CALLS[call][0](memory, NEVER[value])
    assert [(entry.path, memory.read(entry.path)) for entry in memory.list()] == [("file", OLD)]


@pytest.mark.parametrize(
    "call", [name for name, (_, allowed) in CALLS.items() if "etag" in allowed and name != "restore"]
)
def test_an_etag_decides(root: Root, call: str) -> None:
    with opened(root) as memory:
        stale = memory.stat("file").etag
        memory.write("file", "other")
        with pytest.raises(ConflictError):
            CALLS[call][0](memory, stale)
        assert [(entry.path, memory.read(entry.path)) for entry in memory.list()] == [("file", "other")]
        CALLS[call][0](memory, memory.stat("file").etag)


@pytest.mark.parametrize("call", [name for name, (_, allowed) in CALLS.items() if "sha256" in allowed])
def test_a_digest_decides(root: Root, call: str) -> None:
    with opened(root) as memory:
        with pytest.raises(ConflictError):
            CALLS[call][0](memory, SHA256("0" * 64))
        assert memory.read("file") == OLD
        CALLS[call][0](memory, SHA256(hashlib.sha256(OLD.encode()).hexdigest().upper()))


@pytest.mark.parametrize("call", ["write", "write bytes", "write_blocks", "append", "edit", "edit_bytes"])
def test_present_creates_no_file(root: Root, call: str) -> None:
    with opened(root) as memory:
        memory.delete("file")
        with pytest.raises(AgentMemoryFileNotFoundError):
            CALLS[call][0](memory, PRESENT)
        assert memory.list() == ()


def test_a_write_of_a_large_file_on_present_replaces_only_a_file(root: Root) -> None:
    with opened(root) as memory:
        size = memory._tree.backend.part_bytes + 1
        with pytest.raises(AgentMemoryFileNotFoundError):
            memory.write_blocks("missing", [bytes(size)], size, when=PRESENT)
        memory.write_blocks("file", [bytes(size)], size, when=PRESENT)
        assert [(entry.path, entry.size) for entry in memory.list()] == [("file", size)]


def test_stat_has_the_etag_on_every_backend(root: Root) -> None:
    with opened(root) as memory:
        found = memory.stat("file").etag
        assert isinstance(found, ETag)
        assert memory.write("file", "new", when=found).etag == memory.stat("file").etag != found


def test_an_etag_is_its_token() -> None:
    memory = AgentMemory.open("memory://")
    etag = memory.write("file", OLD).etag
    assert etag is not None
    assert ETag(etag.token) == etag
    assert hash(ETag(etag.token)) == hash(etag)
    assert etag != etag.token
    memory.write("file", "new", when=ETag(etag.token))


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, "0" * 65, 5, None, b"0" * 64])
def test_a_malformed_digest_is_no_precondition(digest: Any) -> None:
    with pytest.raises(InvalidContentError, match="64 hexadecimal digits"):
        SHA256(digest)


def test_a_directory_has_no_etag() -> None:
    memory = AgentMemory.open("memory://")
    etag = memory.write("directory/file", OLD).etag
    assert etag is not None
    for call in (memory.rename, memory.copy):
        with pytest.raises(AgentMemoryFileNotFoundError):
            call("directory", "other", when=etag)
    assert [entry.path for entry in memory.list()] == ["directory/file"]


@pytest.mark.parametrize("token", [None, 5, b"x"])
def test_an_etag_is_made_of_a_text(token: Any) -> None:
    with pytest.raises(TypeError, match="the token of an etag is a str, not"):
        ETag(token)
