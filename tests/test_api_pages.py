"""The reference pages document every public name, and the page of the command line every command and option."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from agent_memory.cli.app import app
from tests.cli.commands import commands_of
from tests.support.loops import looped

ROOT = Path(__file__).parents[1]
CLI_PAGE = (ROOT / "docs/cli.md").read_text()
DIRECTIVE = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", re.MULTILINE)
INTEGRATIONS = "agent_memory.integrations."


def _modules_of(package: str) -> list[str]:
    files = sorted((ROOT / package.replace(".", "/")).glob("[!_]*.py"))
    return [f"{package}.{file.stem}" for file in files]


PUBLIC = [
    "agent_memory",
    *(f"agent_memory.{name}" for name in ("key", "backend", "errors", "hookspecs", "memory", "service", "registry")),
    *(f"agent_memory.{name}" for name in ("audit", "tools", "conversation", "filesystem", "mcp_server", "web")),
    "agent_memory.backend.helpers",
    "agent_memory.object_store",
    *(f"agent_memory.object_store.{name}" for name in ("engine", "options", "responses")),
    *_modules_of("agent_memory.plugins"),
    *_modules_of("agent_memory.integrations"),
    "agent_memory.integrations.toolkit",
    "agent_memory.testing",
    *_modules_of("agent_memory.testing"),
]


def _file(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@cache
def _statements(module: str) -> list[ast.stmt]:
    """The statements of a module, also in its ``if`` and ``try``; it is not imported: its framework may be missing."""
    file = _file(module)
    assert file, f"no module {module}"

    def flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in body:
            yield statement
            if isinstance(statement, ast.If | ast.Try):
                yield from flat(statement.body)

    return list(flat(ast.parse(file.read_text()).body))


def _assigned(statement: ast.stmt) -> str | None:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return targets[0].id if isinstance(targets[0], ast.Name) else None


def _origin(module: str, name: str) -> str:
    """The full name of an object where it is defined, found through the imports of this package."""
    for statement in _statements(module):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
            return f"{module}.{name}"
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _assigned(statement) == name:
            return f"{module}.{name}"
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _origin(str(statement.module), alias.name)
    raise AssertionError(f"{module} has no {name}")


def _public_names(module: str) -> list[str]:
    """The names in ``__all__``; of a module without it, its classes and functions."""
    for statement in _statements(module):
        if isinstance(statement, ast.Assign) and _assigned(statement) == "__all__":
            return list(ast.literal_eval(statement.value))
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [statement.name for statement in _statements(module) if isinstance(statement, definitions)]
    return [name for name in names if not name.startswith("_")]


def _documented() -> list[tuple[str, str]]:
    """The module and the name of every object that a directive of a reference page documents."""
    found: list[tuple[str, str]] = []
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for target, options in DIRECTIVE.findall(page.read_text()):
            members = re.findall(r"^ +- (\w+)$", options, re.MULTILINE)
            if _file(target):
                assert members, f"{page.name}: ::: {target} has no list of members"
                found += [(target, member) for member in members]
            else:
                module, _, name = target.rpartition(".")
                found.append((module, name))
    return found


DOCUMENTED = _documented()


@looped("module", PUBLIC)
def test_every_public_name_has_an_entry_in_the_reference(module: str) -> None:
    entries = {_origin(*entry) for entry in DOCUMENTED}
    assert [name for name in _public_names(module) if _origin(module, name) not in entries] == []


def test_every_hook_has_an_entry_in_the_reference() -> None:
    names = [
        statement.name
        for statement in _statements("agent_memory.hookspecs")
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("agent_memory_")
    ]
    assert names
    assert [name for name in names if ("agent_memory.hookspecs", name) not in DOCUMENTED] == []


def test_the_contract_of_backends_has_few_names() -> None:
    assert len(_public_names("agent_memory.backend")) <= 32  # raise this on purpose: every author reads all of them


def test_no_name_has_two_entries() -> None:
    counts = Counter(_origin(*entry) for entry in DOCUMENTED)
    assert [name for name, count in counts.items() if count > 1] == []


@looped(("module", "name"), [entry for entry in DOCUMENTED if not entry[0].startswith(INTEGRATIONS)])
def test_every_entry_names_something_that_imports(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


@looped(("module", "name"), [entry for entry in DOCUMENTED if entry[0].startswith(INTEGRATIONS)])
def test_every_entry_of_an_integration_names_something_that_it_exports(module: str, name: str) -> None:
    assert name in _public_names(module)
    assert module.endswith(".toolkit") or _origin(module, name).startswith(INTEGRATIONS)


def _commands(command: click.Command, *words: str) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(words), command
    if isinstance(command, click.Group):
        for name, below in commands_of(command).items():
            yield from _commands(below, *words, name)


COMMANDS = dict(_commands(app))


@looped("words", [words for words in COMMANDS if words])
def test_the_page_of_the_command_line_has_every_command(words: str) -> None:
    code = re.findall(r"`([^`\n]+)`", CLI_PAGE)
    assert any(re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", span) for span in code)


def _has(text: str, words: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", text) is not None


GLOBAL, OF_COMMANDS = CLI_PAGE.split("| command | does |", 1)
PARTS = [part for text in OF_COMMANDS.split("\n\n") for part in (text.split("\n") if text.startswith("|") else [text])]
"""The paragraphs and the rows of tables."""


@looped("words", COMMANDS)
def test_the_page_of_the_command_line_has_every_option_beside_its_command(words: str) -> None:
    options = [parameter for parameter in COMMANDS[words].params if isinstance(parameter, click.Option)]
    names = [name for option in options if not option.hidden for name in (*option.opts, *option.secondary_opts)]
    about = [GLOBAL, *(part for part in PARTS if _has(part, words or "agent-memory"))]
    long = [name for name in names if name.startswith("--")]
    assert [name for name in long if not any(_has(part, name) for part in about)] == []
