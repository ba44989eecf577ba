"""Celery tasks that change memories: each process of the pool opens one service, and closes it when it ends.

pip install -r requirements.txt celery
CELERY_BROKER_URL=… AGENT_MEMORY_URL=s3://my-bucket/memories AGENT_MEMORY_CONFIG=agent-memory.toml \
    celery -A tasks worker --concurrency 4
"""

import os

from celery import Celery, Task
from celery.signals import worker_init, worker_process_init, worker_process_shutdown

from agent_memory import AgentMemoryService, ConflictError, FileOperationError, OutcomeUnknownError, agent_id
from agent_memory.plugins.configuration import limits_from, plugins_from

app = Celery("memories")  # the broker and the backend are those of CELERY_BROKER_URL and CELERY_RESULT_BACKEND
app.conf.task_acks_late = True  # a task whose process was killed is sent again, with the same id
app.conf.task_reject_on_worker_lost = True
service: AgentMemoryService


@worker_init.connect
def require_configuration(**_: object) -> None:
    if not os.environ.get("AGENT_MEMORY_CONFIG"):  # `SystemExit`, because Celery only logs other errors
        raise SystemExit("AGENT_MEMORY_CONFIG is not set: there would be no audit log and no redaction")


@worker_process_init.connect
def open_service(**_: object) -> None:
    global service
    service = AgentMemoryService(
        os.environ["AGENT_MEMORY_URL"], plugins=plugins_from(), limits=limits_from(), actor="celery", timeout=15
    )


@worker_process_shutdown.connect
def close_service(**_: object) -> None:
    """Close it here: the process ends by `os._exit`, without the functions of `atexit`."""
    service.close()


@app.task(
    bind=True,
    autoretry_for=(FileOperationError, ConflictError),
    dont_autoretry_for=(OutcomeUnknownError,),
    retry_backoff=True,
)
def remember(task: Task, user: str, path: str, line: str) -> int:
    """Append a line once, however often the task is sent or tried again; return the size of the file."""
    memory = service.agent(agent_id(user)).once(task.request.id)
    return memory.append(path, line, separator="\n").size
