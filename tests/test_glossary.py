"""The glossary has every class that the public modules define or export."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/glossary.md"
PUBLIC = (
    "agent_memory",
    "agent_memory.key",
    "agent_memory.backend",
    "agent_memory.backend.helpers",
    "agent_memory.errors",
    "agent_memory.hookspecs",
    "agent_memory.memory",
    "agent_memory.service",
    "agent_memory.registry",
)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_glossary_has_every_public_class(module: str) -> None:
    names = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    public = importlib.import_module(module)
    exported = getattr(public, "__all__", None)
    classes = {
        name
        for name, value in vars(public).items()
        if inspect.isclass(value)
        and not name.startswith("_")
        and (name in exported if exported is not None else value.__module__ == module)
    }
    assert classes - names == set()


def test_no_two_classes_have_one_name() -> None:
    root = PAGE.parents[1]
    files = [file for top in ("agent_memory", "backends") for file in (root / top).rglob("*.py")]
    names = [
        node.name for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []
