"""prove: three kinds of servers give a page that tells the truth, and nothing of it stays."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory.cli.output import Exit
from agent_memory.cli.prove import REQUESTS
from tests.object_store.proxy import Proxy
from tests.object_store.stand_ins import standing_in
from tests.support.servers import S3Server

Run = Callable[..., Result]
DOCS = Path(__file__).parents[2] / "docs"


def options(server: S3Server, endpoint: str | None = None) -> list[str]:
    given = {**server.options, "endpoint_url": endpoint or server.endpoint}
    return [word for name, value in given.items() for word in ("-o", f"{name}={json.dumps(value)}")]


def left_in(server: S3Server, url: str) -> int:
    prefix = url.removeprefix("s3://memories/")
    with closing(server.client("s3")) as s3:
        return int(s3.list_objects_v2(Bucket="memories", Prefix=f"{prefix}/")["KeyCount"])


def test_on_disk_all_is_kept_and_nothing_stays(run: Run, tmp_path: Path) -> None:
    result = run("prove", "--url", str(tmp_path / "store"), "--output", "page.md", "--service", "a disk")
    assert result.exit_code == 0, result.output
    page = Path("page.md").read_text()
    assert page.startswith("# agent-memory on a disk\n")
    assert "**All of this was kept.** Names left in the scratch directory: 0." in page
    assert "100 of 100 are there, once" in page
    assert str(tmp_path) not in page
    assert list((tmp_path / "store").iterdir()) == []


def test_a_page_is_never_overwritten(run: Run, tmp_path: Path) -> None:
    Path("page.md").write_text("mine")
    result = run("prove", "--url", str(tmp_path / "store"), "--output", "page.md")
    assert result.exit_code == Exit.CONFLICT
    assert not (tmp_path / "store").exists()
    assert Path("page.md").read_text() == "mine"


def test_a_page_that_could_not_be_written_is_refused_before_anything_is_done(run: Run, tmp_path: Path) -> None:
    result = run("prove", "--url", str(tmp_path / "store"), "--output", "missing/page.md")
    assert result.exit_code == Exit.USAGE
    assert "make it first" in result.stderr
    assert not (tmp_path / "store").exists()


def test_a_store_of_one_process_cannot_be_proved(run: Run) -> None:
    result = run("prove", "--url", "memory://")
    assert result.exit_code == Exit.UNSUPPORTED
    assert "needs several" in result.stderr


@pytest.mark.long
def test_a_safe_server_is_proved_within_the_stated_requests(run: Run, ministack: S3Server) -> None:
    url = ministack.new_url()
    with Proxy(ministack.endpoint) as proxy, proxy.counting() as counts:
        result = run("prove", "--url", url, *options(ministack, proxy.endpoint), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["proved"] is True
    assert (document["left"], left_in(ministack, url)) == (0, 0)
    assert [each["call"] for each in document["latencies"] if each["bare"]] == ["read", "write", "append", "list"]
    assert counts.total() <= REQUESTS
    assert f"{REQUESTS:,} requests" in (DOCS / "prove.md").read_text()
    assert "memories" not in result.stdout
    assert "127.0.0.1" not in result.stdout


@pytest.mark.long
@pytest.mark.parametrize("name", ["conditions ignored", "conditions in two steps"])
def test_a_server_that_loses_races_is_refused_and_loses_nothing(run: Run, ministack: S3Server, name: str) -> None:
    url = ministack.new_url()
    with standing_in(ministack, name) as proxy:
        result = run("prove", "--url", url, *options(ministack, proxy.endpoint))
    assert result.exit_code == Exit.UNSUPPORTED, result.output
    assert "Nothing was lost. Something was refused" in result.stdout
    assert re.search(r"\| Lost updates \| refused \| ", result.stdout)
    assert "NOT KEPT" not in result.stdout
    assert left_in(ministack, url) == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["seaweedfs", "ceph"])
def test_other_servers_get_an_honest_page(run: Run, request: pytest.FixtureRequest, name: str) -> None:
    server: S3Server = request.getfixturevalue(name)
    url = server.new_url()
    result = run("prove", "--url", url, *options(server), "--json")
    assert result.exit_code in (Exit.OK, Exit.UNSUPPORTED), result.output
    document = json.loads(result.stdout)
    assert document["proofs"]["Lost updates"]["held"] is not False
    assert (document["left"], left_in(server, url)) == (0, 0)
