"""The HTTP interface by which AWS Lambda gives events to a function's process, for AWS's own runtime client."""

from __future__ import annotations

import json
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_SECONDS = 60
_FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:memories"


class LambdaRuntime:
    """One execution environment: `invoke` gives an event to the process that asks for the next one."""

    def __init__(self) -> None:
        self.events: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.results: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def invoke(self, event: object, request_id: str) -> object:
        """The result of the function for an event; an AssertionError if it fails."""
        self.events.put((request_id, json.dumps(event).encode()))
        where, body = self.results.get(timeout=_SECONDS)
        assert where == f"/2018-06-01/runtime/invocation/{request_id}/response", (where, body)
        result: object = json.loads(body)
        return result


def _handler_of(runtime: LambdaRuntime) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            request_id, event = runtime.events.get()
            headers = {
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(int((time.time() + _SECONDS) * 1000)),
                "Lambda-Runtime-Invoked-Function-Arn": _FUNCTION,
            }
            self._answer(200, event, headers)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer(202, b"{}", {})
            runtime.results.put((self.path, body))

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Length": str(len(body)),
                "Content-Type": "application/json",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any, **kwargs: Any) -> None:
            """Print nothing."""

    return Handler
