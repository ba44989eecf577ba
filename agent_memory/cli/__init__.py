"""The command line ``agent-memory``, installed with the extra ``cli``. Errors never show the user a traceback.

Exit codes::

    0    success
    1    failure: the storage, a file of the host, or a promise that `doctor` found broken;
         or a search without a match, as with grep; then no error is printed on stderr
    2    wrong usage, including an invalid URL or storage option
    3    file, directory or store not found
    4    the name is taken, or the file changed meanwhile; nothing was overwritten
    5    refused: an invalid name or content, or the veto of a guard
    6    not supported by this store, or not installed
    129  ended by SIGHUP; the audit log was written
    130  interrupted
    141  the reader of the output closed the pipe
    143  ended by SIGTERM; the audit log was written

Errors are one line on stderr, ``Error: ...``; with ``--json``, one JSON document on stderr.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import time
import warnings
from types import FrameType

from agent_memory.errors import install_hint

__all__ = ["main"]

_NEEDED = ("click", "rich")
_INTERRUPTED = 130
_SECONDS_TO_END = 5.0
_ended_by = 0
_ended_at = 0.0
_ending = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_not_installed(missing))
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings are for developers; python -W shows them
    try:
        from agent_memory.cli.app import app

        _end_in_order()
        app.main(prog_name="agent-memory")
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseExceptionGroup:  # the signal came in a task of a group, as in the MCP server
        if not _ended_by:
            raise
        code = _INTERRUPTED
    else:
        code = 0
    if _ended_by:
        sys.exit(128 + _ended_by)
    if code == _INTERRUPTED:
        # The remaining threads finish their requests. A second interrupt ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _end_in_order() -> None:
    """Make SIGTERM and SIGHUP end the command as an exception does, so that waiting audit records are written."""
    for number in _ending:
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores SIGHUP
            signal.signal(number, _end)


class _Ended(KeyboardInterrupt):
    """A signal that ends the process; as an interrupt, no loader of plugins takes it for an error."""


def _end(number: int, _: FrameType | None) -> None:
    """Raise, but not again in the seconds in which the first signal lets the command end."""
    global _ended_by, _ended_at
    if _ended_by and time.monotonic() - _ended_at < _SECONDS_TO_END:
        return
    _ended_by, _ended_at = number, time.monotonic()
    raise _Ended


def _not_installed(missing: list[str]) -> int:
    sys.stderr.write(f"Error: the command line needs {' and '.join(missing)}: {install_hint('cli')}\n")
    return 6
