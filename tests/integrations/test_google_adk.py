"""The services of Google's ADK over a memory, beside the framework's own services."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

import pytest

adk = pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent  # noqa: E402
from google.adk.artifacts import FileArtifactService, InMemoryArtifactService  # noqa: E402
from google.adk.artifacts.base_artifact_service import BaseArtifactService  # noqa: E402
from google.adk.errors.input_validation_error import InputValidationError  # noqa: E402
from google.adk.events import Event  # noqa: E402
from google.adk.memory import InMemoryMemoryService  # noqa: E402
from google.adk.memory.base_memory_service import BaseMemoryService  # noqa: E402
from google.adk.memory.memory_entry import MemoryEntry  # noqa: E402
from google.adk.models import BaseLlm  # noqa: E402
from google.adk.models.llm_request import LlmRequest  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import InMemorySessionService, Session  # noqa: E402
from google.adk.tools.load_memory_tool import load_memory_tool as load_memory  # noqa: E402
from google.adk.tools.tool_context import ToolContext  # noqa: E402
from google.genai import types  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from agent_memory import AgentMemory, AsyncAgentMemory, hookimpl  # noqa: E402
from agent_memory.errors import ConflictError, FileAlreadyExistsError, OperationDenied  # noqa: E402
from agent_memory.hookspecs import Operation  # noqa: E402
from agent_memory.integrations import google_adk  # noqa: E402
from agent_memory.integrations.google_adk import (  # noqa: E402
    AgentMemoryArtifactService,
    AgentMemoryMemoryService,
    memory_tools,
)
from agent_memory.testing import RecordingPlugin  # noqa: E402
from tests.integrations.kit import (  # noqa: E402
    ADDITIONS,
    HOSTILE,
    IDS,
    PROCESSES,
    age,
    at_once,
    example_output,
    race,
    rounds,
    seen_by,
)
from tests.integrations.note_taking import NoteTaker, check  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "adk_agent.py"
USER: dict[str, Any] = {"app_name": "app", "user_id": "ann"}
SCOPE: dict[str, Any] = {**USER, "session_id": "s1"}
REPORT: dict[str, Any] = {**SCOPE, "filename": "report.md"}
BYTES = bytes(range(256)) + b'\n{"part":{}}\n'


def text(content: str, **fields: Any) -> types.Part:
    return types.Part(text=content, **fields)


def blob(data: bytes | None, mime_type: str | None = "image/png", **fields: Any) -> types.Part:
    return types.Part(inline_data=types.Blob(data=data, mime_type=mime_type, **fields))


def reference(uri: str, **fields: Any) -> types.Part:
    return types.Part(file_data=types.FileData(file_uri=uri, **fields))


PARTS = {
    "text": text("one\ntwo\n"),
    "text without a last newline": text("one\ntwo"),
    "empty text": text(""),
    "text of Unicode": text("メモ \u2028 👩‍👩‍👧‍👦"),
    "a thought": text("hm", thought=True, thought_signature=b"\xff\x00"),
    "bytes": blob(BYTES),
    "empty bytes": blob(b""),
    "bytes with a name": blob(b"x", display_name="a picture.png"),
    "bytes without a type": blob(b"x", None),
    "a removed artifact": blob(b"", "application/octet-stream"),
    "an uploaded file": reference("gs://bucket/x.csv", mime_type="text/csv"),
    "nothing": types.Part(),
    "a call": types.Part(function_call=types.FunctionCall(name="f", args={})),
    "a broken reference": reference("artifact://nonsense"),
    "a reference to another app": reference("artifact://apps/b/users/ann/artifacts/x/versions/0"),
    "a reference to another user": reference("artifact://apps/app/users/bob/artifacts/x/versions/0"),
    "a reference to another session": reference("artifact://apps/app/users/ann/sessions/s2/artifacts/x/versions/0"),
}
WITHOUT_FILE_DATA = [each for each, part in PARTS.items() if not part.file_data]


def names_in(directory: Path) -> set[str]:
    return {each.name for each in directory.iterdir()}


async def outcome(call: Awaitable[Any]) -> Any:
    """What a call returns, or the kind of its error."""
    try:
        return await call
    except ValueError as error:
        return type(error)


def essence(part: Any) -> Any:
    """What `FileArtifactService` keeps of a part."""
    if not isinstance(part, types.Part):
        return part
    data = part.inline_data
    return (part.text, data and (data.data, data.mime_type or "application/octet-stream", data.display_name))


@pytest.mark.asyncio
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_a_part_is_stored_as_by_the_service_in_memory(part: types.Part) -> None:
    answers = []
    with AgentMemory.open("memory://") as memory:
        for service in (AgentMemoryArtifactService(memory), InMemoryArtifactService()):
            saved = await outcome(service.save_artifact(**REPORT, artifact=part, custom_metadata={"a": [1]}))
            loaded = await outcome(service.load_artifact(**REPORT))
            version = await service.get_artifact_version(**REPORT)
            details = version and (version.version, version.mime_type, version.custom_metadata)
            answers.append((saved, loaded, details, await service.list_artifact_keys(**SCOPE)))
    assert answers[0] == answers[1]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", WITHOUT_FILE_DATA)
async def test_a_part_is_stored_as_by_the_service_on_disk(name: str, tmp_path: Path) -> None:
    answers = []
    with AgentMemory.open("memory://") as memory:
        for service in (AgentMemoryArtifactService(memory), FileArtifactService(tmp_path)):
            saved = await outcome(service.save_artifact(**REPORT, artifact=PARTS[name]))
            answers.append((saved, essence(await outcome(service.load_artifact(**REPORT)))))
    assert answers[0] == answers[1]


@pytest.mark.asyncio
async def test_inline_data_without_data_are_refused_as_on_disk(tmp_path: Path) -> None:
    with AgentMemory.open("memory://") as memory:
        for service in (AgentMemoryArtifactService(memory), FileArtifactService(tmp_path)):
            with pytest.raises(InputValidationError):
                await service.save_artifact(**REPORT, artifact=blob(None))
        assert memory.list() == ()


NAMES = st.sampled_from(["a", "a/b", "user:a", "user:a/b", "0"])
SESSIONS = st.sampled_from(["s1", "s2"])
VERSIONS = st.sampled_from([None, -1, 0, 1, 2, 7])
CALLS = st.one_of(
    st.tuples(st.just("save_artifact"), SESSIONS, NAMES, st.sampled_from(["one", "two"])),
    st.tuples(st.sampled_from(["load_artifact", "get_artifact_version"]), SESSIONS, NAMES, VERSIONS),
    st.tuples(st.sampled_from(["delete_artifact", "list_versions", "list_artifact_versions"]), SESSIONS, NAMES),
    st.tuples(st.just("list_artifact_keys"), SESSIONS),
)


async def called(service: BaseArtifactService, method: str, session: str, *arguments: Any) -> Any:
    options: dict[str, Any] = dict(zip(("filename", "version"), arguments, strict=False))
    if method == "save_artifact":
        options["artifact"] = text(options.pop("version"))
    answer = await getattr(service, method)(**USER, session_id=session, **options)
    versions = answer if isinstance(answer, list) else [answer]
    return [(each.version, each.mime_type) if hasattr(each, "mime_type") else each for each in versions]


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, min_size=3, max_size=20))
def test_any_calls_answer_as_the_service_in_memory(calls: list[tuple[Any, ...]]) -> None:
    async def run() -> None:
        with AgentMemory.open("memory://") as memory:
            ours, model = AgentMemoryArtifactService(memory), InMemoryArtifactService()
            for call in calls:
                assert await called(ours, *call) == await called(model, *call)

    asyncio.run(run())


@pytest.mark.asyncio
async def test_versions_are_numbered_from_zero_and_each_stays(memory: AgentMemory) -> None:
    service = AgentMemoryArtifactService(memory)
    for number in range(3):
        assert (
            await service.save_artifact(**REPORT, artifact=text(f"v{number}"), custom_metadata={"n": number}) == number
        )
    assert await service.list_versions(**REPORT) == [0, 1, 2]
    assert await service.load_artifact(**REPORT) == text("v2")
    assert await service.load_artifact(**REPORT, version=1) == text("v1")
    assert await service.load_artifact(**REPORT, version=3) is None
    details = await service.list_artifact_versions(**REPORT)
    assert [(each.version, each.custom_metadata) for each in details] == [(n, {"n": n}) for n in range(3)]
    latest = await service.get_artifact_version(**REPORT)
    assert latest == details[-1]
    assert latest.canonical_uri == "artifact://apps/app/users/ann/sessions/s1/artifacts/report.md/versions/2"
    assert details[0].create_time <= latest.create_time


@pytest.mark.asyncio
async def test_more_than_ten_versions_are_in_the_order_of_their_numbers() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryArtifactService(memory)
        for number in range(12):
            await service.save_artifact(**REPORT, artifact=text(str(number)))
        assert await service.list_versions(**REPORT) == list(range(12))
        assert await service.load_artifact(**REPORT) == text("11")


@pytest.mark.asyncio
async def test_after_a_deletion_the_numbers_begin_at_zero(memory: AgentMemory) -> None:
    service = AgentMemoryArtifactService(memory)
    await service.save_artifact(**REPORT, artifact=text("old"))
    await service.save_artifact(**REPORT, artifact=text("older"))
    await service.save_artifact(**SCOPE, filename="report.md/part", artifact=text("another artifact"))
    await service.delete_artifact(**REPORT)
    assert await service.list_versions(**REPORT) == []
    assert await service.load_artifact(**REPORT) is None
    assert await service.get_artifact_version(**REPORT) is None
    assert await service.list_artifact_keys(**SCOPE) == ["report.md/part"]
    await service.delete_artifact(**REPORT)
    assert await service.save_artifact(**REPORT, artifact=text("new")) == 0


@pytest.mark.asyncio
async def test_an_artifact_of_the_user_is_found_from_every_session(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        service = AgentMemoryArtifactService(memory)
        assert await service.save_artifact(**SCOPE, filename="user:a.md", artifact=text("1")) == 0
        assert await service.save_artifact(**USER, filename="a.md", artifact=text("2")) == 1
        await service.save_artifact(**SCOPE, filename="a.md", artifact=text("of the session"))
        for session in ("s1", "s2", None):
            assert await service.load_artifact(**USER, session_id=session, filename="user:a.md") == text("2")
            assert "user:a.md" in await service.list_artifact_keys(**USER, session_id=session)
        assert await service.load_artifact(**USER, filename="a.md") == text("2")
        assert await service.load_artifact(**SCOPE, filename="a.md") == text("of the session")
        assert await service.list_artifact_keys(**SCOPE) == ["a.md", "user:a.md"]
        assert await service.list_artifact_keys(app_name="app", user_id="bob", session_id="s1") == []
        assert await service.list_artifact_keys(app_name="b", user_id="ann", session_id="s1") == []


@pytest.mark.asyncio
async def test_a_reference_loads_the_version_it_names(memory: AgentMemory) -> None:
    service = AgentMemoryArtifactService(memory)
    for name in ("a.md", "user:b.md"):
        await service.save_artifact(**SCOPE, filename=name, artifact=text(f"old {name}"))
        await service.save_artifact(**SCOPE, filename=name, artifact=text(f"new {name}"))
        named = await service.get_artifact_version(**SCOPE, filename=name, version=0)
        assert named is not None
        await service.save_artifact(**SCOPE, filename=f"ref of {name}", artifact=reference(named.canonical_uri))
        assert await service.load_artifact(**SCOPE, filename=f"ref of {name}") == text(f"old {name}")
        refers = await service.get_artifact_version(**SCOPE, filename=f"ref of {name}")
        assert refers is not None
        assert refers.mime_type is None


@pytest.mark.asyncio
async def test_a_circle_of_references_is_refused_when_it_is_loaded() -> None:
    with AgentMemory.open("memory://") as memory:
        for service in (AgentMemoryArtifactService(memory), InMemoryArtifactService()):
            uri = "artifact://apps/app/users/ann/sessions/s1/artifacts/report.md/versions/0"
            await service.save_artifact(**REPORT, artifact=reference(uri))
            with pytest.raises(InputValidationError):
                await service.load_artifact(**REPORT)


@pytest.mark.asyncio
async def test_a_dict_of_another_program_is_a_part(memory: AgentMemory) -> None:
    service = AgentMemoryArtifactService(memory)
    await service.save_artifact(**REPORT, artifact={"inlineData": {"data": "aGk=", "mimeType": "text/plain"}})
    assert await service.load_artifact(**REPORT) == blob(b"hi", "text/plain")


@pytest.mark.asyncio
async def test_metadata_that_are_not_json_are_refused_and_nothing_is_stored() -> None:
    with AgentMemory.open("memory://") as memory:
        with pytest.raises(InputValidationError):
            await AgentMemoryArtifactService(memory).save_artifact(
                **REPORT, artifact=text("x"), custom_metadata={"a": object()}
            )
        assert memory.list() == ()


@pytest.mark.asyncio
async def test_a_text_can_be_read_as_a_plain_file() -> None:
    with AgentMemory.open("memory://") as memory:
        await AgentMemoryArtifactService(memory).save_artifact(**REPORT, artifact=text("# Report\n\nFine."))
        path = "apps/app/users/ann/sessions/s1/artifacts/report.md/0"
        assert [str(entry) for entry in memory.list()] == [path]
        *lines, last = memory.read(path).splitlines()
        assert lines == ["# Report", "", "Fine."]
        assert json.loads(last)["mime_type"] == "text/plain"


@pytest.mark.asyncio
@pytest.mark.parametrize("content", [b"", b"\n", b"text\n", b"text\n{}\n", b"text\n[1]\n", b"\xff\n{}", b'x\n{"part":'])
async def test_a_damaged_version_counts_as_absent_and_the_others_are_read(content: bytes) -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryArtifactService(memory)
        await service.save_artifact(**REPORT, artifact=text("fine"))
        memory.write("apps/app/users/ann/sessions/s1/artifacts/report.md/1", content)
        assert await service.load_artifact(**REPORT, version=1) is None
        assert await service.load_artifact(**REPORT, version=0) == text("fine")
        assert await service.save_artifact(**REPORT, artifact=text("next")) == 2


@pytest.mark.asyncio
async def test_foreign_files_beside_the_versions_are_no_versions() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryArtifactService(memory)
        await service.save_artifact(**REPORT, artifact=text("fine"))
        top = "apps/app/users/ann/sessions/s1/artifacts"
        for path in ("report.md/notes.md", "report.md/07", "report.md/-1", "report.md/²", "no=artifact/0", "file"):
            memory.write(f"{top}/{path}", "x")
        assert await service.list_versions(**REPORT) == [0]
        assert await service.list_artifact_keys(**SCOPE) == ["report.md"]


@pytest.mark.asyncio
@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
async def test_a_hostile_id_is_stored_and_found_again(hostile: str, memory: AgentMemory, tmp_path: Path) -> None:
    artifacts, memories = AgentMemoryArtifactService(memory), AgentMemoryMemoryService(memory)
    names: dict[str, Any] = {"app_name": hostile, "user_id": hostile, "session_id": hostile}
    await artifacts.save_artifact(**names, filename=hostile, artifact=text(hostile))
    assert await artifacts.load_artifact(**names, filename=hostile) == text(hostile)
    assert await artifacts.list_artifact_keys(**names) == [hostile]
    await memories.add_events_to_memory(**names, events=[said("a hostile word")])
    assert await found(memories, "hostile", app_name=hostile, user_id=hostile) == ["a hostile word"]
    assert names_in(tmp_path) <= {"root"}
    await artifacts.delete_artifact(**names, filename=hostile)
    assert await artifacts.list_artifact_keys(**names) == []


FOUR = st.tuples(IDS, IDS, IDS, IDS.filter(lambda each: not each.startswith("user:")))


@settings(max_examples=50, deadline=None)
@given(FOUR, FOUR)
def test_two_artifacts_never_share_a_file(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    async def run() -> None:
        with AgentMemory.open("memory://") as memory:
            service = AgentMemoryArtifactService(memory)
            keys = ("app_name", "user_id", "session_id", "filename")
            first, second = (dict[str, Any](zip(keys, names, strict=True)) for names in (one, two))
            for number, names in enumerate((first, second)):
                await service.save_artifact(**names, artifact=text(str(number)))
            assert await service.load_artifact(**first, version=0) == text("0")
            assert await service.load_artifact(**second) == text("1")
            assert await service.list_versions(**first) == ([0, 1] if first == second else [0])

    asyncio.run(run())


@pytest.mark.asyncio
async def test_names_that_are_too_long_together_are_the_frameworks_error() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryArtifactService(memory)
        names: dict[str, Any] = {
            "app_name": "a" * 240,
            "user_id": "b" * 240,
            "session_id": "c" * 240,
            "filename": "d" * 240,
        }
        with pytest.raises(InputValidationError):
            await service.save_artifact(**names, artifact=text("x"))
        assert memory.list() == ()
        await service.delete_artifact(**names)


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["app_name", "user_id", "session_id", "filename"])
async def test_an_id_of_another_type_is_a_type_error(field: str) -> None:
    with AgentMemory.open("memory://") as memory:
        with pytest.raises(TypeError, match=field):
            await AgentMemoryArtifactService(memory).save_artifact(**{**REPORT, field: 7}, artifact=text("x"))


@pytest.mark.asyncio
async def test_a_refused_save_is_an_error_and_changes_nothing(memory: AgentMemory) -> None:
    await AgentMemoryArtifactService(memory).save_artifact(**REPORT, artifact=text("kept"))
    service = AgentMemoryArtifactService(memory.read_only())
    with pytest.raises(OperationDenied):
        await service.save_artifact(**REPORT, artifact=text("lost"))
    with pytest.raises(OperationDenied):
        await service.delete_artifact(**REPORT)
    with pytest.raises(OperationDenied):
        await AgentMemoryMemoryService(memory.read_only()).add_events_to_memory(**USER, events=[said("lost")])
    assert await service.load_artifact(**REPORT) == text("kept")
    assert await service.list_versions(**REPORT) == [0]


@pytest.mark.asyncio
async def test_plugins_see_a_save_as_one_creation_of_a_file() -> None:
    observer = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[observer]) as memory:
        await AgentMemoryArtifactService(memory).save_artifact(**REPORT, artifact=text("x"))
    path = "apps/app/users/ann/sessions/s1/artifacts/report.md"
    assert seen_by(observer) == [("list", path), ("create", f"{path}/0")]


class Overtaken:
    """Lets another writer take three numbers after the first listing."""

    def __init__(self, other: AgentMemory) -> None:
        self._other = other
        self._is_done = False

    @hookimpl
    def agent_memory_after_operation(self, operation: Operation) -> None:
        if operation.kind == "list" and not self._is_done:
            self._is_done = True
            for number in range(3):
                self._other.create(f"{operation.path}/{number}", "of another writer")


@pytest.mark.asyncio
async def test_a_number_that_another_writer_took_is_not_given_again(tmp_path: Path) -> None:
    with (
        AgentMemory.open(str(tmp_path)) as other,
        AgentMemory.open(str(tmp_path), plugins=[Overtaken(other)]) as memory,
    ):
        service = AgentMemoryArtifactService(memory)
        assert await service.save_artifact(**REPORT, artifact=text("mine")) == 3
        assert await service.load_artifact(**REPORT) == text("mine")
        assert await service.save_artifact(**REPORT, artifact=text("next")) == 4


@pytest.mark.asyncio
async def test_a_save_that_loses_all_its_numbers_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_adk, "_MOST_RACES", 3)
    with (
        AgentMemory.open(str(tmp_path)) as other,
        AgentMemory.open(str(tmp_path), plugins=[Overtaken(other)]) as memory,
    ):
        service = AgentMemoryArtifactService(memory)
        with pytest.raises(ConflictError):
            await service.save_artifact(**REPORT, artifact=text("mine"))
        assert await service.list_versions(**REPORT) == [0, 1, 2]


@pytest.mark.asyncio
async def test_a_file_in_the_place_of_an_artifact_is_reported() -> None:
    with AgentMemory.open("memory://") as memory:
        memory.write("apps/app/users/ann/sessions/s1/artifacts/report.md", "a file")
        with pytest.raises(FileAlreadyExistsError):
            await AgentMemoryArtifactService(memory).save_artifact(**REPORT, artifact=text("x"))


def save(memory: AgentMemory, process: int, number: int) -> None:
    service = AgentMemoryArtifactService(memory)
    asyncio.run(service.save_artifact(**REPORT, artifact=text(f"{process} {number}")))


@rounds(5, 1)
def test_race_of_saves_gives_every_version_its_own_number(shared_place: Root) -> None:
    race(shared_place, save)

    async def saved() -> list[str]:
        async with AsyncAgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
            service = AgentMemoryArtifactService(memory)
            assert await service.list_versions(**REPORT) == list(range(PROCESSES * ADDITIONS))
            parts = [await service.load_artifact(**REPORT, version=n) for n in range(PROCESSES * ADDITIONS)]
            return [part.text for part in parts if part and part.text]

    assert sorted(asyncio.run(saved())) == sorted(f"{p} {n}" for p in range(PROCESSES) for n in range(ADDITIONS))


@pytest.mark.asyncio
async def test_concurrent_saves_of_one_process_have_no_gap(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        service = AgentMemoryArtifactService(memory)
        numbers = await asyncio.gather(*(service.save_artifact(**REPORT, artifact=text(str(n))) for n in range(10)))
        assert sorted(numbers) == list(range(10))


# Memories


def said(words: str, **fields: Any) -> Event:
    content = types.Content(role="user", parts=[text(words)])
    return Event(**{"author": "user", "content": content, "timestamp": 1_700_000_000.5, **fields})


def session(*events: Event, **fields: Any) -> Session:
    return Session(**{"id": "s1", **USER, "events": list(events), **fields})


async def found(service: BaseMemoryService, query: str, **names: Any) -> list[str]:
    answer = await service.search_memory(**{**USER, **names}, query=query)
    return [" ".join(part.text or "" for part in each.content.parts or []) for each in answer.memories]


SENTENCES = [
    "I prefer rail to air", "Rail, rail and rail!", "私はPythonを使う", "The price is 5 € per km", "straße CAFÉ",
    "a", "", "…", "trains are trains", "air", "rail and air and sea", "under_score", "e\u0301cole",
]  # fmt: skip
QUERIES = [
    "rail",
    "RAIL air",
    "python",
    "Python を",
    "使う",
    "5",
    "nothing here",
    "",
    "café STRASSE",
    "école",
    "thon",
    "a",
]


@pytest.mark.asyncio
@pytest.mark.parametrize("query", QUERIES)
async def test_a_search_finds_what_the_service_in_memory_finds(query: str) -> None:
    with AgentMemory.open("memory://") as memory:
        answers = []
        events = [said(words, timestamp=100.0 + n) for n, words in enumerate(SENTENCES * 2)]
        for service in (AgentMemoryMemoryService(memory), InMemoryMemoryService()):
            await service.add_session_to_memory(session(*events[:9]))
            await service.add_session_to_memory(session(*events[9:20], id="s0"))
            await service.add_events_to_memory(**SCOPE, events=events[18:])
            answers.append(await service.search_memory(**USER, query=query))
    assert answers[0] == answers[1]


@pytest.mark.asyncio
async def test_a_session_is_found_in_another_session_and_by_its_user_only(memory: AgentMemory) -> None:
    service = AgentMemoryMemoryService(memory)
    await service.add_session_to_memory(session(said("I prefer rail"), said("Noted", author="helper")))
    await service.add_session_to_memory(session(said("rail is late"), id="s2"))
    assert sorted(await found(service, "rail")) == ["I prefer rail", "rail is late"]
    assert await found(service, "rail", user_id="bob") == []
    assert await found(service, "rail", app_name="other") == []
    entry = (await service.search_memory(**USER, query="noted")).memories[0]
    assert (entry.author, entry.content) == ("helper", types.Content(role="user", parts=[text("Noted")]))


@pytest.mark.asyncio
async def test_a_session_that_is_added_again_is_kept_once_with_its_new_events(memory: AgentMemory) -> None:
    service = AgentMemoryMemoryService(memory)
    first, second = said("rail one"), said("rail two")
    await service.add_session_to_memory(session(first))
    await service.add_session_to_memory(session(first))
    before = memory.read("apps/app/users/ann/memory/s1.jsonl")
    await service.add_session_to_memory(session(first, second))
    await service.add_events_to_memory(**SCOPE, events=[first, second])
    assert await found(service, "rail") == ["rail one", "rail two"]
    lines = memory.read("apps/app/users/ann/memory/s1.jsonl")
    assert lines.startswith(before)
    assert lines.count("\n") == 2
    assert memory.list("apps/app/users/ann/memory")[0].path == "apps/app/users/ann/memory/s1.jsonl"


@pytest.mark.asyncio
async def test_a_session_with_a_changed_event_replaces_it_but_a_repeated_event_does_not() -> None:
    for service in (AgentMemoryMemoryService(AgentMemory.open("memory://")), InMemoryMemoryService()):
        await service.add_session_to_memory(session(said("rail one", id="1"), said("rail two", id="2")))
        await service.add_events_to_memory(**SCOPE, events=[said("rail changed", id="1")])
        assert await found(service, "rail") == ["rail one", "rail two"]
        await service.add_session_to_memory(session(said("rail changed", id="1"), said("rail two", id="2")))
        assert await found(service, "rail") == ["rail changed", "rail two"]


@pytest.mark.asyncio
async def test_events_without_words_are_not_stored(memory: AgentMemory) -> None:
    call = types.Content(role="model", parts=[types.Part(function_call=types.FunctionCall(name="rail", args={}))])
    await AgentMemoryMemoryService(memory).add_session_to_memory(
        session(said("x", content=None), said("x", content=call), said("x", content=types.Content(role="user")))
    )
    assert memory.list() == ()


@pytest.mark.asyncio
async def test_a_content_with_bytes_is_returned_as_it_was() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryMemoryService(memory)
        content = types.Content(role="user", parts=[text("a picture", thought_signature=b"\xff"), blob(BYTES)])
        await service.add_events_to_memory(**SCOPE, events=[said("", content=content)])
        assert (await service.search_memory(**USER, query="picture")).memories[0].content == content


@pytest.mark.asyncio
async def test_a_memory_that_is_added_as_such_is_found_as_it_was(memory: AgentMemory) -> None:
    service = AgentMemoryMemoryService(memory)
    content = types.Content(parts=[text("likes rail")])
    whole = MemoryEntry(id="m1", content=content, author="ann", timestamp="2026-01-02", custom_metadata={"a": 1})
    await service.add_memory(**USER, memories=[whole, MemoryEntry(content=content)], custom_metadata={"a": 0, "b": 2})
    await service.add_memory(**USER, memories=[whole])
    first, second = (await service.search_memory(**USER, query="rail")).memories
    assert first == whole.model_copy(update={"custom_metadata": {"a": 1, "b": 2}})
    assert second.id
    assert (second.author, second.timestamp, second.custom_metadata) == (None, None, {"a": 0, "b": 2})


@pytest.mark.asyncio
async def test_the_metadata_of_added_events_are_returned() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryMemoryService(memory)
        await service.add_events_to_memory(**USER, events=[said("rail")], custom_metadata={"ttl": 60})
        assert (await service.search_memory(**USER, query="rail")).memories[0].custom_metadata == {"ttl": 60}


@pytest.mark.asyncio
async def test_a_deleted_memory_is_gone_and_does_not_come_back(memory: AgentMemory) -> None:
    for service in (AgentMemoryMemoryService(memory), InMemoryMemoryService()):
        events = [said("rail one", id="1"), said("rail two", id="2")]
        await service.add_session_to_memory(session(*events))
        await service.add_events_to_memory(**USER, events=events[:1])
        await service.delete_memory(**USER, memory_id="1")
        await service.delete_memory(**USER, memory_id="unknown")
        await service.delete_memory(**USER)
        assert await found(service, "rail") == ["rail two"]
        await service.add_session_to_memory(session(*events))
        await service.add_events_to_memory(**SCOPE, events=events)
        assert await found(service, "rail") == ["rail two"]
        await service.add_events_to_memory(**USER, events=[said("rail unknown", id="unknown")])
        assert "rail unknown" in await found(service, "rail")
    kept = memory.read_many([entry.path for entry in memory.list()], bytes=True)
    assert not any(b"rail one" in data for data in kept.values())


@pytest.mark.asyncio
async def test_damaged_lines_are_skipped_and_kept() -> None:
    with AgentMemory.open("memory://") as memory:
        service = AgentMemoryMemoryService(memory)
        damaged = b'\xff\xfe\nnot JSON\n[1]\n{"id":1}\n{"id":"x","content":7}\n\n{"id":"torn","cont'
        memory.write("apps/app/users/ann/memory/s1.jsonl", damaged)
        memory.write("apps/app/users/ann/memory/.deleted.jsonl", '[]\n{"id":[1]}\n{"id":"gone"}\n{"id":')
        await service.add_events_to_memory(**SCOPE, events=[said("rail one"), said("rail two", id="gone")])
        assert await found(service, "rail") == ["rail one"]
        content = memory.read_bytes("apps/app/users/ann/memory/s1.jsonl")
        assert content.startswith(damaged.replace(b"\n\n", b"\n") + b"\n")


def add_event(memory: AgentMemory, process: int, number: int) -> None:
    service = AgentMemoryMemoryService(memory)
    event = said(f"rail {process} {number}", id=f"{process} {number}")
    asyncio.run(service.add_events_to_memory(**SCOPE, events=[event]))


@rounds(5, 1)
def test_race_of_added_events_loses_none(shared_place: Root) -> None:
    race(shared_place, add_event)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        lines = memory.read("apps/app/users/ann/memory/s1.jsonl").splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    assert sorted(ids) == sorted(f"{p} {n}" for p in range(PROCESSES) for n in range(ADDITIONS))


def add_session(memory: AgentMemory) -> None:
    events = [said(f"rail {number}", id=str(number)) for number in range(20)]
    asyncio.run(AgentMemoryMemoryService(memory).add_session_to_memory(session(*events)))


@rounds(5, 1)
def test_at_once_added_twice_a_session_is_stored_once(shared_place: Root) -> None:
    at_once(shared_place, add_session)
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        lines = memory.read("apps/app/users/ann/memory/s1.jsonl").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(number) for number in range(20)]


# The framework's runner


class ScriptedModel(BaseLlm):
    """Answers with the next part of a script."""

    model: str = "script"
    script: list[types.Part]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del llm_request, stream
        yield LlmResponse(content=types.Content(role="model", parts=[self.script.pop(0)]))


async def save_report(content: str, tool_context: ToolContext) -> dict[str, Any]:
    """Save the report."""
    return {"version": await tool_context.save_artifact("user:report.md", text(content))}


async def read_report(tool_context: ToolContext) -> dict[str, Any]:
    """Read the report."""
    part = await tool_context.load_artifact("user:report.md")
    return {"report": part and part.text, "names": await tool_context.list_artifacts()}


def call(name: str, **arguments: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


async def talk(memory: AgentMemory, session_id: str, message: str, *script: types.Part) -> list[dict[str, Any] | None]:
    """Run a session with services of its own and add it to memory; returns the answers of the tools."""
    sessions, memories = InMemorySessionService(), AgentMemoryMemoryService(memory)
    agent = LlmAgent(
        name="helper", model=ScriptedModel(script=list(script)), tools=[save_report, read_report, load_memory]
    )
    runner = Runner(
        app_name="app",
        agent=agent,
        session_service=sessions,
        artifact_service=AgentMemoryArtifactService(memory),
        memory_service=memories,
    )
    await sessions.create_session(**USER, session_id=session_id)
    content = types.Content(role="user", parts=[text(message)])
    events = [event async for event in runner.run_async(user_id="ann", session_id=session_id, new_message=content)]
    stored = await sessions.get_session(**USER, session_id=session_id)
    assert stored is not None
    await memories.add_session_to_memory(stored)
    await runner.close()
    return [each.response for event in events for each in event.get_function_responses()]


@pytest.mark.asyncio
async def test_an_agent_finds_what_it_saved_and_heard_in_an_earlier_session(memory: AgentMemory) -> None:
    saved = await talk(memory, "monday", "I prefer rail.", call("save_report", content="# Trains"), text("Saved."))
    assert saved == [{"version": 0}]
    again = await talk(memory, "noon", "Correct it.", call("save_report", content="# All trains"), text("Saved."))
    assert again == [{"version": 1}]
    read, recalled = await talk(
        memory, "tuesday", "What do I like?", call("read_report"), call("load_memory", query="rail"), text("Rail.")
    )
    assert read == {"report": "# All trains", "names": ["user:report.md"]}
    assert recalled is not None
    entries = recalled["result"].memories
    assert [(each.author, each.content.parts[0].text) for each in entries] == [("user", "I prefer rail.")]


def test_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['google.adk.artifacts'] = None\n"
        "try:\n    import agent_memory.integrations.google_adk\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'agent-memory-files[google-adk]'" in done.stdout


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


EXPECTED = (
    "monday: saved version 0 of the report\n"
    "tuesday: the report: Rail is faster.; remembered: I prefer rail to air.\n"
    "files:\n"
    "  apps/app/users/ann/artifacts/report.md/0\n"
    "  apps/app/users/ann/memory/monday.jsonl\n"
    "  apps/app/users/ann/memory/tuesday.jsonl\n"
)


def test_the_example_remembers_on_disk(tmp_path: Path) -> None:
    assert run_example(str(tmp_path / "memories")) == EXPECTED
    assert (tmp_path / "memories/agent_memory/ann/adk/apps/app/users/ann/artifacts/report.md/0").exists()
    assert run_example(str(tmp_path / "memories")).startswith("monday: saved version 1 of the report\n")


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    output = run_example(ministack.new_url(), **ministack.environment)
    assert output == EXPECTED


class NoteTakingModel(BaseLlm):
    """A model that keeps notes by tools."""

    model: str = "notes"
    taker: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        answers = [next(iter((p.function_response.response or {}).values())) for p in parts if p.function_response]
        call = self.taker.next(answers)
        part = types.Part(text="done")
        if call is not None:
            made = types.FunctionCall(id=f"call-{len(answers)}", name=call[0], args=call[1])
            part = types.Part(function_call=made)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


@pytest.mark.asyncio
async def test_an_agent_keeps_notes_with_the_tools(place: Root) -> None:
    plugin, sessions = RecordingPlugin(), InMemorySessionService()
    with AgentMemory.open(place.url, storage_options=place.options, actor="ann", plugins=[plugin]) as memory:
        agent = LlmAgent(name="agent", model=NoteTakingModel(taker=NoteTaker()), tools=memory_tools(memory))
        runner = Runner(app_name="app", agent=agent, session_service=sessions)
        await sessions.create_session(**USER, session_id="s")
        message = types.Content(role="user", parts=[text("go")])
        events = [event async for event in runner.run_async(user_id="ann", session_id="s", new_message=message)]
        assert events[-1].content
        assert events[-1].content.parts == [text("done")]
        check(memory, plugin, [f"call-{number}" for number in range(8)])


@pytest.mark.asyncio
async def test_a_second_search_reads_only_the_sessions_that_changed(tmp_path: Path) -> None:
    plugin = RecordingPlugin()

    def reads() -> list[str]:
        done = [(each.path, outcome.size) for each, outcome in plugin.after if each.kind == "read"]
        found = [path for path, size in done if size and "/memory/s" in path]
        plugin.after.clear()
        return found

    with AgentMemory.open(tmp_path, plugins=[plugin]) as memory:
        service = AgentMemoryMemoryService(memory)
        for number in range(5):
            await service.add_events_to_memory(**USER, events=[said(f"tea {number}")], session_id=f"s{number}")
        age(tmp_path, "*.jsonl")
        plugin.after.clear()
        for expected in (5, 0):
            found = await service.search_memory(**USER, query="tea")
            assert len(found.memories) == 5
            assert len(reads()) == expected
            found.memories[0].content.parts = [text("changed by the caller")]
            found.memories[0].custom_metadata["x"] = 1
        await service.add_events_to_memory(**USER, events=[said("tea again")], session_id="s3")
        plugin.after.clear()
        found = await service.search_memory(**USER, query="tea")
        parts = [part for each in found.memories for part in each.content.parts or ()]
        assert sorted(str(part.text) for part in parts) == [*(f"tea {number}" for number in range(5)), "tea again"]
        assert all(each.custom_metadata == {} for each in found.memories)
        assert reads() == ["apps/app/users/ann/memory/s3.jsonl"]
