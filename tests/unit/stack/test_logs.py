"""One readable line per record."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dynatick_stack import logs
from dynatick_stack.logs import _line

AT = int(datetime(2026, 12, 31, 12, 0, 1, tzinfo=UTC).timestamp() * 1000)


def shown(text: str) -> str | None:
    line = _line(AT, "processor", text)
    return None if line is None else str(line)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (
            {"level": "INFO", "action": "pass_ended", "message": "pass ended", "due": 3, "failed": 0},
            "12:00:01 processor pass_ended due=3",
        ),
        (
            {"level": "ERROR", "action": "record_failed", "problem": "table gone", "function_arn": "arn:x"},
            '12:00:01 processor ERROR record_failed problem="table gone"',
        ),
        ({"level": "INFO", "message": "hello", "ids": ["a", "b"]}, '12:00:01 processor hello ids=["a","b"]'),
        ({"level": "ERROR", "message": "oh", "exception": "Traceback …"}, "12:00:01 processor ERROR oh\nTraceback …"),
    ],
)
def test_a_record(record: dict[str, object], expected: str) -> None:
    assert shown(json.dumps(record)) == expected


def test_a_line_that_is_no_record_is_shown_as_it_is() -> None:
    assert shown("Hello from a handler") == "12:00:01 processor Hello from a handler"
    assert shown("[1, 2]") == "12:00:01 processor [1, 2]"


@pytest.mark.parametrize(
    "text",
    ["START RequestId: 1", "END RequestId: 1", "REPORT RequestId: 1", "", "  ", '{"_aws": {}, "TickAge": 1}'],
)
def test_what_says_nothing_is_left_out(text: str) -> None:
    assert shown(text) is None


class ManyEvents:
    """Answers as the emulator does: the first so many events from an instant on, and no word of the rest."""

    def __init__(self, events: list[dict[str, Any]], most: int) -> None:
        self.events = events
        self.most = most

    def get_paginator(self, _operation: str) -> "ManyEvents":
        return self

    def paginate(self, *, logGroupName: str, startTime: int) -> list[dict[str, Any]]:
        assert logGroupName == "/group"
        return [{"events": [event for event in self.events if event["timestamp"] >= startTime][: self.most]}]


@pytest.mark.parametrize("most", [2, 3, 4, 5, 100])
def test_no_line_is_left_out_however_many_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def event(at: int, text: str) -> dict[str, Any]:
        return {"timestamp": AT + at, "message": text, "logStreamName": "one"}

    events = [event(0, "a"), event(0, "a"), event(1, "b"), event(1, "c"), event(2, "d"), event(40_000, "e")]
    monkeypatch.setattr(logs, "MOST_EVENTS", most)
    monkeypatch.setattr(logs, "_groups", lambda _endpoint: {"processor": "/group"})
    monkeypatch.setattr(logs.deploy, "client", lambda _service, _endpoint: ManyEvents(events, most))
    reader = logs.LogReader("http://127.0.0.1:9")
    assert [line.text for line in reader.read()] == ["a", "a", "b", "c", "d", "e"]
    assert reader.read() == []
    events.append(event(40_001, "f"))
    assert [line.text for line in reader.read()] == ["f"]
