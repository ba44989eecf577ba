"""Serves one client over this process's stdin and stdout.

The SDK's transport reads and writes them in threads, which an interrupt cannot wake, and it does not answer a line that
it cannot parse. Here the event loop waits until it can read or write, and every invalid line is answered.
"""

from __future__ import annotations

import math
import os
import re
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import MCPServer
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from agent_memory._json import parse_json

MAX_LINE_BYTES: Final = 128 * 1024 * 1024
"""The most bytes of one message; enough for the largest write, a text of 50 MB, with its escapes."""
MAX_UNANSWERED: Final = 100
"""The most requests of a client in progress at once; further requests are not read yet."""
_BLOCK: Final = 65536
_SECONDS_TO_ANSWER: Final = 60
"""The seconds that requests in progress may take when stdin has ended; as the timeout of an operation."""
_SECONDS_TO_END: Final = 2
"""The seconds that a client has to read an answer after stdin has ended."""
_POLL_SECONDS: Final = 0.01
_LONGEST_ID: Final = 1000
_ESCAPE: Final = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(?P<lone>\\u[dD][89a-fA-F]\w\w)|\\.")


async def serve_stdio(server: MCPServer[Any], *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
    """Serve the client at the other end of stdin and stdout until stdin ends, and all requests are answered.

    Each request has one answer; those in progress when stdin ends have 60 seconds. A line that is not JSON, or not a
    message, is answered with an error, with the id of the request if the line is JSON. Nothing else may read stdin
    while this runs; other output goes to stderr.

    Args:
        server: the server to run.
        max_line_bytes: the most bytes of one message; a longer message is answered with an error.

    Raises:
        BrokenPipeError: the client no longer reads.
    """
    lowlevel = server._lowlevel_server  # as the SDK's own in-memory transport does; run_stdio_async takes no streams
    with _stdout() as output:
        try:
            async with anyio.create_task_group() as group:
                client = _Client(sys.stdin.fileno(), output, max_line_bytes)
                to_server, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
                answers, from_server = anyio.create_memory_object_stream[SessionMessage]()
                group.start_soon(client.read, to_server)
                group.start_soon(client.write, from_server)
                await lowlevel.run(messages, answers, lowlevel.create_initialization_options())
                group.cancel_scope.deadline = anyio.current_time() + _SECONDS_TO_END
        except BaseExceptionGroup as raised:
            if raised.subgroup(BrokenPipeError):
                raise BrokenPipeError from None
            if raised.split(anyio.BrokenResourceError)[1] is None:  # the SDK's streams, when this task was cancelled
                raise anyio.get_cancelled_exc_class() from None
            raise


@contextmanager
def _stdout() -> Iterator[int]:
    """A duplicate descriptor of stdout; within this context, stdout itself is redirected to stderr."""
    sys.stdout.flush()
    original = sys.stdout.fileno()
    output = os.dup(original)
    with suppress(OSError):  # stderr may be closed
        os.dup2(2, original)
    try:
        yield output
    finally:
        sys.stdout.flush()
        os.dup2(output, original)
        os.close(output)


class _Client:
    """The client's two streams: lines of requests from stdin, lines of answers to stdout."""

    def __init__(self, stdin: int, stdout: int, max_line_bytes: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._most = max_line_bytes
        self._writing = anyio.Lock()
        self._unanswered = anyio.Semaphore(MAX_UNANSWERED)
        self._unread_until = math.inf

    async def read(self, server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass each message to the server, and answer each invalid line, until stdin ends and nothing is unanswered."""
        async with server:
            async for line in _lines(self._stdin, self._most):
                try:
                    message = parsed(line, self._most)
                except InvalidLine as invalid:
                    await self._write(_encoded(invalid.answer))
                    continue
                if isinstance(message, JSONRPCRequest):
                    await self._unanswered.acquire()
                with suppress(anyio.BrokenResourceError):  # the server has ended
                    await server.send(SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self._done)))
            await self._until_answered()

    async def _until_answered(self) -> None:
        """Wait until every request has its answer, unless this takes too long or the client reads no answers."""
        end = anyio.current_time() + _SECONDS_TO_ANSWER
        while self._unanswered.value < MAX_UNANSWERED and anyio.current_time() < min(end, self._unread_until):  # noqa: ASYNC110
            await anyio.sleep(_POLL_SECONDS)

    async def write(self, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write each of the server's messages until the server has ended."""
        async with answers:
            async for answer in answers:
                await self._write(_encoded(answer.message))
                if isinstance(answer.message, JSONRPCResponse | JSONRPCError):
                    await self._done()

    async def _done(self) -> None:
        self._unanswered.release()

    async def _write(self, data: bytes) -> None:
        """Write a whole line, in parts that a writable pipe accepts without blocking."""
        async with self._writing:
            for start in range(0, len(data), select.PIPE_BUF):
                part = data[start : start + select.PIPE_BUF]
                while part:
                    self._unread_until = anyio.current_time() + _SECONDS_TO_END
                    with suppress(OSError):
                        await anyio.wait_writable(self._stdout)
                    self._unread_until = math.inf
                    part = part[os.write(self._stdout, part) :]


async def _lines(descriptor: int, most: int) -> AsyncIterator[bytes]:
    """The lines that are not blank; of a line longer than ``most``, its first ``most`` + 1 bytes."""
    line = bytearray()
    while block := await _read(descriptor):
        *ends, rest = block.split(b"\n")
        for end in ends:
            line += end[: most + 1 - len(line)]
            if _is_sent(line, most):
                yield bytes(line)
            line = bytearray()
        line += rest[: most + 1 - len(line)]
    if _is_sent(line, most):
        yield bytes(line)


def _is_sent(line: bytearray, most: int) -> bool:
    """Whether a line must be answered: it is not blank, or it is too long to know."""
    return len(line) > most or bool(line.strip())


async def _read(descriptor: int) -> bytes:
    with suppress(OSError):  # the loop cannot wait for a regular file, which is always readable
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, _BLOCK)


def _encoded(message: JSONRPCMessage) -> bytes:
    """Encode a message as a line of JSON; an answer that is not valid Unicode becomes an error with its id."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        id_ = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        error = ErrorData(code=INTERNAL_ERROR, message="the answer cannot be written as JSON")
        return _encoded(JSONRPCError(jsonrpc="2.0", id=id_, error=error))


class InvalidLine(Exception):
    """A line that is not a message; ``answer`` is the error to send."""

    def __init__(self, code: int, message: str, id_: int | str | None = None) -> None:
        super().__init__(message)
        self.answer = JSONRPCError(jsonrpc="2.0", id=id_, error=ErrorData(code=code, message=message))


def parsed(line: bytes, most: int = MAX_LINE_BYTES) -> JSONRPCMessage:
    """Parse a line of UTF-8, with or without a byte order mark.

    Raises:
        InvalidLine: the line has more than ``most`` bytes, is not JSON, is nested deeper than `parse_json` allows, or
            is not a message; or the request's id is too long.
    """
    if len(line) > most:
        raise InvalidLine(INVALID_REQUEST, f"this line is longer than {most:,} bytes; send less at once")
    try:
        found = parse_json(without_lone_surrogates(line.decode("utf-8-sig", errors="replace")))
    except ValueError:
        raise InvalidLine(PARSE_ERROR, "this line is not JSON that can be parsed") from None
    try:
        message = jsonrpc_message_adapter.validate_python(found, by_name=False)
    except ValidationError:
        raise _no_message(found) from None
    if not isinstance(message, JSONRPCRequest) and {"id", "method"} <= found.keys():
        raise _no_message(found)  # the SDK parses a request with a fraction or null as its id as a notification
    if isinstance(message, JSONRPCRequest) and len(str(message.id)) > _LONGEST_ID:
        raise InvalidLine(INVALID_REQUEST, f"an id has at most {_LONGEST_ID:,} characters")  # no id in the answer
    return message


def without_lone_surrogates(line: str) -> str:
    """Replace escapes of lone surrogates in JSON text by U+FFFD: text with one can be neither stored nor answered."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], line) if "\\u" in line else line


def _no_message(found: object) -> InvalidLine:
    """The error for JSON that is not a message, with the id of the request if it is one that an answer can repeat."""
    id_ = found.get("id") if isinstance(found, dict) and not {"result", "error"} & found.keys() else None
    is_id = isinstance(id_, int | str) and not isinstance(id_, bool) and len(str(id_)) <= _LONGEST_ID
    message = "a line must be one JSON-RPC object, and its id a string or an integer"
    return InvalidLine(INVALID_REQUEST, message, id_ if is_id else None)
