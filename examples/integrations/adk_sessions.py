"""A session of Google's ADK that goes on in another process: python adk_sessions.py [DIRECTORY or s3://bucket/x].

A script takes the place of the model, so it needs no key. Run it twice: the second run continues the session.
"""

import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai.types import Content, Part

from agent_memory import AgentMemoryService
from agent_memory.integrations.google_adk import AgentMemorySessionService

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
SESSION = {"app_name": "app", "user_id": "ann", "session_id": "monday"}


class ScriptedModel(BaseLlm):
    """Knows only the events of the session, which it is sent."""

    async def generate_content_async(self, llm_request, stream=False):  # noqa: ARG002 - it never streams
        said = [content.parts[0].text for content in llm_request.contents if content.role == "user"]
        yield LlmResponse(content=Content(role="model", parts=[Part(text=f"You said: {'; '.join(said)}")]))


async def main():
    with AgentMemoryService(ROOT) as service:
        sessions = AgentMemorySessionService(service.agent("ann").subtree("adk"))
        agent = LlmAgent(name="helper", model=ScriptedModel(model="script"))
        session = await sessions.get_session(**SESSION) or await sessions.create_session(**SESSION)
        message = Content(role="user", parts=[Part(text=f"Message {len(session.events) // 2 + 1}")])
        async with Runner(app_name="app", agent=agent, session_service=sessions) as runner:
            async for event in runner.run_async(user_id="ann", session_id="monday", new_message=message):
                print(event.content.parts[0].text)


asyncio.run(main())
