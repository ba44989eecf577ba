"""Adds or replaces one entry in the text of another program's configuration, and changes nothing else in it.

The text is changed, not a parsed copy, so that all other entries, their order and the comments of TOML stay byte for
byte. The new text is parsed to check this.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from agent_memory.errors import FileAlreadyExistsError

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_DECODER: Final = json.JSONDecoder()

IsOurs: TypeAlias = Callable[[Mapping[str, Any]], bool]


class Unchangeable(Exception):
    """The file has no place for the entry, or a change would lose a part of it; the message says why."""


class Place(NamedTuple):
    """The place of an entry in a file: the name of the object or table of all servers, and the entry's own name."""

    servers: str
    name: str


class EntryChange(NamedTuple):
    """The new text of a file, whether an old entry of ours was replaced in it, and the fields that were kept of it."""

    text: str
    replaced: bool
    kept: tuple[str, ...] = ()


def with_json_entry(text: str, place: Place, entry: Mapping[str, Any], is_ours: IsOurs) -> EntryChange:
    """The text of a JSON file with the entry; fields of an old entry that ``entry`` does not have are kept.

    Raises:
        Unchangeable: the file is not plain JSON, or has something else in this place.
        FileAlreadyExistsError: another program's entry has this name.
    """
    if not text.strip():
        return EntryChange(json.dumps({place.servers: {place.name: entry}}, indent=2, ensure_ascii=False) + "\n", False)
    before = _parsed_json(text)
    wanted = _merged(before, place, entry, is_ours)
    root = _after_blank(text, 0)
    servers = {member.key: member for member in _members(text, root)}.get(place.servers)
    if servers is None:
        changed = _inserted(text, root, place.servers, wanted[place.servers])
    elif old := {member.key: member for member in _members(text, servers.value)}.get(place.name):
        dumped = _dumped(wanted[place.servers][place.name], text, _indent(text, old.start))
        changed = text[: old.value] + dumped + text[old.end :]
    else:
        changed = _inserted(text, servers.value, place.name, entry)
    return _change(_checked(changed, _parsed_json, wanted), before, place, entry)


def with_toml_entry(text: str, place: Place, entry: Mapping[str, Any], is_ours: IsOurs) -> EntryChange:
    """The text of a TOML file with the entry; otherwise as `with_json_entry`."""
    before = _parsed_toml(text)
    wanted = _merged(before, place, entry, is_ours)
    newline = "\r\n" if "\r\n" in text else "\n"
    values = "".join(f"{key} = {_toml_value(value)}{newline}" for key, value in entry.items())
    replaced = place.name in before.get(place.servers, {})
    if replaced:
        changed = _with_values(list(_statements(text)), place, entry, values)
    else:
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        changed = f"{text}{gap}[{place.servers}.{place.name}]{newline}{values}"
    return _change(_checked(changed, _parsed_toml, wanted), before, place, entry)


def _change(text: str, before: Mapping[str, Any], place: Place, entry: Mapping[str, Any]) -> EntryChange:
    old = before.get(place.servers, {}).get(place.name)
    return EntryChange(text, old is not None, tuple(key for key in old or () if key not in entry))


def _merged(before: Any, place: Place, entry: Mapping[str, Any], is_ours: IsOurs) -> dict[str, Any]:
    """The parsed file with the entry."""
    servers = before.get(place.servers, {}) if isinstance(before, dict) else None
    old = servers.get(place.name, {}) if isinstance(servers, dict) else None
    if not (isinstance(before, dict) and isinstance(servers, dict) and isinstance(old, dict)):
        raise Unchangeable(f"it has no object in the place of {place.servers!r} or of {place.name!r} in it")
    if place.name in servers and not is_ours(old):
        raise FileAlreadyExistsError(f"another server has the name {place.name!r}; --name gives ours another name")
    return {**before, place.servers: {**servers, place.name: {**old, **entry}}}


def _checked(changed: str, parse: Callable[[str], object], wanted: object) -> str:
    """The changed text, if only the entry differs in it."""
    with suppress(Unchangeable):
        if parse(changed) == wanted:
            return changed
    raise Unchangeable("it is written in a way that cannot be changed safely")


class _Member(NamedTuple):
    """A member of a JSON object: its key, and the offsets of the key, of the value, and of the value's end."""

    key: str
    start: int
    value: int
    end: int


def _parsed_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Unchangeable(f"it is not plain JSON (line {error.lineno}); comments could not be kept") from None
    except (ValueError, RecursionError):
        raise Unchangeable("it is not plain JSON") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object that begins at ``start``, in valid JSON."""
    at = _after_blank(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _after_blank(text, _after_blank(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield _Member(key, at, value, end)
        at = _after_blank(text, end)
        at = _after_blank(text, at + 1) if text[at] == "," else at


def _after_blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    return found.end() if found else start


def _inserted(text: str, start: int, key: str, value: object) -> str:
    """The text with one more member at the end of the object that begins at ``start``."""
    *_, last = [None, *_members(text, start)]
    named = f"{json.dumps(key)}: "
    if last is not None:
        indent = _indent(text, last.start)
        separator = ", " if indent is None else f",{_newline(text)}{indent}"
        return f"{text[: last.end]}{separator}{named}{_dumped(value, text, indent)}{text[last.end :]}"
    outer = _line_start(text, start)
    inner = outer + _unit(text)
    member = f"{_newline(text)}{inner}{named}{_dumped(value, text, inner)}{_newline(text)}{outer}"
    return f"{text[: start + 1]}{member}{text[_after_blank(text, start + 1) :]}"


def _indent(text: str, at: int) -> str | None:
    """The blanks before a member that begins its line; None for one within a line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return None if before.strip() else before


def _line_start(text: str, at: int) -> str:
    found = re.compile(r"[ \t]*").match(text, text.rfind("\n", 0, at) + 1)
    return found[0] if found else ""


def _unit(text: str) -> str:
    """The indentation of the first member of the file."""
    found = re.match(r"\s*\{\s*\n([ \t]+)", text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _dumped(value: object, text: str, indent: str | None) -> str:
    """A value as JSON in the style of the text around it; in one line if ``indent`` is None."""
    if indent is None:
        return _json(value)
    return _json(value, indent=_unit(text)).replace("\n", _newline(text) + indent)


def _json(value: object, indent: str | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        raise Unchangeable("it contains a number that JSON does not have") from None


def _parsed_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unchangeable(f"it is not valid TOML: {error}") from None


def _toml_value(value: object) -> str:
    """A text or a list of texts; the strings of JSON are strings of TOML, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _statements(text: str) -> Iterator[str]:
    """The statements of valid TOML, with their line ends: a header, a value of one or more lines, or a comment."""
    statement = ""
    for line in _LINE.findall(text):
        statement += line
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads(statement)
            yield statement
            statement = ""


def _keys(statement: str) -> tuple[str, ...]:
    """The keys that lead to the first value of a statement, or to the table of a header."""
    found, keys = tomllib.loads(statement), []
    while isinstance(found, dict) and found:
        key, found = next(iter(found.items()))
        keys.append(key)
    return tuple(keys)


def _is_header(statement: str) -> bool:
    return statement.lstrip().startswith("[")


def _with_values(statements: list[str], place: Place, entry: Mapping[str, Any], values: str) -> str:
    """The text with other values in the entry's own table; its other values and its comments stay."""
    headers = [number for number, each in enumerate(statements) if _is_header(each) and _keys(each) == place]
    if not headers:
        raise Unchangeable(f"its entry {place.name!r} is not a table [{place.servers}.{place.name}]; change it by hand")
    head, body = statements[: headers[0] + 1], statements[headers[0] + 1 :]
    own = list(itertools.takewhile(lambda each: not _is_header(each), body))
    kept = [each for each in own if _keys(each)[:1] not in {(key,) for key in entry}]
    head[-1] = head[-1] if head[-1].endswith("\n") else head[-1] + "\n"
    return "".join([*head, values, *kept, *body[len(own) :]])
