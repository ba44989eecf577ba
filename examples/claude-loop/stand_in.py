"""A local HTTP server that imitates the Messages API: it answers with scripted turns and records the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Turn = Sequence[dict[str, object]]
"""The inputs of the memory tool that the model sends in one message."""


class Api:
    """Imitate a model that calls the memory tool turn by turn, then answers "done".

    Attributes:
        url: the base URL for a client.
        requests: the bodies of the received requests.
    """

    def __init__(self, url: str, turns: Sequence[Turn]) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self._turns = list(turns)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the model's next message."""
        self.requests.append(request)
        number = len(self.requests)
        content: list[dict[str, Any]] = [{"type": "text", "text": "done"}]
        if number <= len(self._turns):
            content = [
                {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": "memory", "input": arguments}
                for index, arguments in enumerate(self._turns[number - 1])
            ]
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    @property
    def results(self) -> list[tuple[str, bool]]:
        """Every received tool result: the text, and whether it is an error."""
        newest = [request["messages"][-1] for request in self.requests]
        blocks = [block for message in newest for block in _blocks(message["content"])]
        return [(_text(block["content"]), bool(block.get("is_error"))) for block in blocks]


def _blocks(content: object) -> list[Any]:
    return [block for block in content if block["type"] == "tool_result"] if isinstance(content, list) else []


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@contextmanager
def serving(turns: Sequence[Turn]) -> Iterator[Api]:
    """Serve an API with these turns, on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(api.answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api = Api(f"http://127.0.0.1:{server.server_port}", turns)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
