"""An agent of Strands that remembers; runs without an API key, with a scripted model.

pip install 'agent-memory-files[strands,s3]'
python strands_agent.py                          # on disk, in ./memories
python strands_agent.py s3://my-bucket/memories  # on S3, with the usual AWS_* variables
"""

import json
import sys

from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model
from strands.vended_memory_stores.file_memory_store import FileMemoryStore

from agent_memory import AgentMemoryService
from agent_memory.integrations.strands import AgentMemoryStorage

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"


class Scripted(Model):
    """In place of a model: calls one tool, then says what the tool answered."""

    def __init__(self, tool, **arguments):
        self.tool, self.arguments = tool, arguments

    async def stream(self, messages, *_args, **_options):
        results = [block["toolResult"] for block in messages[-1]["content"] if "toolResult" in block]
        if results:
            start, delta = {}, {"text": results[0]["content"][0]["text"]}
        else:
            start = {"toolUse": {"name": self.tool, "toolUseId": "call-1"}}
            delta = {"toolUse": {"input": json.dumps(self.arguments)}}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}

    def get_config(self):
        return {}

    update_config = structured_output = None


with AgentMemoryService(ROOT) as service:
    storage = AgentMemoryStorage(service.agent("ann").subtree("strands"))
    notes = MemoryManager([FileMemoryStore(name="notes", storage=storage)], add_tool_config=True, injection=False)
    for text, model in (
        ("I like green tea.", Scripted("add_memory", entries=["# Drinks\nAnn likes green tea"])),
        ("What do I drink?", Scripted("search_memory", query="drinks")),
    ):  # each turn may run in another process
        print("user: ", text)
        print("agent:", Agent(model, memory_manager=notes, callback_handler=None)(text).message["content"][0]["text"])
    print("kept:", *(entry.path for entry in service.agent("ann").subtree("strands").list()))
