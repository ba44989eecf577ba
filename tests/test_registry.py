"""From URL to backend: installed and broken packages, valid roots, and unknown schemes."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryService, BackendNotAvailableError, hookimpl, registry
from agent_memory.backend import AnyBackend
from agent_memory.core.hooks import Hooks
from agent_memory.hookspecs import BackendFactory
from agent_memory.registry import broken_plugins, installed_backends, open_backend
from agent_memory_local import LocalBackend
from agent_memory_memory import MemoryBackend

SHIPPED = {"file", "local", "memory", "s3", "s3+obstore", "*"}
HEAD = """
from agent_memory.hookspecs import hookimpl
from agent_memory_memory import MemoryBackend
"""
NULL = """
@hookimpl
def agent_memory_register_backends(register):
    register("null", lambda url, options: MemoryBackend())
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install small distributions, each with one module and wheel metadata."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install_one(name: str, source: str | None, *, point: str = "", target: str = "") -> None:
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[agent_memory]\n{point or name} = {target or name}\n")
        if source is not None:
            (site / f"{name}.py").write_text(HEAD + source)
        _forget()

    modules = set(sys.modules)
    _forget()
    yield install_one
    for module in set(sys.modules) - modules:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(site)):
            del sys.modules[module]
    _forget()


def _forget() -> None:
    importlib.invalidate_caches()
    for cached in (installed_backends, registry._entry_points, registry._named_alike):
        cached.cache_clear()
    registry._broken.clear()


class Backends:
    """A plugin that adds backends and records the opened URLs."""

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes
        self.opened: list[tuple[str, Mapping[str, object]]] = []

    @hookimpl
    def agent_memory_register_backends(self, register: Callable[[str, BackendFactory], None]) -> None:
        for scheme in self.schemes:
            register(scheme, self.open)

    def open(self, url: str, options: Mapping[str, object]) -> AnyBackend:
        self.opened.append((url, options))
        return MemoryBackend()


# Installed packages.


def test_the_shipped_backends_are_found_by_entry_point() -> None:
    assert set(installed_backends()) >= SHIPPED
    assert broken_plugins() == {}


def test_a_package_adds_a_scheme_by_its_entry_point(install: Callable[..., None]) -> None:
    install("null_plugin", NULL)
    assert isinstance(open_backend("null://anything"), MemoryBackend)
    assert set(installed_backends()) >= SHIPPED | {"null"}


def test_the_metadata_of_the_installed_packages_are_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    AgentMemory.open(tmp_path / "first").close()

    def read(**_: object) -> object:
        raise AssertionError("read again")

    monkeypatch.setattr("importlib.metadata.entry_points", read)
    AgentMemory.open(tmp_path / "second").close()


def test_installed_packages_are_loaded_only_once(install: Callable[..., None], tmp_path: Path) -> None:
    log = tmp_path / "imports"
    install("null_plugin", NULL + f"with open({str(log)!r}, 'a') as log:\n    log.write('x')\n")
    for _ in range(3):
        open_backend("null://")
    assert log.read_text() == "x"


BROKEN = {
    "raises": "raise RuntimeError('it broke')",
    "imports": "import a_module_that_is_not_installed",
    "syntax": "def broken(:",
    "registers badly": "@hookimpl\ndef agent_memory_register_backends(register):\n    register('twice')",
    "misspells": "@hookimpl\ndef agent_memory_register_backend(register):\n    pass",
    "wrong argument": "@hookimpl\ndef agent_memory_register_backends(registry):\n    pass",
    "asynchronous": "@hookimpl\nasync def agent_memory_register_backends(register):\n    pass",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plugin_is_reported_and_the_others_are_loaded(
    install: Callable[..., None], caplog: pytest.LogCaptureFixture, source: str
) -> None:
    install("null_plugin", NULL)
    install("broken_plugin", source, point="a_broken_one")
    assert set(installed_backends()) >= SHIPPED | {"null"}
    assert list(broken_plugins()) == ["a_broken_one"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("agent_memory", logging.WARNING)
    assert "a_broken_one" in record.getMessage()
    assert "broken_plugin" in record.getMessage()


def test_a_plugin_whose_module_is_missing_is_reported(install: Callable[..., None]) -> None:
    install("gone_plugin", None)
    assert broken_plugins() == {"gone_plugin": "ModuleNotFoundError: No module named 'gone_plugin'"}
    assert set(installed_backends()) >= SHIPPED


def test_a_broken_plugin_registers_no_scheme(install: Callable[..., None]) -> None:
    install("half_plugin", NULL.replace("null", "half") + "    raise RuntimeError('half-way')")
    assert "half" not in installed_backends()
    assert broken_plugins() == {"half_plugin": "RuntimeError: half-way"}


@pytest.mark.parametrize(
    "hook",
    [
        "agent_memory_before_operation(operation)",
        "agent_memory_check_content(content)",
        "agent_memory_after_operation(outcome)",
        "agent_memory_key_rejected(text)",
    ],
)
def test_an_installed_package_may_only_add_backends(install: Callable[..., None], hook: str) -> None:
    install("nosy_plugin", NULL + f"@hookimpl\ndef {hook}:\n    raise RuntimeError('called')")
    assert "null" not in installed_backends()
    assert "only add backends" in broken_plugins()["nosy_plugin"]
    AgentMemory.open("memory://").write("a.md", "x")


def test_a_scheme_added_by_two_packages_belongs_to_the_first(install: Callable[..., None]) -> None:
    install("first_plugin", NULL, point="a")
    install("second_plugin", NULL.replace("null", "NULL"), point="b")
    assert broken_plugins() == {"b": "ValueError: the scheme 'NULL' is already registered"}
    open_backend("null://")
    assert "second_plugin" in sys.modules


# Passed plugins.


def test_a_passed_plugin_adds_a_scheme_only_for_its_service() -> None:
    plugin = Backends("null")
    AgentMemoryService("null://a/b?c=d", storage_options={"key": "value"}, plugins=[plugin])
    assert plugin.opened == [("null://a/b?c=d", {"key": "value"})]
    assert "null" not in installed_backends()


def test_schemes_are_not_case_sensitive() -> None:
    plugin = Backends("NuLL")
    open_backend("nUll://x", hooks=Hooks([plugin]))
    assert plugin.opened == [("nUll://x", {})]
    assert isinstance(open_backend("MEMORY://"), MemoryBackend)


@pytest.mark.parametrize(
    "plugins",
    [[Backends("null", "null")], [Backends("null"), Backends("NULL")], [Backends("memory")], [Backends("File")]],
    ids=["itself", "another", "memory", "file"],
)
def test_registering_a_scheme_twice_raises_an_error(plugins: list[object]) -> None:
    with pytest.raises(ValueError, match="already registered"):
        AgentMemory.open("memory://", plugins=plugins)


# Valid and invalid roots.


@pytest.mark.parametrize("make", [str, Path], ids=["str", "Path"])
def test_a_path_is_a_directory_on_disk(make: Callable[[str], str | Path], tmp_path: Path) -> None:
    for name in ("plain", "a b", "50%20", "a#b", "q?x=1", "caf\u00e9", "a:b", "semi;colon"):
        AgentMemory.open(make(str(tmp_path / name))).write("a.md", "text")
        assert (tmp_path / name / "a.md").read_text() == "text"


def test_a_relative_path_is_below_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    memory = AgentMemory.open("memories")
    monkeypatch.chdir("/")
    memory.write("a.md", "text")
    assert (tmp_path / "memories" / "a.md").read_text() == "text"


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    AgentMemory.open("~/memories").write("a.md", "text")
    assert (tmp_path / "memories" / "a.md").read_text() == "text"


def test_a_file_url_and_its_path_open_the_same_root(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    AgentMemory.open(directory).write("a.md", "text")
    assert AgentMemory.open(directory.as_uri()).read("a.md") == "text"
    assert isinstance(open_backend(directory.as_uri()), LocalBackend)


def test_a_given_backend_is_used_directly() -> None:
    backend = MemoryBackend()
    assert open_backend(backend) is backend


def test_a_memory_url_with_a_name_is_one_store_and_without_a_name_is_private() -> None:
    AgentMemory.open("memory://registry-test").write("a.md", "text")
    assert AgentMemory.open("memory://registry-test").exists("a.md")
    AgentMemory.open("memory://").write("a.md", "text")
    assert not AgentMemory.open("memory://").exists("a.md")


@pytest.mark.parametrize(
    ("root", "error", "message"),
    [
        (None, TypeError, "not NoneType"),
        (7, TypeError, "not int"),
        (b"/memories", TypeError, "not bytes"),
        (MemoryBackend, TypeError, "not"),
        ("", ValueError, "empty"),
    ],
)
def test_an_invalid_root_is_refused(root: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_backend(root)


def test_a_path_of_bytes_is_refused() -> None:
    class BytesPath(os.PathLike[bytes]):
        def __fspath__(self) -> bytes:
            return b"/memories"

    with pytest.raises(TypeError, match="bytes"):
        open_backend(BytesPath())  # type: ignore[arg-type]


# Unknown schemes and options.


def test_the_error_names_an_unknown_scheme() -> None:
    with pytest.raises(BackendNotAvailableError, match="nosuch"):
        AgentMemory.open("nosuch://bucket/prefix")


def test_the_error_for_an_unknown_scheme_lists_the_installed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "installed_backends", lambda: {"b": Backends().open, "a": Backends().open})
    with pytest.raises(BackendNotAvailableError, match="nosuch://; installed: a, b"):
        open_backend("nosuch://user:password@host/secret?token=1")


def test_the_error_for_an_unknown_scheme_does_not_show_the_url() -> None:
    with pytest.raises(BackendNotAvailableError) as refused:
        open_backend("nosuch://host/?token=hunter2")
    assert "password" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["memory://", "file:///memories", "s3://bucket/prefix"])
def test_the_error_names_an_unknown_option(url: str) -> None:
    if url.startswith("s3:"):
        pytest.importorskip("s3fs")
    with pytest.raises(TypeError, match="no_such_option"):
        open_backend(url, {"no_such_option": 1})


def test_storage_options_are_accepted_only_with_a_url() -> None:
    with pytest.raises(TypeError, match="storage_options"):
        open_backend(MemoryBackend(), {"key": "value"})


def test_opening_a_service_creates_no_directory(tmp_path: Path) -> None:
    root = tmp_path / "memories"
    service = AgentMemoryService(root)
    assert service.agent_ids() == ()
    assert not root.exists()


@pytest.mark.parametrize(
    "url",
    [
        "s3://KEY:hunter2@bucket/x",
        "s3://KEY:hun/ter2@bucket/x",
        "s3://KEY:12345/hunter2@bucket/x",
        "s3://:hunter2@bucket",
        "az://name:hunter2@container/x",
        "sftp://me:hunter2@host:22/x",
        "memory://a:hunter2@name",
        "nosuch://me:hunter2@host/x",
        "file://me:hunter2@localhost/x",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(url: str, caplog: pytest.LogCaptureFixture) -> None:
    for options in ({}, {"engine": "obstore"}) if url.startswith("s3") else ({},):
        with pytest.raises(ValueError, match="a URL holds no password") as refused:
            open_backend(url, options)
        told = "".join(traceback.format_exception(refused.value, chain=True))
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None
        assert "ter2" not in str(refused.value) + caplog.text
        assert "ter2" not in told.replace(repr(url), "")


@pytest.mark.parametrize("url", ["memory://name", "memory://a@b", "memory://host:22/a@b", "memory://x/a:b@c"])
def test_a_url_without_a_password_is_opened(url: str) -> None:
    open_backend(url)


def test_a_path_with_a_colon_and_an_at_sign_is_a_path(tmp_path: Path) -> None:
    open_backend(tmp_path / "a:b@c")
    open_backend((tmp_path / "a:b@c").as_uri())


@pytest.mark.parametrize(
    "root", ["s3:/bucket/x", "s3:bucket", "S3:/b", "memory:", "file:/tmp/x", "s3//bucket/x", "memory//"]
)
def test_a_url_with_a_mistyped_separator_is_not_opened_as_a_directory(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="the root begins like a URL"):
        AgentMemory.open(root)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["./s3:/x", "notes:2026", "s3/x", "./s3//x", "a//b"])
def test_a_directory_may_have_a_colon_in_its_name(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with AgentMemory.open(root) as memory:
        memory.write("a.md", "x")
    assert (tmp_path / root / "a.md").read_text() == "x"
