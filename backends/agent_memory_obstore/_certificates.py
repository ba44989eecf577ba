"""The certificates of authorities that obstore reads from variables and an option; it does not say which are bad."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_OPTION: Final = "root_certificate"


def unusable_certificates(options: Mapping[str, Any] | None = None) -> str:
    """The option or variable that gives no certificate, with advice; "" if there is none.

    ``options``: those of obstore's client; None to look at the variables only.
    """
    given = next((value for name, value in (options or {}).items() if name.lower() == _OPTION), None)
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if isinstance(given, str) and not _loads(lambda context: context.load_verify_locations(cadata=given)):
        return f"option client_options.{_OPTION} is no certificate in PEM; give the text of its file"
    if file and not _loads(lambda context: context.load_verify_locations(file)):
        return "the variable SSL_CERT_FILE names no file with a certificate in PEM; correct it"
    if directory and not all(Path(each).is_dir() for each in directory.split(os.pathsep)):
        return "the variable SSL_CERT_DIR names no directory; correct it"
    return ""


def _loads(load: Callable[[ssl.SSLContext], None]) -> bool:
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except (OSError, ValueError):
        return False
    return True
