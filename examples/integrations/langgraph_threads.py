"""A LangGraph thread that waits for a person and goes on in another process; runs without an API key.

pip install 'agent-memory-files[langgraph,s3]' langgraph
python langgraph_threads.py                          # on disk, in ./memories; run it again to answer the question
python langgraph_threads.py s3://my-bucket/memories  # on S3; credentials as for any AWS tool
"""

import sys

from langchain_core.language_models import FakeListChatModel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from agent_memory import AgentMemoryService
from agent_memory.integrations.langgraph_saver import AgentMemorySaver

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
CONFIG = {"configurable": {"thread_id": "trip"}}
MODEL = FakeListChatModel(responses=["I would book the train."])


def plan(state: MessagesState) -> dict:
    return {"messages": [MODEL.invoke(state["messages"])]}


def approve(state: MessagesState) -> dict:
    answer = interrupt(f"{state['messages'][-1].text} Shall I?")  # the state is stored, and the process may end
    return {"messages": [("user", answer)]}


with AgentMemoryService(ROOT) as service:
    saver = AgentMemorySaver(service.agent("ann").subtree("threads"))
    builder = StateGraph(MessagesState).add_node(plan).add_node(approve)
    graph = builder.add_edge(START, "plan").add_edge("plan", "approve").compile(checkpointer=saver)
    waits = bool(graph.get_state(CONFIG).next)
    state = graph.invoke(Command(resume="Yes.") if waits else {"messages": [("user", "I go to Rome.")]}, CONFIG)
    print("answered:" if waits else "asked:", *(message.text for message in state["messages"]), sep="\n  ")
