"""The site of the documentation: its navigation has every page, and pages written for GitHub are adapted to it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.site_hooks import (
    EXAMPLES,
    EXCLUDED,
    ROOT_PAGES,
    SitePage,
    examples_page,
    first_sentence,
    for_site,
    llms_full_txt,
    llms_txt,
    on_config,
    on_page_markdown,
    reference_text,
    with_indented_lists,
)

ROOT = Path(__file__).parents[1]


def test_the_navigation_has_every_page_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"^ +- ([\w/-]+\.md)$", navigation, re.MULTILINE)
    files = [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")]
    pages = [file.removeprefix("docs/") for file in files if not file.startswith(EXCLUDED)]
    assert sorted(listed) == sorted({*pages, EXAMPLES, *ROOT_PAGES.values()})


def test_the_site_leaves_out_the_directories_whose_links_become_paths() -> None:
    excluded = re.search(r"^exclude_docs: .*\n((?:  .*\n)+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert excluded
    assert tuple(f"docs/{name.rstrip('/')}" for name in excluded[1].split()) == EXCLUDED


def test_the_header_and_the_footer_have_the_version_of_the_distribution() -> None:
    config: Any = SimpleNamespace(site_name="a", extra={})
    on_config(config)
    version = config.extra["release"]
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text()
    assert config.copyright == f"a {version}, Apache-2.0"


@pytest.mark.parametrize(("uri", "meta"), [("api/key.md", {"search": {"boost": 0.1}}), ("s3.md", {})])
def test_the_search_shows_the_reference_after_a_page_that_explains(uri: str, meta: dict[str, object]) -> None:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=uri), meta={})
    on_page_markdown("# A\n", page=page)
    assert page.meta == meta


def test_the_page_of_the_examples_has_each_of_them() -> None:
    page = examples_page()
    deployed = [file for name in ("production", "mcp-server") for file in (ROOT / "examples" / name).iterdir()]
    for file in [*(ROOT / "examples").rglob("*.py"), *deployed]:
        assert file.name == "README.md" or file.is_dir() or file.read_text().strip() in page, file


@pytest.mark.parametrize(
    ("source", "uri", "link", "expected"),
    [
        ("docs/s3.md", "s3.md", "[Names](names.md#agents)", "[Names](names.md#agents)"),
        ("docs/s3.md", "s3.md", "[changes](../CHANGELOG.md)", "[changes](changelog.md)"),
        (
            "docs/api/key.md",
            "api/key.md",
            "[agent](../../examples/integrations/deep_agent.py)",
            "[agent](../examples.md#examplesintegrationsdeep_agentpy)",
        ),
        ("docs/s3.md", "s3.md", "[loop](../examples/claude-loop)", "[loop](examples.md#examplesclaude-loop)"),
        (
            "docs/production.md",
            "production.md",
            "[`Dockerfile`](../examples/production/Dockerfile)",
            "[`Dockerfile`](examples.md#examplesproductiondockerfile)",
        ),
        ("docs/s3.md", "s3.md", "[figures](evidence)", "figures (`docs/evidence`)"),
        ("docs/s3.md", "s3.md", "[why](decisions/026-threads.md)", "why (`docs/decisions/026-threads.md`)"),
        ("CONTRIBUTING.md", "contributing.md", "[Decisions](docs/decisions)", "Decisions (`docs/decisions`)"),
        ("CONTRIBUTING.md", "contributing.md", "[the overview](README.md)", "[the overview](index.md)"),
        ("docs/s3.md", "s3.md", "[the test](../tests/test_site.py)", "the test (`tests/test_site.py`)"),
        ("docs/s3.md", "s3.md", "[`test_site.py`](../tests/test_site.py)", "`tests/test_site.py`"),
        ("docs/s3.md", "s3.md", "[one](https://example.org/a.md)", "[one](https://example.org/a.md)"),
        ("docs/s3.md", "s3.md", "[here](#costs)", "[here](#costs)"),
        ("docs/s3.md", "s3.md", "[no such file](../tests/none.py)", "[no such file](../tests/none.py)"),
        ("docs/api/key.md", "api/key.md", "[Names](../names.md)", "[Names](../names.md)"),
        ("CHANGELOG.md", "changelog.md", "[the calls](docs/calls.md)", "[the calls](calls.md)"),
        ("CONTRIBUTING.md", "contributing.md", "[report](SECURITY.md)", "[report](security.md)"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_becomes_a_path(source: str, uri: str, link: str, expected: str) -> None:
    assert for_site(f"See {link}.\n", source, uri) == f"See {expected}.\n"


def test_a_fence_keeps_its_language_and_title_only_and_its_links() -> None:
    page = '```python title="bot.py"\n[a](../LICENSE)\n```\n\n```python langgraph\n- a\n```\n'
    assert for_site(page, "docs/s3.md", "s3.md") == page.replace(" langgraph", "")


def test_code_in_a_table_shows_a_plain_pipe() -> None:
    assert for_site("| `a \\| b` |\n", "docs/s3.md", "s3.md") == "| `a | b` |\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("Text:\n- a\n  b\n- c\n", "Text:\n\n- a\n    b\n- c\n"),
        ("1. a\n\n   ```sh\n   b\n   ```\n\n2. c\n", "1. a\n\n    ```sh\n    b\n    ```\n\n2. c\n"),
        ("- a\n\n  b\n\nc\n", "- a\n\n    b\n\nc\n"),
        ("- a\n  - b\n\n    c\n- d\n", "- a\n    - b\n\n        c\n- d\n"),
        ("- a\n```python\n  b\n- c\n```\n", "- a\n```python\n  b\n- c\n```\n"),
        ("::: a.b\n    members:\n      - c\n", "::: a.b\n    members:\n      - c\n"),
        ("a\n12. b\n", "a\n12. b\n"),
    ],
    ids=["after text", "fence", "paragraph", "nested", "fence after a list", "directive", "number in a text"],
)
def test_a_list_is_written_as_python_markdown_reads_it(page: str, expected: str) -> None:
    assert with_indented_lists(page) == expected


def test_the_first_sentence_of_a_page_is_its_first_prose() -> None:
    page = "# Title\n\n| a |\n|---|\n\n```sh\nls a.md\n```\n\nA [memory\nof agents](memory.md) has 1.5 files. More.\n"
    assert first_sentence(page) == "A memory of agents has 1.5 files."
    assert first_sentence("# Title\n") == ""


def test_the_files_for_language_models_list_and_contain_all_pages() -> None:
    pages = [SitePage("Start", "A", "./", "# A\n\nOne. Two.\n"), SitePage("Use", "B", "b/", "# B\n")]
    assert llms_txt("site", "What it is.", pages) == (
        "# site\n\n> What it is.\n\n## Start\n\n- [A](./): One.\n\n## Use\n\n- [B](b/)\n"
    )
    assert llms_full_txt(pages) == "<!-- ./ -->\n\n# A\n\nOne. Two.\n\n<!-- b/ -->\n\n# B\n"


def test_the_reference_is_text_for_a_language_model() -> None:
    content = (
        '<h2 id="a">agent_memory.<b>audit</b><a class="headerlink" href="#a">&para;</a></h2>\n'
        "<div><p>Reads <code>a</code>.</p>"
        "<div><pre><span></span><code><span>records</span>(log,\n    key=&lt;none&gt;)</code></pre></div>"
        "<ul><li><code>ValueError</code>\n  \u2013\n  <p>it is   wrong.</p></li></ul></div>"
    )
    assert reference_text(content) == (
        "## agent_memory.audit\n\nReads `a`.\n\n```\nrecords(log,\n    key=<none>)\n```\n\n"
        "- `ValueError` \u2013 it is   wrong.\n"
    )
