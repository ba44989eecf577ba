"""An agent of Microsoft's Agent Framework with file memory: python agent_framework_agent.py [DIRECTORY or s3://bucket/x].

A script takes the place of the model, so it needs no key. Each agent knows only what the memory keeps.
"""

import asyncio
import sys

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FileMemoryProvider, Message
from agent_framework import FunctionInvocationLayer as CallsTools

from agent_memory import AgentMemoryService
from agent_memory.integrations.agent_framework import AgentMemoryFileStore

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"


class ScriptedClient(CallsTools, BaseChatClient):
    """Calls one tool and repeats its answer."""

    def __init__(self, tool, arguments):
        super().__init__()
        self.call = Content.from_function_call("call-1", tool, arguments=arguments)

    async def _inner_get_response(self, *, messages, **options):  # noqa: ARG002 - it needs no options
        answer = messages[-1].contents[-1]
        content = Content.from_text(answer.result) if answer.type == "function_result" else self.call
        return ChatResponse(messages=Message("assistant", [content]))


async def talk(memory, message, tool, **arguments):
    provider = FileMemoryProvider(AgentMemoryFileStore(memory), scope="ann")
    agent = Agent(ScriptedClient(tool, arguments), context_providers=[provider])
    print(await agent.run(message))


async def main():
    with AgentMemoryService(ROOT) as service:
        memory = service.agent("ann").subtree("agent-framework")
        notes = {"file_name": "travel.md", "content": "Ann prefers rail to air.", "description": "how Ann travels"}
        await talk(memory, "How do I travel?", "file_memory_read", file_name="travel.md")
        await talk(memory, "I prefer rail to air.", "file_memory_write", **notes)
        await talk(memory, "How do I travel?", "file_memory_read", file_name="travel.md")
        print("files:", *memory.list(), sep="\n  ")


asyncio.run(main())
