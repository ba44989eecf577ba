"""Memories over HTTP: each worker process opens one service when it starts, and closes it when it ends.

pip install -r requirements.txt uvicorn
AGENT_MEMORY_URL=s3://my-bucket/memories AGENT_MEMORY_CONFIG=agent-memory.toml uvicorn app:app --workers 4

The proxy in front authenticates each request, limits its size, and sets X-Forwarded-User; it must remove this header
from a client's request, and no other client may reach the port. Each user is one agent.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse

from agent_memory import AgentMemoryError, AsyncAgentMemory, AsyncAgentMemoryService, InvalidContentError, agent_id
from agent_memory.plugins.configuration import limits_from, plugins_from

SECONDS = 15  # less than the timeouts of the proxy and of the server's graceful end
READY_SECONDS = 3  # less than the timeout of the readiness probe
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
    if not os.environ.get("AGENT_MEMORY_CONFIG"):
        raise RuntimeError("AGENT_MEMORY_CONFIG is not set: there would be no audit log and no redaction")
    url = os.environ["AGENT_MEMORY_URL"]
    async with (
        AsyncAgentMemoryService(url, timeout=READY_SECONDS) as app.state.probe,  # no plugins: a probe leaves no record
        AsyncAgentMemoryService(
            url, plugins=plugins_from(), limits=limits_from(), timeout=SECONDS
        ) as app.state.service,
    ):
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(AgentMemoryError)
async def failed(_: Request, error: AgentMemoryError) -> JSONResponse:
    """Answer with the error's kind; its message contains no content, host path or credential."""
    return JSONResponse({"kind": error.kind, "message": str(error)}, STATUS.get(error.kind, 503))


def text_of(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidContentError(f"{name} is not UTF-8") from None


def memory_of(request: Request, x_forwarded_user: Annotated[str, Header(min_length=1)]) -> AsyncAgentMemory:
    """The user's memory. The framework reads the header as Latin-1; a proxy sends UTF-8."""
    user = text_of(x_forwarded_user.encode("latin-1"), "X-Forwarded-User")
    memory: AsyncAgentMemory = request.app.state.service.agent(agent_id(user))
    return memory.acting_as(user)


Memory = Annotated[AsyncAgentMemory, Depends(memory_of)]


@app.get("/memory/{path:path}")
async def read(path: str, memory: Memory) -> PlainTextResponse:
    return PlainTextResponse(await memory.read(path))


@app.post("/memory/{path:path}")
async def append(
    path: str, request: Request, memory: Memory, idempotency_key: Annotated[str, Header()]
) -> dict[str, int]:
    """Append a line once, however often the client repeats the request with its key."""
    line = text_of(await request.body(), "the line")
    result = await memory.once(idempotency_key).append(path, line, separator="\n")
    return {"size": result.size}


@app.get("/health")
async def health() -> dict[str, str]:
    """Whether this process answers; it asks no storage, whose failure no restart would mend."""
    return {"status": "ok"}


@app.get("/ready")
async def ready(request: Request) -> dict[str, str]:
    """Whether the storage answers: one listing of one name. Otherwise 503, with the kind of the error."""
    await request.app.state.probe.agent("ready").list(limit=1)
    return {"status": "ok"}
