"""A Pydantic AI agent that keeps facts and files: python pydantic_agent.py [DIRECTORY or s3://bucket/x].

A function takes the place of the model, so it needs no key. Run it twice: the second run sees what the first one kept.
"""

import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_harness.filesystem import FileSystem
from pydantic_ai_harness.memory import Memory

from agent_memory import AgentMemoryService
from agent_memory.integrations.pydantic_ai import AgentMemoryWorkspace
from agent_memory.integrations.pydantic_ai_memory import AgentMemoryMemoryStore

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
FACT = "ann likes tea"


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Keep a fact, then write a file, unless the memory already has the fact."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    answers = len(messages) - len(requests)
    knows = not answers and FACT in str(requests)  # `Memory` shows its notebook beside the question
    if knows or answers == 2:
        return ModelResponse(parts=[TextPart(f"I remember that {FACT}." if knows else "I knew nothing yet.")])
    remember = ToolCallPart("write_memory", {"content": f"- {FACT}"})
    plan = ToolCallPart("write_file", {"path": "plan.md", "content": "1. Buy tea.\n"})
    return ModelResponse(parts=[plan if answers else remember])


with AgentMemoryService(ROOT) as service:
    ann = service.agent("ann")
    notebook = AgentMemoryMemoryStore(ann.subtree("notebook"))
    files = AgentMemoryWorkspace(ann.subtree("files"))
    agent = Agent(FunctionModel(model), capabilities=[Memory(store=notebook), FileSystem()])
    print(agent.run_sync("What do you know of Ann?", workspace=files).output)
    for entry in ann.list():
        print(f"--- {entry}")
        print(ann.read(entry.path), end="")
