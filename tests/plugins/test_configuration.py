"""Plugins enabled by a file or the environment: only installed ones, with a clear error for each mistake."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemoryError, AgentMemoryService, Budget, Limits, OperationDenied, hookimpl
from agent_memory.plugins import configuration as module
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.plugins.checkpoints import checkpoints_in
from agent_memory.plugins.configuration import close, configuration, installed_plugins, limits_from, plugins_from
from agent_memory.plugins.readonly import ReadOnlyPlugin
from agent_memory.plugins.redaction import RedactionPlugin

TOML = """
[plugins.readonly]
patterns = ["policies/**"]
agents = ["bob"]

[plugins.redaction]
action = "refuse"

[plugins.audit]
target = "audit.jsonl"
required = true
key_file = "key"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(module.CONFIG_VARIABLE, raising=False)
    monkeypatch.delenv(module.PLUGINS_VARIABLE, raising=False)
    Path("key").write_bytes(b"a key of 16 bytes at least")


def written(text: str) -> Path:
    file = Path("agent-memory.toml")
    file.write_text(text)
    return file


def test_a_file_enables_plugins_with_their_options_in_the_files_order() -> None:
    plugins = plugins_from(written(TOML))
    assert [type(plugin) for plugin in plugins] == [ReadOnlyPlugin, RedactionPlugin, AuditPlugin]
    with AgentMemoryService("memory://", plugins=plugins) as service:
        for path, text in (("policies/a.md", "x"), ("a.md", f"ghp_{'a1B2' * 9}")):
            with pytest.raises(OperationDenied):
                service.write_memory_file("bob", path, text)
        service.write_memory_file("eve", "policies/a.md", "x")
    close(plugins)
    records = [json.loads(line) for line in Path("audit.jsonl").read_bytes().splitlines()]
    assert [record.get("outcome") for record in records] == [None, "denied", "denied", "ok"]
    assert {record["alg"] for record in records} == {"hmac-sha256"}


def test_a_configuration_file_that_is_not_named_enables_nothing() -> None:
    written(TOML)
    assert plugins_from() == []


def test_the_environment_names_the_file_and_overrides_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.CONFIG_VARIABLE, str(written(TOML)))
    monkeypatch.setenv(module.PLUGINS_VARIABLE, json.dumps({"redaction": {"action": "mask"}, "expiry": {}}))
    tables = configuration()
    assert list(tables) == ["readonly", "redaction", "audit", "expiry"]
    assert tables["redaction"] == {"action": "mask"}
    other = Path("other.toml")
    other.write_text("[plugins.readonly]\n")
    assert list(configuration(other)) == ["readonly", "redaction", "expiry"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[plugins.redction]", r"no plugin 'redction' is installed; installed: audit, .*redaction"),
        ("[plugins.redaction]\nmost = 5", r"\[plugins.redaction\]: .*'most'"),
        ("[plugins.readonly]\npatterns = 'x'", r"\[plugins.readonly\]: patterns must be a list of strings"),
        (
            "[plugins.audit]\ntarget = 'a.jsonl'\nkey_file = 'none'",
            r"\[plugins.audit\]: key_file cannot be read: No such",
        ),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nmax_segment_bytes = nan", "must be a whole number .*nan"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nmax_segment_bytes = '10'", "max_segment_bytes must be a whole number"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nmax_segment_bytes = true", "must be a whole number .*True"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nstorage_options = 5", "storage_options is a mapping, not int"),
        ("[plugins.audit]\nrequired = true", r"\[plugins.audit\]: missing a required argument: 'target'"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nkey = 'aaaaaaaaaaaaaaaaaaaaaa'", r"\[plugins.audit\]: .*'key'"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\nrequired = 'false'", "required must be true or false, not 'false'"),
        (
            "[plugins.audit]\ntarget = 'a.jsonl'\ncheckpoint_every = 1.5",
            "checkpoint_every must be a whole number of at least 1",
        ),
        ("[plugins.audit]\ntarget = '..'", r"\[plugins.audit\]: "),
        ("[plugins.audit]\ntarget = '.'", r"\[plugins.audit\]: "),
        ('"a\\nb\\u001b[31m" = 1', r"not 'a\\nb\\x1b\[31m'"),
        ("[plugins]\nredaction = 5", "agent-memory.toml: plugins must be a table of tables"),
        ("[storage]\nx = 1", r"only tables \[plugins.NAME\] and \[limits\] are allowed, not 'storage'"),
        ("[plugins", "agent-memory.toml: Expected"),
        ("[plugins.redaction]\npatterns = ['x']", r"\[plugins.redaction\]: patterns must be a table"),
        ("[plugins.redaction.patterns]\nk = 'a{99999999999}'", r"\[plugins.redaction\]: OverflowError"),
        ("[plugins.checkpoint-file]\npath = '~nobody-of-this-name/x'", r"\[plugins.checkpoint-file\]: RuntimeError"),
    ],
)
def test_a_mistake_in_a_file_raises_a_clear_error(text: str, told: str) -> None:
    with pytest.raises((ValueError, AgentMemoryError), match=told):
        plugins_from(written(text))


def test_the_limits_of_a_file_are_those_of_a_service() -> None:
    file = written(
        f"""{TOML}
[limits]
file_bytes = 100_000
agent_bytes = 1_000_000
count_versions = true
[limits.warn_at]
"MEMORY.md" = {{ lines = 200, bytes = 9_000 }}
"/" = {{ files = 100 }}
"""
    )
    assert limits_from(file) == Limits(
        file_bytes=100_000,
        agent_bytes=1_000_000,
        count_versions=True,
        warn_at={"MEMORY.md": Budget(lines=200, bytes=9_000), "/": Budget(files=100)},
    )
    assert list(configuration(file)) == ["readonly", "redaction", "audit"]
    assert limits_from() is None
    assert limits_from(written(TOML)) is None
    assert limits_from(written("[limits]")) == Limits()


def test_the_environment_names_the_file_of_limits_and_can_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.CONFIG_VARIABLE, str(written("[limits]\nagent_files = 3")))
    assert limits_from() == Limits(agent_files=3)
    monkeypatch.setenv("AGENT_MEMORY_LOAD_PLUGINS", "0")
    assert limits_from() is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limits = 5", "agent-memory.toml: limits must be a table"),
        ("[limits]\nx = 1", r"\[limits\]: .*'x'; its options: file_bytes, .*, warn_at"),
        ("[limits]\nfile_bytes = 0", r"\[limits\]: .*file_bytes must be a positive whole number, not 0"),
        ("[limits]\nfile_bytes = '5'", r"\[limits\]: .*file_bytes must be a positive whole number, not '5'"),
        ("[limits]\ncount_versions = true", r"\[limits\]: .*count_versions needs agent_bytes"),
        ("[limits]\nwarn_at = 5", r"\[limits\]: .*warn_at must be a mapping"),
        ("[limits.warn_at]\na = 5", r"\[limits\]: warn_at of 'a' must be a table, for example { lines = 200 }"),
        ("[limits.warn_at.a]\nline = 5", r"\[limits\]: warn_at of 'a': .*'line'; its options: bytes, lines, files"),
        ("[limits.warn_at.a]\nfiles = 5", r"\[limits\]: .*warn_at of 'a' takes bytes and lines, not files"),
        ("[limits.warn_at.'a:b']\nlines = 5", r"\[limits\]: .*'a:b' matches no path"),
        ("[storage]", "only tables"),
    ],
)
def test_a_mistake_in_the_limits_of_a_file_raises_a_clear_error(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        limits_from(written(text))


def test_an_audit_log_whose_path_is_a_directory_is_refused() -> None:
    Path("logs").mkdir()
    with pytest.raises(ValueError, match=r"\[plugins.audit\]: 'logs' is a directory"):
        plugins_from(written("[plugins.audit]\ntarget = 'logs'"))


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "table of tables"), ('{"x": 1}', "of tables")],
)
def test_a_mistake_in_the_environment_raises_a_clear_error(
    text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.PLUGINS_VARIABLE, text)
    with pytest.raises(ValueError, match=f"{module.PLUGINS_VARIABLE}.*{told}"):
        plugins_from()


def test_the_error_for_a_missing_file_shows_only_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^none\.toml: No such file") as error:
        plugins_from(tmp_path / "none.toml")
    assert str(tmp_path) not in str(error.value)


class Closing:
    def __init__(self, fail: bool = False) -> None:
        self.closed = False
        self._fail = fail

    def close(self) -> None:
        self.closed = True
        if self._fail:
            raise OSError("it does not close")


def test_all_plugins_are_closed_and_the_log_names_one_that_fails_to_close(caplog: pytest.LogCaptureFixture) -> None:
    plugins = [Closing(), Closing(fail=True), object(), Closing()]
    close(plugins)
    assert [getattr(plugin, "closed", None) for plugin in plugins] == [True, True, None, True]
    assert caplog.messages == ["the plugin 'Closing' failed in close()"]
    assert "it does not close" in caplog.text


def test_created_plugins_are_closed_when_another_cannot_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Closing] = []
    real = module.made

    def make(name: str, options: dict[str, Any]) -> object:
        if name == "redaction":
            made.append(Closing())
            return made[0]
        return real(name, options)

    monkeypatch.setattr(module, "made", make)
    with pytest.raises(ValueError, match="nothing"):
        plugins_from(written("[plugins.redaction]\n[plugins.nothing]\n"))
    assert made[0].closed


class Unmarked:
    closed = 0

    def agent_memory_before_operation(self) -> None: ...

    def close(self) -> None:
        Unmarked.closed += 1


class Marked:
    @hookimpl
    def agent_memory_before_operation(self) -> None: ...


def entry_points(*points: tuple[str, str]) -> Any:
    found = [importlib.metadata.EntryPoint(name, value, module.GROUP) for name, value in points]
    return lambda *, group: [point for point in found if point.group == group]


def test_a_broken_plugin_package_raises_a_clear_error_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    points = entry_points(
        ("good", f"{here}:Marked"),
        ("bad", f"{here}:Unmarked"),
        ("gone", "no_such_module:X"),
        ("twice", "a:b"),
        ("twice", "c:d"),
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    assert [each.name for each in installed_plugins()] == ["bad", "gone", "good", "twice", "twice"]
    assert len(plugins_from(written("[plugins.good]"))) == 1
    with pytest.raises(ValueError, match=r"\[plugins.bad\]: .*without @hookimpl"):
        plugins_from(written("[plugins.bad]"))
    assert Unmarked.closed == 1
    with pytest.raises(ValueError, match="'gone' of - does not load"):
        plugins_from(written("[plugins.gone]"))
    with pytest.raises(ValueError, match="several packages"):
        plugins_from(written("[plugins.twice]"))


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "agent-memory.toml"
    file.write_bytes(b"\xef\xbb\xbf[plugins.logging]\r\n")
    assert configuration(file) == {"logging": {}}


def test_the_file_of_checkpoints_receives_those_of_the_configured_log(tmp_path: Path) -> None:
    table = f"[plugins.checkpoint-file]\npath = '{tmp_path}/heads.jsonl'\n"
    log = f"[plugins.audit]\ntarget = '{tmp_path}/audit.jsonl'\nrequired = true\n"
    with AgentMemoryService("memory://", plugins=plugins_from(written(table + log))) as service:
        service.write_memory_file("bob", "a.md", "x")
    assert [each.seq for each in checkpoints_in((tmp_path / "heads.jsonl").read_bytes())] == [2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"\[plugins.audit\], which is not enabled"),
        ("[plugins.audit]\ntarget = 'a.jsonl'\ncheckpoints = 'b.jsonl'\n", "keep one"),
    ],
)
def test_a_file_of_checkpoints_without_one_log_of_its_own_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        plugins_from(written(f"[plugins.checkpoint-file]\npath = 'heads.jsonl'\n{text}"))
