"""The command prove: what a store keeps, measured in a scratch directory of it, as one page to commit or to send."""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import click

from agent_memory.cli.output import Exit, note, printable, reported_progress, show_json
from agent_memory.cli.presence import local_root
from agent_memory.cli.proofs import CALLS, Latency, Proof, clear, erasure, latencies, lost_updates, races, versions
from agent_memory.cli.settings import Command, Settings, opening_errors, pass_settings
from agent_memory.errors import DISTRIBUTION, AgentMemoryError, FileAlreadyExistsError, UnsupportedOperationError
from agent_memory.registry import open_backend
from agent_memory.runtime.runners import close_backend

REQUESTS: Final = 2_500
"""The most requests of a run on S3, as docs/prove.md states them; a test counts them."""
_SECONDS: Final = 300.0
_PROOFS: Final[Mapping[str, Callable[[Settings], Proof]]] = {
    "Races between writers": races,
    "Lost updates": lost_updates,
    "Erasure": erasure,
    "Versions": versions,
}
_LIBRARIES: Final = ("s3fs", "aiobotocore", "obstore", "fsspec")
_WORDS: Final = {True: "kept", False: "**NOT KEPT**", None: "refused"}


@click.command(cls=Command)
@click.option("--service", metavar="TEXT", default="", help="The name of the storage service, for the page.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the page to a new file.")
@pass_settings
def prove(settings: Settings, service: str, output: Path | None) -> None:
    """Prove on your own storage that nothing is lost, and print one page with the results.

    Works in a new directory below --url, and removes it. Races writers for each promise, counts the lines of processes
    that append at once, measures calls beside the bare client, erases a file, and keeps and restores versions. Begins
    nothing more after five minutes; on S3 it sends at most 2,500 requests if they are answered. The page names no
    bucket and no host. Exits with 1 if something is not kept, and with 6 if the storage cannot do it, so that it is
    refused.
    """
    if settings.url.lower().startswith("memory://"):
        raise UnsupportedOperationError("memory:// exists in one process only; prove needs several")
    if output is not None and output.exists():
        raise FileAlreadyExistsError("the file for the page exists; nothing was done: choose another name")
    if output is not None and not output.parent.is_dir():
        raise click.UsageError("the directory of the file for the page does not exist; nothing was done: make it first")
    scratch = _scratch(settings)
    began = time.monotonic()
    try:
        proofs = _proved(scratch, began)
        measured = _latencies(scratch) if proofs["Lost updates"].held and not _is_over(began) else []
    finally:
        left = _cleared(scratch)
    document = _document(settings, service, proofs, measured, left, time.monotonic() - began)
    page = _page(document)
    if output is not None:
        output.write_text(page)
    if settings.json:
        show_json(document)
    elif output is None:
        click.echo(printable(page), nl=False)
    verdict = document["proved"]
    code = Exit.OK if verdict else Exit.UNSUPPORTED if verdict is None else Exit.FAILED
    click.get_current_context().exit(code)


def _scratch(settings: Settings) -> Settings:
    """The settings of an empty store in a new directory below the URL."""
    url = f"{settings.url.rstrip('/')}/agent-memory-proof-{secrets.token_hex(4)}"
    return replace(settings, chosen_url=url, chosen_agent="proof", actor="prove", no_audit=True, in_services=[])


def _proved(scratch: Settings, began: float) -> dict[str, Proof]:
    proofs: dict[str, Proof] = {}
    with reported_progress("Proving", len(_PROOFS)) as advance:
        for name, prove_one in _PROOFS.items():
            proofs[name] = _attempted(prove_one, scratch, began)
            advance()
    return proofs


def _attempted(prove_one: Callable[[Settings], Proof], scratch: Settings, began: float) -> Proof:
    """The result of a proof; a store that refuses what it needs is no failure of the store."""
    if _is_over(began):
        return Proof(False, "not tried: five minutes were over", {})
    try:
        return prove_one(replace(scratch, in_services=[]))
    except UnsupportedOperationError as error:
        return Proof(None, f"refused: {error}", {})
    except AgentMemoryError as error:
        return Proof(False, f"the storage failed: {error}", {})


def _is_over(began: float) -> bool:
    return time.monotonic() > began + _SECONDS


def _results(proofs: Mapping[str, Proof]) -> list[bool | None]:
    return [proof.held for proof in proofs.values()]


def _latencies(scratch: Settings) -> list[Latency]:
    try:
        return latencies(replace(scratch, in_services=[]))
    except AgentMemoryError as error:
        note(f"calls could not be measured: {error}")
        return []


def _cleared(scratch: Settings) -> int | None:
    """The number of names that are left below the scratch directory; None if that is not known."""
    try:
        with opening_errors():
            backend = open_backend(scratch.url, scratch.storage_options())
        try:
            left = clear(backend)
        finally:
            close_backend(backend)
        if (root := local_root(scratch.url)) is not None and not left:
            root.rmdir()
        return left
    except (AgentMemoryError, OSError) as error:
        note(f"the scratch directory {scratch.url.rpartition('/')[2]} could not be removed: {error}")
        return None


def _document(
    settings: Settings,
    service: str,
    proofs: Mapping[str, Proof],
    measured: Sequence[Latency],
    left: int | None,
    seconds: float,
) -> dict[str, Any]:
    held = _results(proofs)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "service": service or None,
        "scheme": settings.url.partition("://")[0] if "://" in settings.url else "file",
        "engine": settings.storage_options().get("engine"),
        "versions": {DISTRIBUTION: version(DISTRIBUTION), "Python": platform.python_version(), **_libraries()},
        "proofs": {name: proof._asdict() for name, proof in proofs.items()},
        "latencies": [each._asdict() for each in measured],
        "left": left,
        "seconds": round(seconds),
        "proved": False if False in held or left != 0 else None if None in held else True,
    }


def _libraries() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _page(document: Mapping[str, Any]) -> str:
    verdict = {
        True: "All of this was kept.",
        None: "Nothing was lost. Something was refused, because this storage cannot do it safely.",
        False: "SOMETHING WAS NOT KEPT, failed, or could not be removed: see below.",
    }[document["proved"]]
    left = "not known" if document["left"] is None else document["left"]
    about = [f"{document['scheme']}://" + (f" by {document['engine']}" if document["engine"] else "")]
    about += [f"{name} {number}" for name, number in document["versions"].items()]
    lines = [
        f"# agent-memory on {document['service'] or 'a storage without a name'}",
        "",
        f"Measured by `agent-memory prove` on {document['date']} in {document['seconds']} s: {', '.join(about)}.",
        "",
        f"**{verdict}** Names left in the scratch directory: {left}.",
        "",
        "| proof | result | seen |",
        "|---|---|---|",
        *(f"| {name} | {_WORDS[each['held']]} | {_cell(each['text'])} |" for name, each in document["proofs"].items()),
    ]
    if document["latencies"]:
        lines += [
            "",
            f"Medians of {CALLS} calls with 1 KB, in milliseconds, in turn with the same request by the bare client:",
            "",
            "| call | agent-memory | bare client |",
            "|---|---:|---:|",
            *(f"| {each['call']} | {_ms(each['ours'])} | {_ms(each['bare'])} |" for each in document["latencies"]),
        ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f}"
