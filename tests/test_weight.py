"""The size of the face and of the product: `scripts/weight` counts them, and they grow only on purpose."""

from __future__ import annotations

import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SCRIPT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[1] / "scripts/weight"))
weights: Callable[[Path], dict[str, int]] = _SCRIPT["weights"]

# Raise this on purpose: the greatest number of each, and the reason for more in the commit.
BOUNDS = {
    "code lines": 37_600,
    "names of AgentMemory": 32,
    "parameters of AgentMemory": 63,
    "names of the room versions": 22,
    "exports of agent_memory": 54,
    "exports of agent_memory.backend": 31,
    "hooks": 9,
    "commands": 46,
    "modules": 318,
    "modules with one importer": 81,
    "words of docs": 62_700,
}

PRODUCT = {
    "agent_memory/__init__.py": '"""Text."""\nfrom agent_memory.memory.sync import AgentMemory\n'
    '__all__ = ["AgentMemory"]\n',
    "agent_memory/backend/__init__.py": '__all__ = ["A", "B"]\nA = B = """two\nlines"""\n',
    "agent_memory/hookspecs.py": "@hookspec\ndef one():\n    '''One.'''\n\n"
    "@hookspec\ndef two():  # comment\n    '''Two.'''\n",
    "agent_memory/cli/app.py": "@click.group()\ndef app(): ...\n\n@app.command()\ndef run(): ...\n",
    "agent_memory/cli/templates/new.py": "x = {{name}}\n",
    "agent_memory/memory/view.py": "from agent_memory import backend\n\nclass View:\n"
    "    @staticmethod\n    def open(root, *, options): ...\n    def _hidden(self, a): ...\n",
    "agent_memory/memory/sync.py": "from agent_memory.memory.view import View\nimport agent_memory.backend\n\n"
    "class Room:\n    def list(self): ...\n    def diff(self, a): ...\n\n"
    "class AgentMemory(View):\n    def read(self, path, *more, when, **options): ...\n"
    "    def open(self): ...\n    @property\n    def versions(self) -> Room: ...\n    limit: int = 3\n",
    "backends/storage/__init__.py": "def f():\n    from agent_memory.backend import A, B\n",
    "docs/a/b.md": "two words\n",
    "README.md": "three more words\n",
}
COUNTED = {
    "code lines": 31,
    "names of AgentMemory": 4,
    "parameters of AgentMemory": 4,
    "names of the room versions": 2,
    "exports of agent_memory": 1,
    "exports of agent_memory.backend": 2,
    "hooks": 2,
    "commands": 1,
    "modules": 7,
    "modules with one importer": 2,
    "words of docs": 5,
}


@pytest.fixture
def product(tmp_path: Path) -> Path:
    for name, text in PRODUCT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_every_number_is_counted_as_the_script_says(product: Path) -> None:
    assert weights(product) == COUNTED


def test_a_revision_is_counted_without_the_changes_after_it(product: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=product, check=True)
    (product / "README.md").write_text("")
    of_revision = _SCRIPT["of_revision"]
    monkeypatch.setitem(of_revision.__globals__, "ROOT", product)
    assert of_revision("HEAD") == COUNTED


def test_no_number_grows_unless_its_bound_is_raised_on_purpose() -> None:
    checkout = weights(Path(__file__).parents[1])
    assert checkout.keys() == BOUNDS.keys()
    grown = {name: f"{number} of at most {BOUNDS[name]}" for name, number in checkout.items() if number > BOUNDS[name]}
    assert grown == {}, "make it smaller, or raise its bound in this file on purpose"
