"""A package index for one project: it serves the built files, and redirects all other projects to the index of pip.

pip has no other index while a release runs: a project of the same name elsewhere cannot be installed, because pip would
choose between two indexes by the version alone.
"""

from __future__ import annotations

import ast
import hashlib
import html
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from scripts.releasing.commands import HOST, ReleaseError

_KEPT: Final = ("cert", "client-cert", "default-timeout", "proxy", "retries", "timeout", "trusted-host")
"""The settings of pip that say how the index is reached; those that name indexes or files are left out."""


class Answer(NamedTuple):
    """An answer over HTTP; with a location it is a redirect."""

    status: int
    body: bytes = b""
    location: str = ""


def normalized(name: str) -> str:
    """Return the one spelling of a project's name that an index knows."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project_page(files: Mapping[str, bytes], requires_python: str) -> bytes:
    """Return the page of a project: a link to each file, with its hash."""
    python = html.escape(requires_python)
    links = (
        f'<a href="/files/{name}#sha256={hashlib.sha256(data).hexdigest()}" data-requires-python="{python}">{name}</a>'
        for name, data in files.items()
    )
    return f"<!DOCTYPE html><html><body>{'<br>'.join(links)}</body></html>".encode()


class Index(NamedTuple):
    """What the index answers.

    Attributes:
        project: the normalized name of the project that it serves.
        requires_python: the versions of Python that fit all files.
        elsewhere: the URL of the index that has the other projects.
        files: the served files by their names; without files the project is unknown.
    """

    project: str
    requires_python: str
    elsewhere: str
    files: dict[str, bytes]

    def answer(self, path: str) -> Answer:
        """Return the answer to a GET of a path."""
        match unquote(urlsplit(path).path).strip("/").split("/"):
            case ["simple", name] if normalized(name) == self.project:
                return Answer(200, project_page(self.files, self.requires_python)) if self.files else Answer(404)
            case ["simple", name] if re.fullmatch(r"[\w.-]+", name, re.ASCII):
                return Answer(302, location=f"{self.elsewhere.rstrip('/')}/{normalized(name)}/")
            case ["files", name] if name in self.files:
                return Answer(200, self.files[name])
        return Answer(404)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve the index on a free port of this host, and give its URL."""
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Send the answer of the index."""
                answer = index.answer(self.path)
                self.send_response(answer.status)
                if answer.location:
                    self.send_header("Location", answer.location)
                self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/zip")
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
                """Print nothing."""

        with ThreadingHTTPServer((HOST, 0), Handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://{HOST}:{server.server_port}/simple/"
            finally:
                server.shutdown()


def settings_of_pip(listing: str) -> dict[str, str]:
    """Return the settings that `pip config list` printed: a variable wins over install, install over global."""
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for section, name, value in re.findall(r"^(global|install|:env:)\.([\w-]+)=(.*)$", listing, re.MULTILINE):
        found[section][name] = str(ast.literal_eval(value))
    return {**found["global"], **found["install"], **found[":env:"]}


def index_of_pip(help_of_install: str) -> str:
    """Return the URL of the index that pip is configured with; `pip install --help` prints it as a default.

    Raises:
        ReleaseError: it has a password; a redirect does not pass one on.
    """
    found = re.search(r"--index-url.*?\(default:? ([^)\s]+)\)", help_of_install, re.DOTALL)
    if found is None:
        raise ReleaseError("`pip install --help` names no --index-url with a default: this pip is not known")
    if "@" in urlsplit(found[1]).netloc:
        raise ReleaseError("the index-url of pip has a password: put it into ~/.netrc, where pip finds it by itself")
    return found[1]


def variables_of_pip(url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which pip has one index only, and reaches other hosts as it is configured to."""
    kept = {f"PIP_{name.upper().replace('-', '_')}": settings[name] for name in _KEPT if name in settings}
    ours = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": url, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**kept, **ours, "PIP_NO_COMPILE": "1", "PIP_NO_INPUT": "1"}
