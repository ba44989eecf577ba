"""Sessions of the Claude Agent SDK that are kept in a memory; runs without an API key, with a scripted Claude.

pip install 'agent-memory-files[claude-agent-sdk,s3]'
python claude_session.py                          # on disk, in ./memories
python claude_session.py s3://my-bucket/memories  # on S3, with the usual AWS_* variables
"""

import asyncio
import json
import sys
import uuid

import claude_agent_sdk as sdk

from agent_memory import AsyncAgentMemoryService
from agent_memory.integrations.claude_agent_sdk import AgentMemorySessionStore

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"


class ScriptedClaude(sdk.Transport):
    """In the place of Claude's command line: it says "Noted.", and reports both messages as entries of a transcript."""

    def __init__(self):
        self.frames, self.session = asyncio.Queue(), str(uuid.uuid4())

    async def write(self, data):
        frame = json.loads(data)
        if frame["type"] == "control_request":
            self.send("control_response", response={"subtype": "success", "request_id": frame["request_id"]})
            return
        said = {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]}
        user = {"type": "user", "uuid": str(uuid.uuid4()), "message": frame["message"]}
        claude = {"type": "assistant", "uuid": str(uuid.uuid4()), "parentUuid": user["uuid"], "message": said}
        file = f"/claude/projects/{sdk.project_key_for_directory()}/{self.session}.jsonl"
        self.send("transcript_mirror", filePath=file, entries=[user, claude])
        self.send("result", subtype="success", session_id=self.session, is_error=False, num_turns=1,
                  duration_ms=0, duration_api_ms=0, result="Noted.")  # fmt: skip

    def send(self, kind, **facts):
        self.frames.put_nowait({"type": kind, **facts})

    async def read_messages(self):
        while (frame := await self.frames.get())["type"] != "end":
            yield frame

    async def end_input(self):
        self.send("end")

    async def connect(self): ...
    async def close(self): ...
    def is_ready(self): ...


async def main():
    async with AsyncAgentMemoryService(ROOT) as service:
        store = AgentMemorySessionStore(service.agent("ann").subtree("sessions"))
        options = sdk.ClaudeAgentOptions(session_store=store, env={"CLAUDE_CONFIG_DIR": "/claude"})
        async for message in sdk.query(prompt="I like tea.", options=options, transport=ScriptedClaude()):
            print("Claude:", message.result)
        for session in await sdk.list_sessions_from_store(store):  # ClaudeAgentOptions(resume=...) continues one
            messages = await sdk.get_session_messages_from_store(store, session.session_id)
            print(f"kept: session {session.session_id} of {len(messages)} messages: {session.summary}")


asyncio.run(main())
