"""An agent of the OpenAI Agents SDK that remembers; runs without an API key, with a scripted model.

pip install 'agent-memory-files[openai-agents,s3]'
python openai_session.py                          # on disk, in ./memories
python openai_session.py s3://my-bucket/memories  # on S3, with the usual AWS_* variables
"""

import asyncio
import sys

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message

from agent_memory import AsyncAgentMemoryService
from agent_memory.integrations.openai_agents import AgentMemorySession

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"


def answer(call):
    """The model: it knows only the messages that it is sent."""
    said = [item["content"] for item in call.input if item["role"] == "user"]
    text = f"You told me: {said[0]}" if len(said) > 1 else "I know nothing of you yet."
    return [assistant_message(text)]


async def main():
    async with AsyncAgentMemoryService(ROOT) as service:
        sessions = service.agent("ann").subtree("sessions")
        for text in ("I am Ann, and I like tea.", "What do I like?"):  # each turn may run in another process
            agent = Agent("assistant", model=ScriptedModel([ModelStep.respond(answer)]))
            session = AgentMemorySession(sessions, "chat-1")
            result = await Runner.run(agent, text, session=session)
            print("user: ", text)
            print("agent:", result.final_output)
        items = await session.get_items()
        print("kept:", len(items), "items in sessions/chat-1.jsonl")


set_tracing_disabled(True)  # traces need an API key
asyncio.run(main())
