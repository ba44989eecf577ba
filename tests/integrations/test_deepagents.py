"""A backend of Deep Agents over a memory. The framework has no suite; its own backends are the reference here."""

from __future__ import annotations

import asyncio
import base64
import copy
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

deepagents = pytest.importorskip("deepagents")

from deepagents import create_deep_agent  # noqa: E402
from deepagents.backends import (  # noqa: E402
    CompositeBackend,
    FilesystemBackend,
    StateBackend,
    utils,
)
from deepagents.backends import protocol as contract  # noqa: E402
from deepagents.backends.protocol import BackendProtocol  # noqa: E402
from langchain_core.language_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage  # noqa: E402

from agent_memory import AgentMemory, AsyncAgentMemory, InvalidPathError  # noqa: E402
from agent_memory.integrations import deepagents as module  # noqa: E402
from agent_memory.integrations.deepagents import AgentMemoryBackend  # noqa: E402
from agent_memory.integrations.toolkit import refusal  # noqa: E402
from agent_memory.testing import RecordingPlugin  # noqa: E402
from agent_memory_memory import MemoryBackend  # noqa: E402
from tests.integrations.kit import ADDITIONS, HOSTILE, IDS, PROCESSES, at_once, example_output, race, rounds  # noqa: E402
from tests.integrations.obedient import BAD_NAMES, obeyed  # noqa: E402
from tests.support.servers import Root, S3Server  # noqa: E402

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "integrations" / "deep_agent.py"
METHODS: Final = ("ls", "read", "write", "edit", "delete", "grep", "glob", "upload_files", "download_files")
FILES: Final = {
    "/top.py": "import os\nTODO: top\n",
    "/.env": "KEY=1\n",
    "/.github/workflows/ci.yml": "on: push\n",
    "/docs/.hidden.md": "TODO: hidden\n",
    "/docs/b1.txt": "one\ntodo\n",
    "/docs/b2.txt": "a.b* TODO|TODO\n",
    "/docs/bé.txt": "",
    "/src/a.py": "x = 1  # TODO\ny = 2\n",
    "/src/app/main.py": "def main(): ...\nTODO\nTODO",
    "/src/app/util.ts": "\n\n  TODO  \n",
    "/srcx.py": "TODO",
}
ALL: Final = ("/docs/b1.txt", "/docs/b2.txt", "/docs/bé.txt")
GLOBS: Final[dict[tuple[str, str | None], tuple[str, ...]]] = {
    ("*.py", None): ("/src/a.py", "/src/app/main.py", "/srcx.py", "/top.py"),  # without a slash: names, at any depth
    ("main.py", None): ("/src/app/main.py",),
    ("b?.txt", None): ALL,
    ("b[12].txt", None): ALL[:2],
    ("b[!1].txt", None): ALL[1:],
    ("b[^1].txt", None): ALL[1:],
    ("b[1-9].txt", None): ALL[:2],
    ("*.{py,ts}", "/src"): ("/src/a.py", "/src/app/main.py", "/src/app/util.ts"),
    ("{main,b{1,2}}.*", None): ("/docs/b1.txt", "/docs/b2.txt", "/src/app/main.py"),
    ("*.PY", None): (),
    ("/*.py", None): ("/srcx.py", "/top.py"),  # anchored
    ("/src/*.py", None): ("/src/a.py",),
    ("src/*.py", None): ("/src/a.py",),  # with a slash: the path below the root of the search
    ("app/main.py", None): (),
    ("src/**/*.py", None): ("/src/a.py", "/src/app/main.py"),
    ("**/*.py", None): ("/src/a.py", "/src/app/main.py", "/srcx.py", "/top.py"),
    ("/src/**", None): ("/src/a.py", "/src/app/main.py", "/src/app/util.ts"),
    ("app/main.py", "/src"): ("/src/app/main.py",),
    ("/*.py", "/src/"): ("/src/a.py",),
    ("*", "/docs"): ALL,  # names with a dot only if the pattern has it
    ("*.yml", None): ("/.github/workflows/ci.yml",),
    ("**/*.yml", None): (),
    (".github/**/*.yml", None): ("/.github/workflows/ci.yml",),
    (".env", None): ("/.env",),
    (".*", None): ("/.env", "/docs/.hidden.md"),
    ("docs/.*", None): ("/docs/.hidden.md",),
    ("src", None): (),  # directories are no matches
    ("src/app", None): (),
    ("*", "/none"): (),
    ("[", None): (),
    ("*.{py", None): (),
}
BAD_NAMES_GLOBS: Final = ("../*.py", "a/../b", "..", "/..", "{" + "a," * 1500 + "b}{" + "a," * 1500 + "b}")


class Stated(StateBackend):
    """The framework's backend in the state of a graph, with a dictionary for the state."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, Any] = {}

    def _read_files(self) -> dict[str, Any]:
        return self.files

    def _send_files_update(self, update: dict[str, Any]) -> None:
        self.files = {path: data for path, data in {**self.files, **update}.items() if data is not None}


class Calls:
    """The calls of a backend, by its sync or by its async methods."""

    def __init__(self, backend: BackendProtocol, kind: str) -> None:
        self.backend = backend
        self._is_async = kind == "async"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.backend, f"a{name}" if self._is_async else name)
        return (lambda *args, **options: asyncio.run(method(*args, **options))) if self._is_async else method


@pytest.fixture(params=["sync", "async"])
def backend(request: pytest.FixtureRequest, memory: AgentMemory) -> Calls:
    return Calls(AgentMemoryBackend(memory), request.param)


@pytest.fixture
def opened() -> Iterator[AgentMemory]:
    with AgentMemory.open("memory://") as memory:
        yield memory


def fill(backend: Any) -> None:
    assert all(response.error is None for response in backend.upload_files([(p, t.encode()) for p, t in FILES.items()]))


def references(directory: Path) -> list[BackendProtocol]:
    backends: list[BackendProtocol] = [Stated(), FilesystemBackend(directory, virtual_mode=True)]
    for each in backends:
        fill(each)
    return backends


def paths(infos: list[contract.FileInfo] | None) -> list[str]:
    return [info["path"] for info in infos or []]


def found(result: contract.GrepResult) -> set[tuple[str, int, str]]:
    assert result.matches is not None
    return {(match["path"], match["line"], match["text"].removesuffix("\r")) for match in result.matches}


def shape(method: Callable[..., Any]) -> list[tuple[Any, ...]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment not in ("", ".")]


# --- the contract


def test_every_method_of_the_protocol_is_implemented_sync_and_async_with_its_signature() -> None:
    public = {name for name in vars(BackendProtocol) if not name.startswith("_")}
    assert public == {*METHODS, *(f"a{name}" for name in METHODS)}
    for name in public:
        ours, theirs = getattr(AgentMemoryBackend, name), getattr(BackendProtocol, name)
        assert ours is not theirs, name
        assert asyncio.iscoroutinefunction(ours) == name.startswith("a"), name
        assert shape(ours) == shape(theirs), name


def test_files_are_plain_files_of_the_memory(backend: Calls, memory: AgentMemory) -> None:
    assert backend.write("/notes/a b.md", "été\r\n🧠") == contract.WriteResult(path="/notes/a b.md")
    assert memory.read("notes/a b.md") == "été\r\n🧠"
    memory.write("by hand.md", "hand")
    assert backend.read("/by hand.md").file_data["content"] == "hand"
    assert [str(entry) for entry in memory.list()] == ["by hand.md", "notes/a b.md"]


def test_a_write_creates_or_overwrites(backend: Calls, memory: AgentMemory) -> None:
    for text in ("a longer text", "short", "", "end\n"):
        assert backend.write("/a/b.md", text) == contract.WriteResult(path="/a/b.md")
        assert memory.read("a/b.md") == text


def test_a_write_to_a_directory_or_below_a_file_is_an_error(backend: Calls, memory: AgentMemory) -> None:
    backend.write("/a/b.md", "x")
    assert backend.write("/a", "y").error == "Error writing file '/a': the name is a directory"
    assert backend.write("/a/b.md/c", "y").error == "Error writing file '/a/b.md/c': the name lies below a file"
    assert [str(entry) for entry in memory.list()] == ["a/b.md"]


@pytest.mark.parametrize("text", ["1\n2\n3\n", "1\n2\n3", "a\r\nb\r\nc\r\n", "a\rb\x0cc\u2028d", "", " \n\t\n", "x"])
def test_a_read_returns_the_window_that_the_frameworks_backend_returns(opened: AgentMemory, text: str) -> None:
    ours, reference = AgentMemoryBackend(opened), Stated()
    for each in (ours, reference):
        each.write("/a.txt", text)
    for offset in (-1, 0, 1, 2, 3, 4):
        for limit in (-1, 0, 1, 2, 2000):
            theirs = reference.read("/a.txt", offset, limit)
            if theirs.file_data:
                theirs.file_data = {"content": theirs.file_data["content"], "encoding": "utf-8"}  # without times
            assert ours.read("/a.txt", offset, limit) == theirs, (offset, limit)
            assert asyncio.run(ours.aread("/a.txt", offset, limit)) == theirs, (offset, limit)


def test_a_read_says_where_the_next_lines_are(backend: Calls) -> None:
    backend.write("/a.md", "one\r\ntwo\r\nthree")
    window = backend.read("/a.md", offset=1, limit=1)
    assert window.file_data == {"content": "two\n", "encoding": "utf-8"}
    assert (window.start_line, window.end_line, window.next_offset, window.total_lines) == (2, 2, 2, 3)
    assert backend.read("/a.md", offset=3).error == "Line offset 3 exceeds file length (3 lines)"
    assert backend.read("/a.md", limit=0).no_lines_requested


def test_a_missing_file_is_an_error_in_the_frameworks_words(backend: Calls, memory: AgentMemory) -> None:
    memory.write("directory/a.md", "x")
    for path in ("/none.md", "none.md", "/directory", "/directory/none.md"):
        assert backend.read(path) == contract.ReadResult(error=f"File '{path}' not found")
        assert backend.edit(path, "a", "b") == contract.EditResult(error=f"Error: File '{path}' not found")
    for path in ("/none.md", "/direct", "/directory/a/", "/directory/a.md/x"):
        assert backend.delete(path) == contract.DeleteResult(error=f"Error: File '{path}' not found")
    assert [str(entry) for entry in memory.list()] == ["directory/a.md"]


EDITS: Final = [
    ("one two one\n", "two", "2", False),
    ("one two one\n", "one", "1", True),
    ("one two one\n", "one", "1", False),
    ("one two one\n", "zwei", "2", False),
    ("one two one\n", "", "2", False),
    ("one two one\n", "two", "two", False),
    ("one", "one\n", "1", False),
    ("one one", "one\n", "1", False),
    ("a\nb\n", "a\nb", "b\na\nc", False),
    ("", "a", "b", True),
]


@pytest.mark.parametrize(("text", "old", "new", "everywhere"), EDITS)
def test_an_edit_has_the_result_of_the_frameworks_backend(
    opened: AgentMemory, text: str, old: str, new: str, everywhere: bool
) -> None:
    ours, reference = AgentMemoryBackend(opened), Stated()
    for calls in (Calls(ours, "sync"), Calls(ours, "async")):
        opened.write("a.md", text)
        reference.write("/a.md", text)
        assert calls.edit("/a.md", old, new, everywhere) == reference.edit("/a.md", old, new, everywhere)
        assert opened.read("a.md") == reference.files["/a.md"]["content"]


def test_the_errors_of_an_edit_have_the_frameworks_words(backend: Calls, memory: AgentMemory) -> None:
    backend.write("/a.md", "one two one")
    assert backend.edit("/a.md", "1", "2").error == "Error: String not found in file: '1'"
    empty = "Error: old_string cannot be empty. Provide the exact text to replace."
    assert backend.edit("/a.md", "", "2").error == empty
    assert backend.edit("/a.md", "one", "2").error == (
        "Error: String 'one' appears 2 times in file. Use replace_all=True to replace all instances, "
        "or provide a more specific string with surrounding context."
    )
    assert backend.edit("/a.md", "two one\n", "2\n").error == (
        "Error: old_string ends with a newline, but the file does not end with a newline. Retry with the trailing "
        "newline removed from old_string (and from new_string if it also ends with a newline)."
    )
    assert memory.read("a.md") == "one two one"
    assert backend.edit("/a.md", "one", "1", replace_all=True) == contract.EditResult(path="/a.md", occurrences=2)
    assert memory.read("a.md") == "1 two 1"


def test_a_file_with_crlf_is_edited_as_it_is_read_and_keeps_crlf(backend: Calls, memory: AgentMemory) -> None:
    backend.write("/a.md", "one\r\ntwo\r\nthree")
    window = backend.read("/a.md").file_data["content"]
    assert backend.edit("/a.md", window[: window.index("three")], "1\n2\n3\n").occurrences == 1
    assert backend.edit("/a.md", "3\r\n", "4\r\n").occurrences == 1
    assert memory.read("a.md") == "1\r\n2\r\n4\r\nthree"


def test_a_file_with_both_line_ends_and_a_mark_keeps_them(backend: Calls, memory: AgentMemory) -> None:
    memory.write("a.md", b"\xef\xbb\xbfone\r\ntwo\nthree\r\n")
    assert backend.read("/a.md").file_data["content"] == "one\ntwo\nthree\n"
    assert [match["text"] for match in backend.grep("e").matches] == ["one", "three"]
    assert backend.edit("/a.md", "one\ntwo", "1\n2").occurrences == 1
    assert memory.read_bytes("a.md") == b"\xef\xbb\xbf1\r\n2\nthree\r\n"
    assert backend.write("/a.md", "1\n2\nthree\nfour\n").error is None
    assert memory.read_bytes("a.md") == b"\xef\xbb\xbf1\r\n2\nthree\r\nfour\r\n"


def test_a_file_that_is_no_text_is_not_edited_and_not_read_as_text(backend: Calls, memory: AgentMemory) -> None:
    memory.write("a.md", b"a\xff")
    assert backend.edit("/a.md", "a", "b").error.startswith("Error editing file '/a.md': not UTF-8 text")
    assert backend.read("/a.md").error.startswith("Error reading file '/a.md': not UTF-8 text")
    assert memory.read_bytes("a.md") == b"a\xff"


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_text_that_is_no_unicode_is_refused(opened: AgentMemory, text: str) -> None:
    backend = AgentMemoryBackend(opened)
    assert "not valid Unicode" in str(backend.write("/a.md", text).error)
    opened.write("a.md", "x")
    assert "not valid Unicode" in str(backend.edit("/a.md", "x", text).error)
    assert opened.read("a.md") == "x"


def test_a_listing_shows_one_level_with_directories_marked(backend: Calls) -> None:
    assert backend.ls("/") == contract.LsResult(entries=[])
    fill(backend)
    for path in ("/", ""):
        assert paths(backend.ls(path).entries) == ["/.env", "/.github/", "/docs/", "/src/", "/srcx.py", "/top.py"]
    for path in ("/src", "/src/", "src", "//src/./"):
        directory, file = sorted(backend.ls(path).entries, key=lambda info: not info["is_dir"])
        assert directory == {"path": "/src/app/", "is_dir": True, "size": 0, "modified_at": ""}
        assert (file["path"], file["is_dir"], file["size"]) == ("/src/a.py", False, 20)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+\+00:00", file["modified_at"])
    assert backend.ls("/none") == contract.LsResult(error="Path '/none': path_not_found")
    assert backend.ls("/top.py") == contract.LsResult(error="Path '/top.py': not_a_directory")


def test_listings_are_those_of_the_frameworks_file_backend(opened: AgentMemory, tmp_path: Path) -> None:
    ours, reference = AgentMemoryBackend(opened), references(tmp_path)[1]
    fill(ours)
    for path in ("/", "/src", "/src/", "/src/app", "/.github", "/docs", "/none", "/top.py", "/src/none"):
        theirs = reference.ls(path)
        mine = ours.ls(path)
        assert (mine.error, paths(mine.entries)) == (theirs.error, paths(theirs.entries))


def test_a_delete_is_recursive_and_leaves_names_that_only_begin_alike(backend: Calls, memory: AgentMemory) -> None:
    fill(backend)
    for path in ("/src", "/docs/", "/.env"):
        assert backend.delete(path) == contract.DeleteResult(path=path)
    assert [str(entry) for entry in memory.list()] == [".github/workflows/ci.yml", "srcx.py", "top.py"]
    assert backend.delete("/") == contract.DeleteResult(path="/")
    assert memory.list() == ()
    assert backend.delete("/") == contract.DeleteResult(error="Error: File '/' not found")


def test_globs_find_what_the_contract_says(backend: Calls) -> None:
    fill(backend)
    for (pattern, path), expected in GLOBS.items():
        result = backend.glob(pattern, path)
        assert (pattern, paths(result.matches)) == (pattern, sorted(expected))
        assert (result.error, result.truncated) == (None, False)
        assert [info["size"] for info in result.matches] == [len(FILES[p].encode()) for p in sorted(expected)]


def test_the_frameworks_backends_find_the_same_globs(tmp_path: Path) -> None:
    for reference in references(tmp_path):
        for (pattern, path), expected in GLOBS.items():
            assert (pattern, set(paths(reference.glob(pattern, path).matches))) == (pattern, set(expected))


def test_a_glob_below_a_file_is_about_that_file(backend: Calls) -> None:
    fill(backend)
    assert paths(backend.glob("*.py", "/src/a.py").matches) == ["/src/a.py"]
    assert paths(backend.glob("*.ts", "/src/a.py").matches) == []


@pytest.mark.parametrize("pattern", BAD_NAMES_GLOBS, ids=range(len(BAD_NAMES_GLOBS)))
def test_a_refused_glob_is_the_error_of_the_framework(opened: AgentMemory, tmp_path: Path, pattern: str) -> None:
    for calls in (Calls(AgentMemoryBackend(opened), "sync"), Calls(AgentMemoryBackend(opened), "async")):
        for reference in references(tmp_path):
            assert calls.glob(pattern) == reference.glob(pattern)
            assert calls.grep("x", glob=pattern).error == reference.grep("x", glob=pattern).error
            assert calls.grep("x", glob=pattern).error


GREPS: Final[list[tuple[str, str | None, str | None]]] = [
    ("TODO", None, None),
    ("TODO", "/", None),
    ("TODO", "/src", None),
    ("TODO", "/src/", "*.py"),
    ("TODO", None, "/*.py"),
    ("TODO", None, "src/**/*.py"),
    ("TODO", "/docs", ".*"),
    ("TODO", "/none", None),
    ("todo", None, None),
    ("a.b*", None, None),
    ("a.*b", None, None),
    ("TODO|TODO", None, None),
    ("  TODO  ", None, None),
    ("é", None, None),
    ("none of them", None, None),
]


def test_greps_find_literal_text_as_the_frameworks_backends_do(
    backend: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ripgrep, where it is installed, leaves out hidden files
    monkeypatch.setattr("deepagents.backends.filesystem._resolve_ripgrep_path", lambda: None)
    theirs = references(tmp_path / "reference")
    fill(backend)
    for pattern, path, glob in GREPS:
        result = backend.grep(pattern, path, glob)
        assert (result.error, result.truncated) == (None, False)
        for reference in theirs:
            assert found(result) == found(reference.grep(pattern, path, glob)), (pattern, path, glob, reference)


def test_a_grep_is_literal_and_case_sensitive_in_the_order_of_paths(backend: Calls) -> None:
    fill(backend)
    assert backend.grep("TODO", "/src").matches == [
        {"path": "/src/a.py", "line": 1, "text": "x = 1  # TODO"},
        {"path": "/src/app/main.py", "line": 2, "text": "TODO"},
        {"path": "/src/app/main.py", "line": 3, "text": "TODO"},
        {"path": "/src/app/util.ts", "line": 3, "text": "  TODO  "},
    ]
    assert backend.grep("TODO", "/src/app/main.py", "*.py").matches == backend.grep("TODO", "/src/app", "*.py").matches
    assert len(backend.grep("TODO", "/src/app/main.py", "*.py").matches) == 2
    assert backend.grep("TODO", "/src/app/main.py", "*.ts").matches == []
    assert backend.grep("TODO", "", "").matches == backend.grep("TODO").matches


def test_a_grep_stops_at_the_most_matches(backend: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(backend)
    everything = backend.grep("TODO").matches
    for files in (1, 3, 64):
        monkeypatch.setattr(module, "_FILES", files)
        for most in range(len(everything) + 3):
            result = backend.grep("TODO", max_count=most)
            assert (result.matches, result.truncated) == (everything[:most], most < len(everything))


def test_a_grep_reads_a_limited_amount_at_once(opened: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(AgentMemoryBackend(opened))
    read: list[list[int]] = []
    texts = module._AsyncBackend._texts

    async def counting(self: Any, names: list[str]) -> Any:
        read.append([len(FILES[f"/{name}"].encode()) for name in names])
        return await texts(self, names)

    monkeypatch.setattr(module._AsyncBackend, "_texts", counting)
    monkeypatch.setattr(module, "_BYTES", 30)
    assert len(found(AgentMemoryBackend(opened).grep("TODO"))) == 8
    assert all(sum(sizes) <= 30 or len(sizes) == 1 for sizes in read)
    assert sum(map(len, read)) == len(FILES)


def test_a_grep_skips_files_that_are_no_text(backend: Calls, memory: AgentMemory) -> None:
    memory.write("broken.md", b"TODO \xff")
    memory.write("text in a.pdf", "TODO")
    memory.write("real.md", "TODO")
    assert found(backend.grep("TODO")) == {("/real.md", 1, "TODO")}


def test_a_grep_says_that_it_is_incomplete_if_a_file_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES", 50)
    store = MemoryBackend()
    with AgentMemory.open(store) as memory:
        memory.write("a.md", "TODO")
        memory.write("large.md", "TODO" * 100)
        memory.write("z.md", "TODO")
        store.max_bytes = 50
        for calls in (Calls(AgentMemoryBackend(memory), "sync"), Calls(AgentMemoryBackend(memory), "async")):
            assert "50 bytes" in calls.read("/large.md").error
            result = calls.grep("TODO", "/a.md")
            assert (len(result.matches), result.truncated) == (1, False)
            result = calls.grep("TODO")
            assert (found(result), result.truncated) == ({("/a.md", 1, "TODO"), ("/z.md", 1, "TODO")}, True)


def test_a_grep_ends_after_its_time(opened: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = AgentMemoryBackend(opened)
    fill(backend)
    monkeypatch.setattr(contract, "DEFAULT_GREP_TIMEOUT", -1)
    assert backend.grep("TODO") == contract.GrepResult(matches=[], truncated=True)


def test_uploads_and_downloads_are_bytes_in_their_order(backend: Calls, memory: AgentMemory) -> None:
    files = [("/b.bin", b"\x00\xff"), ("/a.md", b"a\r\n"), ("/b.bin", b"second"), ("/d/e", b"")]
    assert backend.upload_files(files) == [contract.FileUploadResponse(path) for path, _ in files]
    assert memory.read_bytes("b.bin") == b"second"
    assert backend.download_files(["/d/e", "/b.bin", "/none", "/d", "/b.bin", "/"]) == [
        contract.FileDownloadResponse("/d/e", b""),
        contract.FileDownloadResponse("/b.bin", b"second"),
        contract.FileDownloadResponse("/none", error="file_not_found"),
        contract.FileDownloadResponse("/d", error="is_directory"),
        contract.FileDownloadResponse("/b.bin", b"second"),
        contract.FileDownloadResponse("/", error="is_directory"),
    ]
    assert (backend.upload_files([]), backend.download_files([])) == ([], [])


def test_one_bad_file_does_not_stop_an_upload_or_download(backend: Calls, memory: AgentMemory) -> None:
    memory.write("d/e", "x")
    bad = [("/d", "is_directory"), ("/d/e/f", "invalid_path"), ("/../x", "invalid_path"), ("/a?", "invalid_path")]
    responses = backend.upload_files([("/a", b"1"), *((path, b"2") for path, _ in bad), ("/z", b"3")])
    assert [(each.path, each.error) for each in responses] == [("/a", None), *bad, ("/z", None)]
    answers = backend.download_files(["/a", "/../x", "/z", "/a?"])
    assert [(each.content, each.error) for each in answers] == [
        (b"1", None), (None, "invalid_path"), (b"3", None), (None, "invalid_path"),
    ]  # fmt: skip


def test_without_the_frameworks_private_function_the_same_files_are_binary(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [*utils._EXTENSION_TO_FILE_TYPE, *utils._VIDEO_EXTRA_EXTENSIONS, ".PNG", ".md", ".csv", ""]
    paths = [memory.write(path, b"x").path for path in (".png", *map("file{}".format, ends))]
    backend = AgentMemoryBackend(memory)
    before = [backend.read(path) for path in paths]
    monkeypatch.delattr(utils, "_get_backend_read_file_type")
    assert [backend.read(path) for path in paths] == before


def test_binary_files_are_read_whole_as_base64(backend: Calls) -> None:
    backend.upload_files([("/a.png", b"\x89\n\xff"), ("/b.MKV", b"text")])
    for path, data in (("/a.png", b"\x89\n\xff"), ("/b.MKV", b"text")):
        result = backend.read(path, offset=7, limit=0)
        content = base64.b64encode(data).decode()
        assert result == contract.ReadResult(file_data={"content": content, "encoding": "base64"})


PLAIN: Final = ("/a.md", "/b/c.md", "/b/.d.yml", "/b/e/f.txt", "/.g/h.py", "/é.md")
TEXTS: Final = st.text(st.sampled_from("ab\n é"), max_size=8)
STEPS: Final = st.lists(
    st.tuples(st.just("write"), st.sampled_from(PLAIN), TEXTS)
    | st.tuples(st.just("edit"), st.sampled_from(PLAIN), TEXTS, TEXTS, st.booleans())
    | st.tuples(st.just("delete"), st.sampled_from([*PLAIN, "/b", "/b/e/", "/.g", "/"])),
    max_size=12,
)


@settings(max_examples=50)
@given(STEPS, TEXTS)
def test_any_calls_have_the_results_of_the_frameworks_state_backend(steps: list[tuple[Any, ...]], text: str) -> None:
    reference = Stated()
    with AgentMemory.open("memory://") as memory:
        ours = AgentMemoryBackend(memory)
        for name, *arguments in steps:
            assert getattr(ours, name)(*arguments) == getattr(reference, name)(*arguments)
        for pattern in ("*", "*.md", "b/**/*", ".*"):
            assert paths(ours.glob(pattern).matches) == sorted(paths(reference.glob(pattern).matches))
        assert found(ours.grep(text)) == found(reference.grep(text))
        assert ours.download_files([*PLAIN]) == reference.download_files([*PLAIN])


# --- names


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_hostile_names_are_files_or_refused_with_a_suggestion(memory: AgentMemory, place: Root, kind: str) -> None:
    for number, name in enumerate(filter(segments, HOSTILE)):
        tree = memory.subtree(f"{number}")
        backend = Calls(AgentMemoryBackend(tree), kind)
        for path in (f"/{name}", name, f"/d/{name}"):
            written = backend.write(path, path)
            if written.error is None:
                assert backend.read(path).file_data["content"] == path
                assert tree.read("/".join(segments(path))) == path
                continue
            with pytest.raises(InvalidPathError) as raised:
                tree.write("/".join(segments(path)), "x")
            results = [written, backend.read(path), backend.edit(path, "a", "b"), backend.delete(path)]
            for result in (*results, backend.ls(path), backend.grep("a", path), backend.glob("*", path)):
                assert refusal(raised.value) in result.error
                assert place.url not in result.error
                assert len(result.error) < 800
            assert backend.download_files([path])[0].error == "invalid_path"
    assert all(entry.path.partition("/")[0].isdigit() for entry in memory.list())


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_model_that_follows_the_advice_writes_to_its_route(memory: AgentMemory, name: str) -> None:
    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": AgentMemoryBackend(memory)})
    path = f"/memories/{name}"
    refused = backend.write(path, "kept")
    assert refused.error
    path = obeyed(path, refused.error)
    assert backend.write(path, "kept").error is None
    assert [memory.read(entry.path) for entry in memory.list()] == ["kept"]
    assert path.startswith("/memories/")


def test_the_whole_memory_is_no_file(backend: Calls, memory: AgentMemory) -> None:
    for path in ("", "/", ".", "/.", "//"):
        assert "a path must name a file" in backend.write(path, "x").error
        assert "a path must name a file" in backend.read(path).error
    assert memory.list() == ()


def test_nothing_outside_the_subtree_is_reached(opened: AgentMemory) -> None:
    opened.write("secret.md", "secret")
    opened.write("inside/a.md", "x")
    backend = AgentMemoryBackend(opened.subtree("inside"))
    for up in ("/..", "..", "/a/../..", "/%2e%2e", "/．．", "\\.."):
        for path in (up, f"{up}/secret.md"):
            results: list[Any] = [backend.read(path), backend.write(path, "x"), backend.edit(path, "secret", "x")]
            results += [backend.ls(path), backend.delete(path), backend.glob("*", path), backend.grep("secret", path)]
            results += [*backend.upload_files([(path, b"x")]), *backend.download_files([path])]
            assert all(result.error for result in results), path
    assert paths(backend.glob("*").matches) == ["/a.md"]
    assert opened.read("secret.md") == "secret"
    assert len(opened.list()) == 2


@settings(max_examples=50)
@given(IDS, IDS)
def test_two_different_names_are_never_one_file(one: str, other: str) -> None:
    with AgentMemory.open("memory://") as memory:
        backend = AgentMemoryBackend(memory)
        if backend.write(f"/{one}", "1").error or backend.write(f"/{other}", "2").error:
            return
        first = backend.download_files([f"/{one}"])[0].content
        assert first == (b"2" if segments(one) == segments(other) else b"1")


# --- several writers


def add_line(memory: AgentMemory, process: int, number: int) -> None:
    backend = AgentMemoryBackend(memory)
    arguments = ("/list.md", "END", f"{process}/{number}\nEND")
    result = backend.edit(*arguments) if number % 2 else asyncio.run(backend.aedit(*arguments))
    assert result.occurrences == 1, result.error


@rounds(5, 1)
def test_four_processes_race_to_edit_one_file(shared_place: Root) -> None:
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        memory.write("list.md", "END")
        race(shared_place, add_line)
        lines = memory.read("list.md").split("\n")
    assert sorted(lines) == sorted(["END", *(f"{p}/{n}" for p in range(PROCESSES) for n in range(ADDITIONS))])


@pytest.mark.asyncio
async def test_forty_tasks_edit_one_file_and_lose_nothing(place: Root) -> None:
    async with AsyncAgentMemory.open(place.url, storage_options=place.options) as memory:
        backend = AgentMemoryBackend(memory)
        await backend.awrite("/list.md", "END")
        results = await asyncio.gather(*(backend.aedit("/list.md", "END", f"{n}\nEND") for n in range(40)))
        assert [result.error for result in results] == [None] * 40
        assert sorted((await memory.read("list.md")).split("\n")) == sorted(["END", *map(str, range(40))])


def claim(memory: AgentMemory) -> str | None:
    return AgentMemoryBackend(memory).edit("/job.md", "free", f"taken by {os.getpid()}").error


def test_at_once_two_processes_make_an_edit_and_one_of_them_wins(shared_place: Root) -> None:
    with AgentMemory.open(shared_place.url, storage_options=shared_place.options) as memory:
        memory.write("job.md", "free")
        errors = at_once(shared_place, claim)
        assert sorted(errors, key=str) == ["Error: String not found in file: 'free'", None]
        assert re.fullmatch(r"taken by \d+", memory.read("job.md"))


def test_a_file_that_is_deleted_during_a_grep_is_left_out(opened: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = AgentMemoryBackend(opened)
    fill(backend)
    monkeypatch.setattr(module, "_FILES", 1)
    texts = module._AsyncBackend._texts

    async def deleting(self: Any, names: list[str]) -> Any:
        if opened.exists("top.py"):
            opened.delete("top.py")
        return await texts(self, names)

    monkeypatch.setattr(module._AsyncBackend, "_texts", deleting)
    assert ("/top.py", 2, "TODO: top") not in found(backend.grep("TODO"))
    assert len(found(backend.grep("TODO"))) == 7


# --- hooks, errors and the class


def test_a_read_only_memory_refuses_changes_as_values_and_answers_the_rest(backend: Calls, memory: AgentMemory) -> None:
    fill(backend)
    reading = Calls(AgentMemoryBackend(memory.read_only()), "sync")
    before = {entry.path: memory.read(entry.path) for entry in memory.list()}
    assert reading.write("/top.py", "x").error == "Error writing file '/top.py': write: this view is read-only"
    assert reading.edit("/top.py", "TODO", "x").error == "Error editing file '/top.py': edit: this view is read-only"
    assert reading.delete("/src").error.startswith("Error deleting '/src': delete")
    assert reading.delete("/").error == "Error deleting '/': delete_tree: this view is read-only"
    assert [each.error for each in reading.upload_files([("/a", b""), ("/b", b"")])] == ["permission_denied"] * 2
    assert len(found(reading.grep("TODO"))) == 8
    assert {entry.path: memory.read(entry.path) for entry in memory.list()} == before


def test_plugins_see_every_operation() -> None:
    recorder = RecordingPlugin()
    with AgentMemory.open("memory://", plugins=[recorder], actor="deep agent") as memory:
        backend = AgentMemoryBackend(memory)
        backend.write("/d/a.md", "one")
        backend.edit("/d/a.md", "one", "two")
        backend.read("/d/a.md")
        backend.ls("/d")
        backend.glob("*.md")
        backend.grep("two")
        backend.upload_files([("/b.bin", b"")])
        backend.download_files(["/b.bin"])
        backend.delete("/d")
        backend.write("/../x", "x")
        backend.edit("/b.bin", "absent", "x")
    assert [(operation.kind, operation.path) for operation in recorder.before] == [
        ("read", "d/a.md"), ("write", "d/a.md"), ("edit", "d/a.md"), ("read", "d/a.md"), ("list", "d"), ("list", ""),
        ("list", ""), ("read", "d/a.md"), ("write", "b.bin"), ("read", "b.bin"), ("delete", "d"), ("delete_tree", "d"),
        ("edit", "b.bin"),
    ]  # fmt: skip
    assert recorder.after[-1][1].error == "EditRefused"  # the storage worked; the edit itself was refused
    assert {operation.actor for operation in recorder.before} == {"deep agent"}
    assert [each.reason for each in recorder.rejected] == ["parent"]


def test_a_backend_is_not_copied_and_takes_only_a_memory(opened: AgentMemory) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.deepcopy(AgentMemoryBackend(opened))
    with pytest.raises(TypeError, match="an adapter takes an AgentMemory or an AsyncAgentMemory, not str"):
        AgentMemoryBackend("./memories")  # type: ignore[arg-type]  # refused
    assert AgentMemoryBackend(opened.as_async()).write("/a.md", "x").error is None


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ("None", r"deepagents .* does not fit this adapter, which needs deepagents[<>=]"),
        ("types.ModuleType('empty')", r"needs deepagents[<>=].* \(No module named 'deepagents.backends'"),
    ],
)
def test_the_error_says_which_version_fits(stub: str, text: str) -> None:
    code = (
        f"import sys, types; sys.modules['deepagents'] = {stub}\n"
        "try:\n    import agent_memory.integrations.deepagents\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(text, done.stdout)
    assert "pip install 'agent-memory-files[deepagents]'" in done.stdout


# --- within the framework


def mounted(memory: AgentMemory) -> CompositeBackend:
    return CompositeBackend(default=Stated(), routes={"/memories/": AgentMemoryBackend(memory)})


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_it_is_a_route_of_a_composite_backend(memory: AgentMemory, kind: str) -> None:
    backend = Calls(mounted(memory), kind)
    backend.write("/own.md", "in the state: tea")
    assert backend.write("/memories/notes/a.md", "green tea\n") == contract.WriteResult(path="/memories/notes/a.md")
    assert memory.read("notes/a.md") == "green tea\n"
    assert paths(backend.ls("/").entries) == ["/memories/", "/own.md"]
    assert paths(backend.ls("/memories").entries) == paths(backend.ls("/memories/").entries) == ["/memories/notes/"]
    edited = contract.EditResult(path="/memories/notes/a.md", occurrences=1)
    assert backend.edit("/memories/notes/a.md", "green", "black") == edited
    assert backend.read("/memories/notes/a.md").file_data["content"] == "black tea\n"
    assert found(backend.grep("tea")) == {("/own.md", 1, "in the state: tea"), ("/memories/notes/a.md", 1, "black tea")}
    assert found(backend.grep("tea", "/memories/notes")) == {("/memories/notes/a.md", 1, "black tea")}
    assert [paths(backend.glob(pattern).matches) for pattern in ("*.md", "/*.md", "/memories/**/*.md")] == [
        ["/memories/notes/a.md", "/own.md"], ["/own.md"], ["/memories/notes/a.md"],
    ]  # fmt: skip
    assert [each.error for each in backend.upload_files([("/x.bin", b"1"), ("/memories/y.bin", b"2")])] == [None, None]
    assert [each.content for each in backend.download_files(["/memories/y.bin", "/x.bin"])] == [b"2", b"1"]
    assert backend.delete("/memories/notes") == contract.DeleteResult(path="/memories/notes")
    assert [str(entry) for entry in memory.list()] == ["y.bin"]


class Scripted(GenericFakeChatModel):
    """In place of a model: makes the calls of a script, and keeps the messages it was given."""

    given: list[list[BaseMessage]] = []  # noqa: RUF012 - pydantic copies it

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self.given.append(messages)
        return super()._generate(messages, *args, **options)


SCRIPT: Final[list[tuple[str, dict[str, Any]]]] = [
    ("ls", {"path": "/memories"}),
    ("write_file", {"file_path": "/memories/notes/tea.md", "content": "green tea\nblack tea\n"}),
    ("edit_file", {"file_path": "/memories/notes/tea.md", "old_string": "black", "new_string": "white"}),
    ("edit_file", {"file_path": "/memories/notes/tea.md", "old_string": "tea", "new_string": "coffee"}),
    ("read_file", {"file_path": "/memories/notes/tea.md"}),
    ("grep", {"pattern": "white", "output_mode": "content"}),
    ("glob", {"pattern": "/memories/**/*.md"}),
    ("write_file", {"file_path": "/memories/12:30.md", "content": "walk"}),
    ("write_file", {"file_path": "/own.md", "content": "in the state"}),
    ("delete", {"file_path": "/memories/old"}),
]
ANSWERS: Final = [
    "/memories/AGENTS.md",
    "/memories/notes/tea.md",
    "/memories/notes/tea.md",
    "appears 2 times in file. Use replace_all=True",
    "green tea",
    "white tea",
    "/memories/notes/tea.md",
    "in place of '12:30.md' use '12-30.md'",
    "/own.md",
    "Deleted /memories/old",
]


def turns() -> Iterator[AIMessage | str]:
    for number, (name, arguments) in enumerate(SCRIPT):
        yield AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{number}"}])
    yield "done"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_deep_agent_works_with_files_of_the_memory(memory: AgentMemory, kind: str) -> None:
    memory.write("AGENTS.md", "Ann likes <!-- not coffee --> tea.\n")
    memory.write("old/a.md", "x")
    model = Scripted(messages=turns(), given=[])
    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": AgentMemoryBackend(memory)})
    agent = create_deep_agent(model, backend=backend, memory=["/memories/AGENTS.md", "/memories/none.md"])
    request: Any = {"messages": [{"role": "user", "content": "go"}]}
    state = agent.invoke(request) if kind == "sync" else asyncio.run(agent.ainvoke(request))
    assert "Ann likes  tea." in str(model.given[0][0].content)  # the comment is left out
    answers = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    for answer, expected in zip(answers, ANSWERS, strict=True):
        assert expected in str(answer.content)
    assert [number for number, answer in enumerate(answers) if answer.status == "error"] == [3, 7]
    assert list(state["files"]) == ["/own.md"]
    assert {entry.path: memory.read(entry.path) for entry in memory.list()} == {
        "AGENTS.md": "Ann likes <!-- not coffee --> tea.\n",
        "notes/tea.md": "green tea\nwhite tea\n",
    }


def test_a_deep_agent_works_without_a_composite_backend(opened: AgentMemory) -> None:
    arguments = {"file_path": "/a.md", "content": "tea"}
    call = AIMessage("", tool_calls=[{"name": "write_file", "args": arguments, "id": "1"}])
    answers: Iterator[AIMessage | str] = iter([call, "done"])
    agent = create_deep_agent(Scripted(messages=answers, given=[]), backend=AgentMemoryBackend(opened))
    request: Any = {"messages": [{"role": "user", "content": "go"}]}
    state = agent.invoke(request)
    assert state["messages"][-1].content == "done"
    assert opened.read("a.md") == "tea"


# --- the example


def run_example(root: str, **environment: str) -> str:
    return example_output(EXAMPLE, root, environment)


REMEMBERED: Final = "Ann likes green tea, and walks at noon.\n"


def test_the_example_remembers_in_a_second_session_and_in_a_second_run(tmp_path: Path) -> None:
    before, after = run_example(str(tmp_path)).split("user: I like green tea")
    assert "likes" not in before
    assert REMEMBERED in after
    assert REMEMBERED in run_example(str(tmp_path)).split("user: I like green tea")[0]
    assert (tmp_path / "agent_memory" / "ann" / "deepagent" / "AGENTS.md").read_text() == REMEMBERED


@pytest.mark.long
def test_the_example_remembers_on_s3(ministack: S3Server) -> None:
    assert REMEMBERED in run_example(ministack.new_url(), **ministack.environment)
