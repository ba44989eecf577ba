"""The known forms of credentials, as regular expressions of linear time.

The forms are those of detect-secrets 1.5; a test generates examples of them. The expressions of detect-secrets are not
used: one of them takes time cubic in a run of blanks, and each new release could bring others.

The patterns are linear because of two rules; a test checks them by counting the steps of a matcher. First, an unbounded
repeat is possessive, or no character after it can be part of it: it is matched once from each start. Second, the text
that an unbounded repeat matches contains no other start of the same pattern, because of a lookbehind or of the form.
Only quantifiers of single characters are possessive: before Python 3.11.5 one of a group can match wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple


class Found(NamedTuple):
    """The position of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


_MORE: Final = r"[A-Za-z0-9_+=-]*+"  # characters that follow a token without a gap count as part of it
_WORD: Final = r"[a-zA-Z\d_-]"
# Patterns begin with a character or a set, with the lookbehind after it: `re` skips quickly to such a beginning.
_KEY: Final = r"[kK\u212apPtT](?:(?<![^\W_].)|(?i:(?<=api.)|(?<=ibm.)|(?<=iam.)|(?<=cloud.)))"
_KEYS_REST: Final = r"(?:(?<=k)ey|(?<=p)(?:wd|assword|ass)|(?<=t)oken)"
_IS: Final = r"[\"']?\]?(?: *+(?:=>|::|:=|=|:) *+| ++)[\"']?"
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    "Artifactory Credentials": (
        r"AKC(?<![^\s=:\"]AKC)[a-zA-Z0-9]{10,}+(?=[\s\"]|\Z)",
        r"AP(?<![^\s=:\"]AP)[\dA-F][a-zA-Z0-9]{8,}+(?=[\s\"]|\Z)",
    ),
    "AWS Access Key": (
        rf"A(?:3T[A-Z0-9]|BIA|CCA|KIA|SIA)[0-9A-Z]{{16}}{_MORE}",
        r"[aA](?i:ws[^\n]{0,20}?(?:key|pw|pass|token)[^\n]{0,24}?[\"'](?P<secret>[0-9a-z/+]{40})[\"'])",
    ),
    "Azure Storage Account access key": (rf"AccountKey=[a-zA-Z0-9+/=]{{88}}{_MORE}",),
    "Basic Auth Credentials": (
        r"://[^\s/:@\"'<>]*+:(?!\d{1,5}[,;)'\]&]|(?:\$[A-Z_][A-Z0-9_]*+|%[A-Za-z_]++%|\*++|\[[^\]\s/]*+\])@)"
        r"(?P<secret>[^\s/\"<>{}]+)@",  # braces, angles: placeholders; a short number: a port
    ),
    "Cloudant Credentials": (
        rf"[cC](?<!\w.)(?i:l(?:oudant|ou)?[_-]?(?:api)?(?:key|pwd|password|pass|pw|token){_IS}"
        r"(?P<secret>[0-9a-f]{64}|[a-z]{24}))",
        r"[hH](?i:ttps?://[\w-]++:(?P<secret>[0-9a-f]{64}|[a-z]{24})@[\w-]++\.cloudant\.com)",
    ),
    "Discord Bot Token": (
        rf"{_WORD}(?<!{_WORD}.){_WORD}{{23,}}+"
        rf"(?:(?<=[MNO]{_WORD}{{23}})|(?<=[MNO]{_WORD}{{24}})|(?<=[MNO]{_WORD}{{25}}))"
        rf"\.{_WORD}{{6}}\.{_WORD}{{27}}{_MORE}",
    ),
    "GitHub Token": (rf"gh[pousr]_[A-Za-z0-9_]{{36}}{_MORE}",),
    "GitLab Token": (
        rf"gl(?:(?:pat|dt|ft|soat|rt|cbt)-[A-Za-z0-9_-]{{20}}|imt-[A-Za-z0-9_-]{{25}}|ptt-[A-Za-z0-9_-]{{40}}"
        rf"|agent-[A-Za-z0-9_-]{{50}}|oas-[A-Za-z0-9_-]{{64}}){_MORE}",
        rf"GR1348941[A-Za-z0-9_-]{{20}}{_MORE}",
    ),
    "IBM Cloud IAM Key": (
        rf"{_KEY}(?i:{_KEYS_REST}{_IS}(?P<secret>[a-z0-9_-]{{44}}(?![a-z0-9_-])))",  # any key, as in detect-secrets
    ),
    "IBM COS HMAC Credentials": (
        rf"[sS\u017f](?i:ecret[_-]?(?:access)?[_-]?key{_IS}(?P<secret>[a-f0-9]{{48}}(?![a-f0-9])))",
    ),
    "JSON Web Token": (  # three parts; or five if encrypted, and then the second may be empty
        r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]++=*+\."
        r"(?:[A-Za-z0-9_-]++=*+(?:\.[A-Za-z0-9_+/=-]++){0,3}|(?:\.[A-Za-z0-9_+/=-]++){3})",
    ),
    "Mailchimp Access Key": (rf"[0-9a-z](?<![0-9a-z].)[0-9a-z]{{31,}}+-us[0-9]{_MORE}",),
    "NPM tokens": (r":_authToken[ \t]*+=[ \t]*+[\"']?(?P<secret>[A-Za-z0-9_-]{16,}+)",),
    "OpenAI Token": (
        r"[A-Za-z0-9_-](?<![A-Za-z0-9_-].)[A-Za-z0-9_-]*?T3BlbkFJ(?<=[A-Za-z0-9]{20}T3BlbkFJ)[A-Za-z0-9]{20}" + _MORE,
    ),
    "PyPI Token": (rf"pypi-(?:AgEIcHlwaS5vcmc|AgENdGVzdC5weXBpLm9yZw)[A-Za-z0-9_-]{{70}}{_MORE}",),
    "SendGrid API Key": (rf"SG\.[a-zA-Z0-9_-]{{22}}\.[a-zA-Z0-9_-]{{43}}{_MORE}",),
    "Slack Token": (
        r"[xX](?i:ox[abposr]-\d++-[a-z\d-][a-z\d_+=-]*+)",
        r"[hH](?i:ttps://hooks\.slack\.com/services/T[a-z0-9_]++/B[a-z0-9_]++/[a-z0-9_+=-]++)",
    ),
    "SoftLayer Credentials": (
        rf"[sS\u017f](?<!\w.)(?i:(?:oftlayer|l)[_-]?(?:api)?[_-]?(?:key|pwd|password|pass|token){_IS}"
        r"(?P<secret>[a-z0-9]{64}))",
        r"[hH](?i:ttps?://api.softlayer.com/soap/v3(?:.1)?/(?P<secret>[a-z0-9]{64}))",
    ),
    "Square OAuth Secret": (rf"sq0csp-[0-9A-Za-z\\_-]{{43}}{_MORE}",),
    "Stripe Access Key": (rf"[rs]k_live_[0-9a-zA-Z]{{24}}{_MORE}",),
    "Telegram Bot Token": (rf"[\d](?<!\d.)\d{{7,}}+:[0-9A-Za-z_-]{{35}}{_MORE}",),
    "Twilio API Key": (rf"(?:AC|SK)[a-z0-9]{{32}}{_MORE}",),
}
PATTERNS: Final = tuple((kind, re.compile(form)) for kind, forms in _FORMS.items() for form in forms)
"""The patterns of all kinds except private keys; if a pattern has a group ``secret``, only that group is the secret."""

LINE_OF_KEY: Final = re.compile(
    r"[ \t]*+\r?\n(?:[ \t]*+[#|*-][ \t]++[A-Za-z0-9+/=]{16,}+"
    r"|[ \t>]*+(?:[A-Za-z][A-Za-z-]*+: (?:\"[^\r\n\"]*+\"|[^\r\n\"]*+)|[A-Za-z0-9+/=]++)?)"
    r"(?=[ \t]*+(?:\r?\n|[\"']|\Z))"
)
"""A line end and the next line, if the line can be part of a private key: base64, a header or nothing, up to a quote.

After the mark of a comment or a list, base64 must have at least 16 characters: a shorter text may be a word.
"""


class _KeyForm(NamedTuple):
    """The begin and end of a private key, and the begin of any key: a key must end before the next one begins."""

    begin: re.Pattern[str]
    any_begin: str
    end: re.Pattern[str]


_PRIVATE_KEY: Final = "Private Key"
KEY_FORMS: Final = (
    _KeyForm(
        re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
        "-----BEGIN",
        re.compile(r"-----END [A-Z0-9 ]*+-----"),
    ),
    _KeyForm(
        re.compile("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"),
        "---- BEGIN",
        re.compile("---- END SSH2 ENCRYPTED PRIVATE KEY ----"),
    ),
    _KeyForm(
        re.compile(r"PuTTY-User-Key-File-\d:[^\r\n\"\\]*+"), "PuTTY-User", re.compile(r"Private-MAC: [0-9a-f]++")
    ),
)  # fmt: skip
KINDS: Final = frozenset({*_FORMS, _PRIVATE_KEY})
"""The known kinds of secrets."""


def known_secrets(text: str) -> Iterator[Found]:
    """The credentials of known forms in a text, grouped by kind; they may overlap."""
    for kind, pattern in PATTERNS:
        yield from matches(kind, pattern.finditer(text))
    for form in KEY_FORMS:
        yield from _keys(form, text)


def matches(kind: str, found: Iterable[re.Match[str]]) -> Iterator[Found]:
    """The secrets in the matches of a pattern: the group ``secret`` if it matched, else the whole match."""
    for match in found:
        start, end = match.span("secret") if "secret" in match.re.groupindex else (-1, -1)
        if start < 0:
            start, end = match.span()
        yield Found(start, end, kind)


def _keys(form: _KeyForm, text: str) -> Iterator[Found]:
    """The private keys of one form; a key without an end extends to the last line that can be part of a key."""
    begin = form.begin.search(text)
    while begin:
        next_begin = text.find(form.any_begin, begin.end())
        end = form.end.search(text, begin.end(), len(text) if next_begin < 0 else next_begin)
        ends_at = end.end() if end else _end_of_lines(text, begin.end())
        yield Found(begin.start(), ends_at, _PRIVATE_KEY)
        begin = form.begin.search(text, ends_at)


def _end_of_lines(text: str, at: int) -> int:
    while line := LINE_OF_KEY.match(text, at):
        at = line.end()
    return at
