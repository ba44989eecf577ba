"""Memories over HTTP: each worker process opens one service when it starts, and closes it when it ends.

pip install -r requirements.txt uvicorn
AGENT_MEMORY_URL=s3://my-bucket/memories uvicorn app:app --workers 4

The proxy in front authenticates each request, limits its size, and sets X-Forwarded-User; it must remove this header
from a client's request. Each user is one agent.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from agent_memory import AgentMemoryError, AsyncAgentMemory, AsyncAgentMemoryService, agent_id
from agent_memory.plugins.configuration import plugins_from

SECONDS = 15  # less than the timeouts of the proxy and of the server's graceful end
STATUS = {
    "file_not_found": 404,
    "file_exists": 409,
    "conflict": 409,
    "operation_denied": 403,
    "file_too_large": 413,
    "invalid_path": 422,
    "path_traversal": 422,
    "invalid_agent_id": 422,
    "invalid_content": 422,
}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    url = os.environ["AGENT_MEMORY_URL"]
    async with AsyncAgentMemoryService(url, plugins=plugins_from(), timeout=SECONDS) as app.state.service:
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(AgentMemoryError)
async def failed(_: Request, error: AgentMemoryError) -> JSONResponse:
    """Answer with the error's kind; its message contains no content, host path or credential."""
    return JSONResponse({"kind": error.kind, "message": str(error)}, STATUS.get(error.kind, 503))


def memory_of(request: Request, x_forwarded_user: Annotated[str, Header()]) -> AsyncAgentMemory:
    memory: AsyncAgentMemory = request.app.state.service.agent(agent_id(x_forwarded_user))
    return memory.acting_as(x_forwarded_user)


Memory = Annotated[AsyncAgentMemory, Depends(memory_of)]


@app.get("/memory/{path:path}")
async def read(path: str, memory: Memory) -> PlainTextResponse:
    return PlainTextResponse(await memory.read(path))


@app.post("/memory/{path:path}")
async def append(
    path: str, request: Request, memory: Memory, idempotency_key: Annotated[str, Header()]
) -> dict[str, int]:
    """Append a line once, however often the client repeats the request with its key."""
    line = (await request.body()).decode()
    result = await memory.once(idempotency_key).append(path, line, separator="\n")
    return {"size": result.size}


@app.get("/health")
async def health() -> dict[str, str]:
    """Whether this process answers; it asks no storage, whose failure no restart would mend."""
    return {"status": "ok"}
