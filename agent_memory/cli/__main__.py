"""``python -m agent_memory.cli``, the same as ``agent-memory``."""

from agent_memory.cli import main

main()
