"""The published suite for tamper evidence, `agent-memory-integrity`: its edits T1 to T9, by its own runner."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from agent_memory import AgentMemoryService
from agent_memory.audit import log_at, verify
from agent_memory.audit.files import FileVerifier
from agent_memory.core.blocking import BlockingStore
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import checkpoints_in
from agent_memory.registry import open_backend

pytestmark = pytest.mark.ecosystem
pytest.importorskip("agmi")

from agmi.adapters.base import MemoryAdapter, Record  # noqa: E402 - after the check that it is installed
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT  # noqa: E402

FILE: Final = "MEMORY.jsonl"
FIRST, SECOND = "first", "second"


class AuditedFiles(MemoryAdapter):  # type: ignore[misc]
    """A memory of JSON lines, one for each record, with an audit log in the store and its checkpoints elsewhere.

    `verify` is what ``audit verify --files --checkpoints`` does.
    """

    name = "agent-memory: files, audit log, checkpoints elsewhere"
    supports_replay = supports_metadata = supports_snapshot = True
    detection_point = "audit"

    def setup(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.root, self.heads = self.directory / "store", self.directory / "elsewhere" / "heads.jsonl"
        self.url = self.root.as_uri()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def seed(self, n: int) -> None:
        self.append(FIRST, n)

    def seed_other(self, n: int) -> None:
        self.append(SECOND, n)

    def append_genuine(self) -> None:
        self.append(FIRST, 1)

    def append(self, agent: str, number: int) -> None:
        with (
            AuditPlugin(self.url, required=True, checkpoints=self.heads) as audit,
            AgentMemoryService(self.url, plugins=[audit]) as service,
        ):
            for _ in range(number):
                count = len(self.raw(agent))
                record = {"id": count, "text": f"{agent} remembers {count}", "source": "user"}
                service.append_to_memory_file(agent, FILE, json.dumps(record) + "\n")

    def raw(self, agent: str) -> list[dict[str, Any]]:
        file = self.root / "agent_memory" / agent / FILE
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def store_raw(self, records: list[dict[str, Any]]) -> None:
        file = self.root / "agent_memory" / FIRST / FILE
        file.write_text("".join(json.dumps(record) + "\n" for record in records))

    def read_all_raw(self) -> list[Record]:
        return [Record(at, {**each, "owner": FIRST}) for at, each in enumerate(self.raw(FIRST))]

    def read_other_raw(self) -> list[Record]:
        return [Record(at, {**each, "owner": SECOND}) for at, each in enumerate(self.raw(SECOND))]

    def write_raw(self, record: Record) -> None:
        records, fields = self.raw(FIRST), {**record.fields}
        fields.pop("owner", None)
        records[record.seq : record.seq + 1] = [fields]
        self.store_raw(records)

    def delete_raw(self, seq: int) -> None:
        records = self.raw(FIRST)
        self.store_raw(records[:seq] + records[seq + 1 :])

    def mutate_payload(self, record: Record) -> Record:
        record.fields["text"] += " [TAMPERED]"
        return record

    def identity_of(self, record: Record) -> str:
        return f"{record.fields['owner']}:{record.seq}"

    def payload_of(self, record: Record) -> str:
        return str(record.fields["text"])

    def owner_of(self, record: Record) -> str | None:
        return str(record.fields["owner"])

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        records = self.raw(FIRST)
        records[victim_seq] = {**records[victim_seq], "text": donor.fields["text"]}
        self.store_raw(records)

    def read_meta(self, seq: int) -> dict[str, Any]:
        return {name: value for name, value in self.raw(FIRST)[seq].items() if name not in ("id", "text")}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        records = self.raw(FIRST)
        records[seq] = {**records[seq], **meta}
        self.store_raw(records)

    def snapshot_store(self) -> object:
        return self._copy_store(self.root)

    def restore_store(self, token: object) -> None:
        self._restore_store(token, self.root)

    def reload(self) -> None:
        """Each call opens the store again."""

    def verify(self) -> bool:
        anchors: dict[tuple[str, int], set[str]] = {}
        for each in checkpoints_in(self.heads.read_bytes()):
            anchors.setdefault((each.writer, each.seq), set()).add(each.hash)
        location, store = log_at(self.url), BlockingStore(open_backend(self.url))
        with closing(location.store), closing(store):
            verdict = verify(location, anchors)
            found = [str(each) for each in verdict.findings if not each.is_harmless]
            found += [str(each) for each in FileVerifier(location, store).verify() if each.kind != "unvouched"]
        self.verify_detail = "; ".join(found)
        return not found


@pytest.mark.parametrize("attack", AT_REST_ATTACKS_WITH_SNAPSHOT, ids=lambda attack: str(attack.name))
def test_each_edit_of_the_published_suite_is_reported(attack: Any) -> None:
    result = attack().run(AuditedFiles())
    assert (result.error, result.guard) == (None, None)
    assert result.detected, result.detail
