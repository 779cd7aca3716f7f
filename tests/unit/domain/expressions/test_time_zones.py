"""Clock changes: tables of examples. As EventBridge Scheduler documents, a wall time that does not exist is skipped,
and one that comes twice runs once, at the first."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from itertools import islice

import pytest

from dynatick.domain.expressions import Occurrence, check_fires, check_zone, next_after, parse_expression, upcoming
from dynatick.domain.expressions.time_zone import zone_names, zone_of
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.errors import InvalidInput


def runs(text: str, zone: str, after: str, count: int) -> list[str]:
    found = upcoming(parse_expression(text), parse_instant(after, "after"), zone=zone)
    return [_line(one) for one in islice(found, count)]


def _line(one: Occurrence) -> str:
    return "; ".join([format_instant(one.instant), *one.notes])


CLOCK_CHANGES: dict[str, list[tuple[str, str, list[str]]]] = {
    "America/Los_Angeles": [
        # 2026-03-08, 02:00 PST (-8) becomes 03:00 PDT (-7)
        ("cron(30 2 * * ? *)", "2026-03-07T08:00:00Z", [
            "2026-03-07T10:30:00Z",
            "2026-03-09T09:30:00Z; 02:30 does not exist on 2026-03-08: skipped",
            "2026-03-10T09:30:00Z"]),
        ("cron(0/30 1-3 * * ? *)", "2026-03-08T08:59:59Z", [
            "2026-03-08T09:00:00Z", "2026-03-08T09:30:00Z",
            "2026-03-08T10:00:00Z; 02:00 to 02:30 do not exist on 2026-03-08: 2 runs skipped",
            "2026-03-08T10:30:00Z", "2026-03-09T08:00:00Z"]),
        # 2026-11-01, 02:00 PDT (-7) becomes 01:00 PST (-8)
        ("cron(30 1 * * ? *)", "2026-10-31T00:00:00Z", [
            "2026-10-31T08:30:00Z",
            "2026-11-01T08:30:00Z; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30",
            "2026-11-02T09:30:00Z"]),
        # Asked between the two 01:30s: the second one does not run.
        ("cron(30 1 * * ? *)", "2026-11-01T08:30:00Z", ["2026-11-02T09:30:00Z"]),
        ("cron(30 1 * * ? *)", "2026-11-01T09:15:00Z", ["2026-11-02T09:30:00Z"]),
        # Asked within the second showing of the hour.
        ("cron(45 * * * ? *)", "2026-11-01T09:10:00Z", ["2026-11-01T10:45:00Z"]),
        # Each wall time of the hour once.
        ("cron(0/30 0-2 1 11 ? 2026)", "2026-11-01T00:00:00Z", [
            "2026-11-01T07:00:00Z", "2026-11-01T07:30:00Z",
            "2026-11-01T08:00:00Z; 01:00 comes twice on 2026-11-01: runs once, at the first 01:00",
            "2026-11-01T08:30:00Z; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30",
            "2026-11-01T10:00:00Z", "2026-11-01T10:30:00Z"]),
    ],
    "Australia/Lord_Howe": [
        # 2026-04-05, 02:00 (+11) becomes 01:30 (+10:30): half an hour comes twice
        ("cron(0/15 1 5 4 ? 2026)", "2026-04-04T00:00:00Z", [
            "2026-04-04T14:00:00Z", "2026-04-04T14:15:00Z",
            "2026-04-04T14:30:00Z; 01:30 comes twice on 2026-04-05: runs once, at the first 01:30",
            "2026-04-04T14:45:00Z; 01:45 comes twice on 2026-04-05: runs once, at the first 01:45"]),
        # 2026-10-04, 02:00 (+10:30) becomes 02:30 (+11): half an hour does not come
        ("cron(0/15 2 * * ? *)", "2026-10-03T00:00:00Z", [
            "2026-10-03T15:30:00Z; 02:00 to 02:15 do not exist on 2026-10-04: 2 runs skipped",
            "2026-10-03T15:45:00Z", "2026-10-04T15:00:00Z"]),
    ],
    "America/Santiago": [
        # 2026-09-06, 00:00 (-4) becomes 01:00 (-3): the day begins at one o'clock
        ("cron(0 0 * * ? *)", "2026-09-05T00:00:00Z", [
            "2026-09-05T04:00:00Z",
            "2026-09-07T03:00:00Z; 00:00 does not exist on 2026-09-06: skipped",
            "2026-09-08T03:00:00Z"]),
        # 2026-04-05, 00:00 (-3) becomes 2026-04-04, 23:00 (-4): the hour before midnight comes twice, midnight once
        ("cron(30 23 * * ? *)", "2026-04-04T00:00:00Z", [
            "2026-04-04T02:30:00Z",
            "2026-04-05T02:30:00Z; 23:30 comes twice on 2026-04-04: runs once, at the first 23:30",
            "2026-04-06T03:30:00Z"]),
        ("cron(0 0 * * ? *)", "2026-04-04T12:00:00Z", ["2026-04-05T04:00:00Z", "2026-04-06T04:00:00Z"]),
    ],
    "Pacific/Apia": [
        # 2011-12-29 24:00 (-10) becomes 2011-12-31 00:00 (+14): there was no 30th
        ("cron(0 12 * * ? *)", "2011-12-28T12:00:00Z", [
            "2011-12-28T22:00:00Z", "2011-12-29T22:00:00Z",
            "2011-12-30T22:00:00Z; 12:00 does not exist on 2011-12-30: skipped",
            "2011-12-31T22:00:00Z"]),
        # The 30th was to be a Friday.
        ("cron(0 12 ? * FRI *)", "2011-12-20T00:00:00Z", [
            "2011-12-23T22:00:00Z",
            "2012-01-05T22:00:00Z; 12:00 does not exist on 2011-12-30: skipped"]),
        # 18:00 on the 29th; the next midnight, six hours later, is that of the 31st.
        ("cron(0 0/6 * * ? *)", "2011-12-30T02:00:00Z", [
            "2011-12-30T04:00:00Z",
            "2011-12-30T10:00:00Z; 00:00 to 18:00 do not exist on 2011-12-30: 4 runs skipped"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"), [(zone, *case) for zone, cases in CLOCK_CHANGES.items() for case in cases]
)
def test_occurrences_at_clock_changes(zone: str, text: str, after: str, expected: list[str]) -> None:
    assert runs(text, zone, after, len(expected)) == expected


def test_the_far_future_follows_the_present_rules_of_the_zone() -> None:
    # 2199-03-10 is the second Sunday of March.
    assert runs("cron(30 2 10 3 ? 2199)", "America/Los_Angeles", "2026-01-01T00:00:00Z", 1) == []
    assert runs("cron(30 3 10 3 ? 2199)", "America/Los_Angeles", "2026-01-01T00:00:00Z", 1) == ["2199-03-10T10:30:00Z"]


def test_a_single_time_in_a_gap_is_refused_with_the_reason() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    expression = parse_expression("at(2026-03-08T02:30:00)")
    assert next_after(expression, now, zone="America/Los_Angeles") is None
    with pytest.raises(InvalidInput, match="in America/Los_Angeles, 02:30 does not exist on 2026-03-08: skipped"):
        check_fires(expression, after=now, zone="America/Los_Angeles")
    assert format_instant(check_fires(expression, after=now, zone="America/Phoenix")) == "2026-03-08T09:30:00Z"


def test_a_single_time_in_a_fold_runs_at_the_first() -> None:
    assert runs("at(2026-11-01T01:30:00)", "America/Los_Angeles", "2026-01-01T00:00:00Z", 2) == [
        "2026-11-01T08:30:00Z; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30"
    ]


def test_a_rate_ignores_the_zone() -> None:
    start = datetime(2026, 3, 7, 12, tzinfo=UTC)
    found = upcoming(parse_expression("rate(1 day)"), start, zone="America/Los_Angeles", start=start)
    assert [one.instant.hour for one in islice(found, 3)] == [12, 12, 12]


def test_every_zone_is_that_of_the_package() -> None:
    zoneinfo.reset_tzpath(to=[])
    try:
        noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
        for name in sorted(zone_names()):
            assert noon.astimezone(zone_of(check_zone(name))) == noon.astimezone(zoneinfo.ZoneInfo(name))
    finally:
        zoneinfo.reset_tzpath()


def test_the_systems_zones_are_not_used() -> None:
    """A zone is not the object of ``ZoneInfo(name)``, which the whole process shares."""
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")
    assert zone_of("Europe/Berlin") is not zoneinfo.ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("Amerika/New York", "America/New_York"),
        ("Los Angeles", "America/Los_Angeles"),
    ],
)
def test_an_unknown_zone_is_refused_with_similar_names(wrong: str, close: str) -> None:
    with pytest.raises(InvalidInput, match=f"scheduleExpressionTimezone: .*close to it: {close}"):
        check_zone(wrong)


@pytest.mark.parametrize(
    "wrong", ["", " UTC", "../UTC", "/etc/passwd", "posix/UTC", "zones", "UTC\n", None, 1, "A" * 10_000]
)
def test_a_value_that_is_not_a_zone_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="expected the IANA name of a time zone"):
        check_zone(wrong)
