"""A LangGraph agent that remembers between sessions; runs without an API key, with LangChain's scripted chat model.

pip install 'agent-memory-files[langgraph,s3]' langgraph
python langgraph_store.py                          # on disk, in ./memories
python langgraph_store.py s3://my-bucket/memories  # on S3; credentials as for any AWS tool
"""

import sys
from typing import Annotated

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode, tools_condition
from langgraph.store.base import BaseStore

from agent_memory import AgentMemoryService
from agent_memory.integrations.langgraph import AgentMemoryStore

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
Store = Annotated[BaseStore, InjectedStore()]


@tool
def remember(key: str, text: str, store: Store) -> str:
    """Remember a fact about the user."""
    store.put(("facts",), key, {"text": text})
    return "remembered"


@tool
def recall(store: Store) -> str:
    """Return all facts about the user."""
    return "; ".join(item.value["text"] for item in store.search(("facts",), limit=100))


def session(question: str, call: ToolCall) -> str:
    """One run of the agent, in which the model calls one tool; returns the tool's answer."""
    model = FakeMessagesListChatModel(responses=[AIMessage("", tool_calls=[call]), AIMessage("done")])
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([remember, recall]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    with AgentMemoryService(ROOT) as service:
        graph = builder.compile(store=AgentMemoryStore(service.agent("ann").subtree("langgraph")))
        return graph.invoke({"messages": [("user", question)]})["messages"][-2].text


fact = {"key": "drink", "text": "likes green tea"}
print("first session:", session("What do I like?", ToolCall(name="recall", args={}, id="1")) or "nothing yet")
print("second session:", session("I like green tea.", ToolCall(name="remember", args=fact, id="2")))
print("third session:", session("What do I like?", ToolCall(name="recall", args={}, id="3")))
