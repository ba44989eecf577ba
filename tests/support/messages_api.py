"""A local HTTP server that imitates Claude's Messages API, as it streams to Claude Code."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeAlias


class Result(NamedTuple):
    """What a client passes on of one answer of a tool."""

    text: str
    is_error: bool


class Call(NamedTuple):
    """A model's call of a tool."""

    tool: str
    arguments: dict[str, object]


Step: TypeAlias = Callable[[str], Call]
"""A model's next call, for the text of the last result; at first the text is empty."""


class Api:
    """A model that makes a call for each step, then answers "done".

    Attributes:
        url: the base URL for a client.
        results: the results in the last request.
    """

    def __init__(self, url: str, steps: Sequence[Step]) -> None:
        self.url = url
        self.results: list[Result] = []
        self._steps = steps

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The next message; a repeated request gets the same one."""
        self.results = [_result(block) for message in request["messages"] for block in _blocks(message["content"])]
        number = len(self.results)
        content: dict[str, object] = {"type": "text", "text": "done"}
        if number < len(self._steps):
            call = self._steps[number](self.results[-1].text if self.results else "")
            content = {"type": "tool_use", "id": f"toolu_{number}", "name": call.tool, "input": call.arguments}
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [content],
            "stop_reason": "tool_use" if content["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }


def _blocks(content: object) -> list[dict[str, Any]]:
    return [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []


def _result(block: dict[str, Any]) -> Result:
    content = block["content"]
    text = content if isinstance(content, str) else "".join(each["text"] for each in content)
    return Result(text, bool(block.get("is_error")))


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (content,) = message["content"]
    if content["type"] == "tool_use":
        begun = {**content, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(content["input"])}
    else:
        begun = {**content, "text": ""}
        delta = {"type": "text_delta", "text": content["text"]}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": begun}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stopped = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


@contextmanager
def serving(steps: Sequence[Step]) -> Iterator[Api]:
    """Serve an API with these steps, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = api.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in _events(message):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api = Api(f"http://127.0.0.1:{server.server_port}", steps)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
