"""Every line over stdio gets its answer, even if it is not JSON, not a message or too long, or is read late."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory.mcp_server._stdio import InvalidLine, parsed, without_lone_surrogates
from tests.support.mcp_lines import Lines, lines
from tests.support.sizes import examples

PARSE, INVALID = -32700, -32600
CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"view","arguments":{"path":"/memories","x":%s}}}'
INVALID_LINES: dict[str, tuple[bytes, int | str | None, int]] = {
    "260 nested lists": ((CALL % ("[" * 260 + "]" * 260)).encode(), None, PARSE),
    "100,000 nested lists": ((CALL % ("[" * 100_000 + "]" * 100_000)).encode(), None, PARSE),
    "lists that are not closed": ((CALL % ("[" * 1000)).encode(), None, PARSE),
    "a number of 5,000 digits": ((CALL % ("1" * 5000)).encode(), None, PARSE),
    "an id of 5,000 digits": (b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"1" * 5000), None, PARSE),
    "a text that is not closed": ((CALL % '"x').encode(), None, PARSE),
    "a text of quotes that is not closed": (b'{"id":"a b","method":"' + b'\\"' * 50_000, None, PARSE),
    "NUL": (b'{"jsonrpc":"2.0","id":7,"method":"pi\0ng"}', None, PARSE),
    "UTF-16": ('{"jsonrpc":"2.0","id":7,"method":"ping"}'.encode("utf-16"), None, PARSE),
    "no JSON": (b"nonsense", None, PARSE),
    "no Unicode": (b"\xff\xfe", None, PARSE),
    "a batch": (b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', None, INVALID),
    "a number": (b"7", None, INVALID),
    "no method": (b'{"jsonrpc":"2.0","id":7}', 7, INVALID),
    "no version": (b'{"id":7,"method":"ping"}', 7, INVALID),
    "parameters in a list": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7, INVALID),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, INVALID),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, INVALID),
    "an id with an exponent": (b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}', None, INVALID),
    "an id that is a list": (b'{"jsonrpc":"2.0","id":[7],"method":"ping"}', None, INVALID),
    "an id of 1,001 characters": (b'{"jsonrpc":"2.0","id":"%s","method":"ping"}' % (b"i" * 1001), None, INVALID),
    "an id of 300,000 characters": (b'{"jsonrpc":"2.0","method":"ping","id":"%s"}' % (b"i" * 300_000), None, INVALID),
    "an id of 1,001 digits": (b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"1" * 1001), None, INVALID),
    "a long id behind another one": (
        b'{"jsonrpc":"2.0","id":7,"x":"%s","id":"%s","method":"ping"}' % (b"x" * 70_000, b"i" * 1001),
        None,
        INVALID,
    ),
    "a response that is none": (b'{"jsonrpc":"2.0","id":7,"result":7}', None, INVALID),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Lines]:
    with lines() as client:
        yield client


@pytest.mark.parametrize(("line", "id_", "code"), INVALID_LINES.values(), ids=INVALID_LINES)
def test_a_line_that_is_not_a_message_is_answered_with_an_error(
    server: Lines, line: bytes, id_: int | str | None, code: int
) -> None:
    (answer,) = server.answers(line, 1)
    assert (answer["id"], answer["error"]["code"]) == (id_, code)
    assert len(json.dumps(answer)) < 1000


@pytest.mark.parametrize(
    "line",
    [
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":7,"method":"ping"}',
        b'  {"jsonrpc":"2.0","id":7,"method":"ping"}\r',
        b'{"jsonrpc":"2.0","id":8,"id":7,"method":"ping"}',
        (CALL % "NaN").encode(),
        (CALL % "1e999").encode(),
        (CALL % ("[" * 250 + "]" * 250)).encode(),
        (CALL % r'"\ud800"').encode(),
        (CALL % '"\\u0000"').encode(),
        (CALL % '"\ud800"').encode(errors="surrogatepass"),
    ],
    ids=["byte order mark", "blanks", "two ids", "NaN", "1e999", "nested", "half a character", "NUL", "raw half"],
)
def test_an_unusual_request_is_served(server: Lines, line: bytes) -> None:
    (answer,) = server.answers(line, 1)
    assert answer["id"] == 7
    assert "result" in answer


@pytest.mark.parametrize("id_", ["i" * 1000, 10**1000 - 1], ids=["a text", "a number"])
def test_an_id_of_1000_characters_is_answered(server: Lines, id_: int | str) -> None:
    (answer,) = server.answers(json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"}).encode(), 1)
    assert (answer["id"], "result" in answer) == (id_, True)


@pytest.mark.parametrize(
    "line", [b"", b" \t\r", b'{"jsonrpc":"2.0","method":"x"}', b'{"jsonrpc":"2.0","id":7,"result":{}}']
)
def test_a_line_that_needs_no_answer_gets_none(server: Lines, line: bytes) -> None:
    assert server.answers(line, 0) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.integers() | st.text(max_size=20) | JSON,
        "method": st.sampled_from(["ping", "tools/list", "tools/call", "resources/read", "notifications/x"]) | JSON,
        "params": st.fixed_dictionaries({}, optional={"name": st.just("view"), "_meta": JSON, "arguments": JSON})
        | JSON,
        "result": JSON,
        "error": JSON,
    },
).map(lambda message: json.dumps(message).encode())
DAMAGED = st.tuples(MESSAGES, st.integers(0, 200), st.integers(0, 200), st.binary(max_size=4)).map(
    lambda given: given[0][: given[1]] + given[3] + given[0][given[2] :]
)
ANY_LINE = (st.binary(max_size=100) | MESSAGES | DAMAGED).map(lambda line: line.replace(b"\n", b" "))


def is_answered(line: bytes) -> bool:
    """Whether a line needs an answer: every line except a blank one, a notification or a response."""
    try:
        message = json.loads(line.decode("utf-8-sig", errors="replace"))
    except ValueError:
        return bool(line.strip())
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or {"id", "method"} <= message.keys():
        return True
    has_parameters = isinstance(message.get("params"), dict | None)
    if isinstance(message.get("method"), str) and has_parameters:
        return False
    return not is_response(message)


def is_response(message: dict[str, Any]) -> bool:
    id_, error = message.get("id", 0.5), message.get("error")
    if isinstance(message.get("result"), dict) and isinstance(id_, int | str) and not isinstance(id_, bool):
        return True
    known = isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
    return known and (id_ is None or isinstance(id_, int | str))


@settings(examples(300), deadline=None, database=None)
@given(line=ANY_LINE)
def test_any_line_gets_exactly_its_answers_and_the_server_continues(server: Lines, line: bytes) -> None:
    expected = is_answered(line)
    found = server.answers(line, int(expected))
    assert len(found) == expected, found


def test_a_line_that_is_too_long_is_answered_in_bounded_memory() -> None:
    with lines(max_line_bytes=1000) as client:
        for size in (1000, 65536, 200_000):
            (answer,) = client.answers((CALL % json.dumps("x" * size)).encode(), 1)
            assert (answer["id"], answer["error"]["code"]) == (None, INVALID)
            assert "1,000 bytes" in answer["error"]["message"]
        before = peak_bytes(client.process.pid)
        (answer,) = client.answers((CALL % json.dumps("x" * 100_000_000)).encode(), 1)
        assert answer["error"]["code"] == INVALID
        assert peak_bytes(client.process.pid) - before < 20_000_000


def peak_bytes(process: int) -> int:
    if sys.platform != "linux":
        pytest.skip("the kernel does not say how much memory a process had at most")
    (line,) = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.long
def test_the_server_stops_reading_from_a_client_that_does_not_read_its_answers() -> None:
    with lines() as client:
        sent = 0
        while client.can_send(5):
            client.send(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}' % sent)
            sent += 1
            assert sent < 20_000, "the server reads on and keeps all answers in memory"
        assert sorted(client.receive()["id"] for _ in range(sent)) == list(range(sent))
        assert client.answers(b"", 0) == []


@pytest.mark.long
def test_the_server_ends_if_the_client_closes_stdin_without_reading() -> None:
    with lines() as client:
        for number in range(50):  # more answers than a pipe holds, but fewer than the server's concurrency limit
            client.send(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}' % number)
        client.close()
        assert client.process.wait(60) == 0
        client.discard()


@pytest.mark.parametrize("name", [b"slow", b"view"])
def test_every_request_that_arrived_before_the_end_of_stdin_is_answered(name: bytes) -> None:
    count = 250  # more than the server works on at once
    with lines() as client:
        for number in range(count):
            client.send(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{}}}'
                % (number, name)
            )
        client.close()
        assert sorted(client.receive()["id"] for _ in range(count)) == list(range(count))


def test_cancelled_requests_do_not_block_later_ones() -> None:
    with lines() as client:
        for number in range(300):
            client.send(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","arguments":{}}}' % number
            )
            client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % number)
            client.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"no such"}}')
        assert client.answers(b"", 0) == []


@pytest.mark.long
def test_a_flood_of_notifications_is_ignored() -> None:
    with lines() as client:
        for _ in range(20_000):
            client.send(
                b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
            )
        assert client.answers(b"", 0) == []


def test_an_answer_that_is_no_valid_unicode_becomes_an_error_with_the_id() -> None:
    with lines() as client:
        line = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"half_a_character","arguments":{}}}'
        (answer,) = client.answers(line, 1)
    assert answer["id"] == 7
    assert "error" in answer or answer["result"]["isError"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r'{"a": "x\ud800"}', r'{"a": "x\ufffd"}'),
        (r'"\ud83d\ude00 \\ud800"', r'"\ud83d\ude00 \\ud800"'),
        (r'"\uDC00\ud83d"', r'"\ufffd\ufffd"'),
    ],
)
def test_half_a_surrogate_pair_is_replaced_and_the_call_is_served(line: str, expected: str) -> None:
    assert without_lone_surrogates(line) == expected


@given(st.text(max_size=50) | st.text(alphabet='{}[]":,\\id0u', max_size=50))
def test_parsing_any_line_raises_no_other_exception(text: str) -> None:
    with suppress(InvalidLine):
        parsed(text.encode(errors="surrogatepass"))
