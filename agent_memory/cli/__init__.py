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
import warnings

from agent_memory.cli.signals import end_in_order, ended_by
from agent_memory.errors import install_hint

__all__ = ["main"]

_NEEDED = ("click", "rich")
_INTERRUPTED = 130


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_not_installed(missing))
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings are for developers; python -W shows them
    try:
        from agent_memory.cli.app import app

        end_in_order()
        app.main(prog_name="agent-memory")
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseExceptionGroup:  # of the tasks that a signal cancelled, as in the MCP server
        if not ended_by():
            raise
        code = _INTERRUPTED
    else:
        code = 0
    if number := ended_by():
        sys.exit(128 + number)
    if code == _INTERRUPTED:
        # The remaining threads finish their requests. A second interrupt ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _not_installed(missing: list[str]) -> int:
    sys.stderr.write(f"Error: the command line needs {' and '.join(missing)}: {install_hint('cli')}\n")
    return 6
