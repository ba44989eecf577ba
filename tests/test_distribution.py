"""The wheel: only this project's packages, typed, with few core dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import agent_memory
from agent_memory.errors import DISTRIBUTION

PACKAGES = {
    "agent_memory",
    "agent_memory_fsspec",
    "agent_memory_local",
    "agent_memory_memory",
    "agent_memory_obstore",
    "agent_memory_s3",
}


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_contains_only_the_projects_packages(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names_in(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_every_shipped_package_is_typed(wheel: Path) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names_in(wheel))


def test_the_wheel_contains_every_template_of_a_distribution(wheel: Path) -> None:
    root = Path(__file__).parents[1]
    templates = [file for file in (root / "agent_memory/cli/templates").rglob("*") if file.is_file()]
    assert len(templates) == 13
    assert {file.relative_to(root).as_posix() for file in templates} <= set(names_in(wheel))


def test_the_wheel_contains_every_file_of_the_pages(wheel: Path) -> None:
    root = Path(__file__).parents[1]
    files = [file for name in ("templates", "static") for file in (root / "agent_memory/web" / name).iterdir()]
    assert len(files) > 20
    assert {file.relative_to(root).as_posix() for file in files} <= set(names_in(wheel))


def test_the_core_depends_only_on_fsspec_and_pluggy(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in names_in(wheel) if name.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(archive.read(metadata).decode())
    core = [need for need in message.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert sorted(need.split(">=")[0] for need in core) == ["fsspec", "pluggy"]
    assert message["License-Expression"] == "Apache-2.0"


def test_an_installed_package_adds_no_plugin_to_pytest(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        points = archive.read(next(name for name in names_in(wheel) if name.endswith("entry_points.txt"))).decode()
    assert "[agent_memory]" in points
    assert "pytest" not in points


def test_importing_the_package_imports_no_adapter() -> None:
    code = "import sys, agent_memory; print(*(name for name in sys.modules if name.startswith('agent_memory.')))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("agent_memory.integrations", "agent_memory.testing"))]


def test_importing_the_package_imports_no_backend_no_cli_and_no_test_tool() -> None:
    code = "import sys, agent_memory; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    tops = {name.split(".")[0] for name in loaded}
    assert not tops & {"s3fs", "boto3", "botocore", "aiohttp", "click", "rich", "pytest", "hypothesis"}


def test_opening_a_local_root_does_not_import_s3fs(tmp_path: Path) -> None:
    code = f"import sys, agent_memory; agent_memory.AgentMemoryService({str(tmp_path)!r}); print('s3fs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("missing", ["s3fs", "aiobotocore.session", "aiobotocore.config"])
def test_the_error_for_an_s3_url_names_the_module_and_the_extra_that_are_missing(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from agent_memory import AgentMemoryService, BackendNotAvailableError\n"
        "try: AgentMemoryService('s3://bucket')\n"
        "except BackendNotAvailableError as error: print(error)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed == f"s3:// needs {missing}: pip install 'agent-memory-files[s3]'\n"


def test_every_text_names_the_distribution_as_it_is_called(wheel: Path) -> None:
    assert wheel.name.startswith(f"{DISTRIBUTION.replace('-', '_')}-{agent_memory.__version__}-")
    root = Path(__file__).parents[1]
    named = re.compile(r"[\w-]*agent-?memory[\w-]*(?=\[[a-z0-9]+[],])")
    for folder in ("agent_memory", "backends", "docs", "examples", "tests", "."):
        for path in (root / folder).rglob("*") if folder != "." else root.iterdir():
            if path.suffix in (".py", ".md", ".toml") and not {"evidence", "decisions"} & set(path.parts):
                names = set(named.findall(path.read_text(encoding="utf-8")))
                assert names <= {DISTRIBUTION, "agent_memory"}, path
