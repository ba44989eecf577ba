"""What the commands about the audit log have in common: their options, the log that they mean, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click

from agent_memory.audit import LogLocation, log_at
from agent_memory.cli.auditing import log_of_store
from agent_memory.cli.presence import require_store
from agent_memory.cli.settings import Settings
from agent_memory.plugins._host_files import read_host_file
from agent_memory.plugins.checkpoints import AuditCheckpoint, checkpoints_in

_NO_LOG: Final = (
    "there is no audit log in this store: a command that changes something creates it, unless --no-audit is given or "
    "--config enables a log elsewhere (--log shows that one); a program creates it with plugins=[AuditPlugin(url)]"
)
_MOST_CHECKPOINT_BYTES: Final = 500_000_000
HOST_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
log_option = click.option(
    "--log", "target", metavar="FILE|URL", help="A log in a file, or below the root of a URL.  [default: the store's]"
)


key_option = click.option(
    "--key-file", type=HOST_FILE, help="File with the key of a keyed log; all its bytes are the key."
)


checkpoints_option = click.option(
    "--checkpoints", type=HOST_FILE, multiple=True, help="A file of checkpoints; may be repeated."
)
kept_checkpoints_option = click.option(
    "--checkpoints", type=click.Path(dir_okay=False, path_type=Path), multiple=True,
    help="A file of checkpoints; may be repeated. The last one gets a new checkpoint; it may be a new file.",
)  # fmt: skip


def read_checkpoints(files: Sequence[Path]) -> list[AuditCheckpoint]:
    """The checkpoints in files."""
    found: list[AuditCheckpoint] = []
    for file in files:
        try:
            found.extend(checkpoints_in(read_host_file(file, _MOST_CHECKPOINT_BYTES)))
        except ValueError as error:
            raise click.UsageError(f"{file.name}: {error}") from None
    return found


def location_of(settings: Settings, target: str | None) -> LogLocation:
    """The location of the log that ``--log`` names, or of the store's own log."""
    if target is not None:
        return log_at(target, settings.given_options() if "://" in target else None)
    return log_of_store(settings.url, settings.storage_options())


@contextmanager
def existing_log(settings: Settings, target: str | None) -> Iterator[LogLocation]:
    """`location_of` a log that exists; raises if there is none, or as `require_store` does."""
    location = location_of(settings, target)
    with closing(location.store):
        if target is None:
            require_store(location.store.backend, settings.url)
        if not (location.parts() or location.base_numbers()):
            raise click.ClickException(_NO_LOG if target is None else "there is no audit log")
        yield location
