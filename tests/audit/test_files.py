"""Files held against the audit log: what writers did is found as it is, and every other change is named."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryError, AgentMemoryService
from agent_memory.audit import LogLocation, log_at
from agent_memory.audit import files as files_module
from agent_memory.audit import states as states_module
from agent_memory.audit.anew import Renewal
from agent_memory.audit.bases import BaseFacts, CutPart, create, new_base, now
from agent_memory.audit.files import FileFinding, FileVerifier, Progress
from agent_memory.audit.logged import LoggedAppend, LoggedFile, Ran, Whole
from agent_memory.audit.names import PathsOption
from agent_memory.audit.verify import Proofs, examine
from agent_memory.core.blocking import BlockingStore
from agent_memory.key import Key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.redaction import RedactionPlugin
from agent_memory.registry import open_backend
from tests.audit.trial import FAR, Trial
from tests.support import sizes
from tests.support.servers import S3Server


class Held:
    """A store with an audit log in it."""

    def __init__(self, url: str, options: dict[str, object], directory: Path, paths: PathsOption = "names") -> None:
        self.url, self.options = url, options
        self.paths: PathsOption = paths
        self.trial = Trial(url, directory, options)

    @contextmanager
    def service(self, *plugins: object, **options: Any) -> Iterator[AgentMemoryService]:
        with (
            AuditPlugin(self.url, required=True, storage_options=self.options or None, paths=self.paths) as audit,
            AgentMemoryService(
                self.url, plugins=[audit, *plugins], actor="ops", storage_options=self.options or None, **options
            ) as service,
        ):
            yield service

    def location(self) -> LogLocation:
        return log_at(self.url, self.options or None)

    def findings(self, **options: Any) -> list[FileFinding]:
        store = BlockingStore(open_backend(self.url, self.options or None))
        with closing(store), closing(self.location().store):
            return list(FileVerifier(self.location(), store).verify(**options))

    def told(self, **options: Any) -> list[tuple[str, str, str]]:
        return [(each.kind, each.agent, each.path) for each in self.findings(**options)]

    def change(self, agent: str, path: str, change: Callable[[bytes], bytes | None]) -> None:
        """Change a file behind the back of the log; None removes it."""
        store, key = BlockingStore(open_backend(self.url, self.options or None)), Key.agent(agent).join(path)
        with closing(store):
            found = change(store.read(key).data)
            if found is None:
                store.delete(key)
            else:
                store.write(key, found)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no records of active writers, where there are none."""
    if "go_on" not in request.node.name:
        monkeypatch.setattr(files_module, "WAIT_SECONDS", 0.0)
        monkeypatch.setattr(files_module, "SKEW_SECONDS", -1.0)


@pytest.fixture(params=["disk", "digest", "s3"])
def held(request: pytest.FixtureRequest, tmp_path: Path, ministack: S3Server) -> Held:
    if request.param != "s3":
        paths: PathsOption = "digest" if request.param == "digest" else "names"
        return Held(f"file://{tmp_path}/root", {}, tmp_path, paths)
    return Held(ministack.new_url(), ministack.options, tmp_path)


def test_files_are_as_the_last_records_tell_after_each_kind_of_operation(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("a.md", "one")
        bob.write("a.md", "two")
        bob.create("b.md", "")
        bob.append("b.md", "line")
        bob.append("b.md", "line\n")
        bob.append("b.md", "next")
        bob.append("new.md", "first\n")
        bob.edit("a.md", lambda text: text + " three")
        bob.write("notes/c.md", "c")
        bob.rename("notes", "old")
        bob.rename("old/c.md", "old/d.md")
        bob.copy("old", "copied")
        bob.write("gone.md", "gone")
        bob.delete("gone.md")
        bob.write("tree/x.md", "x")
        bob.delete_tree("tree")
        bob.append("copied/d.md", "more")
        service.write_memory_file("eve", "a.md", "eve")
    assert held.told() == []


@pytest.mark.parametrize("held", ["disk", "s3"], indirect=True)  # with digests see test_names.py
def test_each_change_behind_the_back_of_the_log_is_named(held: Held) -> None:
    with held.service() as service:
        for path in ("changed.md", "grown.md", "removed.md", "cut.md", "untouched.md"):
            service.append_to_memory_file("bob", path, "one\n")
            service.append_to_memory_file("bob", path, "two\n")
        service.write_memory_file("bob", "deleted.md", "x")
        service.delete_memory_file("bob", "deleted.md")
    held.change("bob", "changed.md", lambda data: data.replace(b"one", b"One"))
    held.change("bob", "grown.md", lambda data: data + b"three\n")
    held.change("bob", "cut.md", lambda data: data[:4])
    held.change("bob", "removed.md", lambda _: None)
    with AgentMemoryService(held.url, storage_options=held.options or None) as unseen:
        unseen.write_memory_file("bob", "deleted.md", "x")
        unseen.write_memory_file("bob", "unknown.md", "x")
        unseen.write_memory_file("zoe", "unknown.md", "x")
    assert held.told() == [
        ("changed", "bob", "changed.md"),
        ("changed", "bob", "cut.md"),
        ("unknown", "bob", "deleted.md"),
        ("changed", "bob", "grown.md"),
        ("missing", "bob", "removed.md"),
        ("unknown", "bob", "unknown.md"),
        ("unknown", "zoe", "unknown.md"),
    ]
    assert held.told(agents=["zoe"]) == [("unknown", "zoe", "unknown.md")]
    assert held.told(after=("bob", "grown.md"))[0] == ("missing", "bob", "removed.md")


def test_an_older_state_of_a_file_is_a_change(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("a.md", "old")
        bob.write("a.md", "new")
        bob.append("b.jsonl", "1\n")
        bob.append("b.jsonl", "2\n")
    held.change("bob", "a.md", lambda _: b"old")
    held.change("bob", "b.jsonl", lambda _: b"1\n")
    assert held.told() == [("changed", "bob", "a.md"), ("changed", "bob", "b.jsonl")]


@pytest.mark.parametrize("held", ["disk", "s3"], indirect=True)  # with digests see test_names.py
def test_a_forgotten_salt_leaves_bytes_without_proof(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("a.md", "secret")
        bob.write("b.md", "other")
        bob.forget("a.md")
        bob.append("b.md", " more")
        bob.write("c.md", "later")
    assert held.told() == [("unvouched", "bob", "b.md")]
    held.change("bob", "c.md", lambda _: b"LATER")
    held.change("bob", "b.md", lambda data: data[:-1] + b"!")
    assert held.told() == [("changed", "bob", "b.md"), ("changed", "bob", "c.md")]


def test_filtered_content_is_as_it_was_stored(held: Held) -> None:
    with held.service(RedactionPlugin()) as service:
        bob = service.agent("bob")
        bob.append("a.md", "mail bob@example.org\n")
        bob.append("a.md", "key AKIAIOSFODNN7EXAMPLE\n")
    assert held.told() == []


def test_an_operation_without_a_known_outcome_leaves_a_doubt_until_the_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with (
        AuditPlugin(held.url, required=True, intent=True) as audit,
        AgentMemoryService(held.url, plugins=[audit]) as service,
    ):
        service.write_memory_file("bob", "a.md", "one")
        service.write_memory_file("bob", "b.md", "one")
    [part] = held.location().parts()
    store = held.location().store
    lines = store.read(part).data.splitlines(keepends=True)
    store.write(part, b"".join(lines[:-1]))  # the process was killed before its last record
    assert held.told() == [("unvouched", "bob", "b.md")]
    monkeypatch.setattr(states_module, "SKEW_SECONDS", -1.0)
    with held.service() as service:
        service.write_memory_file("bob", "b.md", "written again")
    assert held.told() == []


@pytest.mark.parametrize("paths", ["names", "digest", "both"])
@pytest.mark.parametrize("seed", range(40 if sizes.is_long else 4))
def test_random_operations_leave_no_finding_and_then_each_changed_byte_is_named(
    tmp_path: Path, seed: int, paths: str
) -> None:
    held, chance = Held(f"file://{tmp_path}/root", {}, tmp_path), random.Random(seed)
    held.paths = "digest" if paths == "digest" else "names"
    with held.service() as first:
        held.paths = "names" if paths == "names" else "digest"
        with held.service() as second:
            _operate_on([first, second], chance)
    assert held.told() == []
    _change_each(held, chance)


def _operate_on(services: list[AgentMemoryService], chance: random.Random) -> None:
    for _ in range(200):
        memory = chance.choice(services).agent(chance.choice(["bob", "eve"]))
        try:
            _operate(memory, chance)
        except AgentMemoryError:
            continue


def _change_each(held: Held, chance: random.Random) -> None:
    with AgentMemoryService(held.url) as service:
        files = [(agent, str(each)) for agent in service.agent_ids() for each in service.agent(agent).list()]
        sizes_of = {each: len(service.agent(each[0]).read_bytes(each[1])) for each in files}
    for agent, path in chance.sample(files, min(10, len(files))):
        if size := sizes_of[agent, path]:
            at = chance.randrange(size)
            held.change(agent, path, lambda data, at=at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])  # type: ignore[misc]
            assert held.told() == [("changed", agent, path)]
            held.change(agent, path, lambda data, at=at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])  # type: ignore[misc]


def _operate(memory: AgentMemory, chance: random.Random) -> None:
    names = ["a.md", "b.md", "d/a.md", "d/b.md", "d/e/a.md"]
    path, other, text = chance.choice(names), chance.choice([*names, "d", "f"]), str(chance.random())
    match chance.randrange(8):
        case 0:
            memory.write(path, text)
        case 1 | 2 | 3:
            memory.append(path, text + chance.choice(["", "\n"]))
        case 4:
            memory.edit(path, lambda found: found[: len(found) // 2] + text)
        case 5:
            memory.rename(chance.choice([path, "d"]), other)
        case 6:
            memory.copy(chance.choice([path, "d"]), other)
        case 7:
            if chance.random() < 0.3:
                memory.delete_tree("d")
            else:
                memory.delete(path)


def test_writers_that_go_on_during_the_verification_cause_no_finding(held: Held) -> None:
    stop, errors = threading.Event(), list[BaseException]()

    def write(number: int) -> None:
        try:
            with held.service() as service:
                turn = 0
                while not stop.is_set() and turn < 20:  # on S3 each record is an object
                    turn += 1
                    service.append_to_memory_file("bob", "shared.jsonl", f"{number}:{turn}\n")
                    service.write_memory_file("bob", f"{number}.md", f"{turn}")
                    service.agent("bob").edit("edited.md", lambda text: text + "x")
        except BaseException as error:  # noqa: BLE001 - the test reports it
            errors.append(error)

    with held.service() as service:
        service.write_memory_file("bob", "shared.jsonl", "")
        service.write_memory_file("bob", "edited.md", "")
    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert [each for each in held.told() if each[0] != "unvouched"] == []
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert held.told() == []


def test_a_changed_byte_in_any_of_a_thousand_files_of_a_hundred_agents_is_named(tmp_path: Path) -> None:
    held, chance = Held(f"file://{tmp_path}/root", {}, tmp_path), random.Random(1)
    with (
        AuditPlugin(held.url) as audit,
        AgentMemoryService(held.url, plugins=[audit]) as service,
    ):
        for agent in range(100):
            for file in range(10):
                service.write_memory_file(f"agent-{agent:03}", f"{file}.md", f"{agent}:{file} " * 10)
    progress = Progress()
    assert held.told(progress=progress) == []
    assert progress.files == 1000
    for _ in range(3):
        name, path = f"agent-{chance.randrange(100):03}", f"{chance.randrange(10)}.md"
        held.change(name, path, lambda data: data[:-1] + b"X")
        assert held.told() == [("changed", name, path)]
        held.change(name, path, lambda data: data[:-1] + b" ")


def test_a_pruned_log_still_vouches_for_files_that_are_older(tmp_path: Path) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with held.service() as service:
        service.write_memory_file("bob", "a.md", "one")
        service.append_to_memory_file("bob", "b.jsonl", "1\n")
        service.append_to_memory_file("bob", "b.jsonl", "2\n")
        service.write_memory_file("bob", "gone.md", "x")
        service.delete_memory_file("bob", "gone.md")
    held.trial.heads.unlink(missing_ok=True)
    held.trial.renewal().close()
    with held.service() as service:
        service.append_to_memory_file("bob", "b.jsonl", "3\n")
    assert held.told() == []
    held.trial.renewal().prune(FAR)
    assert held.told() == []
    held.change("bob", "a.md", lambda _: b"two")
    held.change("bob", "b.jsonl", lambda data: data.replace(b"2", b"4"))
    with AgentMemoryService(held.url) as unseen:
        unseen.write_memory_file("bob", "gone.md", "x")
    assert held.told() == [("changed", "bob", "a.md"), ("changed", "bob", "b.jsonl"), ("unknown", "bob", "gone.md")]


def test_a_directory_in_the_place_of_a_former_file_is_followed(tmp_path: Path) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("d", "a file")
        bob.delete("d")
        bob.write("d/x.md", "x")
        bob.rename("d", "e")
        bob.write("d/y.md", "y")
        bob.delete_tree("d")
    assert held.told() == []


def test_a_keyed_log_that_was_closed_still_vouches_for_files(tmp_path: Path) -> None:
    held, key = Held(f"file://{tmp_path}/root", {}, tmp_path), b"k" * 32
    for path in ("a.md", "b.md"):
        with (
            AuditPlugin(held.url, required=True, key=key) as audit,
            AgentMemoryService(held.url, plugins=[audit]) as service,
        ):
            service.write_memory_file("bob", path, "one")
        proofs = Proofs({}, key, held.location().identity(), {}, salts=True)
        Renewal(held.location(), proofs, "ops").close()
    assert held.told() == []
    held.change("bob", "a.md", lambda _: b"two")
    assert held.told() == [("changed", "bob", "a.md")]


def test_a_restart_leaves_no_doubt_about_files(tmp_path: Path) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("a.md", "one")
        bob.copy("a.md", "c.md")
        bob.write("a.md", "two")
        bob.rename("a.md", "b.md")
        bob.write("a.md", "new")
        service.write_memory_file("eve", "x.md", "1")
        service.write_memory_file("eve", "x.md", "2")
    [part] = held.location().parts()
    store = held.location().store
    lines = store.read(part).data.splitlines(keepends=True)
    store.write(part, b"".join(lines[:-2] + lines[-1:]))
    Renewal(held.location(), Proofs({}, None, held.location().identity(), {}, salts=True), "ops").restart("a test")
    assert held.told() == []
    held.change("bob", "c.md", lambda _: b"new")
    assert held.told() == [("changed", "bob", "c.md")]


def test_a_base_that_is_not_in_effect_tells_nothing_of_files(tmp_path: Path) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with held.service() as service:
        service.write_memory_file("bob", "a.md", "one")
    held.change("bob", "a.md", lambda _: b"two")
    location = held.location()
    examined = examine(location, Proofs({}, None, location.identity(), {}, salts=True))
    [part] = examined.parts
    data = location.store.read(part.key).data
    cut = CutPart(location.name_of(part.key), part.size, part.lines, hashlib.sha256(data).hexdigest())
    doubt: list[Any] = [("bob", "a.md", "nothing is known", [], [])]
    facts = BaseFacts("closed", now(), "eve", None, 2, [cut], examined.verifier.ends(), [], (), doubt)
    create(location, new_base(1, facts, location.make_identity(), None))
    assert held.told() == [("changed", "bob", "a.md")]


def test_a_record_that_comes_late_replaces_no_later_content() -> None:
    file, late = LoggedFile(), Ran(1.0, 1.1, "a" * 16)
    file.set(Whole(Ran(100.0, 100.1, "b" * 16), 3, "new"))
    file.set(Whole(late, 5, "old"))
    file.append(LoggedAppend(late, 9, 4, "old", None))
    assert ([whole.digest for whole in file.wholes], file.appends) == (["new"], [])


def test_a_base_keeps_the_many_appends_of_a_file_in_short_lines(tmp_path: Path) -> None:
    held = Held(f"file://{tmp_path}/root", {}, tmp_path)
    with held.service() as service:
        for number in range(250):
            service.append_to_memory_file("bob", "log.md", f"{number}\n")
    base = held.trial.renewal().close()
    assert base is not None
    states = [each for each in (base.facts.files if base.facts else ()) if each[1] == "log.md"]
    assert [len(each[4]) for each in states] == [100, 100, 50]
    assert held.told() == []
    held.change("bob", "log.md", lambda data: data.replace(b"249", b"942"))
    assert held.told() == [("changed", "bob", "log.md")]


def test_a_clock_that_was_set_back_does_not_change_the_order_of_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, real = Held(f"file://{tmp_path}/root", {}, tmp_path), time.time
    with held.service() as service:
        service.write_memory_file("bob", "a.md", "one")
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real() - 300)
            service.write_memory_file("bob", "a.md", "two")
            service.append_to_memory_file("bob", "a.md", "three")
    assert held.told() == []
    held.change("bob", "a.md", lambda _: b"one")
    assert held.told() == [("changed", "bob", "a.md")]
