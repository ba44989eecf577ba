"""Values of options with which a request of obstore would panic: refused, with the name of the option."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

_BUCKET: Final = re.compile(r"[A-Za-z0-9._:$/-]+")
_PRINTABLE: Final = re.compile(r"[ -~]*")
_FREE: Final = ("certificate", "file")
"""The ends of the names of options that no request contains: certificates, and files of the host."""
_MANY_DIGITS: Final = re.compile(r"\d{10}")
_TIMES: Final = ("timeout", "interval")
"""The ends of the names of options that are times."""
_FRAME_SIZE: Final = "http2_max_frame_size"
_FRAME_SIZES: Final = range(1 << 14, 1 << 24)
_VARIABLES: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_SESSION_TOKEN": "session_token",
    "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
    "AZURE_STORAGE_TOKEN": "token",
}
"""The variables that a request contains in a header, with the option that replaces each."""


def require_bucket(bucket: str) -> None:
    """Raise `ValueError` for a name that obstore cannot put into the URL of a request."""
    if not _BUCKET.fullmatch(bucket):
        raise ValueError("obstore cannot send this name of a bucket: it may have ASCII letters, digits and . - _ : $ /")


def require_options(options: Mapping[str, Any]) -> None:
    """Raise for a value with which requests would panic.

    Raises:
        TypeError: an option has a value of another type than those of obstore.
        ValueError: a text has a character that is not printable ASCII, or a number is out of range.
    """
    for name, value in _flat(options):
        if isinstance(value, str):
            _require_text(name, value)
        elif not isinstance(value, bool | timedelta) and not callable(value):
            raise TypeError(f"option {name}: a text, or true or false, not {type(value).__name__}")


def require_variables(config: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a variable of the environment with which requests would panic.

    ``config``: the options as obstore normalized them; a variable that an option replaces is not used.
    """
    for variable, option in _VARIABLES.items():
        if option not in config:
            _require_printable(f"variable {variable}", os.environ.get(variable, ""))


def options_with(options: Mapping[str, Any], message: str) -> str:
    """The names of the options whose value a message of obstore quotes, in brackets; empty if there are none."""
    names = [name for name, value in _flat(options) if f'"{value}"' in message]
    return f" (option {', '.join(names)})" if names else ""


def _flat(options: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if not isinstance(name, str):
            raise TypeError(f"option {above}{name!r}: the name of an option is a text")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _require_text(name: str, value: str) -> None:
    end = name.lower()
    if end.endswith(_TIMES) and _MANY_DIGITS.search(value):
        raise ValueError(f"option {name}: a number in a time has at most 9 digits")
    if end.endswith(_FRAME_SIZE) and not (value.isdecimal() and int(value) in _FRAME_SIZES):
        raise ValueError(f"option {name}: a number from {_FRAME_SIZES[0]} to {_FRAME_SIZES[-1]}, as text")
    if not end.endswith(_FREE):
        _require_printable(f"option {name}", value)


def _require_printable(source: str, value: str) -> None:
    if not _PRINTABLE.fullmatch(value):
        raise ValueError(f"{source}: only printable ASCII characters are allowed, so no line end; the value has others")
