"""``agentmemory://``: libraries that use fsspec read and write a memory by URL, on disk and on S3, and hooks see it."""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from upath import UPath

from agent_memory import AgentMemory, AgentMemoryService, BackendNotAvailableError, OperationDenied, PathTraversalError
from agent_memory.audit import records
from agent_memory.integrations.fsspec import AgentMemoryURLFileSystem
from agent_memory.integrations.upath import AgentMemoryPath
from tests.integrations.conftest import URL_AGENT
from tests.support import sizes
from tests.support.servers import S3Server

pytestmark = pytest.mark.usefixtures("_fresh")
Options = dict[str, Any]
open_url: Any = fsspec.open
AGENT = URL_AGENT


on_disk_or_both = pytest.mark.parametrize(
    "options", ["local", pytest.param("ministack", marks=pytest.mark.long)], indirect=True
)


def test_fsspec_opens_a_url(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    with open_url("agentmemory://notes/today.md", "w", **options) as file:
        file.write("learnt\n")
    with open_url("agentmemory://notes/today.md", **options) as file:
        assert file.read() == b"learnt\n"
    assert fsspec.filesystem("agentmemory", **options).ls("notes", detail=False) == ["notes/today.md"]
    assert {("write", "notes/today.md"), ("read", "notes/today.md"), ("list", "notes")} <= seen()


def test_a_upath_is_a_path_in_the_memory(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    notes: Any = UPath("agentmemory://notes", **options)
    assert type(notes) is AgentMemoryPath
    (notes / "today.md").write_text("learnt\n")
    assert (notes / "today.md").read_text() == "learnt\n"
    assert [str(path) for path in notes.iterdir()] == ["agentmemory://notes/today.md"]
    (notes / "today.md").unlink()
    assert not notes.exists()
    with pytest.raises(PathTraversalError):
        (notes / ".." / ".." / "x").read_text()
    assert {("write", "notes/today.md"), ("delete", "notes/today.md")} <= seen()


def in_another_process(pickled: bytes, sender: Any) -> None:
    fs = pickle.loads(pickled)
    fs.pipe_file(f"from-{os.getpid()}.md", b"x")
    found = fs.cat("a.md")
    fs.close()
    sender.send(found)


@on_disk_or_both
def test_a_filesystem_is_sent_to_another_process(options: Options, seen: Callable[[], set[tuple[str, str]]]) -> None:
    fs = fsspec.filesystem("agentmemory", **options)
    fs.pipe_file("a.md", b"1")
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=in_another_process, args=(pickle.dumps(fs), its))
    process.start()
    its.close()
    assert ours.recv() == b"1"
    process.join()
    assert fs.exists(f"from-{process.pid}.md")
    assert ("write", f"from-{process.pid}.md") in seen()


# Identity.


def opened(**options: Any) -> AgentMemoryURLFileSystem:
    fs: AgentMemoryURLFileSystem = fsspec.filesystem("agentmemory", **options)
    return fs


def test_equal_options_share_a_filesystem_and_different_ones_never_do(tmp_path: Path) -> None:
    guard = {"readonly": {"patterns": ["policies/**"]}}
    given: list[Options] = [
        {},
        {"agent": "a"},
        {"agent": "b"},
        {"read_only": True},
        {"actor": "ann"},
        {"timeout": 1},
        {"timeout": 1.5},
        {"plugins": {}},
        {"plugins": guard},
        {"root_options": {"durability": "process"}},
        {"root_options": {"durability": "full"}},
    ]
    one = [opened(root=str(tmp_path), **options) for options in given]
    other = [opened(root=str(tmp_path), **copy.deepcopy(options)) for options in given]
    assert [a is b for a, b in zip(one, other, strict=True)] == [True] * len(given)
    assert len({id(fs) for fs in one}) == len(given)
    assert opened(root=str(tmp_path)) is opened(root=tmp_path)
    assert opened(root=str(tmp_path), skip_instance_cache=True) is not one[0]


def test_other_credentials_are_another_filesystem(monkeypatch: pytest.MonkeyPatch, ministack: S3Server) -> None:
    url, given = ministack.new_url(), dict(ministack.options)
    one = opened(root=url, root_options=given)
    assert opened(root=url, root_options={**given, "key": "other"}) is not one
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    assert opened(root=url, root_options=given) is not one
    text = f"{one!r} {one._fs_token} {one._opened.keys()}"
    assert str(given["secret"]) not in text


def test_another_thread_gets_a_filesystem_of_its_own(tmp_path: Path) -> None:
    found: list[AgentMemoryURLFileSystem] = []
    thread = threading.Thread(target=lambda: found.append(opened(root=str(tmp_path))))
    thread.start()
    thread.join()
    assert found[0] is not opened(root=str(tmp_path))


def test_options_that_are_no_plain_data_are_not_shared_and_not_pickled() -> None:
    url, session = "memory://plain", object()
    with pytest.raises(TypeError):
        opened(root=url, root_options={"session": session})  # and the backend takes no such option
    fs = opened(root=url)
    fs.storage_options = {"root": url, "root_options": {"session": session}}
    with pytest.raises(TypeError, match="no plain data"):
        pickle.dumps(fs)


def test_a_copy_is_the_same_filesystem(tmp_path: Path) -> None:
    fs = opened(root=str(tmp_path))
    assert pickle.loads(pickle.dumps(fs)) is copy.copy(fs) is copy.deepcopy(fs) is fs


def test_credentials_in_the_options_are_not_pickled(ministack: S3Server) -> None:
    fs = opened(root=ministack.new_url(), root_options=ministack.options)
    for do in (pickle.dumps, copy.deepcopy, lambda each: each.to_json(), lambda each: each.to_dict()):
        with pytest.raises(TypeError, match=r"option '(key|secret)' is a credential") as refused:
            do(fs)
        assert str(ministack.options["secret"]) not in str(refused.value)


def test_a_filesystem_is_described_without_credentials(tmp_path: Path) -> None:
    fs = opened(root=str(tmp_path), agent="bob")
    again = fsspec.AbstractFileSystem.from_json(fs.to_json())
    assert again is fs
    assert json.loads(fs.to_json())["agent"] == "bob"


# What is opened.


def test_the_files_are_those_of_the_memory(tmp_path: Path) -> None:
    opened(root=str(tmp_path), agent="bob").pipe_file("a.md", b"1")
    with AgentMemoryService(tmp_path) as service:
        assert service.read_memory_file("bob", "a.md") == "1"
    opened(root=str(tmp_path / "tree")).pipe_file("b.md", b"2")
    with AgentMemory.open(tmp_path / "tree") as memory:
        assert memory.read("b.md") == "2"


def test_a_read_only_filesystem_changes_nothing(tmp_path: Path) -> None:
    opened(root=str(tmp_path)).pipe_file("a.md", b"1")
    fs = opened(root=str(tmp_path), read_only=True)
    with pytest.raises(OperationDenied):
        fs.rm("a.md")
    assert fs.cat("a.md") == b"1"


def test_the_plugins_of_the_environment_are_enabled_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_MEMORY_PLUGINS", '{"readonly": {"patterns": ["a.md"]}}')
    with pytest.raises(OperationDenied):
        opened(root=str(tmp_path)).pipe_file("a.md", b"12")
    opened(root=str(tmp_path), plugins={}).pipe_file("a.md", b"12")


def test_the_limits_of_the_environments_file_are_set_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text("[limits]\nfile_bytes = 1")
    monkeypatch.setenv("AGENT_MEMORY_CONFIG", str(tmp_path / "c.toml"))
    opened(root=str(tmp_path / "other"), plugins={}).pipe_file("a.md", b"12")
    with pytest.raises(OperationDenied, match="a file may have 1 bytes"):
        opened(root=str(tmp_path / "root")).pipe_file("a.md", b"12")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"root": 7}, TypeError),
        ({}, TypeError),
        ({"root": "memory://x", "agents": "a"}, TypeError),
        ({"root": "memory://x", "agent": "../a"}, ValueError),
        ({"root": "nothing://x"}, BackendNotAvailableError),
        ({"root": "memory://x", "plugins": {"nothing": {}}}, ValueError),
        ({"root": "memory://x", "plugins": {"readonly": {"most": 1}}}, ValueError),
        ({"root": "memory://x", "plugins": ["readonly"]}, TypeError),
        ({"root": "memory://x", "plugins": {"readonly": 1}}, TypeError),
        ({"root": "memory://x", "read_only": "no"}, TypeError),
        ({"root": "memory://x", "root_options": ["what"]}, TypeError),
        ({"root": "memory://x", "timeout": 0}, ValueError),
        ({"root": "memory://x", "root_options": {"what": 1}}, TypeError),
    ],
)
def test_a_wrong_option_is_refused(options: Options, error: type[Exception]) -> None:
    with pytest.raises(error):
        opened(**options)


def test_a_relative_root_in_another_directory_is_another_filesystem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        opened(root="./memories").pipe_file("a.md", name.encode())
    assert (tmp_path / "one" / "memories" / "a.md").read_text() == "one"


def test_a_closed_filesystem_is_opened_again(tmp_path: Path) -> None:
    fs = opened(root=str(tmp_path))
    fs.close()
    assert opened(root=str(tmp_path)) is not fs


@pytest.mark.parametrize(
    "options",
    [
        {"password": "hidden"},
        {"passphrase": "hidden"},
        {"headers": {"Authorization": "hidden"}},
        {"client_kwargs": {"aws_session_token": "hidden"}},
        {"config_kwargs": {"proxies": {"http": "http://u:hidden@proxy"}}},
        {"endpoint_url": "http://user:hidden@host"},
        {"sas": "hidden"},
        {"several": [{"apikey": "hidden"}]},
        {"account_key": "hidden"},
    ],
)
def test_a_credential_anywhere_in_the_options_is_not_pickled(options: Options, tmp_path: Path) -> None:
    fs = opened(root=str(tmp_path), skip_instance_cache=True)
    fs.storage_options = {"root": str(tmp_path), "root_options": options}
    with pytest.raises(TypeError, match="is a credential"):
        pickle.dumps(fs)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def write_by_url(root: str, agent: str) -> None:
    opened: Any = fsspec.open("agentmemory://a.md", "w", root=root, agent=agent)
    with opened as file:
        file.write("x")


def test_many_urls_leave_a_bounded_number_of_descriptors_open(tmp_path: Path) -> None:
    before = descriptors()
    for number in range(1000 if sizes.is_long else 100):
        root = f"file://{tmp_path}/{number % 3}?durability=process"
        write_by_url(root, f"agent-{number}")
    assert len(AgentMemoryURLFileSystem._opened) == 32
    assert descriptors() - before <= 3 * 32
    AgentMemoryURLFileSystem.clear_instance_cache()
    assert descriptors() <= before


@pytest.mark.parametrize("mode", ["rb", "wb"])
def test_a_filesystem_that_is_in_use_is_not_closed(tmp_path: Path, mode: str) -> None:
    options: Options = {"root": str(tmp_path), "plugins": {"audit": {"target": str(tmp_path / "audit.jsonl")}}}
    kept = opened(**options, actor="kept")
    kept.pipe("a.md", b"x" * 100)
    file = open_url("agentmemory://a.md", mode, **options, actor="in use").open()
    for number in range(40):
        opened(**options, actor=str(number))
    gc.collect()
    assert kept.close.alive
    assert file.fs.close.alive
    if mode == "wb":
        file.write(b"new")
    file.close()
    closing = weakref.ref(file.fs)
    del file
    gc.collect()
    assert closing() is None
    kept.close()
    actors = {record.get("actor") for record in records(tmp_path / "audit.jsonl")}
    assert {"kept", "in use"} <= actors


def test_a_filesystem_that_was_used_last_stays(tmp_path: Path) -> None:
    first = id(opened(root=str(tmp_path), actor="first"))
    for number in range(100):
        opened(root=str(tmp_path), actor=str(number))
        assert id(opened(root=str(tmp_path), actor="first")) == first


@pytest.mark.long
def test_threads_open_filesystems_at_once(tmp_path: Path) -> None:
    barrier, failed = threading.Barrier(8), list[BaseException]()

    def work(thread: int) -> None:
        barrier.wait()
        try:
            for number in range(50):
                opened(root=f"file://{tmp_path}?durability=process", actor=f"{thread} {number}").pipe("a.md", b"x")
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(AgentMemoryURLFileSystem._opened) == 32
