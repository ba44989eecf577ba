"""A store as a few weeks of work leave it, with hostile names and contents, for the tests in a browser."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from agent_memory import AgentMemory, AgentMemoryService, VersionLimits
from agent_memory.audit import LogLocation
from agent_memory.conversation import ConversationMemory, Message
from agent_memory.plugins.audit import AuditPlugin
from agent_memory.registry import open_backend
from tests.support.servers import Root

DAY = 86_400
AGENTS = ("research-assistant", "support-bot", "travel-planner")
PREFERENCES = (
    "# Preferences\n\n- Answers in two sentences or fewer\n- Speaks German and English\n- Time zone: Europe/Berlin\n"
)
PLAN = """# Trip to Lisbon

Flight on 12 December, 9:40, seat 14A.

- [x] book the hotel near [Rossio](https://example.org/rossio)
- [ ] ask Maria about the conference
- [ ] museum on Thursday

| day | plan |
|---|---|
| Thursday | museum, then dinner with Maria |
| Friday | conference, talk at 15:00 |
"""
HOSTILE = (
    "<script>document.title = 'x'</script>\n<svg onload=alert(1)>\n<img src=https://evil.example onerror=alert(1)>\n"
    "{{ 7*7 }} {% raw %} ${7*7}\n![x](https://evil.example/x.png)\n\u202etxt.exe\u202c \x1b[31mred\x07 \u200b\n"
)


class Past:
    """Work on a root at earlier times: the clock of this process shows them, and on disk the files have them."""

    def __init__(self, root: Root) -> None:
        self._files = None if "://" in root.url else Path(root.url)

    @contextmanager
    def ago(self, seconds: float) -> Iterator[None]:
        real, began = time.time, time.time()
        with patch("time.time", lambda: real() - seconds):
            yield
        for file in self._files.rglob("*") if self._files else ():
            modified = file.stat().st_mtime
            if modified >= began - 1 and file.is_file():
                os.utime(file, (modified - seconds, modified - seconds))


def seed(root: Root) -> None:
    """Fill a root: three agents, versions, a history, a log of 30 days, and what an attacker would plant."""
    chance, past = random.Random(7), Past(root)
    plugin = AuditPlugin(LogLocation.below(open_backend(root.url, root.options)))
    with AgentMemoryService(
        root.url, storage_options=root.options, plugins=[plugin], versions=VersionLimits()
    ) as service:
        for day in range(29, 0, -1):
            with past.ago(day * DAY):
                for agent in AGENTS:
                    _work(service.agent(agent), chance, day)
        _trip(service.agent("travel-planner"), past)
        _attack(service.agent("support-bot").acting_as("visitor", "toolu_01Xx"))
    if "://" not in root.url:
        _plant(Path(root.url) / "agent_memory/support-bot")


def _work(memory: AgentMemory, chance: random.Random, day: int) -> None:
    for number in range(chance.choice([0, 0, 1, 1, 2, 3, 5])):
        call = f"toolu_{chance.randrange(16**8):08x}"
        memory.acting_as("claude", call).append("journal.md", f"- day {30 - day}: note {number + 1}\n")


def _trip(memory: AgentMemory, past: Past) -> None:
    with past.ago(12 * DAY):
        memory.acting_as("claude", "toolu_01Ab3").write("notes/preferences.md", PREFERENCES)
        settings = {"theme": "dark", "seats": [14]}
        memory.acting_as("claude", "toolu_01Ab4").write("data/settings.json", json.dumps(settings))
    for days, (old, new) in ((9, ("", "")), (6, ("9:40", "11:25")), (4, ("dinner with Maria", "concert"))):
        with past.ago(days * DAY):
            changed = PLAN.replace(old, new) if old else PLAN
            memory.acting_as("claude", f"toolu_02C{days}").write("plan.md", changed)
    with past.ago(2 * DAY):
        memory.acting_as("cleaner", "toolu_09Zz").edit(
            "notes/preferences.md", lambda text: text.replace("- Speaks German and English\n", "")
        )
    with past.ago(DAY):
        memory.acting_as("claude", "toolu_02C9").edit("notes/preferences.md", lambda text: text + "- Window seats\n")
    with past.ago(3600):
        memory.acting_as("claude", "toolu_02D1").edit("plan.md", lambda text: text.replace("14A", "21C, at the window"))
        calls = [{"id": "c1", "name": "seat_map", "arguments": '{"flight": 1}'}]
        at, reason = datetime.fromtimestamp(time.time(), UTC), "21C is a window."
        messages = [
            Message("user", "Can I still change my seat?", at, sender_id="maria", channel="web"),
            Message("assistant", "Let me look.", at, tool_calls=calls),
            Message("tool", "free: 21C, 22A", at, tool_call_id="c1"),
            Message("assistant", "Yes: 21C at the window is free. I changed it.", at, reasoning_content=reason),
        ]
        ConversationMemory(memory.acting_as("claude", "toolu_02D1")).append_messages(messages)
    with past.ago(1800):
        memory.acting_as("claude", "toolu_02D2").write("old/draft.md", "a draft\n")
        memory.acting_as("cleaner", "toolu_09Zz").delete("old/draft.md")


def _attack(memory: AgentMemory) -> None:
    memory.write("attack/text.md", HOSTILE)
    memory.write("attack/text.md", HOSTILE + "more\n")
    memory.write("attack/bytes.bin", bytes(range(256)) * 4)
    memory.write("attack/long-line.txt", b"x" * 10_000_000 + b"\nshort\n")
    memory.write("attack/lines.txt", "".join(f"line {number}\n" for number in range(1, 3001)))
    memory.write("attack/it's #1 & {{7+7}}.md", "odd name\n")
    ConversationMemory(memory).append_message(Message("<b>user</b>", HOSTILE, sender_id="<i>x</i>"))
    memory.append("history.jsonl", b'{"role": 1}\n<b>no message</b>\n\xff\xfe\n')


def _plant(directory: Path) -> None:
    for name in ("<script>alert(1)<", "a\u202eb.md", "\udcff.md"):
        directory.joinpath("attack", name).write_text("planted")
    os.utime(directory)
