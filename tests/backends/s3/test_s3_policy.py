"""The output of ``agent-memory s3-policy``, enforced by SeaweedFS: the tests pass it unchanged to IAM's PutUserPolicy.

SeaweedFS (4.48) evaluates both statements: actions and resources of the first, the condition on ``s3:prefix`` of the
second. Two things are not verified, because SeaweedFS differs from S3: that a condition on ``s3:prefix`` is enough to
get 404 for a missing object (SeaweedFS returns it to every reader), and the escapes ``${*}``, ``${?}``, ``${$}`` (it
resolves none and therefore denies; see the last test).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from agent_memory import SHA256, AgentMemory, AgentMemoryFileNotFoundError, AgentMemoryService, FileOperationError
from agent_memory.cli.app import app
from agent_memory.core.receipts import CallFacts, IdempotencyKey, Receipt, receipt_key
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.runtime.run import step
from tests.support.loops import looped
from tests.support.servers import S3Server

pytestmark = pytest.mark.long
BUCKET = "memories"
OTHERS = ["bob", "ann-2"]
"""Agents that ann must not reach; the second name begins with "ann"."""
NOTES = "d/notes.md"
by_agent = pytest.mark.parametrize("agent", ["ann-2", "bob"])


def policy(url: str, *args: str) -> str:
    result = CliRunner().invoke(app, ["--url", url, *args, "s3-policy"])
    assert result.exit_code == 0
    return result.stdout


class World(NamedTuple):
    """A root with a file of each agent, opened with ann's credentials (library and bare client) and with all rights."""

    server: S3Server
    url: str
    as_ann: AgentMemoryService
    bare: Any
    everything: AgentMemoryService

    @property
    def root(self) -> str:
        return self.url.rpartition("/")[2]

    def tree(self, agent: str) -> str:
        return f"{self.root}/agent_memory/{agent}/"

    def files(self) -> dict[str, str]:
        """The content of the other agents' files."""
        memories = ((agent, self.everything.agent(agent)) for agent in OTHERS)
        return {f"{agent}/{e.path}": memory.read(e.path) for agent, memory in memories for e in memory.list()}


@pytest.fixture(scope="module")
def world(seaweedfs: S3Server) -> Iterator[World]:
    url = seaweedfs.new_url()
    ann = seaweedfs.new_user(policy(url, "--agent", "ann"))
    with (
        AgentMemoryService(url, storage_options=seaweedfs.options) as everything,
        AgentMemoryService(url, storage_options=ann) as as_ann,
        closing(seaweedfs.client("s3", ann)) as bare,
    ):
        for agent in ["ann", *OTHERS]:
            everything.write_memory_file(agent, NOTES, f"of {agent}")
        everything.agent("ann").once("first").append("first.md", "makes the record of the store")
        yield World(seaweedfs, url, as_ann, bare, everything)


EXPIRED = receipt_key("ann", IdempotencyKey("expired"))


def backend_of(memory: AgentMemory) -> Any:
    return memory._tree.backend


def leave_expired_receipt(memory: AgentMemory) -> None:
    receipt = Receipt.begun(IdempotencyKey("expired"), CallFacts("write", "file", b"x"), 1.0, 1.0)
    step(memory._run.call(backend_of(memory).write, EXPIRED, receipt.to_bytes()))
    time.sleep(1.1)  # a listing of S3 tells times in seconds


def use_every_operation(memory: AgentMemory) -> None:
    memory.write("a.md", "one")
    memory.write("a.md", "two", when=SHA256(memory.write("a.md", "one").sha256))
    memory.append("a.md", " three")
    memory.append("appended.md", "new")
    memory.create("sub/b.md", "b")
    memory.edit("a.md", str.upper)
    assert memory.read("a.md") == "TWO THREE"
    assert memory.stat("a.md").size == len("TWO THREE")
    assert not memory.exists("missing.md")
    with pytest.raises(AgentMemoryFileNotFoundError):
        memory.read("missing.md")
    memory.copy("a.md", "copy.md")
    memory.rename("copy.md", "renamed.md")
    memory.rename("sub", "moved")
    assert {"a.md", "appended.md", "renamed.md", "moved/b.md"} <= {entry.path for entry in memory.list()}
    assert "moved" in {entry.path for entry in memory.list(recursive=False)}
    for path in ("a.md", "appended.md", "renamed.md"):
        memory.delete(path)
    memory.delete_tree("moved")
    memory.create("moved", "SeaweedFS keeps an emptied directory, which the backend removes first")
    memory.delete("moved")
    leave_expired_receipt(memory)
    memory.once("0", window=1e-6).append("keyed.md", "x")  # deletes that receipt
    with pytest.raises(AgentMemoryFileNotFoundError):
        step(memory._run.call(backend_of(memory).stat, EXPIRED))
    memory.once("delete").delete("keyed.md")
    memory.once("delete").delete("keyed.md")


def test_an_agent_can_do_everything_in_its_own_tree(world: World) -> None:
    use_every_operation(world.as_ann.agent("ann"))


def test_an_agent_uses_idempotency_keys_after_the_service_made_the_record_of_the_store(seaweedfs: S3Server) -> None:
    url = seaweedfs.new_url()
    ann = seaweedfs.new_user(policy(url, "--agent", "ann"))
    with (
        AgentMemoryService(url, storage_options=seaweedfs.options) as everything,
        AgentMemoryService(url, storage_options=ann) as as_ann,
    ):
        memory = as_ann.agent("ann")
        memory.write("a.md", "x")
        with pytest.raises(FileOperationError, match=r"access denied"):
            memory.once("k").append("a.md", "y")
        assert memory.read("a.md") == "x"
        everything.agent("bob").once("k").append("b.md", "x")
        memory.once("k").append("a.md", "y")
        memory.once("k").append("a.md", "y")
        assert memory.read("a.md") == "xy"


OPERATIONS: dict[str, Callable[[AgentMemory], object]] = {
    "read": lambda memory: memory.read(NOTES),
    "read what is missing": lambda memory: memory.read("missing.md"),
    "write": lambda memory: memory.write(NOTES, "x"),
    "write a new file": lambda memory: memory.write("new.md", "x"),
    "append": lambda memory: memory.append(NOTES, "x"),
    "append to a new file": lambda memory: memory.append("new.md", "x"),
    "create": lambda memory: memory.create("new.md", "x"),
    "edit": lambda memory: memory.edit(NOTES, str.upper),
    "list": lambda memory: memory.list(),
    "list one level": lambda memory: memory.list("d", recursive=False),
    "stat": lambda memory: memory.stat(NOTES),
    "exists": lambda memory: memory.exists(NOTES),
    "rename": lambda memory: memory.rename(NOTES, "new.md"),
    "copy": lambda memory: memory.copy(NOTES, "new.md"),
    "delete": lambda memory: memory.delete(NOTES),
    "delete a tree": lambda memory: memory.delete_tree("d"),
    "append with a key": lambda memory: memory.once("k").append(NOTES, "x"),
}


@by_agent
@looped("operation", OPERATIONS)
def test_no_operation_of_the_library_reaches_another_agent(world: World, agent: str, operation: str) -> None:
    before = world.files()
    with pytest.raises(FileOperationError, match="access denied"):
        OPERATIONS[operation](world.as_ann.agent(agent))
    assert world.files() == before


def test_an_agent_cannot_list_the_agents(world: World) -> None:
    with pytest.raises(FileOperationError, match="access denied"):
        world.as_ann.agent_ids()


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "get": ("get_object", {"Key": "{other}d/notes.md"}),
    "head": ("head_object", {"Key": "{other}d/notes.md"}),
    "head what is missing": ("head_object", {"Key": "{other}missing"}),
    "put": ("put_object", {"Key": "{other}d/notes.md", "Body": b"x"}),
    "put if absent": ("put_object", {"Key": "{other}new", "Body": b"x", "IfNoneMatch": "*"}),
    "delete": ("delete_object", {"Key": "{other}d/notes.md"}),
    "copy from": ("copy_object", {"Key": "{own}stolen", "CopySource": "memories/{other}d/notes.md"}),
    "copy to": ("copy_object", {"Key": "{other}d/notes.md", "CopySource": "memories/{own}d/notes.md"}),
    "begin parts": ("create_multipart_upload", {"Key": "{other}d/notes.md"}),
    "list parts under way": ("list_multipart_uploads", {"Prefix": "{other}"}),
    "list": ("list_objects_v2", {"Prefix": "{other}"}),
    "list as of old": ("list_objects", {"Prefix": "{other}"}),
    "list one level": ("list_objects_v2", {"Prefix": "{other}", "Delimiter": "/"}),
    "list without the slash": ("list_objects_v2", {"Prefix": "{root}/agent_memory/ann"}),
    "list the agents": ("list_objects_v2", {"Prefix": "{root}/agent_memory/", "Delimiter": "/"}),
    "list the root": ("list_objects_v2", {"Prefix": "{root}/"}),
    "list an empty prefix": ("list_objects_v2", {"Prefix": ""}),
    "list no prefix": ("list_objects_v2", {}),
    "write the audit log": ("put_object", {"Key": "{root}/.agent-memory/audit/2026-01-01.jsonl", "Body": b"forged"}),
    "read a receipt": ("get_object", {"Key": "{root}/.agent-memory/receipts/{agent}/" + "0" * 64}),
    "forge a receipt": ("put_object", {"Key": "{root}/.agent-memory/receipts/{agent}/" + "0" * 64, "Body": b"x"}),
    "list receipts": ("list_objects_v2", {"Prefix": "{root}/.agent-memory/receipts/{agent}/"}),
    "list the receipts of all agents": ("list_objects_v2", {"Prefix": "{root}/.agent-memory/receipts/"}),
    "list the audit log": ("list_objects_v2", {"Prefix": "{root}/.agent-memory/"}),
    "list versions": ("list_object_versions", {"Prefix": "{other}"}),
}


@by_agent
@looped("request_", REQUESTS)
def test_no_request_without_the_library_reaches_another_agent(world: World, agent: str, request_: str) -> None:
    method, options = REQUESTS[request_]
    names = {"root": world.root, "own": world.tree("ann"), "other": world.tree(agent), "agent": agent}
    given = {name: value.format(**names) if isinstance(value, str) else value for name, value in options.items()}
    before = world.files()
    with pytest.raises(world.bare.exceptions.ClientError) as denied:
        getattr(world.bare, method)(Bucket=BUCKET, **given)
    assert denied.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert world.files() == before


@by_agent
def test_a_bulk_delete_request_deletes_no_file_of_another_agent(world: World, agent: str) -> None:
    names = {"Objects": [{"Key": f"{world.tree(agent)}{NOTES}"}]}
    before = world.files()
    errors = world.bare.delete_objects(Bucket=BUCKET, Delete=names)["Errors"]
    assert [error["Code"] for error in errors] == ["AccessDenied"]
    assert world.files() == before


@looped("climb", ["../", "../bob/", "./../bob/", "/../bob/", "%2e%2e/bob/"])
def test_a_prefix_with_parent_segments_lists_nothing(world: World, climb: str) -> None:
    listing = world.bare.list_objects_v2(Bucket=BUCKET, Prefix=world.tree("ann") + climb)
    assert listing["KeyCount"] == 0


@pytest.mark.parametrize("left_out", ["s3:DeleteObject", "s3:GetObject", "s3:PutObject", "s3:ListBucket"])
def test_removing_any_action_from_the_policy_denies_an_operation(world: World, left_out: str) -> None:
    document = json.loads(policy(world.url, "--agent", "cut"))
    for statement in document["Statement"]:
        statement["Action"] = [action for action in statement["Action"] if action != left_out]
    document["Statement"] = [statement for statement in document["Statement"] if statement["Action"]]
    options = world.server.new_user(json.dumps(document))
    with AgentMemoryService(world.url, storage_options=options) as service:
        with pytest.raises(FileOperationError, match="access denied"):
            use_every_operation(service.agent("cut"))


def test_an_agent_appends_to_large_files_and_aborts_its_uploads(world: World) -> None:
    memory = world.as_ann.agent("ann")
    memory.write("large.md", "x" * (5 << 20))
    memory.append("large.md", "y")
    memory.append("large.md", "z")
    assert memory.read_bytes("large.md").endswith(b"xyz")
    where = {"Bucket": BUCKET, "Key": f"{world.tree('ann')}large.md"}
    upload = world.bare.create_multipart_upload(**where)["UploadId"]
    world.bare.abort_multipart_upload(**where, UploadId=upload)
    memory.delete("large.md")


def test_the_service_reaches_only_all_agents_and_its_own_data(seaweedfs: S3Server) -> None:
    url = seaweedfs.new_url()
    options = seaweedfs.new_user(policy(url))
    audit = AuditPlugin(url, required=True, intent=True, storage_options=options)
    with AgentMemoryService(url, storage_options=options, plugins=[audit]) as service:
        use_every_operation(service.agent("ann"))
        service.write_memory_file("bob", NOTES, "of bob")
        assert service.agent_ids() == ("bob",)
    for beside in (url, f"{url}-2/agent_memory/ann", seaweedfs.new_url()):
        with AgentMemory.open(beside, storage_options=options) as memory:
            for operation in OPERATIONS.values():
                with pytest.raises(FileOperationError, match="access denied"):
                    operation(memory)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("transfer {url} {target}", "1 file"),
        *[(each, "bob") for each in ("agents", "audit show")],
    ],
)
def test_commands_of_a_whole_store_need_no_more_than_the_policy_of_the_service(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, said: str
) -> None:
    url = seaweedfs.new_url()
    monkeypatch.setenv("AGENT_MEMORY_STORAGE_OPTIONS", json.dumps(seaweedfs.new_user(policy(url))))
    given = [word.format(url=url, target=(tmp_path / "copy").as_uri()) for word in command.split()]
    assert CliRunner().invoke(app, ["--url", url, "--agent", "bob", "write", NOTES, "of bob"]).exit_code == 0
    result = CliRunner().invoke(app, ["--url", url, *given])
    assert (result.exit_code, said in result.output) == (0, True), result.output


def test_seaweedfs_denies_an_escaped_star_instead_of_reading_it_as_a_wildcard(seaweedfs: S3Server) -> None:
    url = f"{seaweedfs.new_url()}*x"
    options = seaweedfs.new_user(policy(url, "--agent", "ann"))
    for root in (url, url.replace("*", "-any-")):
        with AgentMemoryService(root, storage_options=options) as service:
            with pytest.raises(FileOperationError, match="access denied"):
                service.agent("ann").write("a.md", "x")
