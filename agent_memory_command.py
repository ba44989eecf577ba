"""The entry point of the command ``agent-memory``: outside of the package, so an interrupt while it loads is silent."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line on the process's arguments and exit; with 130 if an interrupt came before it could begin."""
    try:
        from agent_memory.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
