"""The requests of every operation, counted by a proxy in front of the server, and the tables of the docs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_memory import PRESENT, SHA256, AgentMemory, AgentMemoryService, VersionLimits
from agent_memory.cli.target import Target
from agent_memory.conversation import ConversationMemory, Message
from tests.object_store.proxy import Proxy
from tests.support import sizes
from tests.support.servers import S3Server
from tests.support.sizes import also

Cost = Callable[[Callable[[], object]], Counter[str]]
trusted = pytest.mark.usefixtures("trusted")
"""The requests of a trial are not counted."""
DOCS = Path(__file__).parents[2] / "docs"
SECTION = re.compile(r"^## (?:The bill|What it costs)\n(.*?)^## ", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (?!\|)([^|]+) \| ([^|]+) \|", re.MULTILINE)
SUM = re.compile(r"\d+ [A-Z]{3,}(?: \+ \d+ [A-Z]{3,})*")


def requests_in(page: str) -> dict[str, list[Counter[str]]]:
    """The table of a page: for each operation, the first sum of requests in each clause of its cell."""
    (section,) = SECTION.findall((DOCS / page).read_text() + "\n## ")
    return {
        operation: [counted(found[0]) for found in map(SUM.findall, cell.split("; ")) if found] or [Counter()]
        for operations, cell in ROW.findall(section)
        for operation in operations.removesuffix(", unless the endpoint is AWS S3").split(", ")
        if operation != "operation"
    }


def counted(requests: str) -> Counter[str]:
    """The requests of a sum like ``1 GET + 2 PUT``."""
    return Counter({name: int(number) for number, name in re.findall(r"(\d+) ([A-Z]+)", requests)})


@pytest.fixture
def proxy(ministack: S3Server) -> Iterator[Proxy]:
    with Proxy(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def cost(proxy: Proxy) -> Cost:
    """Count the requests of a call."""

    def count(call: Callable[[], object]) -> Counter[str]:
        with proxy.counting() as requests:
            call()
        return requests

    return count


@pytest.fixture(params=["s3fs", *also(["obstore"])])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def opened(proxy: Proxy, ministack: S3Server, engine: str) -> Iterator[Callable[[], AgentMemory]]:
    """Open one tree, each time as a new process would."""
    url, options = ministack.new_url(), ministack.by(engine).through(proxy)
    memories = []

    def open_it() -> AgentMemory:
        memories.append(AgentMemory.open(url, storage_options=options))
        return memories[-1]

    yield open_it
    for memory in memories:
        memory.close()


def test_a_process_checks_the_server_once_and_each_directory_once(
    opened: Callable[[], AgentMemory], cost: Cost, engine: str
) -> None:
    def without_the_trial(requests: Counter[str]) -> Counter[str]:
        """The other requests; the races leave an object that costs one more DELETE if the raced one was refused."""
        deletions = requests.pop("DELETE")
        assert (8 <= deletions <= 14) if engine == "s3fs" else deletions == 7
        return requests - Counter({"PUT": 71 if engine == "s3fs" else 53, "GET": 1})

    memory = opened()
    settings = Counter({"GET": 1})
    assert without_the_trial(cost(lambda: memory.create("top.md", "x"))) == settings + Counter({"LIST": 1, "PUT": 1}), (
        "its directory; whether versions are kept"
    )
    assert cost(lambda: memory.write("a/b/new.md", "x")) == {"HEAD": 2, "LIST": 1, "PUT": 1}, "a, a/b, what a/b holds"
    assert cost(lambda: memory.write("a/b/other.md", "x")) == {"PUT": 1}
    assert cost(lambda: memory.write("a/c/new.md", "x")) == {"HEAD": 1, "LIST": 1, "PUT": 1}
    another = opened()
    assert cost(lambda: another.append("top.md", "y")) == settings + Counter({"GET": 1, "PUT": 1}), (
        "the trial is shared"
    )


CALLS: dict[str, Callable[[AgentMemory], object]] = {
    "read": lambda memory: memory.read("a.md"),
    "stat": lambda memory: memory.stat("a.md"),
    "exists": lambda memory: memory.exists("none.md"),
    "write": lambda memory: memory.write("a.md", "y"),
    "create": lambda memory: memory.create("new.md", "y"),
    "edit": lambda memory: memory.edit("b.md", str.upper),
    "`edit_bytes`": lambda memory: memory.edit_bytes("c.md", bytes.upper),
    "delete": lambda memory: memory.delete("b.md"),
    "list": lambda memory: memory.list(),
    "`is_directory`": lambda memory: memory.is_directory("none"),
    "`read_many`": lambda memory: memory.read_many(["a.md"]),
    "write on a `SHA256`": lambda memory: memory.write("d.md", "y", when=SHA256(hashlib.sha256(b"x").hexdigest())),
    "`tail`": lambda memory: memory.tail("a.md", 10),
    "copy of a file": lambda memory: memory.copy("d.md", "copied.md"),
    "rename of a file": lambda memory: memory.rename("e.md", "moved.md"),
}
"""A call of each operation on a tree with the files ``a.md`` to ``e.md``."""
BY_HAND = {
    "a call with an idempotency key", "append", "`delete_tree`", "`once(key).result()`", "`forget` of a file",
    "`import`",
    "`transfer` to this store", "once a minute in a process that changes files",
    "once an hour in a process for each server and bucket",
    "once per process and directory written into", "the tail of a history",
    "write on an etag", "write on `PRESENT`",
}  # fmt: skip
"""Rows that the other tests of this module measure."""
ELSEWHERE = {
    "append to a file of 5 MiB or more", "`write_blocks`", "import of a file over 5 MiB", "copy",
    "rename of a file over 50 MB", "each lost race", "each lost answer", "`record_segment`",
    "`segment_text` of the toolkit",
}  # fmt: skip
"""Rows of large files, faults and long names, which other modules test."""


def test_each_row_of_the_table_is_measured() -> None:
    assert requests_in("s3.md").keys() == CALLS.keys() | BY_HAND | ELSEWHERE


@trusted
@pytest.mark.parametrize(
    ("engine", "versions"), [("s3fs", False), ("obstore", False), ("s3fs", True)], indirect=["engine"]
)
def test_every_operation_sends_the_requests_of_the_tables(
    opened: Callable[[], AgentMemory], cost: Cost, engine: str, versions: bool
) -> None:
    memory = opened()
    if versions:
        memory.versions.set_limits(VersionLimits())
    for name in "abcde":
        memory.write(f"{name}.md", "x")
    memory.edit("e.md", str.upper)  # makes the first-time requests
    refused = {"rename of a file"} if engine == "obstore" else set()
    sent = {operation: cost(partial(call, memory)) for operation, call in CALLS.items() if operation not in refused}
    more = requests_in("versions.md") if versions else {}
    if versions:
        sent["delete"]["HEAD"] += 1  # it is not sent: the state that was kept is known
    bill = {operation: first for operation, (first, *_) in requests_in("s3.md").items() if operation in sent}
    assert sent == {operation: first + more.get(operation, [Counter()])[0] for operation, first in bill.items()}


@trusted
def test_an_append_sends_the_requests_of_the_table(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory, another = opened(), opened()
    for user in (memory, another):
        user.append("ready.md", "x")
    memory.create("new.md", "y")
    of_any, of_the_last_writer = requests_in("s3.md")["append"]
    assert cost(lambda: memory.append("new.md", "y")) == of_the_last_writer
    assert cost(lambda: another.append("new.md", "y")) == of_any
    assert cost(lambda: memory.append("new.md", "y")) == {"GET": 1, "PUT": 2}, (
        "a lost race: it is not the last any more"
    )
    assert cost(lambda: memory.append("new.md", "y")) == of_any, "and where others write one looks first"
    assert cost(lambda: memory.append("new.md", "y")) == of_the_last_writer


@trusted
def test_an_edit_to_the_same_text_writes_nothing(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory = opened()
    memory.append("a.md", "x")
    assert cost(lambda: memory.edit("a.md", str.lower)) == {"GET": 1}
    assert cost(lambda: memory.list(recursive=False)) == {"LIST": 1}


@trusted
def test_the_calls_that_frameworks_need_cost_the_documented_requests(
    opened: Callable[[], AgentMemory], cost: Cost, engine: str
) -> None:
    memory = opened()
    for name in ("a", "b", "d/c"):
        memory.append(f"{name}.md", "x")
    assert cost(lambda: memory.write("a.md", "y", when=SHA256(hashlib.sha256(b"x").hexdigest()))) == {
        "GET": 1,
        "PUT": 1,
    }
    assert cost(lambda: memory.write("a.md", "y", when=PRESENT)) == {"HEAD": 1, "PUT": 1}
    assert cost(lambda: memory.edit("new.md", str.upper, missing="y")) == {"GET": 1, "PUT": 1}
    seen = memory.stat("a.md").etag
    assert seen is not None
    assert cost(lambda: memory.write("a.md", "y", when=seen)) == {"PUT": 1}
    written = memory.write("a.md", "z").etag
    assert written is not None
    assert cost(lambda: memory.write("a.md", "y", when=written)) == {"PUT": 1}
    listed = memory.list(name_prefix="a")[0].etag
    assert listed is not None
    assert cost(lambda: memory.write("a.md", "z", when=listed)) == {"HEAD": 1, "PUT": 1}
    assert cost(lambda: memory.read_many(["a.md", "b.md", "none.md"], missing_ok=True, bytes=True)) == {"GET": 3}
    assert cost(lambda: memory.list(name_prefix="a", limit=1)) == {"LIST": 1}
    assert cost(lambda: memory.is_directory("d")) == {"LIST": 1}
    assert cost(lambda: memory.tail("a.md", 10)) == {"GET": 1}
    if engine == "s3fs":  # obstore refuses
        assert cost(lambda: memory.edit("b.md", lambda _: None)) == {"GET": 1, "DELETE": 1}
        below = memory.list("d")[0].etag
        assert below is not None
        assert cost(lambda: memory.delete("d/c.md", when=below)) == {"DELETE": 1}


@trusted
def test_a_deleted_tree_costs_a_listing_and_a_deletion_of_each_file(
    opened: Callable[[], AgentMemory], cost: Cost, engine: str
) -> None:
    memory = opened()
    for number in range(5):
        memory.write(f"d/{number}.md", "x")
    memory.write("ready.md", "x")
    memory.edit("ready.md", lambda _: None) if engine == "s3fs" else memory.delete("ready.md")
    found = {"LIST": 1, "DELETE": 5}
    assert cost(lambda: memory.delete_tree("d")) == (found if engine == "s3fs" else found | {"HEAD": 5})


@trusted
def test_a_call_with_an_idempotency_key_costs_two_requests_more(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory = opened()
    memory.once("ready").append("ready.md", "x")  # makes the first-time requests
    assert cost(lambda: memory.once("k").append("ready.md", "y")) == {"PUT": 3}
    assert cost(lambda: memory.once("k").append("ready.md", "y")) == {"PUT": 1, "HEAD": 1, "GET": 1}, "repeated"
    assert cost(lambda: memory.once("w").write("ready.md", "z")) == {"PUT": 3}
    assert cost(lambda: memory.once("none").result()) == {"GET": 1}
    assert cost(lambda: memory.append("ready.md", "y")) == {"PUT": 1}, "without a key"


@trusted
@pytest.mark.parametrize("engine", ["s3fs"], indirect=True)
def test_a_forget_costs_a_request_for_each_receipt(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory = opened()
    for name in ("plain.md", "keyed.md"):
        memory.write(name, "x")
    memory.forget("nothing.md")  # makes the first-time requests
    one = {"VERSIONS": 2, "UPLOADS": 1, "DELETE": 1, "HEAD": 1, "LIST": 1}
    assert cost(lambda: memory.forget("plain.md")) == one | {"LIST": 4, "HEAD": 2, "VERSIONS": 3, "UPLOADS": 2}
    for number in range(3):
        memory.once(f"{number}").append("keyed.md", "x")
        memory.once(f"kept {number}").append("kept.md", "x")
    four = {request: 4 * count for request, count in one.items()}
    more = {"LIST": 8, "HEAD": 5, "GET": 6, "VERSIONS": 9, "UPLOADS": 5}
    assert cost(lambda: memory.forget("keyed.md")) == four | more, "the file and its three receipts"


@trusted
def test_reading_the_tail_of_a_history_costs_one_ranged_request(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory = opened()
    conversation = ConversationMemory(memory)
    conversation.append_messages(
        [Message("user", f"message {number}") for number in range(20_000 if sizes.is_long else 4_000)]
    )
    assert cost(lambda: conversation.load_history(80)) == {"GET": 1}


@trusted
def test_transferring_a_store_costs_the_documented_requests(opened: Callable[[], AgentMemory], cost: Cost) -> None:
    memory = opened()
    memory.append("ready.md", "x")
    targets = []

    def begin(*, dry_run: bool = False) -> None:
        targets.append(Target(memory, overwrite=False, dry_run=dry_run))

    def put(name: str, data: bytes) -> None:
        targets[-1].put(name, len(data), lambda: iter([data]))

    assert cost(begin) == {"LIST": 1}, "one for each 1,000 files of an agent"
    assert cost(lambda: put("a.md", b"one")) == {"PUT": 1}
    assert cost(lambda: put("notes/b.md", b"one")) == {"PUT": 1, "LIST": 1, "HEAD": 1}, "its directory"
    assert cost(lambda: begin(dry_run=True)) == {"LIST": 1}
    assert cost(lambda: put("a.md", b"one")) == {"GET": 1}, "equal"
    assert cost(lambda: put("new.md", b"one")) == {}
    assert cost(lambda: put("long.md", b"longer")) == {}


@trusted
def test_the_costs_do_not_grow_with_the_number_of_files_or_agents(
    proxy: Proxy, ministack: S3Server, cost: Cost
) -> None:
    options = ministack.through(proxy)
    with AgentMemoryService(ministack.new_url(), storage_options=options) as service:
        service.append_to_memory_file("first", "log.md", "x")

        def work() -> None:
            service.append_to_memory_file("first", "log.md", "x")
            service.read_memory_file("first", "log.md")
            service.agent("first").edit("log.md", str.upper)
            service.agent("first").stat("log.md")

        alone = cost(work)
        for number in range(50 if sizes.is_long else 10):
            service.write_memory_file(f"agent-{number}", "log.md", "x")
            service.write_memory_file("first", f"file-{number}.md", "x")
        assert cost(work) == alone


@trusted
def test_versions_cost_the_documented_requests(proxy: Proxy, ministack: S3Server, cost: Cost) -> None:
    url, options = ministack.new_url(), ministack.through(proxy)
    with AgentMemory.open(url, storage_options=options, versions=VersionLimits()) as memory:
        memory.write("d/ready.md", "x")
        memory.edit("d/ready.md", str.upper)  # makes the first-time requests, and looks for versions to prune
        assert cost(lambda: memory.create("d/a.md", "x")) == {"PUT": 1}
        assert cost(lambda: memory.append("d/a.md", "y")) == {"PUT": 1}
        assert cost(lambda: memory.write("d/a.md", "x")) == {"GET": 1, "PUT": 2}
        assert cost(lambda: memory.edit("d/a.md", str.upper)) == {"GET": 1, "PUT": 2}
        version = memory.stat("d/a.md").etag
        assert version
        assert cost(lambda: memory.write("d/a.md", "z", when=version)) == {"GET": 1, "PUT": 2}
        assert cost(lambda: memory.versions.list("d/a.md", limit=3)) == {"LIST": 1, "GET": 1 + 2}
        newest = memory.versions.list("d/a.md")[1].id
        assert cost(lambda: memory.versions.read("d/a.md", newest)) == {"LIST": 1, "GET": 1 + 1}
        assert cost(lambda: memory.rename("d/a.md", "d/b.md")) == {"GET": 1, "PUT": 2, "DELETE": 1}
        assert cost(lambda: memory.delete("d/b.md")) == {"GET": 1, "PUT": 1, "DELETE": 1}


@trusted
def test_reading_and_erasing_versions_cost_the_documented_requests(
    proxy: Proxy, ministack: S3Server, cost: Cost
) -> None:
    """Below one page: 1,000 versions."""
    url, options = ministack.new_url(), ministack.through(proxy)
    with AgentMemory.open(url, storage_options=options, versions=VersionLimits(), actor="ann") as memory:
        memory.write("ready", "x")
        memory.edit("ready", str.upper)
        for path in ("a", "b"):
            for number in range(4):
                memory.acting_as("bob" if number == 3 else "ann").write(path, f"{number}xx")
        memory.create("c", "x")
        versions = memory.versions
        assert cost(lambda: versions.list(limit=3)) == {"LIST": 1, "GET": 3, "HEAD": 1}  # all three of one file
        assert cost(lambda: versions.list("a")) == {"LIST": 2, "GET": 1 + 3}
        third = versions.list("a")[2]
        assert cost(lambda: versions.restore("a", third)) == {"LIST": 1, "GET": 3, "PUT": 2}
        assert cost(versions.prune) == {"LIST": 1, "GET": 1}  # the limits
        undo = cost(lambda: versions.undo(actor="bob"))  # bob's change of "b", and that of "a" before ann's restore
        assert undo == {"LIST": 2 + 1, "HEAD": 4 + 1, "GET": 6 + 2, "PUT": 2}
        oldest = versions.list("b")[-1]
        redact = cost(lambda: versions.redact("b", oldest, reason="x"))
        assert redact == {"LIST": 3 + 1, "HEAD": 3, "GET": 7, "PUT": 2, "UPLOADS": 3, "VERSIONS": 4, "DELETE": 1}
        assert cost(lambda: memory.forget("b", dry_run=True)) == {"HEAD": 1, "LIST": 1}
        forget = cost(lambda: memory.forget("b"))  # the file and four records, each with 1 request of each kind or 2
        assert forget == {"LIST": 5 + 3, "HEAD": 5 + 1, "UPLOADS": 5 + 1, "VERSIONS": 10 + 1, "DELETE": 5}
