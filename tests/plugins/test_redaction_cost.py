"""The steps of every redaction pattern grow linearly with the text; steps are counted, not timed."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from agent_memory.plugins._secrets import KEY_FORMS, LINE_OF_KEY, PATTERNS, known_secrets
from agent_memory.plugins.redaction import _DEEP_ESCAPE, _ESCAPE
from tests.plugins.backtracking import TooManyStepsError, steps_of
from tests.plugins.secret_forms import SAMPLES, hostile_units, text_of
from tests.support.loops import looped

SHORT, TIMES = 200, 6
MOST = 2 * TIMES
"""The allowed factor of steps for a text that is ``TIMES`` as long; quadratic growth gives a factor of 36."""
ALL = [
    *PATTERNS,
    *(("Private Key", pattern) for form in KEY_FORMS for pattern in (form.begin, form.end)),
    ("Private Key", re.compile("-----" + LINE_OF_KEY.pattern)),  # matched after a begin line, not searched
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
    """Whether the steps grow about as much as the length of the text."""
    short = steps_of(pattern, text_of(*unit, SHORT)).steps
    try:
        steps_of(pattern, text_of(*unit, SHORT * TIMES), MOST * short)
    except TooManyStepsError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize(("form", "unit"), SUPERLINEAR)
def test_a_superlinear_pattern_is_detected(form: str, unit: tuple[str, str]) -> None:
    assert not is_linear(re.compile(form), unit)


@looped(("kind", "pattern"), PATTERNS)
def test_the_step_counter_finds_the_same_matches_as_re(kind: str, pattern: re.Pattern[str]) -> None:
    for sample in (*SAMPLES[kind], f" {SAMPLES[kind][0]} {SAMPLES[kind][-1]}\n"):
        assert steps_of(pattern, sample).spans == [match.span() for match in pattern.finditer(sample)]


@looped(("kind", "pattern"), ALL)
def test_a_patterns_steps_are_linear_for_repeated_parts_of_its_own_samples(kind: str, pattern: re.Pattern[str]) -> None:
    own = [("", sample[: len(sample) // part]) for sample in SAMPLES.get(kind, ()) for part in (1, 3)]
    for unit in (*own, *((begin, run) for _, begin in own[1:2] for run in " \\a=")):
        if unit[1]:
            assert is_linear(pattern, unit), unit


@pytest.mark.long
@pytest.mark.parametrize("pattern", [pattern for _, pattern in ALL])
def test_a_patterns_steps_are_linear_for_any_hostile_text(pattern: re.Pattern[str]) -> None:
    for unit in islice(hostile_units(), 0, None, 37):
        assert is_linear(pattern, unit), unit


def test_each_part_of_a_text_is_searched_for_private_keys_only_once() -> None:
    """A begin marker within the lines of a key belongs to that key; otherwise each line would be read again."""
    begin = "-----BEGIN PRIVATE KEY-----"
    text = begin + f"\nA: {begin}" * 1000
    assert [(found.start, found.end) for found in known_secrets(text)] == [(0, len(text))]
