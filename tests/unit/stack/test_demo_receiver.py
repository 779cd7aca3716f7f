"""The demo's webhook receiver: what it keeps and answers."""

import http.client

from dynatick_stack.demo.receiver import Receiver

HEADERS = {
    "Content-Type": "application/json",
    "Idempotency-Key": "a%20b#1798718400000-1",
    "X-Dynatick-Task-Id": "a%20b",
    "X-Dynatick-Attempt": "1",
    "X-Dynatick-Due-At": "2026-12-31T12:00:00Z",
}


def post(receiver: Receiver, path: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    connection = http.client.HTTPConnection(receiver.url.removeprefix("http://"), timeout=5)
    try:
        connection.request("POST", path, body=body, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_it_answers_as_the_path_says_and_keeps_what_came() -> None:
    with Receiver() as receiver:
        assert receiver.url.startswith("http://127.0.0.1:")
        assert post(receiver, "/orders/7", HEADERS, b'{"n": 7}') == 204
        assert post(receiver, "/broken", HEADERS) == 500
        assert post(receiver, "/gone", HEADERS) == 410
        assert post(receiver, "/", HEADERS) == 204
        flaky = HEADERS | {"Idempotency-Key": "c#1798718400000-1", "X-Dynatick-Task-Id": "c"}
        assert [post(receiver, "/flaky", flaky) for _ in range(2)] == [503, 204]
        assert [call.path for call in receiver.of("a b")] == ["/orders/7", "/broken", "/gone", "/"]
        assert receiver.calls[0].body == b'{"n": 7}'
