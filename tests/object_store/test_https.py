"""Over https a client sends bodies without framing, so that every server stores the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.asyn import get_loop, sync

from agent_memory import AgentMemory, VersionLimits, WriteError
from agent_memory_s3._client import S3Store
from tests.object_store.listeners import options as options_of
from tests.object_store.plain_bodies import RefusesChunks, StoresFraming
from tests.object_store.proxy import Proxy
from tests.support.servers import S3Server, by_both_engines
from tests.support.sizes import also
from tests.support.tls import certificate, tls_front

pytestmark = pytest.mark.usefixtures("trusted")
TEXT = "a line\n" * 1000
CHUNKS = {"request_checksum_calculation": "when_supported"}


@pytest.fixture(params=[RefusesChunks, *also([StoresFraming])])
def proxy(request: pytest.FixtureRequest, ministack: S3Server) -> Iterator[Proxy]:
    with request.param(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def server(proxy: Proxy, https: Callable[[S3Server], S3Server]) -> S3Server:
    return https(S3Server(proxy.endpoint))


@by_both_engines
def test_every_body_arrives_as_it_is(server: S3Server, engine: str) -> None:
    with AgentMemory.open(server.new_url(), storage_options=server.by(engine).options) as memory:
        memory.write("a.md", TEXT)
        memory.append("a.md", TEXT)
        assert memory.read("a.md") == TEXT + TEXT
        memory.edit("a.md", str.upper)
        memory.create("b.md", "")
        memory.append("b.md", "é")
        assert memory.read_bytes("a.md") == (TEXT + TEXT).upper().encode()
        assert memory.read("b.md") == "é"


@by_both_engines
def test_files_are_written_moved_and_deleted_over_https(
    ministack: S3Server, https: Callable[[S3Server], S3Server], engine: str
) -> None:
    server = https(ministack).by(engine).for_one_writer()  # obstore has no conditional delete, so no rename otherwise
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.create("a.md", "one\n")
        memory.append("a.md", "two\n")
        memory.edit("a.md", str.upper)
        memory.rename("a.md", "dir/b.md")
        assert [entry.path for entry in memory.list()] == ["dir/b.md"]
        assert memory.read("dir/b.md") == "ONE\nTWO\n"
        memory.delete("dir/b.md")
        assert memory.list() == ()
        memory.write("dir/b.md", "x")
        memory.delete_tree("")
        assert not memory.exists("dir/b.md")


def test_versions_are_kept_and_forgotten_over_https(ministack: S3Server, https: Callable[[S3Server], S3Server]) -> None:
    server = https(ministack)
    with AgentMemory.open(server.new_url(), storage_options=server.options, versions=VersionLimits()) as memory:
        memory.write("a.md", "one")
        memory.write("a.md", "two")
        earlier = memory.versions.list("a.md")[-1]
        assert memory.versions.read("a.md", earlier.id) == "one"
        memory.versions.restore("a.md", earlier.id)
        assert memory.forget("a.md").files == 1
        assert memory.versions.list() == ()


def test_the_parts_of_large_files_arrive_as_they_are(server: S3Server) -> None:
    data = b"0123456789abcdef" * (6 << 16)  # 6 MiB
    with AgentMemory.open(server.new_url(), storage_options=server.options) as memory:
        memory.write_blocks("large.log", [data, b"end"], len(data) + 3)
        memory.append("large.log", b"+")
        assert memory.read_bytes("large.log") == data + b"end+"


def _chosen_by_option(server: S3Server, _: pytest.MonkeyPatch, __: Path) -> dict[str, object]:
    return {**server.options, "config_kwargs": CHUNKS}


def _chosen_by_variable(server: S3Server, patch: pytest.MonkeyPatch, _: Path) -> dict[str, object]:
    patch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
    return server.options


def _chosen_by_file(server: S3Server, patch: pytest.MonkeyPatch, directory: Path) -> dict[str, object]:
    (directory / "config").write_text("[default]\nrequest_checksum_calculation = when_supported\n")
    patch.setenv("AWS_CONFIG_FILE", str(directory / "config"))
    return server.options


@pytest.mark.parametrize("choose", [_chosen_by_option, _chosen_by_variable, _chosen_by_file])
def test_a_setting_of_the_user_takes_precedence(
    server: S3Server, proxy: Proxy, choose: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with AgentMemory.open(server.new_url(), storage_options=choose(server, monkeypatch, tmp_path)) as memory:
        if isinstance(proxy, RefusesChunks):
            with pytest.raises(WriteError, match="XAmzContentSHA256Mismatch"):
                memory.write("a.md", "x")
        else:
            memory.write("a.md", "x")
            assert memory.read("a.md").startswith("1\r\nx\r\n0\r\nx-amz-checksum-crc32:")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [({}, "when_supported"), ({"endpoint_url": "https://s3.example.org"}, "when_required")],
    ids=["AWS", "another server"],
)
def test_only_aws_gets_checksums_by_default(endpoint: dict[str, object], expected: str) -> None:
    store = S3Store("bucket", {"key": "k", "secret": "s", **endpoint})
    client: Any = sync(get_loop(), store._connect)
    settings = client.meta.config
    sync(get_loop(), store.aclose)
    assert (settings.request_checksum_calculation, settings.response_checksum_validation) == (expected, expected)


@pytest.mark.parametrize(
    ("engine", "options", "variable"),
    [
        ("s3fs", lambda file: {"client_kwargs": {"verify": file}}, None),
        pytest.param("s3fs", lambda _: {}, "AWS_CA_BUNDLE", marks=pytest.mark.long),
        ("obstore", lambda file: {"client_options": {"root_certificate": Path(file).read_text()}}, None),
        pytest.param("obstore", lambda _: {}, "SSL_CERT_FILE", marks=pytest.mark.long),
    ],
)
def test_each_option_that_the_error_names_makes_a_certificate_trusted(
    ministack: S3Server,
    tmp_path: Path,
    engine: str,
    options: Callable[[str], dict[str, object]],
    variable: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tls_front(ministack.endpoint, certificate(tmp_path)) as endpoint:
        file = str(tmp_path / "cert.pem")
        trusting = {**options_of(engine, endpoint), **options(file)}
        if variable:
            monkeypatch.setenv(variable, file)
        with AgentMemory.open(ministack.new_url(), storage_options=trusting) as memory:
            memory.create("a.md", "x")
