"""Wrong inputs of the command line, as a user types them, and the table of their messages in ``docs/cli.md``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

BEGIN, END = "<!-- wrong inputs: written by a test -->\n", "<!-- end of wrong inputs -->\n"
HEAD: Final = "| wrong input | command | says | exit code | seconds |\n|---|---|---|---|---|\n"
ENDPOINT: Final = "http://localhost:9000"
"""The page's form of the address of the test server."""


@dataclass(frozen=True)
class Row:
    """One wrong input.

    Attributes:
        what: the wrong input, in words.
        command: what the user types; ``ENDPOINT`` stands for the server of the test.
        code: the exit code.
        names: the words that the message must contain.
        server: the fixture of a server, if the row needs one.
        env: the user's environment variables.
    """

    what: str
    command: str
    code: int
    names: tuple[str, ...]
    server: str = ""
    env: dict[str, str] = field(default_factory=dict)


_S3: Final = "agent-memory --url s3://memories/bot -o endpoint_url="
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "test-access-key", "AWS_SECRET_ACCESS_KEY": "test-secret-key"}
_STRANGER: Final = {**_KEYS, "AWS_ACCESS_KEY_ID": "a-key-of-nothing"}
_BAD_REGION: Final = {**_KEYS, "AWS_DEFAULT_REGION": "not a region"}
_HTTPS: Final = ENDPOINT.replace("http", "https")
_ELSEWHERE: Final = _S3.replace("memories", "elsewhere") + ENDPOINT
ROWS: Final = (
    Row("a URL that nothing opens", "agent-memory --url ftps://host/bot ls", 6, ("ftps://",)),
    Row("a URL without a bucket", "agent-memory --url s3:///bot ls", 2, ("bucket",), env=_KEYS),
    Row("an endpoint without a scheme", f"{_S3}localhost:9000 ls", 2, ("endpoint_url",), env=_KEYS),
    Row(
        "an endpoint of an unknown host",
        f"{_S3}http://s3.invalid ls",
        1,
        ("memories", "the host"),
        env=_KEYS,
    ),
    Row(
        "an endpoint where nothing listens",
        f"{_S3}http://localhost:9 ls",
        1,
        ("endpoint refuses", "retrying"),
        env=_KEYS,
    ),
    Row("https where the server speaks http", f"{_S3}{_HTTPS} ls", 1, ("TLS",), "ministack", _KEYS),
    Row("no credentials", f"{_S3}{ENDPOINT} ls", 1, ("credentials", "memories"), "ministack"),
    Row("wrong credentials", f"{_S3}{ENDPOINT} ls", 1, ("memories", "denied"), "seaweedfs", _STRANGER),
    Row("a profile that is not configured", "agent-memory --url s3://memories/bot -o profile=team ls", 2, ("team",)),
    Row("a region that is no name", f"{_S3}{ENDPOINT} ls", 1, ("region",), "ministack", _BAD_REGION),
    Row("a bucket that does not exist", f"{_ELSEWHERE} ls", 1, ("elsewhere",), "ministack", _KEYS),
    Row("credentials that may not write", f"{_S3}{ENDPOINT} write a.md x", 1, ("a.md",), "seaweedfs"),
    Row("a store that does not exist", "agent-memory --url ./typo ls", 3, ("typo",)),
    Row("a corrupted history", "agent-memory conversation show", 0, ("history.jsonl", "1 line")),
    Row("a file that is not text", "agent-memory read photo.png --as-tool", 1, ("photo.png",)),
    Row("a directory in the place of a file", "agent-memory read notes", 3, ("notes",)),
    Row("a file in the place of a directory", "agent-memory write a.md/b.md x", 4, ("a.md",)),
    Row("a disk mounted read-only", "agent-memory --url ./disk write a.md x", 1, ("a.md", "[Rr]ead-only")),
    Row("a reader that goes away", "agent-memory read large.md | true", 141, ()),
    Row("an interrupt", "agent-memory append log.md", 130, ("interrupted",)),
)


@dataclass(frozen=True)
class Told:
    """The standard error of a command, and its duration."""

    message: str
    code: int
    seconds: float


def cell(text: str) -> str:
    """A text in the form of a table cell."""
    return "<br>".join(f"`{line}`" for line in text.splitlines()).replace("|", "\\|")


def line_of(row: Row, told: Told) -> str:
    """One line of the table."""
    seconds = "under 1" if told.seconds < 1 else f"{told.seconds:.0f}"
    return f"| {row.what} | {cell(row.command)} | {cell(told.message)} | {told.code} | {seconds} |\n"


def lines_on(page: Path) -> dict[str, str]:
    """The rows of the page's table by wrong input; see `timeless`."""
    table = page.read_text().partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return {line.split(" | ")[0].removeprefix("| "): timeless(line) for line in table.splitlines()}


def timeless(line: str) -> str:
    """A row without the values that differ between runs: seconds and numbers of requests."""
    return re.sub(r"\d+ requests in [\d.]+ s|for up to \d+ s", "", line).rpartition(" | ")[0]


def write_to(page: Path, lines: list[str]) -> None:
    """Write the table of a run into the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text("".join((before, BEGIN, HEAD, *lines, END, rest.partition(END)[2])))
