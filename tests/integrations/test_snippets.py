"""The snippets of docs/integrations.md run as they stand; those of a framework that is not installed are left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SNIPPETS = [
    (block.info, block.code) for block in blocks_of(PAGE.read_text()) if block.language == "python" and block.info
]


def test_each_framework_has_a_snippet() -> None:
    assert {module for module, _ in SNIPPETS} == {
        "deepagents", "langgraph", "langgraph_saver", "langchain", "openai_agents", "pydantic_ai",
        "pydantic_ai_memory", "google_adk", "claude_agent_sdk", "agent_framework", "strands",
    }  # fmt: skip


@pytest.mark.parametrize(("module", "code"), SNIPPETS, ids=[module for module, _ in SNIPPETS])
def test_a_snippet_runs_twice(module: str, code: str, tmp_path: Path) -> None:
    pytest.importorskip(f"agent_memory.integrations.{module}", exc_type=ImportError)
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("module", "code"), SNIPPETS, ids=[module for module, _ in SNIPPETS])
def test_a_snippet_has_at_most_ten_lines(module: str, code: str) -> None:
    assert len([line for line in code.splitlines() if line.strip()]) <= 10, module
