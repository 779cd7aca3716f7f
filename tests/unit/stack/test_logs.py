"""One readable line per record."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dynatick_stack import logs
from dynatick_stack.logs import LogReader, _line

AT = int(datetime(2026, 12, 31, 12, 0, 1, tzinfo=UTC).timestamp() * 1000)


def shown(text: str) -> str | None:
    line = _line(AT, "processor", text)
    return None if line is None else str(line)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"level": "INFO", "action": "pass_ended", "message": "pass ended", "due": 3, "failed": 0},
         "12:00:01 processor pass_ended due=3"),
        ({"level": "ERROR", "action": "record_failed", "problem": "table gone", "function_arn": "arn:x"},
         '12:00:01 processor ERROR record_failed problem="table gone"'),
        ({"level": "INFO", "message": "hello", "ids": ["a", "b"]}, '12:00:01 processor hello ids=["a","b"]'),
        ({"level": "ERROR", "message": "oh", "exception": "Traceback …"}, "12:00:01 processor ERROR oh\nTraceback …"),
    ],
)  # fmt: skip
def test_a_record(record: dict[str, object], expected: str) -> None:
    assert shown(json.dumps(record)) == expected


def test_a_record_has_the_time_at_which_it_was_written() -> None:
    record = {"level": "INFO", "message": "hello", "timestamp": "2026-12-31 12:59:58,750+0100"}
    assert shown(json.dumps(record)) == "11:59:58 processor hello"
    assert shown(json.dumps({**record, "timestamp": "noon"})) == "12:00:01 processor hello"


def test_what_is_printed_stays_before_the_record_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = json.dumps({"level": "INFO", "message": "ran", "timestamp": "2026-12-31 11:59:58,750+0000"})
    streams = Streams(page=10)
    streams.write("one", 0, "To Ada", ran, "To Bob")
    monkeypatch.setattr(logs.deploy, "client", lambda *_: streams)
    monkeypatch.setattr(logs, "_groups", lambda *_: {"processor": "group"})
    assert [str(line) for line in LogReader("http://127.0.0.1:9").read()] == [
        "11:59:58 processor To Ada", "11:59:58 processor ran", "12:00:01 processor To Bob",
    ]  # fmt: skip


def test_a_line_that_is_no_record_is_shown_as_it_is_unless_it_says_nothing() -> None:
    assert shown("Hello from a handler") == "12:00:01 processor Hello from a handler"
    assert shown("[1, 2]") == "12:00:01 processor [1, 2]"
    for text in ("START RequestId: 1", "END RequestId: 1", "REPORT RequestId: 1", "  ", '{"_aws": {}, "TickAge": 1}'):
        assert shown(text) is None, text


class Streams:
    """Answers a page at a time, as CloudWatch Logs does."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.events: dict[str, list[dict[str, Any]]] = {}

    def write(self, stream: str, at: int, *texts: str) -> None:
        self.events.setdefault(stream, []).extend({"timestamp": AT + at, "message": f"{text}\n"} for text in texts)

    def get_paginator(self, _operation: str) -> "Streams":
        return self

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        return [{"logStreams": [{"logStreamName": stream}]} for stream in self.events]

    def get_log_events(self, **request: Any) -> dict[str, Any]:
        assert request["startFromHead"]
        events = [one for one in self.events[request["logStreamName"]] if one["timestamp"] >= request["startTime"]]
        start = int(request.get("nextToken", 0))
        page = events[start : start + self.page]
        return {"events": page, "nextForwardToken": str(start + len(page))}


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_each_line_is_read_once_however_many_there_are(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(page)
    monkeypatch.setattr(logs, "_groups", lambda _endpoint, _stack: {"processor": "/group"})
    monkeypatch.setattr(logs.deploy, "client", lambda _service, _endpoint: streams)
    reader = logs.LogReader("http://127.0.0.1:9", since=AT / 1000)
    assert reader.read() == []
    # A function's run writes all its lines at the same instant, and some of them are equal.
    streams.write("one", -1, "before")
    streams.write("one", 0, "a", "b", "b", "b")
    streams.write("two", 1, "c", "START RequestId: 1", "d")
    streams.write("one", 2, "e")
    assert [line.text for line in reader.read()] == ["a", "b", "b", "b", "c", "d", "e"]
    assert reader.read() == []
    streams.write("two", 2, "f")
    streams.write("three", 3, "g")
    assert [line.text for line in reader.read()] == ["f", "g"]
