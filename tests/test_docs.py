"""The examples in the docs run unchanged; local servers replace S3 and the Claude API."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import stand_in

from agent_memory import hookspecs
from tests.support.pages import Block, blocks_of, check, matches
from tests.support.servers import S3Server

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FRAMEWORKS = {path.stem for path in (ROOT / "agent_memory" / "integrations").glob("*.py")}


def blocks(page: Path, language: str, info: str = "") -> list[Block]:
    return [block for block in blocks_of(page.read_text()) if (block.language, block.info) == (language, info)]


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
def test_the_blocks_of_a_page_print_what_it_shows_and_its_programs_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AGENT_MEMORY_")]:
        monkeypatch.delenv(name)  # a page must not change a store of the developer
    monkeypatch.chdir(tmp_path)
    check(page)


@pytest.mark.parametrize(
    "page",
    [
        "```python\nprint(1)\n```\n```text\n2\n```",
        "```python\nprint(1)\n```",
        "```console\n$ echo a\nb\n```",
        "```console\n$ echo a\n$ false\n```",
        pytest.param("```python\nwith open('a', 'x'):\n    pass\n```", marks=pytest.mark.long),
    ],
    ids=["another text", "no text", "another output", "a failed command", "a program that runs once"],
)
def test_a_page_that_shows_something_else_is_found(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text(page + "\n")
    with pytest.raises((AssertionError, FileExistsError)):
        check(tmp_path / "page.md")


def test_every_python_block_is_run_by_a_test() -> None:
    for page in ALL_PAGES:
        for block in blocks_of(page.read_text()):
            known = block.info in ("", "pytest", "ecosystem") or block.title is not None or block.info in FRAMEWORKS
            assert known or block.language != "python", f"{page.name}:{block.line}"


def test_no_page_has_a_placeholder() -> None:
    assert [page.name for page in ALL_PAGES if "{{" in without_code(page)] == []


def test_an_ellipsis_stands_for_any_text() -> None:
    assert matches("a 12 b\nc\nd\n", "a … b\n…\nd")
    assert not matches("a 12 c\n", "a … b\n")


def test_the_test_example_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    (block,) = blocks(PAGES[0], "python", "pytest")
    pytester.makepyfile(block.code)
    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_the_toml_examples_are_valid() -> None:
    for page in PAGES:
        for block in blocks(page, "toml"):
            assert tomllib.loads(block.code)


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    commands = [
        line for block in blocks(PAGES[0], "sh") for line in block.code.splitlines() if line.startswith("python3 ")
    ]
    assert len(commands) == 2


def test_links_point_to_existing_files_and_headings() -> None:
    for page in ALL_PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", without_code(page)):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(found), f"{page.name}: {target}#{anchor}"


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def test_the_plugins_page_lists_every_hook_with_its_arguments() -> None:
    rows = re.findall(
        r"^\| `(agent_memory_\w+)\(([\w, ]*)\)`", (ROOT / "docs" / "plugins.md").read_text(), re.MULTILINE
    )
    specs = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("agent_memory_")}
    expected = {name: ", ".join(inspect.signature(spec).parameters) for name, spec in specs.items()}
    assert dict(rows) == expected
