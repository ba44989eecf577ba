"""AWS Lambda: the handler is `lambda_function.handler`, the event {"user": …, "path": …, "line": …}.

The service is opened once for each execution environment, so that later invocations use its connections. Set
AGENT_MEMORY_URL and AGENT_MEMORY_CONFIG; the credentials are those of the function's role.
"""

import os
from typing import Any

from agent_memory import AgentMemoryService, agent_id
from agent_memory.plugins.configuration import limits_from, plugins_from

RESERVE = 0.5  # seconds for the answer, before Lambda ends the process
if not os.environ.get("AGENT_MEMORY_CONFIG"):
    raise RuntimeError("AGENT_MEMORY_CONFIG is not set: there would be no audit log and no redaction")
service = AgentMemoryService(
    os.environ["AGENT_MEMORY_URL"],
    plugins=plugins_from(),
    limits=limits_from(),
    actor=os.environ["AWS_LAMBDA_FUNCTION_NAME"],
)


def handler(event: dict[str, str], context: Any) -> dict[str, int]:
    """Append a line once: Lambda repeats a failed asynchronous invocation with the same request id."""
    seconds = context.get_remaining_time_in_millis() / 1000 - RESERVE
    memory = service.agent(agent_id(event["user"])).with_timeout(seconds)
    result = memory.once(context.aws_request_id).append(event["path"], event["line"], separator="\n")
    return {"size": result.size}
