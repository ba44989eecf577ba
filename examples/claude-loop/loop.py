"""Claude's tool runner with a memory on local disk; runs without an API key, against a stand-in for the API.

pip install 'agent-memory[anthropic]'
python loop.py
"""

import anthropic
import stand_in

from agent_memory import AgentMemory
from agent_memory.integrations.anthropic import AgentMemoryTool

SCRIPT = [  # the tool calls of the stand-in's model, one list per message
    [{"command": "view", "path": "/memories"}],
    [{"command": "create", "path": "/memories/likes.md", "file_text": "- coffee\n"}],
    [{"command": "insert", "path": "/memories/likes.md", "insert_line": 1, "insert_text": "- walks at 12:30"}],
    [{"command": "create", "path": "/memories/12:30 walk.md", "file_text": "by the river"}],
    [{"command": "create", "path": "/memories/12-30 walk.md", "file_text": "by the river"}],
    [{"command": "view", "path": "/memories/likes.md"}],
]

with stand_in.serving(SCRIPT) as api, AgentMemory.open("./memories") as memory:
    client = anthropic.Anthropic(base_url=api.url, api_key="none")  # the real API: anthropic.Anthropic()
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5-5",
        max_tokens=1024,
        messages=[{"role": "user", "content": "Remember that I like coffee, and my walk at 12:30."}],
        tools=[AgentMemoryTool(memory)],
    )
    print("the model says:", runner.until_done().content[0].text)
    for text, is_error in api.results:
        print("  refused:" if is_error else "  answered:", text.replace("\n", "\n            "))
    print("on disk:", *memory.list(), sep="\n  ")
