"""Secrets written to a memory are masked, refused or reported, and never appear in a message."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, AgentMemoryService, Operation, OperationDenied
from agent_memory.conversation import Message
from agent_memory.filesystem import filesystem
from agent_memory.plugins import redaction
from agent_memory.plugins._secrets import KINDS, known_secrets
from agent_memory.plugins.redaction import _ESCAPE, LONGEST, RedactionPlugin, unescaped
from tests.plugins.secret_forms import SAMPLES
from tests.support import sizes
from tests.support.loops import looped
from tests.support.sizes import long_except

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2" * 9
SLACK = "xoxb-" + "123456789012-123456789012-" + "a" * 24
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
STRIPE = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcd\n-----END RSA PRIVATE KEY-----"
SECRETS = {"AWS Access Key": AWS, "GitHub Token": GITHUB, "Slack Token": SLACK, "JSON Web Token": JWT,
           "Stripe Access Key": STRIPE, "Private Key": PEM}  # fmt: skip


def memory(*args: object, **options: object) -> AgentMemory:
    plugin = RedactionPlugin(*args, **options)  # type: ignore[arg-type]
    return AgentMemoryService("memory://", plugins=[plugin]).agent("bob")


@looped(("kind", "secret"), SECRETS.items())
def test_a_secret_is_masked_and_its_surroundings_stay_unchanged(kind: str, secret: str) -> None:
    bob = memory()
    result = bob.write("a.md", f"before {secret}.\nafter “{secret}” more\n")
    masked = f"before [redacted: {kind}].\nafter “[redacted: {kind}]” more\n"
    assert bob.read("a.md") == masked
    assert result.size == len(masked.encode())
    bob.write("b.md", masked)
    assert bob.read("b.md") == masked


def test_secrets_are_counted_by_kind_and_overlapping_ones_once() -> None:
    count = RedactionPlugin().count_secrets
    text = f"{GITHUB}\n{AWS} and {AWS}\n[redacted: Slack Token] {json.dumps(json.dumps(PEM))}"
    assert count(text.encode() + b"\xff") == {"GitHub Token": 1, "AWS Access Key": 2, "Private Key": 1}
    assert count(f"https://ann:{GITHUB}@example.com".encode()) == {"Basic Auth Credentials": 1}
    assert count(b"nothing") == {}
    assert RedactionPlugin(ignore=["GitHub Token"]).count_secrets(text.encode())["GitHub Token"] == 0


def test_every_write_operation_is_filtered() -> None:
    bob = memory()
    bob.create("a.md", f"{AWS}\n")
    bob.append("a.md", f"{AWS}\n")
    bob.edit("a.md", lambda text: text + f"{AWS}\n")
    bob.append("a.md", f"{AWS}\n".encode())
    with filesystem(bob).open("b.md", "wb") as file:
        file.write(AWS.encode())
    assert bob.read("a.md") == "[redacted: AWS Access Key]\n" * 4
    assert AWS not in bob.read("b.md")


def test_the_password_of_a_url_is_masked() -> None:
    bob = memory()
    bob.write("a.md", "clone https://me:hunter2@example.com/x.git and https://example.com/me:x")
    masked = "clone https://me:[redacted: Basic Auth Credentials]@example.com/x.git and https://example.com/me:x"
    assert bob.read("a.md") == masked


PASSWORD = "[redacted: Basic Auth Credentials]"


@looped(
    ("url", "masked"),
    [
        ("postgres://u:p@ss@host/db", f"postgres://u:{PASSWORD}@host/db"),
        ("redis://:abc!def@host", f"redis://:{PASSWORD}@host"),
        ("https://me:${TOKEN}@host/x", "https://me:${TOKEN}@host/x"),
        ("http://host:8080/me@x", "http://host:8080/me@x"),
        ("postgres://u:$ecretpass@h/db", f"postgres://u:{PASSWORD}@h/db"),
        ("postgres://u:$PASSWORD@h/db", "postgres://u:$PASSWORD@h/db"),
        ("postgres://u:[password]@h, ***@x", "postgres://u:[password]@h, ***@x"),
        ('{"url":"http://localhost:8080","mail":"me@x.org"}', '{"url":"http://localhost:8080","mail":"me@x.org"}'),
        ("see http://a.de:80,me@x.org", "see http://a.de:80,me@x.org"),
        (f"postgres://u:{PASSWORD}hunter2@h/db", f"postgres://u:{PASSWORD}@h/db"),
        ("postgres://u:[redacted: x]hunter2@h/db", "postgres://u:[redacted: x]hunter2@h/db"),
    ],
)
def test_only_passwords_of_urls_are_masked(url: str, masked: str) -> None:
    bob = memory()
    bob.write("a.md", url)
    assert bob.read("a.md") == masked


@looped(
    "key",
    [
        PEM[:50],
        PEM.replace("RSA ", ""),
        PEM.replace("\n", "\\n"),
        f"# -----BEGIN PRIVATE KEY-----\n# {'a1B/' * 16}\n# {'c2D+' * 5}"[2:],
        PEM.replace("\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1),
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc=\n-----END PGP PRIVATE KEY BLOCK-----",
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/56wAAA\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
        "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nPrivate-Lines: 1\nAAAA\nPrivate-MAC: 0a1b",
        "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nAAAA",
    ],
)
def test_a_private_key_is_masked_completely_but_not_the_text_after_it(key: str) -> None:
    bob = memory()
    bob.write("a.md", f"key: {key}\nAnd then a sentence.\n")
    assert bob.read("a.md") == "key: [redacted: Private Key]\nAnd then a sentence.\n"


def test_a_mere_mention_of_a_key_masks_only_the_mention() -> None:
    bob = memory()
    bob.write("a.md", "It begins with -----BEGIN PRIVATE KEY----- and a line end.\nImportant notes follow.\n")
    assert bob.read("a.md") == "It begins with [redacted: Private Key] and a line end.\nImportant notes follow.\n"


@looped(
    ("text", "masked"),
    [
        (f'{{"aws_secret_access_key": "{"wJalrXUtnFEMI/K7MDENG/" + "b" * 18}", "b": 1}}',
         '{"aws_secret_access_key": "[redacted: AWS Access Key]", "b": 1}'),
        (f"see {AWS}/notes/today.md and", "see [redacted: AWS Access Key]/notes/today.md and"),
        ("//registry.npmjs.org/:_authToken=npm_" + "a1" * 18 + " # x",
         "//registry.npmjs.org/:_authToken=[redacted: NPM tokens] # x"),
    ],
)  # fmt: skip
def test_the_text_around_a_secret_stays_unchanged(text: str, masked: str) -> None:
    bob = memory()
    bob.write("a.md", text)
    assert bob.read("a.md") == masked


@looped("patterns", [{"digits": r"\d+"}, {"word": r"redacted|word"}, {"b": r"x(?P<secret>y)|zz"}])
def test_masking_again_changes_nothing(patterns: dict[str, str]) -> None:
    bob = memory(patterns=patterns)
    text = "a 12 word x xy " + " ".join(SECRETS.values())
    bob.write("a.md", text)
    once = bob.read("a.md")
    assert once != text
    bob.edit("a.md", lambda text: text + " ")
    assert bob.read("a.md") == once + " "


@looped(
    "part",
    ["://a", "-----BEGIN PRIVATE KEY-----", "-----BEGIN A ", "a:b@", "eyJ", "\n", "//x/:_a", "https://u:p@h/ ",
     "PuTTY-User-Key-File-2: \n", "[redacted: x] AKIA", "\\", "=eyJ", "://:[", "AKIA" * 5, "sk-",
     "[redacted: GitHub Token]",
     "-----BEGIN PRIVATE KEY-----\nA: ", "-----BEGIN PRIVATE KEY-----\n\t", "ghp_" + "a" * 36 + "\\"],
)  # fmt: skip
def test_redaction_does_not_take_quadratic_time(part: str) -> None:
    size = 200_000 if sizes.is_long else 20_000  # in quadratic time: minutes
    redaction = RedactionPlugin(patterns={"words": "(a|b)+c|[^x]+x"})
    operation = Operation(id="1", time=0.0, kind="write", agent=None, path="a.md")
    redaction.agent_memory_filter_content(operation, part.encode() * (size // len(part)))


@looped("begin", ["key", "-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\nA: ", "cl_key="])
def test_redaction_of_many_spaces_does_not_take_cubic_time(begin: str) -> None:
    operation = Operation(id="1", time=0.0, kind="write", agent=None, path="a.md")
    RedactionPlugin().agent_memory_filter_content(operation, f"{begin}{' ' * 200_000}!".encode())  # cubic: years


@looped(
    "text",
    ["", "an ordinary note\n- with 3 items\n", "commit 3f786850e387550fdab836ed7e6dc881de23001b", "10.0.0.1, 8.8.8.8",
     "https://example.com:8080/path", "password: see the safe", "日記"],
)  # fmt: skip
def test_ordinary_text_stays_unchanged(text: str) -> None:
    bob = memory()
    bob.write("a.md", text)
    assert bob.read("a.md") == text


@looped("mark", ["[redacted: {}]", "[redacted: x {}]", "[redacted: AWS Access Key]{}"])
def test_text_that_resembles_a_redaction_mark_hides_no_secret(mark: str) -> None:
    bob = memory()
    bob.write("a.md", mark.format(AWS))
    assert AWS not in bob.read("a.md")
    with pytest.raises(OperationDenied):
        memory("refuse").write("a.md", mark.format(AWS))


@looped("mark", ["[redacted: x]", "[redacted: Private Key]"])
def test_a_partly_masked_key_is_masked_completely(mark: str) -> None:
    bob = memory()
    bob.write("a.md", PEM.replace("abcd", mark))
    assert bob.read("a.md") == "[redacted: Private Key]"


@looped(("kind", "secret"), [*SECRETS.items(), ("Private Key", PEM.partition("\n-----END")[0])])
def test_masking_secrets_in_a_line_of_json_keeps_it_valid_json(kind: str, secret: str) -> None:
    bob = memory()
    text = f"first\n{secret}\nlast \u201cword\u201d \\"
    for line in (Message("user", text).to_line(), json.dumps({"content": json.dumps({"key": secret})}) + "\n"):
        bob.write("history.jsonl", line)
        kept = bob.read("history.jsonl")
        assert json.loads(kept).keys() == json.loads(line).keys()
        assert f"[redacted: {kind}]" in kept
        assert not any(part in kept for part in secret.split("\n") if part)


def test_a_match_without_the_secret_group_is_masked_completely() -> None:
    bob = memory(patterns={"pin": r"pin=(?P<secret>\d+)|code \d+"})
    bob.write("a.md", "pin=1234 code 9999")
    assert bob.read("a.md") == "pin=[redacted: pin] [redacted: pin]"


def test_secrets_in_binary_content_are_masked_and_other_bytes_stay_unchanged() -> None:
    bob = memory()
    bob.write("a.bin", b"\xff\x00" + AWS.encode() + b" \xe2\x82 \xed\xa0\x80")
    assert bob.read_bytes("a.bin") == b"\xff\x00[redacted: AWS Access Key] \xe2\x82 \xed\xa0\x80"
    bob.write("b.bin", bytes(range(256)))
    assert bob.read_bytes("b.bin") == bytes(range(256))
    with pytest.raises(OperationDenied):
        memory("refuse").write("a.bin", b"\xff" + AWS.encode())


def test_a_refused_secret_appears_in_no_message_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bob = memory("refuse")
    bob.write("a.md", "before")
    writes: list[Callable[[], object]] = [
        lambda: bob.write("a.md", AWS),
        lambda: bob.edit("a.md", lambda _: AWS),
        lambda: bob.append("b", AWS),
    ]
    for write in writes:
        with pytest.raises(OperationDenied, match="AWS Access Key") as refused:
            write()
        assert AWS not in str(refused.value)
    assert [entry.path for entry in bob.list()] == ["a.md"]
    assert bob.read("a.md") == "before"
    assert AWS not in caplog.text


def test_a_reported_secret_is_written_unchanged_and_its_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bob = memory("report")
    bob.write("a.md", f"{AWS} {GITHUB}")
    assert bob.read("a.md") == f"{AWS} {GITHUB}"
    assert "secrets agent=bob path='a.md' kinds=AWS Access Key, GitHub Token" in caplog.text
    assert AWS not in caplog.text


def test_custom_patterns_are_masked_and_ignored_kinds_are_not() -> None:
    patterns = {"badge": r"badge-\d+", "pin": r"PIN: (?P<secret>\d{4})"}
    bob = memory(patterns=patterns, ignore=["AWS Access Key"])
    bob.write("a.md", f"badge-42, PIN: 1234, {AWS}")
    assert bob.read("a.md") == f"[redacted: badge], PIN: [redacted: pin], {AWS}"


@looped(
    ("wrong", "told"),
    [
        ({"action": "hide"}, "action must be one of"),
        ({"patterns": {"x": "("}}, "x' is not a regular expression"),
        ({"patterns": {"x": 5}}, "x' must be a regular expression"),
        ({"patterns": {"x": b"x"}}, "x' must be a regular expression"),
        ({"patterns": ["x"]}, "patterns must be a table of regular expressions"),
        ({"patterns": {"a]": "x"}}, "a kind is one line"),
        ({"patterns": {"": "x"}}, "a kind is one line"),
        ({"patterns": {"x": ""}}, "'x' matches the empty text"),
        ({"patterns": {"x": "$"}}, "'x' matches the empty text"),
        ({"patterns": {"x": r"\d*"}}, "'x' matches the empty text"),
        ({"ignore": "x"}, "list of kinds"),
        ({"ignore": [5]}, "list of kinds"),
        (
            {"ignore": ["aws access key"]},
            "unknown kinds: {'aws access key'}; the known kinds are AWS Access Key, Artifactory",
        ),
        ({"ignore": ["pin"], "patterns": {"badge": "x"}}, "unknown kinds"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        RedactionPlugin(**wrong)  # type: ignore[arg-type]


@looped(("kind", "sample"), [(kind, each) for kind, all_ in SAMPLES.items() for each in all_])
def test_every_known_form_of_a_credential_is_found(kind: str, sample: str) -> None:
    assert kind in {found.kind for found in known_secrets(f"see {sample} x")}
    bob = memory()
    for around in ("{}\n", "see {} and\n", json.dumps({"a": "{}"})):
        bob.write("a.md", around.replace("{}", sample))
        assert "[redacted: " in bob.read("a.md")
        assert sample not in bob.read("a.md")


QUOTED = [
    name + between + quote + value + quote
    for names, value in (
        (("aws_secret_access_key",), "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        (("softlayer_api_key",), "0123456789abcdef" * 4),
        (("cloudant_password",), "0123456789abcdef" * 4),
        (("ibm_api_key", "password"), "a1B_" * 11),
        (("secret_access_key",), "0123456789abcdef" * 3),
    )
    for name in names
    for between in (" = ", ": ")
    for quote in "\"'"
]
ALL_SAMPLES = [*(each for all_ in SAMPLES.values() for each in all_), *QUOTED]


def _slashed(text: str) -> str:
    return json.dumps(text).replace("/", "\\/")


def _by_number(text: str) -> str:
    return '"' + "".join(f"\\u{ord(character):04x}" for character in text) + '"'


NESTINGS: dict[str, list[Callable[[str], str]]] = {
    "JSON": [json.dumps],
    "JSON in JSON": [json.dumps] * 2,
    "JSON in JSON in JSON": [json.dumps] * 3,
    "six times": [json.dumps] * 6,
    "slashes escaped": [_slashed],
    "by number": [_by_number],
    "by number in JSON": [_by_number, json.dumps],
    "history": [lambda text: Message("user", text).to_line()],
    "JSON in history": [json.dumps, lambda text: Message("user", text).to_line()],
}


@long_except(("JSON", "JSON in history"), "nesting", {name: name for name in NESTINGS})
@pytest.mark.parametrize("sample", ALL_SAMPLES)
def test_a_secret_masked_in_plain_text_is_masked_in_json_too(sample: str, nesting: str) -> None:
    bob = memory()
    note = f"see {sample} x\nand \u00e9"
    bob.write("a.md", note)
    secrets = {note[found.start : found.end] for found in known_secrets(note)}
    assert not any(secret in bob.read("a.md") for secret in secrets)
    text = note
    for nest in NESTINGS[nesting]:
        text = nest(text)
    bob.write("history.jsonl", text)
    kept = bob.read("history.jsonl")
    for _ in NESTINGS[nesting]:
        kept = json.loads(kept)
        kept = kept["content"] if isinstance(kept, dict) else kept
    assert kept.startswith("see ")
    assert kept.endswith("and \u00e9")
    assert "[redacted: " in kept
    assert not any(secret in kept for secret in secrets)


def test_secrets_are_found_behind_json_escapes() -> None:
    bob = memory()
    bob.write(
        "a.json", '{"aws_secret_key":"wJalrXUtnFEMI\\/K7MDENG\\/bPxRfiCYEXAMPLEKEY","b":"\\u0041KIAIOSFODNN7EXAMPLE"}'
    )
    assert bob.read("a.json") == '{"aws_secret_key":"[redacted: AWS Access Key]","b":"[redacted: AWS Access Key]"}'


@sizes.examples(2000)
@given(st.text(st.sampled_from('\\\\\\u005c0041nrtbf"/xé\ue000\ue001\n')))
def test_each_json_escape_is_decoded_once_from_left_to_right(text: str) -> None:
    meanings = {"n": "\n", "r": "\n", "t": "\t", "b": " ", "f": " "}

    def meaning(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] else meanings.get(escape[2], escape[2])

    assert unescaped(text) == _ESCAPE.sub(meaning, text)


def test_a_list_after_a_mention_of_a_key_stays_unchanged() -> None:
    bob = memory()
    bob.write("a.md", "-----BEGIN PRIVATE KEY-----\n- milk\n- eggs\n# Title\n| a |\n")
    assert bob.read("a.md") == "[redacted: Private Key]\n- milk\n- eggs\n# Title\n| a |\n"


def test_all_parts_of_a_json_web_token_are_masked() -> None:
    bob = memory()
    for token in ("eyJa.b.c.d.e-_", "eyJa..b.c.d", "eyJa.b.c", "eyJa.b"):
        bob.write("a.md", f"see {token}. And")
        assert bob.read("a.md") == "see [redacted: JSON Web Token]. And"


def test_a_key_without_an_end_marker_ends_with_its_json_string() -> None:
    bob = memory()
    begin = "-----BEGIN RSA PRIVATE KEY-----\n"
    for rest in ("MIIE", "A: b", 'Comment: "x y"\nMIIE', "A: "):
        text = json.dumps({"a": begin + rest, "b": "MIIE"})
        bob.write("a.json", text)
        assert json.loads(bob.read("a.json")) == {"a": "[redacted: Private Key]", "b": "MIIE"}


def detectors() -> list[tuple[str, re.Pattern[str]]]:
    """The patterns of detect-secrets, except for the kinds that this package defines itself."""
    found: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return [
        (kind, pattern)
        for kind, detector in sorted(found.items())
        if issubclass(detector, RegexBasedDetector) and kind not in OWN_FORMS
        for pattern in detector().denylist
    ]


OWN_FORMS = {"Public IP (ipv4)", "Private Key", "Basic Auth Credentials", "JSON Web Token", "NPM tokens"}
DETECTORS = detectors()


def test_redaction_knows_every_kind_of_detect_secrets() -> None:
    assert {kind for kind, _ in DETECTORS} | OWN_FORMS - {"Public IP (ipv4)"} == KINDS
    assert len(DETECTORS) == 34, "detect-secrets knows other forms than before"


@pytest.mark.parametrize(("kind", "pattern"), DETECTORS)
@given(st.data())
@settings(sizes.examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_redaction_finds_every_secret_that_detect_secrets_finds(
    kind: str, pattern: re.Pattern[str], data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(pattern))
    ours = {place for found in known_secrets(text) if found.kind == kind for place in range(found.start, found.end)}
    for match in pattern.finditer(text):
        start, end = match.span(1) if pattern.groups == 1 and len(match[1] or "") >= 16 else match.span()
        assert {
            place for place in range(start, end) if not text[place].isspace() and text[place] not in "\"'=:"
        } <= ours


@given(st.integers(0, 5000), st.sampled_from(sorted(SECRETS)), st.sampled_from('x \n\\"\u00e9'))
@sizes.examples(60)
def test_a_secret_is_found_at_any_position(before: int, kind: str, filling: str) -> None:
    bob = memory(patterns={"badge": r"badge-\d+"})
    bob.write("a.md", f"{filling * before} {SECRETS[kind]} badge-{'7' * 300} {filling * (5000 - before)}")
    assert f" [redacted: {kind}] [redacted: badge] " in bob.read("a.md")


class Recorder:
    """A pattern that records the spans of its searches."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self.spans: list[tuple[int, int]] = []

    def finditer(self, text: str, at: int, end: int) -> Iterator[re.Match[str]]:
        self.spans.append((at, end))
        return self._pattern.finditer(text, at, end)


@given(st.lists(st.integers(1, LONGEST - 1)), st.integers(0, 3000))
@settings(deadline=None)
def test_a_custom_pattern_searched_in_windows_finds_the_same_as_in_the_whole_text(sizes: list[int], gap: int) -> None:
    text = "".join(f"b{'a' * (size - 1)}{'.' * (gap % size)}" for size in sizes) + "." * gap
    recorder = Recorder("ba*")
    found = [match.span() for window in redaction._windows(text, recorder) for match in window.found]  # type: ignore[arg-type]
    assert found == [match.span() for match in re.finditer("ba*", text)]
    assert all(end - at <= 2 * LONGEST for at, end in recorder.spans)
    assert len(recorder.spans) <= len(text) // LONGEST + 1


@pytest.mark.parametrize("size", [LONGEST, 2 * LONGEST, 10 * LONGEST])
def test_a_match_that_may_continue_after_its_window_is_refused_not_partly_masked(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = f"{'.' * (LONGEST - 1)}badge-{'7' * size}{'.' * 3000}"
    patterns = {"badge": r"badge-\d+"}
    for action in ("mask", "refuse"):
        with pytest.raises(OperationDenied, match="badge"):
            memory(action, patterns=patterns).write("a.md", text)
    memory("report", patterns=patterns).write("a.md", text)
    assert "kinds=badge" in caplog.text
    memory(patterns=patterns, ignore=["badge"]).write("a.md", text)
