"""A process that continues the thread ``t`` if it was killed in it, and then runs one turn with two tasks at once.

Usage: langgraph_turns.py URL OPTIONS NAME [die in the tool]
"""

from __future__ import annotations

import json
import operator
import os
import signal
import sys
import time
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from agent_memory import AgentMemory
from agent_memory.integrations.langgraph_saver import AgentMemorySaver

url, options, name, *dies = sys.argv[1:]
memory = AgentMemory.open(url, storage_options=json.loads(options))
saver = AgentMemorySaver(memory)
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class State(TypedDict):
    """The state of the graph."""

    messages: Annotated[list[str], operator.add]


def turn(state: State) -> str:
    """The name of the newest turn."""
    return next(text.removeprefix("turn ") for text in reversed(state["messages"]) if text.startswith("turn "))


def beside(state: State) -> dict[str, list[str]]:
    """A task that ends while the tool runs."""
    sys.stdout.write(f"beside-{turn(state)}\n")
    sys.stdout.flush()
    return {"messages": [f"beside {turn(state)}"]}


def tool(state: State) -> dict[str, list[str]]:
    """A task whose process is killed after the other task's writes are stored."""
    while dies and turn(state) == name:
        found = saver.get_tuple(CONFIG)
        if found and any(write[2] == [f"beside {name}"] for write in found.pending_writes or ()):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
    return {"messages": [f"tool {turn(state)}"]}


builder = StateGraph(State)
builder.add_node("beside", beside)
builder.add_node("tool", tool)
builder.add_edge(START, "beside")
builder.add_edge(START, "tool")
app = builder.compile(checkpointer=saver)
if app.get_state(CONFIG).next:
    app.invoke(None, CONFIG)
app.invoke({"messages": [f"turn {name}"]}, CONFIG)
memory.close()
