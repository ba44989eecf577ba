"""``python -m agent_memory``, the same as the command ``agent-memory``."""

from agent_memory.cli import main

main()
