"""``docs/errors.md`` has every error class with its kind, bases and exit code, and only messages of the source."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

from agent_memory import errors
from agent_memory.cli.output import Exit, code_of
from agent_memory.errors import AgentMemoryError
from tests.support.loops import looped

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/errors.md").read_text()
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, AgentMemoryError)
}
PUBLIC = (
    "agent_memory.audit", "agent_memory.backend", "agent_memory.backend.helpers", "agent_memory.conversation",
    "agent_memory.filesystem", "agent_memory.hookspecs", "agent_memory.key", "agent_memory.memory",
    "agent_memory.object_store.engine", "agent_memory.testing", "agent_memory.tools",
)  # fmt: skip


def _part(title: str) -> str:
    """The text below a heading of the second level."""
    return re.split(r"^## ", PAGE.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]


def _sections() -> dict[str, str]:
    """The text below each heading of the third level."""
    _, *parts = re.split(r"^### (\w+)\n", PAGE, flags=re.MULTILINE)
    bodies = [re.split(r"^## ", body, flags=re.MULTILINE)[0] for body in parts[1::2]]
    return dict(zip(parts[::2], bodies, strict=True))


def _messages() -> list[tuple[str, str]]:
    """Each class with each message in the table of its section."""
    cell = re.compile(r"^\| (`[^|]*)\|", re.MULTILINE)
    cells = [(name, found) for name, body in _sections().items() for found in cell.findall(body)]
    return [(name, message) for name, found in cells for message in re.findall(r"`([^`]+)`", found)]


def _first_words() -> list[tuple[str, list[str]]]:
    """Each text of the table of first words, with the classes that its row links to."""
    rows = re.findall(r"^\| (`[^|]*)\| (.*) \|$", _part("First words"), re.MULTILINE)
    return [(text, re.findall(r"\[(\w+)\]", links)) for cell, links in rows for text in re.findall(r"`([^`]+)`", cell)]


FIRST = _first_words()


def _begins(message: str, text: str) -> bool:
    """Whether a message begins with a text; a variable part at the beginning of both stands for any text."""
    return re.sub(r"^…[:;]? ", "… ", message).startswith(text)


def _source() -> str:
    """All texts in the source without docstrings; variable parts are replaced by an ellipsis."""
    files = [file for top in ("agent_memory", "backends") for file in (ROOT / top).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    return "\n".join(_text(node) for node in nodes if node not in docstrings)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values)) or "…"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "…" if isinstance(node, ast.FormattedValue) else ""


def test_every_error_class_has_a_section_and_every_section_a_class() -> None:
    assert set(_sections()) == set(CLASSES)


@looped("name", CLASSES)
def test_a_section_tells_the_kind_and_the_bases_of_its_class(name: str) -> None:
    section = _sections()[name]
    assert re.findall(r"Kind:\s+`(\w+)`", section) == [CLASSES[name].kind]
    (bases,) = re.findall(r"Bases:((?:\s+`\w+`,?)+)\.", section)
    assert re.findall(r"\w+", bases) == [base.__name__ for base in CLASSES[name].__bases__]


def test_the_table_of_classes_tells_each_kind_and_exit_code() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| `(\w+)` \| .* \| (\d+) \|$", PAGE, re.MULTILINE)
    real = {(name, name.lower(), kind.kind, str(int(code_of(kind("it failed"))))) for name, kind in CLASSES.items()}
    assert set(rows) == real


def test_the_page_has_every_exit_code_of_the_command_line() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", _part("Exit codes"), re.MULTILINE)] == sorted(Exit)


def _defined_in(module: ModuleType) -> list[str]:
    """The names that a module without ``__all__`` defines itself."""
    return [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]


def test_the_page_has_every_exception_of_the_other_public_modules() -> None:
    named = set(re.findall(r"^\| `(agent_memory\.[\w.]+)` \|", PAGE, re.MULTILINE))
    exported = {
        f"{module.__name__}.{name}"
        for module in map(importlib.import_module, PUBLIC)
        for name in vars(module).get("__all__", _defined_in(module))
        if inspect.isclass(value := getattr(module, name)) and issubclass(value, BaseException)
    }
    assert named == exported


def test_each_part_of_each_message_is_in_the_source() -> None:
    source = _source()
    parts = {part.strip(" '") for _, message in _messages() for part in re.split(r"…|; |: ", message)}
    assert sorted(part for part in parts if len(part) > 3 and part not in source) == []


def test_the_first_words_of_each_message_lead_to_its_section() -> None:
    found = [each for each in _messages() if not any(_begins(each[1], text) and each[0] in to for text, to in FIRST)]
    assert found == []


def test_all_first_words_lead_to_sections_with_such_a_message() -> None:
    found = [text for text, to in FIRST if not {name for name, each in _messages() if _begins(each, text)} >= set(to)]
    assert found == []
    assert all(to for _, to in FIRST)
