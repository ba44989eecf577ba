"""The examples in the docs run unchanged; local servers replace S3 and the Claude API."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import stand_in

from agent_memory import hookspecs
from tests.support.servers import S3Server

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)( pytest)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str, *, pytest: bool = False) -> list[str]:
    return [code for name, kind, code in BLOCK.findall(page.read_text()) if name == language and bool(kind) == pytest]


@pytest.fixture
def _my_bucket(ministack: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(ministack.options["key"]))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(ministack.options["secret"]))
    ministack.make_bucket("my-bucket")


@pytest.fixture
def _claude(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with stand_in.serving([[{"command": "view", "path": "/memories"}]]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        yield


@pytest.mark.usefixtures("_my_bucket", "_claude")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_examples_of_a_page_run_twice(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in blocks(page, "python") * 2:
        exec(compile(code, page.name, "exec"), {"__name__": "example"})


def test_the_test_example_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    (code,) = blocks(PAGES[0], "python", pytest=True)
    pytester.makepyfile(code)
    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_the_toml_examples_are_valid() -> None:
    for page in PAGES:
        for code in blocks(page, "toml"):
            assert tomllib.loads(code)


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    commands = [line for code in blocks(PAGES[0], "sh") for line in code.splitlines() if line.startswith("python3 ")]
    assert len(commands) == 2


def test_links_between_pages_point_to_existing_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_plugins_page_lists_every_hook_with_its_arguments() -> None:
    rows = re.findall(
        r"^\| `(agent_memory_\w+)\(([\w, ]*)\)`", (ROOT / "docs" / "plugins.md").read_text(), re.MULTILINE
    )
    specs = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("agent_memory_")}
    expected = {name: ", ".join(inspect.signature(spec).parameters) for name, spec in specs.items()}
    assert dict(rows) == expected
