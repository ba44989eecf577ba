"""What the stores of earlier releases contain, which are kept as bytes beside this module.

A file ``RELEASE-disk.json`` or ``RELEASE-s3.json`` has each stored file: its name, its bytes in base64, and its
origin or its metadata. `python -m tests.stored.make` writes them, once for each release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent_memory import AgentMemoryService, VersionLimits
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.plugins.audit import AuditPlugin

DIRECTORY: Final = Path(__file__).parent
AGENT: Final = "ann"
SECONDS: Final = 10 * 365 * 86_400.0
"""The window of idempotency keys: so long that a later release must still know them."""
STATES: Final = ("state 0\n", "state 1\n", "state 2\nand an appended line\n")
"""The states of ``notes/kept.md``, which then was renamed to ``notes/renamed.md``."""


def fill(url: str, options: dict[str, object]) -> None:
    """Write a store with everything that a release stores."""
    audit = AuditPlugin(url, storage_options=options, required=True)
    limits = VersionLimits(keep=1_000, days=36_500)
    with AgentMemoryService(url, storage_options=options, plugins=[audit], versions=limits, actor="maker") as service:
        ann = service.agent(AGENT)
        for state in STATES[:2]:
            ann.write("notes/kept.md", state)
        ann.write("notes/kept.md", STATES[2].partition("and")[0])
        ann.append("notes/kept.md", "and an appended line\n")
        ann.rename("notes/kept.md", "notes/renamed.md")
        ann.write("été 🧠.md", "names and texts in Unicode\r\n")
        ann.write("deleted.md", "a deleted file\n")
        ann.delete("deleted.md")
        ann.write("redacted.md", "a key\n")
        ann.write("redacted.md", "no key\n")
        ann.versions.redact("redacted.md", ann.versions.list("redacted.md")[1], reason="a key")
        ann.once("order 7", window=SECONDS).append("log.md", "7\n")
        conversation = ConversationMemory(ann)
        conversation.append_messages([Message("user", "hello"), Message("assistant", "good morning")])
        service.agent("erased").write("secret.md", "x")
        service.agent("erased").forget("")
