"""Azurite, Microsoft's emulator of Azure storage, installed by npm for the tests that need it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.support import npm
from tests.support.servers import free_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURITE = "azurite@3.37.0"
_SECONDS_TO_START = 60


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """The endpoint of an in-memory emulator with the container ``memories``."""
    npm.install(AZURITE, directory)
    port = free_port()
    script = directory / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    log = directory / "log"
    with log.open("wb") as output:
        server = subprocess.Popen([npm.NODE, script, *options], stdout=output, stderr=subprocess.STDOUT, cwd=directory)
    try:
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _make_container(endpoint, "memories", log)
        yield endpoint
    finally:
        server.terminate()
        server.wait(10)


def _make_container(endpoint: str, name: str, log: Path) -> None:
    """Create the container as soon as the server answers."""
    deadline = time.monotonic() + _SECONDS_TO_START
    while True:
        date, version = formatdate(usegmt=True), "2021-08-06"
        resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": version, "Content-Length": "0"}
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
        try:
            urllib.request.urlopen(request, timeout=5).close()
            return
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Azurite does not start:\n{log.read_text()}") from None
            time.sleep(0.1)
