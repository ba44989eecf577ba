"""``export --html``: the pages as files, of one agent or of all, which load nothing and lead nowhere else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory import AgentMemoryService, AsyncAgentMemoryService, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.errors import FileAlreadyExistsError
from agent_memory.registry import open_backend
from agent_memory.web import ExportedPages, export_pages
from tests.support.servers import Root
from tests.support.web_pages import SCRIPT
from tests.web.seeding import seed
from tests.web.test_reading import elements

Export = Callable[..., ExportedPages]


@pytest.fixture
def export(root: Root, tmp_path: Path) -> Export:
    def export(directory: Path = tmp_path / "pages", **options: object) -> ExportedPages:
        async def run() -> ExportedPages:
            async with AsyncAgentMemoryService(root.url, storage_options=root.options) as service:
                return await export_pages(service, directory, **options)  # type: ignore[arg-type]

        return asyncio.run(run())

    return export


def texts(directory: Path) -> dict[str, str]:
    return {file.relative_to(directory).as_posix(): file.read_text() for file in directory.rglob("*") if file.is_file()}


def test_every_page_is_reached_from_the_first_and_every_link_leads_to_a_page(
    root: Root, export: Export, tmp_path: Path
) -> None:
    seed(root)
    log = LogLocation.below(open_backend(root.url, root.options))
    result = export(versions=True, log=log)
    log.store.close()
    pages = texts(tmp_path / "pages")
    assert (len(pages), result.failed) == (result.pages, [])
    reached, waiting = {"index.html"}, ["index.html"]
    while waiting:
        name = waiting.pop()
        for href in re.findall(r'<a\b[^>]*? href="([^"#]+)', pages[name]):
            if not href.startswith("https://"):  # a link of rendered Markdown, which a person sees
                target = (tmp_path / "pages" / name).parent.joinpath(href).resolve().relative_to(tmp_path / "pages")
                assert target.as_posix() in pages, (name, href)
                waiting += [] if target.as_posix() in reached else [target.as_posix()]
                reached.add(target.as_posix())
    assert reached == pages.keys()
    everything = "".join(pages.values())
    for words in ("21C, at the window", "Speaks German and English", "toolu_09Zz", "free: 21C"):
        assert words in everything, words


def test_no_page_has_a_script_or_loads_anything(root: Root, export: Export, tmp_path: Path) -> None:
    seed(root)
    export(versions=True)
    for name, text in texts(tmp_path / "pages").items():
        style = re.findall("<style>(.*?)</style>", text, re.DOTALL)
        assert len(style) == 1
        digest = b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
        assert f"default-src 'none'; style-src 'sha256-{digest}'" in text.replace("&#39;", "'"), name
        assert "unsafe-" not in text
        for tag, attributes in elements(text.replace(style[0], "")).found:
            assert tag not in ("script", "link", "img", "iframe", "form", "input", "button"), (name, tag)
            assert not any(each.startswith("on") or each == "style" for each in attributes)


def test_versions_and_other_agents_are_exported_only_if_they_are_asked_for(
    root: Root, export: Export, tmp_path: Path
) -> None:
    with AgentMemoryService(root.url, storage_options=root.options, versions=VersionLimits()) as service:
        for agent in ("ann", "ben"):
            service.write_memory_file(agent, "a.md", f"first of {agent}")
            service.write_memory_file(agent, "a.md", f"second of {agent}")
    export(agent="ann")
    text = "".join(texts(tmp_path / "pages").values())
    assert "second of ann" in text
    assert "first of ann" not in text
    assert "ben" not in text


def test_only_an_empty_directory_is_written_into(root: Root, export: Export, tmp_path: Path) -> None:
    with AgentMemoryService(root.url, storage_options=root.options) as service:
        service.write_memory_file("ann", "a.md", "x")
    used, file = tmp_path / "used", tmp_path / "file"
    used.mkdir()
    (used / "mine").write_text("kept")
    file.write_text("kept")
    for directory in (used, file):
        with pytest.raises(FileAlreadyExistsError):
            export(directory)
    assert [each.name for each in used.iterdir()] == ["mine"]
    assert file.read_text() == "kept"


def test_the_command_exports_pages(tmp_path: Path) -> None:
    with AgentMemoryService(tmp_path / "store") as service:
        service.write_memory_file("ann", "a.md", "the text")
    command = [SCRIPT, "--url", "store", "--json", "export", "--html", "out"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert json.loads(done.stdout)["pages"] == len(texts(tmp_path / "out"))
    assert "the text" in "".join(texts(tmp_path / "out").values())
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 4
    for wrong in (["--versions"], ["--html", "--overwrite"]):
        ended = subprocess.run([*command[:4], "export", "new", *wrong], cwd=tmp_path, capture_output=True, check=False)
        assert ended.returncode == 2
    assert not (tmp_path / "new").exists()
