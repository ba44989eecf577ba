"""Digests of names in the log: a forget leaves no name, and each reader finds what it finds in a log of names."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_memory import (
    AgentMemory,
    AgentMemoryService,
    InvalidPathError,
    OutcomeUnknownError,
    VersionLimits,
    hookimpl,
)
from agent_memory.audit import log_at, records, verify
from agent_memory.audit.location import LogLocation
from agent_memory.audit.names import UNNAMED, AgentNames, Spellings, is_digest
from agent_memory.audit.record import START, encode
from agent_memory.audit.records import has_digests, recorded_appends
from agent_memory.audit.salts import Salts
from agent_memory.audit.states import LoggedFiles
from agent_memory.errors import WriteError
from agent_memory.hookspecs import Operation
from agent_memory.key import is_at_or_below
from agent_memory.plugins.audit import AuditPlugin, from_configuration
from tests.audit.test_files import Held, quick
from tests.audit.trial import FAR
from tests.support.places import Place, in_a_versioned_bucket, on_disk
from tests.support.servers import S3Server

__all__ = ["quick"]
NAMES = AgentNames("bob", bytes(range(32)))


@pytest.fixture(params=["disk", "s3"])
def held(request: pytest.FixtureRequest, tmp_path: Path, ministack: S3Server) -> Held:
    if request.param == "disk":
        return Held(f"file://{tmp_path}/root", {}, tmp_path, "digest")
    return Held(ministack.new_url(), ministack.options, tmp_path, "digest")


@pytest.fixture
def disk(tmp_path: Path) -> Held:
    return Held(f"file://{tmp_path}/root", {}, tmp_path, "digest")


def operations(held: Held) -> list[dict[str, Any]]:
    with closing(held.location().store):
        return [record for record in records(held.location()) if record["event"] == "operation"]


def log_bytes(location: LogLocation) -> bytes:
    parts = [block for part in location.parts() for block in location.blocks(part)]
    return b"".join([*parts, *(location.store.read(location.base_key(each)).data for each in location.base_numbers())])


# Digests.


def test_a_digest_keeps_which_path_is_below_which_other_one() -> None:
    assert NAMES.path("") == ""
    assert is_at_or_below(NAMES.path("a/b/c.md"), NAMES.path("a/b"))
    assert not is_at_or_below(NAMES.path("a/bc.md"), NAMES.path("a/b"))
    assert NAMES.path("a/b") == f"{NAMES.path('a')}/{NAMES.path('b')}"
    assert len(str(NAMES.digest)) == 33
    assert len(NAMES.path("a")) == 25


def test_a_digest_depends_on_the_salt_and_on_what_it_names() -> None:
    other = AgentNames("bob", bytes(32))
    assert (
        len({NAMES.digest, other.digest, NAMES.path("bob"), other.path("bob"), NAMES.digest and NAMES.digest[:25]}) == 5
    )
    assert AgentNames(None, NAMES.salt).digest is None
    assert NAMES.text("\ud800") != NAMES.text("\ud801")


def test_known_segments_of_a_digest_are_shown_as_they_are() -> None:
    spelled = Spellings("bob", NAMES)
    record = {"agent": NAMES.digest, "path": NAMES.path("a/b/c.md"), "target": NAMES.path("a")}
    below = NAMES.path("c.md")
    assert spelled.plain(record, "a/b") == {"agent": "bob", "path": f"a/b/{below}", "target": "a"}
    assert spelled.plain(record) == {**record, "agent": "bob"}


@pytest.mark.parametrize("value", ["digests", "", None, True])
def test_another_value_of_the_option_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="paths must be one of 'names', 'digest', not"):
        AuditPlugin(tmp_path / "audit.jsonl", paths=value)
    with pytest.raises(ValueError, match="paths must be one of"):
        from_configuration(str(tmp_path / "audit.jsonl"), paths=value)
    assert list(tmp_path.iterdir()) == []


# Records.


def test_records_name_agents_and_paths_by_digests_only(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("notes/phone.md", "x")
        bob.rename("notes/phone.md", "notes/mobile.md")
        bob.list()
        service.write_memory_file("zoe", "notes/phone.md", "x")
        with pytest.raises(InvalidPathError):
            bob.read("../phone.md")
        with pytest.raises(InvalidPathError):
            service.read_memory_file("no agent phone", "a.md")
    with closing(held.location().store):
        text = log_bytes(held.location())
        names = Salts(held.location()).known_names("bob")
        refused = [record for record in records(held.location()) if record["event"] == "refused"]
    assert names is not None
    for name in (b"bob", b"zoe", b"notes", b"phone", b"mobile"):
        assert name not in text
    write, rename, listed, other = operations(held)
    assert (write["agent"], write["path"]) == (names.digest, names.path("notes/phone.md"))
    assert (rename["path"], rename["target"]) == (names.path("notes/phone.md"), names.path("notes/mobile.md"))
    assert listed["path"] == ""
    assert {other["agent"], other["path"]}.isdisjoint({write["agent"], write["path"]})
    assert (refused[0]["agent"], is_digest(refused[0]["path"])) == (names.digest, True)
    assert ("agent" in refused[1], is_digest(refused[1]["path"])) == (False, True)


def test_an_intent_and_its_operation_have_the_same_names(disk: Held) -> None:
    with (
        AuditPlugin(disk.url, required=True, intent=True, paths="digest") as audit,
        AgentMemoryService(disk.url, plugins=[audit]) as service,
    ):
        service.write_memory_file("bob", "a.md", "x")
    intent, done = [record for record in records(disk.location()) if "operation" in record]
    assert (intent["agent"], intent["path"]) == (done["agent"], done["path"])
    assert is_digest(done["agent"])
    assert disk.told() == []


def test_the_paths_of_a_tree_without_an_agent_are_digests(tmp_path: Path) -> None:
    with AuditPlugin(tmp_path / "audit.jsonl", required=True, paths="digest") as audit:
        AgentMemory.open(tmp_path / "tree", plugins=[audit]).append("phone.md", "x")
    record = list(records(tmp_path / "audit.jsonl"))[-1]
    assert ("agent" in record, is_digest(record["path"])) == (False, True)
    appends = recorded_appends(tmp_path / "audit.jsonl", None)
    assert len(appends.unversioned("phone.md")) == 1
    assert appends.unversioned("other.md") == []


def test_a_salt_that_cannot_be_read_leaves_a_record_without_names(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl.salts").mkdir()
    (tmp_path / "audit.jsonl.salts" / "bob.salt").write_text("x")
    with (
        AuditPlugin(tmp_path / "audit.jsonl", required=True, paths="digest") as audit,
        AgentMemoryService("memory://no-salt", plugins=[audit]) as service,
    ):
        with pytest.raises(OutcomeUnknownError):
            service.write_memory_file("bob", "a.md", "x")
        service.forget_memory("bob")
        service.write_memory_file("bob", "a.md", "x")
    write, forget, anew = [record for record in records(tmp_path / "audit.jsonl") if "operation" in record]
    assert (write["agent"], write["path"], "digest" in write) == (UNNAMED, UNNAMED, False)
    assert (forget["agent"], forget["path"], forget["salt"]) == (UNNAMED, "", "destroyed")
    assert (len(anew["agent"]), "digest" in anew) == (33, True)


# Forget.


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, ministack: S3Server) -> Place:
    """A root whose contents have the names of files too; in a bucket also those of versions and deletion markers."""
    if request.param == "disk":
        found = on_disk(tmp_path / "root")
        return found._replace(contents=lambda: [*found.contents(), *(bytes(each) for each in tmp_path.rglob("*"))])
    bucket = in_a_versioned_bucket(ministack)
    name = bucket.url.split("/")[2]

    def names() -> list[bytes]:
        listed = ministack.client("s3").list_object_versions(Bucket=name)
        return [each["Key"].encode() for kind in ("Versions", "DeleteMarkers") for each in listed.get(kind, ())]

    return bucket._replace(contents=lambda: [*bucket.contents(), *names()])


def stored(place: Place) -> bytes:
    return b"\n".join(place.contents())


def test_after_a_forget_no_byte_below_the_root_has_the_agent_or_its_paths(place: Place) -> None:
    with (
        AuditPlugin(place.url, required=True, intent=True, storage_options=place.options, paths="digest") as audit,
        AgentMemoryService(place.url, plugins=[audit], storage_options=place.options, actor="ops") as service,
    ):
        mary = service.agent("mary-jones")
        mary.write("phones/5551234.md", "x")
        mary.edit("phones/5551234.md", lambda text: text + "y")
        mary.copy("phones", "copied")
        mary.rename("copied/5551234.md", "copied/5559876.md")
        with pytest.raises(InvalidPathError):
            mary.read("../5551234.md")
        service.write_memory_file("zoe", "her.md", "x")
        service.forget_memory("mary-jones")
        found = stored(place)
        for name in (b"mary", b"jones", b"phones", b"copied", b"5551234", b"5559876"):
            assert name not in found
        assert b"zoe" in found
        assert b"ops" in found  # the actor stays
    assert {each.kind for each in verify(log_at(place.url, place.options)).findings} == {"unanchored"}


def test_after_a_forget_of_a_path_no_byte_has_the_path(place: Place) -> None:
    with (
        AuditPlugin(place.url, required=True, storage_options=place.options, paths="digest") as audit,
        AgentMemoryService(place.url, plugins=[audit], storage_options=place.options) as service,
    ):
        mary = service.agent("mary")
        mary.write("customer-7/phone.md", "x")
        mary.write("customer-8/phone.md", "x")
        digest = next(each["path"] for each in records(log_at(place.url, place.options)) if "path" in each)
        mary.forget("customer-7")
        assert b"customer-7" not in stored(place)
        names = Salts(log_at(place.url, place.options)).known_names("mary")
        assert names is not None
        assert names.path("customer-7/phone.md") != digest


class Slow:
    """An observer that runs the forget while the first write is reported."""

    def __init__(self) -> None:
        self.forget: Any = None

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        if operation.kind == "write" and self.forget:
            forget, self.forget = self.forget, None
            forget()


def test_an_operation_that_is_recorded_after_the_forget_has_no_name(tmp_path: Path) -> None:
    slow = Slow()
    with (
        AuditPlugin(tmp_path / "audit.jsonl", required=True, paths="digest") as audit,
        AgentMemoryService(tmp_path / "root", plugins=[audit, slow]) as service,
    ):
        slow.forget = lambda: service.forget_memory("mary")
        service.write_memory_file("mary", "phone.md", "x")
        assert not (tmp_path / "audit.jsonl.salts" / "mary.salt").exists()
        service.write_memory_file("zoe", "a.md", "x")
    found = [record for record in records(tmp_path / "audit.jsonl") if "operation" in record]
    assert [(each["operation"], each["agent"] == UNNAMED) for each in found] == [
        ("forget", False), ("write", True), ("write", False),
    ]  # fmt: skip


def test_a_write_after_the_forget_is_named_although_the_forget_is_not_recorded_yet(disk: Held) -> None:
    with AuditPlugin(disk.url, paths="digest") as audit, AgentMemoryService(disk.url, plugins=[audit]) as service:
        service.write_memory_file("bob", "a.md", "x")
        service.forget_memory("bob")
        service.write_memory_file("bob", "b.md", "x")
        service.append_to_memory_file("bob", "c.md", "x")
    assert disk.told() == []
    assert {each["agent"] for each in operations(disk)} - {UNNAMED} == {each["agent"] for each in operations(disk)}


def test_another_process_uses_a_destroyed_salt_for_a_minute_at_most(
    disk: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk.service() as first, disk.service() as second:
        first.write_memory_file("bob", "a.md", "x")
        second.write_memory_file("bob", "b.md", "x")
        first.forget_memory("bob")
        second.write_memory_file("bob", "late.md", "x")
        monkeypatch.setattr("agent_memory.audit.salts.REREAD_SECONDS", -1.0)
        second.write_memory_file("bob", "c.md", "x")
    late, later = operations(disk)[-2:]
    assert late["agent"] == operations(disk)[0]["agent"] != later["agent"]
    assert disk.told() == [("unknown", "bob", "late.md")]


# Files held against the log.


def test_findings_name_files_by_path_and_missing_ones_by_digest(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        for path in ("changed.md", "d/removed.md", "same.md"):
            bob.append(path, "one\n")
            bob.append(path, "two\n")
        service.write_memory_file("zoe", "removed.md", "x")
    held.change("bob", "changed.md", lambda data: data.replace(b"one", b"One"))
    held.change("bob", "d/removed.md", lambda _: None)
    held.change("zoe", "removed.md", lambda _: None)
    with AgentMemoryService(held.url, storage_options=held.options or None) as unseen:
        unseen.write_memory_file("bob", "unknown.md", "x")
    with closing(held.location().store):
        known = Salts(held.location())
        bob_names, zoe_names = known.known_names("bob"), known.known_names("zoe")
    assert bob_names is not None
    assert zoe_names is not None
    assert held.told() == [
        ("changed", "bob", "changed.md"),
        ("unknown", "bob", "unknown.md"),
        ("missing", "bob", bob_names.path("d/removed.md")),
        ("missing", "zoe", zoe_names.path("removed.md")),
    ]
    assert held.told(agents=["zoe"]) == [("missing", "zoe", zoe_names.path("removed.md"))]


def test_files_of_an_agent_without_its_salt_are_reported_under_its_digest(disk: Held) -> None:
    with disk.service() as service:
        service.write_memory_file("bob", "a.md", "x")
    names = Salts(disk.location()).known_names("bob")
    assert names is not None
    disk.location().store.delete(Salts(disk.location())._key("bob"))
    assert disk.told() == [("unknown", "bob", "a.md"), ("missing", str(names.digest), names.path("a.md"))]
    [finding] = [each for each in verify(disk.location()).findings if each.kind == "salt"]
    assert f"the salt of agent {names.digest} is missing" in finding.detail


def test_after_a_forget_of_a_path_other_files_are_unvouched_until_they_are_written(held: Held) -> None:
    with held.service() as service:
        bob = service.agent("bob")
        for path in ("forgotten.md", "kept.md", "moved.md", "grown.md", "rewritten.md", "d/a.md", "removed.md"):
            bob.write(path, "x")
        service.write_memory_file("zoe", "a.md", "x")
        bob.forget("forgotten.md")
        bob.rename("moved.md", "to.md")
        bob.rename("d", "e")
        bob.append("grown.md", "y")
        bob.write("rewritten.md", "y")
        bob.write("new.md", "y")
        bob.delete("removed.md")
    unvouched = [("unvouched", "bob", path) for path in ("e/a.md", "grown.md", "kept.md", "to.md")]
    assert held.told() == unvouched
    held.change("bob", "rewritten.md", lambda _: b"z")
    held.change("bob", "new.md", lambda _: None)
    held.change("zoe", "a.md", lambda _: b"z")
    with closing(held.location().store):
        names = Salts(held.location()).known_names("bob")
    assert names is not None
    found = held.told()
    assert [each for each in found if each[0] != "unvouched"] == [
        ("changed", "bob", "rewritten.md"), ("missing", "bob", names.path("new.md")), ("changed", "zoe", "a.md"),
    ]  # fmt: skip


def test_a_process_with_a_destroyed_salt_makes_files_of_the_same_agent_unvouched(disk: Held) -> None:
    with disk.service() as first, disk.service() as second:
        first.write_memory_file("bob", "a.md", "x")
        second.write_memory_file("bob", "b.md", "x")
        second.write_memory_file("zoe", "a.md", "x")
        first.agent("bob").forget("a.md")
        first.write_memory_file("bob", "c.md", "x")
        second.write_memory_file("bob", "c.md", "y")
        second.write_memory_file("bob", "d.md", "y")
        first.agent("bob").forget("b.md")
    assert disk.told() == [("unvouched", "bob", "c.md"), ("unvouched", "bob", "d.md")]


def test_the_verification_of_files_follows_a_forget_while_it_runs(disk: Held) -> None:
    states = LoggedFiles(disk.location())
    with disk.service() as service:
        service.write_memory_file("bob", "a.md", "x")
        service.write_memory_file("bob", "b.md", "x")
        service.write_memory_file("zoe", "a.md", "x")
        states.update()
        assert states.agents() == ["bob", "zoe"]
        service.agent("bob").forget("a.md")
        service.write_memory_file("bob", "c.md", "x")
        states.update()
        assert states.is_doubted("bob")
        assert (states.of("bob", "b.md"), states.of("bob", "c.md") is None) == (None, False)
        service.forget_memory("zoe")
        service.forget_memory("bob")
        states.update()
    assert states.agents() == []


def test_forged_successors_in_a_circle_end_no_reader(tmp_path: Path) -> None:
    lines, prev = [], START
    for number, (agent, successor) in enumerate([("~1", "~2"), ("~2", "~1"), ("~1", "~1"), ("~2", "~2")], 1):
        facts = {"agent": agent, "operation": "forget", "path": "~3", "outcome": "ok", "salt": "destroyed"}
        line, prev = encode("0" * 16, number, prev, "operation", 0.0, {**facts, "successor": successor})
        lines.append(line)
    (tmp_path / "audit.jsonl").write_bytes(b"".join(lines))
    states = LoggedFiles(log_at(tmp_path / "audit.jsonl"))
    states.update()
    assert states.paths("~1") == states.paths("~2") == {}


# A log in which the option was turned on later.


@pytest.mark.parametrize("first", ["names", "digest"])
def test_a_log_of_names_and_digests_is_read_as_one(held: Held, first: Any) -> None:
    held.paths = first
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("written.md", "one")
        bob.append("grown.md", "one\n")
        bob.write("moved/a.md", "x")
        bob.write("gone/a.md", "x")
        bob.write("removed.md", "x")
        service.write_memory_file("old", "a.md", "x")
    held.paths = "digest" if first == "names" else "names"
    with held.service() as service:
        bob = service.agent("bob")
        bob.write("written.md", "two")
        bob.append("grown.md", "two\n")
        bob.rename("moved", "to")
        bob.delete_tree("gone")
        service.write_memory_file("new", "a.md", "x")
    assert held.told() == []
    held.change("bob", "written.md", lambda _: b"six")
    held.change("bob", "grown.md", lambda data: data.replace(b"one", b"One"))
    held.change("bob", "removed.md", lambda _: None)
    with closing(held.location().store):
        names = Salts(held.location()).known_names("bob")
        assert names is not None
        removed = "removed.md" if first == "names" else names.path("removed.md")
        assert sorted(held.told()) == [
            ("changed", "bob", "grown.md"), ("changed", "bob", "written.md"), ("missing", "bob", removed),
        ]  # fmt: skip
        assert len(recorded_appends(held.location(), "bob").unversioned("grown.md")) == 2
        assert {each.kind for each in verify(held.location()).findings} == {"unanchored"}


@pytest.mark.parametrize("path", ["", "a.md"])
@pytest.mark.parametrize("receipt", ["names", "digest"])
def test_a_forget_in_a_log_of_names_and_digests_is_no_finding(disk: Held, path: str, receipt: Any) -> None:
    disk.paths = "names"
    with disk.service() as service:
        service.write_memory_file("bob", "a.md", "x")
        service.write_memory_file("bob", "b.md", "x")
    disk.paths = "digest"
    with disk.service() as service:
        service.write_memory_file("bob", "b.md", "y")
        service.write_memory_file("bob", "c.md", "y")
    disk.paths = receipt
    with disk.service() as service:
        service.forget_memory("bob", path)
    left = [("unvouched", "bob", "b.md"), ("unvouched", "bob", "c.md")] if path else []
    assert disk.told() == left
    assert {each.kind for each in verify(disk.location()).findings} == {"unanchored"}
    disk.trial.heads.unlink(missing_ok=True)
    disk.trial.renewal().close()
    assert disk.told() == left
    with disk.service() as service:
        service.write_memory_file("bob", "b.md", "z")
    assert disk.told() == left[1:]


# A log that was begun anew.


@pytest.mark.parametrize("path", ["", "phone.md"])
def test_a_base_has_digests_and_vouches_for_older_files(held: Held, path: str) -> None:
    with held.service() as service:
        service.write_memory_file("mary", "phone.md", "x")
        service.write_memory_file("mary", "other.md", "x")
        service.append_to_memory_file("zoe", "log.md", "1\n")
    held.trial.heads.unlink(missing_ok=True)
    held.trial.renewal().prune(FAR)
    assert held.told() == []
    with held.service() as service:
        service.append_to_memory_file("zoe", "log.md", "2\n")
        service.forget_memory("mary", path)
    held.trial.renewal().close()
    with closing(held.location().store):
        text = log_bytes(held.location())
    for name in (b"mary", b"phone", b"zoe", b"log.md"):
        assert name not in text
    assert held.told() == ([("unvouched", "mary", "other.md")] if path else [])
    assert held.trial.verdict().is_intact
    held.change("zoe", "log.md", lambda data: data.replace(b"1", b"3"))
    assert ("changed", "zoe", "log.md") in held.told()


def test_a_log_tells_whether_its_newest_names_are_digests(held: Held) -> None:
    def answer() -> bool:
        location = held.location()
        with closing(location.store):
            return has_digests(location)

    found = [answer()]
    with held.service() as service:
        service.write_memory_file("bob", "a.md", "x")
    found.append(answer())
    held.trial.heads.unlink(missing_ok=True)
    held.trial.renewal().close()
    found.append(answer())
    held.paths = "names"
    with held.service() as service:
        service.write_memory_file("bob", "a.md", "x")
    assert [*found, answer()] == [False, True, True, False]


# Other readers.


def test_the_plugin_knows_whether_it_has_changes_of_a_path(held: Held) -> None:
    with held.service() as service:
        service.write_memory_file("bob", "d/a.md", "x")
        service.write_memory_file("zoe", "e/a.md", "x")
    with AuditPlugin(held.url, storage_options=held.options or None) as audit:
        assert audit.has_salt("bob")
        assert audit.has_salt("bob", "d")
        assert audit.has_salt("bob", "d/a.md")
        assert not audit.has_salt("bob", "e")
        assert not audit.has_salt("bob", "d/a.md/b")
        assert not audit.has_salt("nobody", "d")


def test_an_undo_finds_the_appends_of_an_actor(held: Held) -> None:
    with held.service(versions=VersionLimits()) as service:
        bob = service.agent("bob")
        bob.append("a.md", "one\n")
        bob.acting_as("model").append("a.md", "two\n")
        bob.append("a.md", "three\n")
        location = held.location()
        with closing(location.store):
            assert [each.path for each in bob.versions.undo(actor="model", audit=location).done] == ["a.md"]
        assert bob.read("a.md") == "one\nthree\n"
    assert held.told() == []


def test_a_successor_that_cannot_be_made_is_no_error_of_the_forget(disk: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    with disk.service() as service:
        service.write_memory_file("bob", "a.md", "x")
        monkeypatch.setattr(Salts, "_remembered", lambda *_: (_ for _ in ()).throw(WriteError("no")))
        service.agent("bob").forget("a.md")
    assert (operations(disk)[-1]["salt"], "successor" in operations(disk)[-1]) == ("destroyed", False)
