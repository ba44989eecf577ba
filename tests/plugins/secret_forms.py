"""Examples of every known form of a credential, and texts made of their parts that make a search expensive."""

from __future__ import annotations

from collections.abc import Iterator

_HEX, _LETTERS = "0123456789abcdef", "abcdefghijklmnopqrstuvwxyz"
SAMPLES: dict[str, tuple[str, ...]] = {
    "Artifactory Credentials": (" AKC" + "a1B2" * 4 + " ", '"APA' + "b2C3" * 3 + '"'),
    "AWS Access Key": ("AKIA" + "IOSFODNN7EXAMPLE", "aws_secret_key = '" + "aB3/" * 10 + "'", "A3TX" + "B2" * 8),
    "Azure Storage Account access key": ("AccountKey=" + "aB3+" * 22,),
    "Basic Auth Credentials": ("https://me:hunter2@example.com", "://:[pass@", "://u:%A_%x@", "://u:$A_*@"),
    "Cloudant Credentials": (
        "cloudant_apikey :=  '" + _HEX * 4 + "'",
        'cl-password"]: ' + _LETTERS[:24],
        "https://me:" + _HEX * 4 + "@me.cloudant.com",
    ),
    "Discord Bot Token": ("M" + "aB3_" * 6 + ".aB3_-x." + "a1B" * 9,),
    "GitHub Token": ("ghp_" + "a1B2" * 9, "ghs_" + "A" * 36),
    "GitLab Token": (
        "glpat-" + "a1B_-" * 4,
        "GR1348941" + "a1B2-" * 4,
        "glcbt-0f_" + "a1B2-" * 4,
        "glimt-" + "a1B2-" * 5,
        "glptt-" + "a1B2-" * 8,
        "glagent-" + "a1B2-" * 12,
        "gloas-" + "a1B2" * 16,
    ),
    "IBM Cloud IAM Key": ("ibm_cloud_iam_api_key = '" + "a1B_" * 11, "password  " + "a1B-" * 11, '"key":"' + "b" * 44),
    "IBM COS HMAC Credentials": ("ibm_cos_hmac_secret_access_key => '" + _HEX * 3, "secret-key:" + "f" * 48),
    "JSON Web Token": ("eyJhbGci.eyJzdWIi.dozjgNry", "eyJa==.b==.c/+=", "eyJa.b.c.d.e-_", "eyJa..b.c.d"),
    "Mailchimp Access Key": (_HEX * 2 + "-us12",),
    "NPM tokens": (
        "//registry.npmjs.org/:_authToken=  npm_" + "a1" * 18,
        "//registry.npmjs.org/:_authToken = npm_" + "b2" * 18,
        '//registry.npmjs.org/:_authToken="npm_' + "c3" * 18,
    ),
    "OpenAI Token": ("sk-proj-" + "a1B2" * 5 + "T3BlbkFJ" + "a1B2" * 5,),
    "Private Key": (
        "-----BEGIN RSA PRIVATE KEY-----\nA: b\n\nMIIE\n> \n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n abc=\n",
        *(f"-----BEGIN PRIVATE KEY-----\n{mark} {'a1B/' * 16}\n{mark} {'c2D+' * 5}" for mark in ("#", "  -", "|", "*")),
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nP2/5\n---- END SSH2 ENCRYPTED PRIVATE KEY ----",
        "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nAAAA\nPrivate-MAC: 0a1b",
    ),
    "PyPI Token": ("pypi-AgEIcHlwaS5vcmc" + "a1B_-" * 14, "pypi-AgENdGVzdC5weXBpLm9yZw" + "a1B_-" * 14),
    "SendGrid API Key": ("SG." + "a1" * 11 + "." + "a-_" * 14 + "a",),
    "Slack Token": ("xoxb-123456789012-123456789012-" + "a" * 24, "https://hooks.slack.com/services/T0_a/B0_b/a1B2"),
    "SoftLayer Credentials": (
        "softlayer_api_key => '" + _HEX * 4,
        "https://api.softlayer.com/soap/v3.1/" + _HEX * 4,
    ),
    "Square OAuth Secret": ("sq0csp-" + "a\\-_" * 10 + "a1B",),
    "Stripe Access Key": ("sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",),
    "Telegram Bot Token": ("123456789:" + "a1B_-" * 7,),
    "Twilio API Key": ("AC" + _HEX * 2, "SK" + "z9" * 16),
}
"""Secrets by kind, with the text that must surround them."""
RUNS = tuple(" \t\n\r\\\"'aAzZ0-_=:./@[]%$*>+M\u00e9\U0001f600")
_PIECES = (
    "key ",
    "key=",
    "A ",
    "A: ",
    "\nA: b",
    "\n ",
    "\\n",
    '"',
    "aws key '",
    "eyJa.",
    "=eyJ",
    "1-",
    "://",
    ":[",
    "a:",
)
_REPEATED = 16


def hostile_units() -> dict[tuple[str, str], None]:
    """Pairs of a beginning and a unit: the beginning followed by many units may make a search expensive."""
    return dict.fromkeys(_units())


def _units() -> Iterator[tuple[str, str]]:
    yield from (("", run) for run in (*RUNS, *_PIECES))
    for sample in (sample for samples in SAMPLES.values() for sample in samples):
        lengths = {*range(1, _REPEATED), len(sample) // 2, len(sample) - 1, len(sample)}
        yield from (("", sample[:length]) for length in sorted(lengths))
        for begin in (sample[: len(sample) // 3], sample[: len(sample) // 2], sample[:-1]):
            yield from ((begin, run) for run in RUNS)
            yield from (("", begin + run * _REPEATED) for run in RUNS)


def text_of(begin: str, unit: str, length: int) -> str:
    """A text of about the given length, with an end that makes the begun match fail."""
    return begin + unit * max(1, (length - len(begin)) // len(unit)) + "!"
