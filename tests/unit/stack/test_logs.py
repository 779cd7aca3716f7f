"""One readable line per record."""

import json
from datetime import UTC, datetime

import pytest

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
