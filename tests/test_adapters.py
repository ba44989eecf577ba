"""The adapters of frameworks use only public names of this package, as an adapter of another package must."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agent_memory import AgentMemory, AsyncAgentMemory

ROOT: Final = Path(__file__).parents[1]
FACES: Final = ("anthropic", "fsspec", "upath")
"""The faces of the package's own memory tool and filesystem."""
ADAPTERS: Final = [
    path for path in sorted((ROOT / "agent_memory" / "integrations").glob("*.py")) if path.stem not in FACES
]
DOCUMENTED: Final = {
    module
    for page in (ROOT / "docs" / "api").glob("*.md")
    for module in re.findall(r"^::: (agent_memory[\w.]*)$", page.read_text(), re.MULTILINE)
}
PRIVATE: Final = {name for kind in (AgentMemory, AsyncAgentMemory) for name in dir(kind) if re.match(r"_[a-z]", name)}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The modules of this package that a module imports from, each with a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "agent_memory":
            yield from ((str(node.module), each.name) for each in node.names)


def is_public(module: str, name: str) -> bool:
    if module.startswith("agent_memory.integrations.toolkit."):
        return False
    if module.startswith("agent_memory.integrations"):
        return not name.startswith("_")  # of the toolkit, or of a module of the same adapter
    return module in ("agent_memory", *DOCUMENTED) and not name.startswith("_")


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_an_adapter_uses_no_private_name(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [pair for pair in imported(tree) if not is_public(*pair)] == []
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in PRIVATE}
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert used - own - {"_memory"} == set()
