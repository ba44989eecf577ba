"""A deep agent that remembers; runs without an API key, with a scripted model.

pip install 'agent-memory-files[deepagents,s3]'
python deep_agent.py                          # on disk, in ./memories
python deep_agent.py s3://my-bucket/memories  # on S3, with the usual AWS_* variables
"""

import sys

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from agent_memory import AgentMemoryService
from agent_memory.integrations.deepagents import AgentMemoryBackend

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
FILE = "/memories/AGENTS.md"


class Scripted(GenericFakeChatModel):
    """In place of a model: makes the calls of a script, then says "done"."""

    def bind_tools(self, *_tools, **_options):
        return self


def scripted(*calls):
    calls = [{"name": name, "args": arguments, "id": name} for name, arguments in calls]
    return Scripted(messages=iter([*(AIMessage("", tool_calls=[call]) for call in calls), "done"]))


LEARN = scripted(
    ("write_file", {"file_path": FILE, "content": "Ann likes green tea.\n"}),
    ("edit_file", {"file_path": FILE, "old_string": "tea.", "new_string": "tea, and walks at noon."}),
)
RECALL = ("grep", {"pattern": "likes", "path": "/memories", "output_mode": "content"})
QUESTION, FACTS = "What do I like?", "I like green tea, and walk at noon."

with AgentMemoryService(ROOT) as service:
    memory = service.agent("ann").subtree("deepagent")
    backend = CompositeBackend(default=StateBackend(), routes={"/memories/": AgentMemoryBackend(memory)})
    for request, model in ((QUESTION, scripted(RECALL)), (FACTS, LEARN), (QUESTION, scripted(RECALL))):
        # each agent may run in another process; FILE is a part of its system prompt
        agent = create_deep_agent(model, backend=backend, memory=[FILE])
        print("user:", request)
        for message in agent.invoke({"messages": [{"role": "user", "content": request}]})["messages"]:
            if message.type == "tool":
                print("tool:", message.content)
    print("kept:", memory.read("AGENTS.md"), end="")
