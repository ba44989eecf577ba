"""An agent of Google's ADK that saves a report and remembers a talk: python adk_agent.py [DIRECTORY or s3://bucket/x].

A script takes the place of the model, so it needs no key. The second session knows only what the memory keeps.
"""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import ToolContext
from google.genai.types import Content, FunctionCall, Part

from agent_memory import AgentMemoryService
from agent_memory.integrations.google_adk import AgentMemoryArtifactService, AgentMemoryMemoryService

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"


class ScriptedModel(BaseLlm):
    """Calls one tool and repeats its answer."""

    call: FunctionCall

    async def generate_content_async(self, llm_request, stream=False):  # noqa: ARG002 - it never streams
        answer = llm_request.contents[-1].parts[-1].function_response
        part = Part(text=answer.response["result"]) if answer else Part(function_call=self.call)
        yield LlmResponse(content=Content(role="model", parts=[part]))


async def save_report(text: str, tool_context: ToolContext) -> str:
    """Save the report."""
    return f"saved version {await tool_context.save_artifact('user:report.md', Part(text=text))} of the report"


async def recall(query: str, tool_context: ToolContext) -> str:
    """Read the report and find what was said."""
    report = await tool_context.load_artifact("user:report.md")
    found = await tool_context.search_memory(query)
    return f"the report: {report.text}; remembered: {found.memories[0].content.parts[0].text}"


async def talk(memory, session_id, message, tool, **arguments):
    sessions, memories = InMemorySessionService(), AgentMemoryMemoryService(memory)
    model = ScriptedModel(model="script", call=FunctionCall(name=tool.__name__, args=arguments))
    runner = Runner(
        app_name="app",
        agent=LlmAgent(name="helper", model=model, tools=[save_report, recall]),
        session_service=sessions,
        artifact_service=AgentMemoryArtifactService(memory),
        memory_service=memories,
    )
    names = {"user_id": "ann", "session_id": session_id}
    await sessions.create_session(app_name="app", **names)
    async for event in runner.run_async(**names, new_message=Content(role="user", parts=[Part(text=message)])):
        if event.is_final_response():
            print(f"{session_id}: {event.content.parts[0].text}")
    await memories.add_session_to_memory(await sessions.get_session(app_name="app", **names))


async def main():
    with AgentMemoryService(ROOT) as service:
        memory = service.agent("ann").subtree("adk")
        await talk(memory, "monday", "I prefer rail to air.", save_report, text="Rail is faster.")
        await talk(memory, "tuesday", "How do I travel?", recall, query="rail or air?")
        print("files:", *memory.list(), sep="\n  ")


asyncio.run(main())
