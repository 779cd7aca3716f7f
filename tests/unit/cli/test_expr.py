"""``dynatick expr``: without a table, a region or a credential; and what docs/schedules.md shows of it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from random import Random

import pytest
from tests.unit.cli.conftest import Shell, documented
from tests.unit.domain.expressions import generator

from dynatick.cli.expr import in_words
from dynatick.cli.session import Session
from dynatick.domain.expressions import parse_expression
from dynatick.errors import InvalidInput


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "clock", lambda session: datetime(2026, 3, 6, 12, 0, 0, 345678, tzinfo=UTC))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["2026-03-06T12:15:00Z", "2026-03-06T12:30:00Z"]),  # from now, in whole seconds
        (("--from", "1772798407"), ["2026-03-06T12:15:07Z", "2026-03-06T12:30:07Z"]),
        (("--start-date", "2026-03-06T11:53:00Z"), ["2026-03-06T12:08:00Z", "2026-03-06T12:23:00Z"]),
        (("--start-date", "2026-05-01T00:00:00+02:00"), ["2026-04-30T22:00:00Z", "2026-04-30T22:15:00Z"]),
        (("--end-date", "2026-03-06T12:15:00Z"), ["2026-03-06T12:15:00Z"]),
    ],
)
def test_a_rate(shell: Shell, options: tuple[str, ...], expected: list[str]) -> None:
    ended = shell("expr", "next", "rate(15 minutes)", *options, "--count", "2", "-o", "json")
    assert (ended.code, ended.json) == (0, expected)
    assert ended.err == ("" if len(expected) == 2 else "That is the last occurrence\n")


def test_explain_for_programs(shell: Shell) -> None:
    ended = shell("expr", "explain", "cron(30 2 8 3 ?)", "--tz", "Europe/Berlin", "-o", "json", "--count", "1")
    assert ended.json == {
        "scheduleExpression": "cron(30 2 8 3 ? *)",
        "scheduleExpressionTimezone": "Europe/Berlin",
        "description": "At 02:30, on day 8 of the month, only in March (Europe/Berlin)",
        "shortestIntervalSeconds": 365 * 86_400,
        "occurrences": [{"occurrenceAt": "2026-03-08T01:30:00Z", "local": "2026-03-08T02:30:00+01:00", "notes": []}],
        "warnings": [],
    }
    once = shell("expr", "explain", "at(2026-12-31T12:00:00)", "--tz", "Asia/Kathmandu", "-o", "json")
    assert once.json["shortestIntervalSeconds"] is None


def test_the_commands_say_what_the_page_shows(shell: Shell) -> None:
    commands = documented("schedules.md")
    assert len(commands) >= 4
    for command, *lines in commands:
        ended = shell(*shlex.split(command)[1:])
        assert [line.rstrip() for line in (ended.out + ended.err).splitlines()] == lines, command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rate(1 minute)", "Every minute, counted from the schedule's start"),
        ("rate(90 minutes)", "Every 90 minutes, counted from the schedule's start"),
        ("rate(48 hours)", "Every 48 hours, counted from the schedule's start"),
        ("at(2026-12-31T12:00:00)", "Once, on Thursday 31 December 2026 at 12:00:00 (UTC)"),
        ("cron(0 9 ? * 2-6 *)", "At 09:00, Monday through Friday (UTC)"),
        ("cron(0 9 ? * L *)", "At 09:00, only on Saturday (UTC)"),
        ("cron(0 9 ? * 1/2 *)", "At 09:00, only on Sunday, Tuesday, Thursday, and Saturday (UTC)"),
        ("cron(0 9 ? * 2#5 *)", "At 09:00, on the fifth Monday of the month (UTC)"),
        ("cron(0 9 ? * FRIL *)", "At 09:00, on the last Friday of the month (UTC)"),
        ("cron(0 9 15W * ? *)", "At 09:00, on the weekday nearest day 15 of the month (UTC)"),
        ("cron(0 9 LW * ? *)", "At 09:00, on the last weekday of the month (UTC)"),
        ("cron(0/30 1-2 * * ? *)", "Every 30 minutes, between 01:00 and 02:59, every day (UTC)"),
        ("cron(0/20 * * * ? *)", "Every 20 minutes, every hour, every day (UTC)"),
        # It does not go round evenly, so it is not every 25 minutes.
        ("cron(0/25 * * * ? *)", "At 0, 25, and 50 minutes past the hour, every hour, every day (UTC)"),
        ("cron(0 0 1 1 ? 2196/2)", "At 00:00, on day 1 of the month, only in January, only in 2196 and 2198 (UTC)"),
    ],
)
def test_plain_words(text: str, words: str) -> None:
    assert in_words(parse_expression(text), "UTC") == words


def test_there_are_words_for_everything() -> None:
    rng = Random("words")
    for _ in range(600):
        try:
            expression = parse_expression(generator.cron(rng))
        except InvalidInput:
            continue
        words = in_words(expression, "UTC")
        assert words.endswith(" (UTC)") and len(words) > 10, expression
        assert not any(odd in words for odd in ("None", "9999", ", ,", "  ", ",,")), (expression, words)


def test_an_offset_may_have_seconds(shell: Shell) -> None:
    options = ("--tz", "Africa/Monrovia", "--from", "1970-01-01T00:00:00Z", "--count", "1")
    line = shell("expr", "next", "rate(1 hour)", *options).lines[1]
    assert line == "1970-01-01T01:00:00Z  Thu 1970-01-01 00:15:30 -00:44:30"
