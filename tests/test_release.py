"""`scripts/release`: what it refuses, and what it reads, compares and serves; the script runs the rest for real."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tomllib
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_memory.errors import DISTRIBUTION
from scripts.releasing.archives import PACKAGES, Archives, build_backend, content_faults, differing
from scripts.releasing.commands import ReleaseError, environment, run, without_hosts
from scripts.releasing.evidence import Result, evidence_page, sums
from scripts.releasing.index import Index, index_of_pip, settings_of_pip, variables_of_pip
from scripts.releasing.installs import FOR_DEVELOPERS, MODULES, PROJECT, Install, commands_of, installs, sample_of
from scripts.releasing.versions import version_faults

ROOT = Path(__file__).parents[1]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = CONFIGURATION["project"]["optional-dependencies"]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize(
    ("changelog", "tags", "fault"),
    [
        ("# Log\n\n## 1.0rc1 - 2026-01-31\n\n## 0.9 - 2026-01-01\n", ["v1.0rc1", "nightly"], None),
        ("## 1.0rc1 - 2026-01-31\n", ["vista"], "no tag: set it (git tag -s v1.0rc1)"),
        ("## 1.0rc1 - 2026-01-31\n", ["v1.0rc1", "v1.0"], "the tag v1.0, but pyproject.toml has the version 1.0rc1"),
        ("## Unreleased\n\n## 1.0rc1 - 2026-01-31\n", ["v1.0rc1"], "is 'Unreleased': it must be '1.0rc1 - YYYY"),
        ("## 1.0 - 2026-01-31\n", ["v1.0rc1"], "is '1.0 - 2026-01-31': it must be"),
        ("## 1.0rc1\n", ["v1.0rc1"], "is '1.0rc1': it must be"),
        ("no section\n", ["v1.0rc1"], "is missing: it must be"),
    ],
)
def test_the_changelog_and_the_tag_must_have_the_version_of_pyproject(
    changelog: str, tags: list[str], fault: str | None
) -> None:
    faults = list(version_faults("1.0rc1", changelog, tags, tag_required=True))
    assert len(faults) == (fault is not None)
    assert all(fault in each for each in faults if fault)


def test_a_check_needs_no_tag_but_refuses_a_wrong_one() -> None:
    changelog = "## 1.0 - 2026-01-31\n"
    assert list(version_faults("1.0", changelog, [], tag_required=False)) == []
    assert list(version_faults("1.0", changelog, ["v0.9"], tag_required=False))


def wheel(path: Path, contents: Mapping[str, str], year: int = 2020) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), text)
    return path


def sdist(path: Path, contents: Mapping[str, str], mode: int = 0o644) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), mode
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_members_of_two_wheels_that_differ_are_named(tmp_path: Path) -> None:
    one = wheel(tmp_path / "1.whl", {"same": "x", "text": "a", "gone": ""})
    assert differing(one, wheel(tmp_path / "2.whl", {"same": "x", "text": "a", "gone": ""})) == []
    assert differing(one, wheel(tmp_path / "3.whl", {"same": "x", "text": "b", "new": ""})) == ["gone", "new", "text"]
    assert differing(one, wheel(tmp_path / "4.whl", {"same": "x", "text": "a", "gone": ""}, 2021)) == [
        "gone", "same", "text",
    ]  # fmt: skip


def test_members_of_two_sdists_that_differ_are_named(tmp_path: Path) -> None:
    one = sdist(tmp_path / "1.tar.gz", {"a": "1", "b": "2"})
    assert differing(one, sdist(tmp_path / "2.tar.gz", {"a": "1", "b": "3"})) == ["b"]
    assert differing(one, sdist(tmp_path / "3.tar.gz", {"a": "1", "b": "2"}, 0o600)) == ["a", "b"]


def test_archives_with_equal_members_in_another_order_differ(tmp_path: Path) -> None:
    one, other = wheel(tmp_path / "1.whl", {"a": "", "b": ""}), wheel(tmp_path / "2.whl", {"b": "", "a": ""})
    assert differing(one, other) == ["the order or the compression of the members"]


INFO = "x-1.0.dist-info"
WHOLE = {
    **{f"{package}/{name}": "" for package in PACKAGES for name in ("__init__.py", "py.typed")},
    f"{INFO}/licenses/LICENSE": "",
    f"{INFO}/entry_points.txt": "[console_scripts]\nx = y:main\n\n[group]\nA.b = y:Z\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: builder 1.2\n",
}
SOURCE = {f"x-1.0/{name}": "" for name in ("LICENSE", "PKG-INFO", "README.md", "pyproject.toml")}
DECLARED = {"scripts": {"x": "y:main"}, "entry-points": {"group": {"A.b": "y:Z"}}}


def archives(directory: Path, contents: Mapping[str, str], source: Mapping[str, str]) -> Archives:
    return Archives(wheel(directory / "x-1.0-py3-none-any.whl", contents), sdist(directory / "x-1.0.tar.gz", source))


def test_whole_archives_have_no_fault(tmp_path: Path) -> None:
    whole = archives(tmp_path, WHOLE, SOURCE)
    assert list(content_faults(whole, DECLARED)) == []
    assert build_backend(whole.wheel) == "builder 1.2"


@pytest.mark.parametrize(
    ("missing", "added", "fault"),
    [
        ("", "tests/test_x.py", "the wheel installs tests: too much, or missing"),
        ("", "agent_memory/tests/test_x.py", "the wheel must not have agent_memory/tests/test_x.py"),
        (f"{INFO}/licenses/LICENSE", "", f"the wheel lacks {INFO}/licenses/LICENSE"),
        ("agent_memory_s3/py.typed", "", "the wheel lacks agent_memory_s3/py.typed"),
        (f"{INFO}/entry_points.txt", "", "the entry points of the wheel are not those of pyproject.toml"),
        ("x-1.0/LICENSE", "", "the sdist lacks x-1.0/LICENSE"),
    ],
)
def test_a_fault_of_the_contents_is_named(missing: str, added: str, fault: str, tmp_path: Path) -> None:
    contents = {name: text for name, text in WHOLE.items() if name != missing} | ({added: ""} if added else {})
    source = {name: text for name, text in SOURCE.items() if name != missing}
    assert fault in list(content_faults(archives(tmp_path, contents, source), DECLARED))


def test_the_packages_of_a_release_are_those_of_the_build() -> None:
    packages = CONFIGURATION["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.rpartition("/")[2] for package in packages} == PACKAGES


INDEX = Index("agent-memory-files", ">=3.11", "https://index.example/simple/", {"a-1.whl": b"wheel"})


@pytest.mark.parametrize(
    "name", ["agent-memory-files", "agent_memory_files", "Agent.Memory--Files", "agent%2Dmemory-files"]
)
def test_no_spelling_of_the_projects_name_leads_to_another_index(name: str) -> None:
    answer = INDEX.answer(f"/simple/{name}/")
    assert (answer.status, answer.location) == (200, "")
    digest = hashlib.sha256(b"wheel").hexdigest()
    assert f'href="/files/a-1.whl#sha256={digest}" data-requires-python="&gt;=3.11"'.encode() in answer.body
    assert INDEX._replace(files={}).answer(f"/simple/{name}/").status == 404


def test_the_index_redirects_other_projects_and_has_no_other_pages() -> None:
    assert INDEX.answer("/simple/Other_name/")[::2] == (302, "https://index.example/simple/other-name/")
    for path in ("/", "/simple/", "/files/b", "/files/../a-1.whl", "/simple/a%2F..%2Fb/", "/simple/a%0Ab/"):
        assert INDEX.answer(path) == (404, b"", ""), path


def test_the_index_is_served_by_http() -> None:
    with INDEX.serving() as url:
        with urllib.request.urlopen(f"{url}agent-memory-files/") as page:
            link = re.search(r'href="([^#"]+)', page.read().decode())
        assert link
        with urllib.request.urlopen(urllib.parse.urljoin(url, link[1])) as file:
            assert file.read() == b"wheel"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}../nothing")


def test_pip_has_one_index_and_keeps_how_it_reaches_hosts() -> None:
    listing = (
        ":env:.cert='/certificates'\nglobal.cert='/other'\nglobal.extra-index-url='https://foreign.example'\n"
        ":env:.find-links='/wheels'\ninstall.timeout='9'\nglobal.timeout='1'\n"
    )
    variables = variables_of_pip("http://ours/simple/", settings_of_pip(listing))
    assert variables == {
        "PIP_CERT": "/certificates", "PIP_TIMEOUT": "9", "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://ours/simple/", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_COMPILE": "1",
        "PIP_NO_INPUT": "1",
    }  # fmt: skip


def test_the_index_of_pip_is_the_default_in_its_help() -> None:
    text = "  -i, --index-url <url>  Base URL\n   of the index (default {}). This should\n"
    assert index_of_pip(text.format("https://index.example/simple")) == "https://index.example/simple"
    with pytest.raises(ReleaseError, match=r"put it into ~/\.netrc") as refused:
        index_of_pip(text.format("https://user:****@index.example/simple"))
    assert "example" not in str(refused.value)
    with pytest.raises(ReleaseError, match="this pip is not known"):
        index_of_pip("  --index-url <url>\n")


PAGE = """
Run `pip install 'agent-memory-files[cli, s3]'` or `pip install other agent-memory-files-extra`.

```sh
. bin/activate && pip install -q agent-memory-files==1.0 langgraph && agent-memory demo
python3 -m pip install \\
    'agent-memory-files[mcp]'    # with S3: [mcp,s3]
pip install 'ministack==1' 'a<2'; ministack
```
"""


def test_the_commands_of_a_page_are_found() -> None:
    assert commands_of(PAGE, PROJECT) == [
        ("agent-memory-files[cli, s3]",), ("-q", "agent-memory-files==1.0", "langgraph"), ("agent-memory-files[mcp]",),
    ]  # fmt: skip
    assert commands_of(PAGE, "ministack") == [("ministack==1", "a<2")]


def test_each_command_is_tried_once_and_each_extra_that_is_left() -> None:
    line = "`pip install 'agent-memory-files[cli]'`"
    found = installs({"a.md": line * 2, "b.md": line}, ["cli", "mcp", "dev"])
    assert found == [Install(("agent-memory-files[cli]",), ("a.md", "b.md")), Install(("agent-memory-files[mcp]",))]
    assert Install(commands_of(PAGE, PROJECT)[0]).extras == ["cli", "s3"]


def test_no_installation_of_the_docs_is_missed() -> None:
    for page in (*PAGES, *(ROOT / "docs/api").glob("*.md")):
        text = page.read_text()
        named = re.findall(rf"\binstall(?:[^`\n]|\\\n)*{DISTRIBUTION}(?![\w.-])", text)
        assert len(commands_of(text, PROJECT)) == len(named), page
        assert page in PAGES or not named, page
    assert PROJECT == DISTRIBUTION


def test_no_page_installs_the_project_from_a_path() -> None:
    for page in PAGES:
        assert "/path/of/a/checkout" not in page.read_text(), page


def test_each_extra_of_a_user_has_its_modules() -> None:
    assert EXTRAS.keys() == MODULES.keys() | FOR_DEVELOPERS
    adapters = {file.stem for file in (ROOT / "agent_memory/integrations").glob("[a-z]*.py")}
    named = {
        name.rpartition(".")[2] for names in MODULES.values() for name in names.split() if ".integrations." in name
    }
    assert adapters - named == {"fsspec", "upath"}


def test_the_readme_has_a_sample_with_its_output() -> None:
    program, output = sample_of((ROOT / "README.md").read_text())
    assert program.startswith("from agent_memory import")
    assert "coffee" in output
    with pytest.raises(ReleaseError, match="has no sample"):
        sample_of("```python\nx\n```\n")


def test_a_program_that_fails_is_reported_without_hosts(tmp_path: Path) -> None:
    code = "print('https://user:word@index.example/simple'); raise SystemExit(3)"
    with pytest.raises(ReleaseError, match=r"exit code 3\nhttps://…/simple$"):
        run("python3", "-c", code, cwd=tmp_path, env=environment({}))
    assert (
        without_hosts("HTTPSConnectionPool(host='index.example', port=443)")
        == "HTTPSConnectionPool(host='…', port=443)"
    )


def test_a_program_has_no_variable_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PIP_EXTRA_INDEX_URL", "VIRTUAL_ENV", "AGENT_MEMORY_URL", "AWS_PROFILE"):
        monkeypatch.setenv(name, "x")
    assert "x" not in environment({}).values()
    assert environment({"PIP_INDEX_URL": "y"})["PIP_INDEX_URL"] == "y"


def test_the_page_of_evidence_and_the_sums_name_each_file(tmp_path: Path) -> None:
    file = tmp_path / "a-1.whl"
    file.write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    result = Result("'a[cli]'", ("README.md",), ("import", "demo"))
    page = evidence_page("0123456789abcdef", "2026-01-31", "", [file], ["pip 1", "build 2"], [result])
    assert f"| a-1.whl | 3 | `{digest}` |" in page
    assert "on 2026-01-31 at commit `0123456789ab`, before it had a tag." in page
    assert "Tools: pip 1, build 2." in page
    assert "| `'a[cli]'` | README.md | import, demo |" in page
    assert sums([file]) == f"{digest}  a-1.whl\n"
