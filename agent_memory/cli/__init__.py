"""The command line ``agent-memory``, of the extra ``cli``; no traceback ever reaches its user.

Exit codes::

    0    done
    1    failed: the storage, a file of the host, or a promise that `doctor` found broken;
         or a search found nothing, as with grep, and then there is no error on stderr
    2    wrong usage, a URL or a storage option that makes no sense among it
    3    no such file, directory or store
    4    the name is taken, or the file changed meanwhile; nothing was overwritten
    5    refused: a name, a content, or a guard's veto
    6    not supported by this store, or not installed
    130  interrupted
    141  whoever read the output went away

Errors are one line on stderr, ``Error: ...``; with ``--json``, one JSON document there.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import warnings

__all__ = ["main"]

_NEEDED = ("click", "rich")
_INTERRUPTED = 130


def main() -> None:
    """Run the command line on the process's arguments and exit."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_not_installed(missing))
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # they speak to developers; python -W shows them
    try:
        from agent_memory.cli.app import app

        app.main(prog_name="agent-memory")
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    else:
        code = 0
    if code == _INTERRUPTED:
        # What is left are threads that finish their request; a second interrupt ends the process at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _not_installed(missing: list[str]) -> int:
    sys.stderr.write(f"Error: the command line needs {' and '.join(missing)}: pip install 'agent-memory[cli]'\n")
    return 6
