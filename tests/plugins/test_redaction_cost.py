"""Every pattern that redaction uses takes steps by the length of the text: counted, not timed."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from agent_memory.plugins._secrets import KEY_FORMS, LINE_OF_KEY, PATTERNS, known_secrets
from agent_memory.plugins.redaction import _DEEP_ESCAPE, _ESCAPE
from tests.plugins.backtracking import TooManyStepsError, steps_of
from tests.plugins.secret_forms import SAMPLES, hostile_units, text_of

SHORT, TIMES = 200, 6
MOST = 2 * TIMES
"""How many times the steps of a text so many times as long may be; by the square they are 36 times."""
ALL = [
    *PATTERNS,
    *(("Private Key", pattern) for form in KEY_FORMS for pattern in (form.begin, form.end)),
    ("Private Key", re.compile("-----" + LINE_OF_KEY.pattern)),  # it is matched behind a begin, not searched
    ("", _ESCAPE),
    ("", _DEEP_ESCAPE),
]
SUPERLINEAR = [
    (r"\\+[nrt\"]", ("", "\\")),
    (r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_=-]+\.[a-z]", ("", "=eyJ")),
    (r"sk-[A-Za-z0-9_-]*[A-Za-z0-9]{20}T3BlbkFJ", ("", "sk-")),
    (r"key(?: *)(?: +)[0-9a-f]", ("key", " ")),
    (r"\n[ \t>]*x?(?=[ \t]*\n)", ("\n", "\t")),
    (r"://:(?!\[[^\]\s]*\]@)x", ("", "://:[")),
]


def is_linear(pattern: re.Pattern[str], unit: tuple[str, str]) -> bool:
    """Whether the longer of two texts takes not many more steps than it is longer."""
    short = steps_of(pattern, text_of(*unit, SHORT)).steps
    try:
        steps_of(pattern, text_of(*unit, SHORT * TIMES), MOST * short)
    except TooManyStepsError:
        return False
    return True


@pytest.mark.parametrize(("form", "unit"), SUPERLINEAR)
def test_patterns_that_take_more_are_told_from_those_that_do_not(form: str, unit: tuple[str, str]) -> None:
    assert not is_linear(re.compile(form), unit)


@pytest.mark.parametrize(("kind", "pattern"), PATTERNS)
def test_steps_are_counted_of_what_re_does(kind: str, pattern: re.Pattern[str]) -> None:
    for sample in (*SAMPLES[kind], f" {SAMPLES[kind][0]} {SAMPLES[kind][-1]}\n"):
        assert steps_of(pattern, sample).spans == [match.span() for match in pattern.finditer(sample)]


@pytest.mark.parametrize(("kind", "pattern"), ALL)
def test_a_pattern_takes_steps_by_the_length_of_its_own_parts_repeated(kind: str, pattern: re.Pattern[str]) -> None:
    own = [("", sample[: len(sample) // part]) for sample in SAMPLES.get(kind, ()) for part in (1, 3)]
    for unit in (*own, *((begin, run) for _, begin in own[1:2] for run in " \\a=")):
        if unit[1]:
            assert is_linear(pattern, unit), unit


@pytest.mark.long
@pytest.mark.parametrize("pattern", [pattern for _, pattern in ALL])
def test_a_pattern_takes_steps_by_the_length_of_any_text(pattern: re.Pattern[str]) -> None:
    for unit in islice(hostile_units(), 0, None, 37):
        assert is_linear(pattern, unit), unit


def test_private_keys_are_looked_for_once_in_every_part() -> None:
    """The lines behind a begin are the key's, and so is a begin in one of them: otherwise each would be read again."""
    begin = "-----BEGIN PRIVATE KEY-----"
    text = begin + f"\nA: {begin}" * 1000
    assert [(found.start, found.end) for found in known_secrets(text)] == [(0, len(text))]
