"""Occurrences of expressions: tables of examples, and properties of all expressions."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.domain.expressions import generator

from dynatick.domain import expressions
from dynatick.domain.expressions import Expression, check_fires, check_zone, next_after, parse_expression, upcoming
from dynatick.domain.expressions.occurrence import zone_names, zone_of
from dynatick.domain.instants import LATEST, format_instant, parse_instant
from dynatick.errors import InvalidInput

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def runs(text: str, after: str, count: int, **how: Any) -> list[str]:
    """The next occurrences, whole minutes without their seconds, each with its notes."""
    found = upcoming(parse_expression(text), parse_instant(after, "after"), **how)
    return ["; ".join([format_instant(one.instant).removesuffix(":00Z"), *one.notes]) for one in islice(found, count)]


#      2026            2026            2028            2032
#      January         May             February        February
# Mo       5 12 19 26     4 11 18 25      7 14 21 28      2  9 16 23
# Tu       6 13 20 27     5 12 19 26   1  8 15 22 29      3 10 17 24
# We       7 14 21 28     6 13 20 27   2  9 16 23         4 11 18 25
# Th    1  8 15 22 29     7 14 21 28   3 10 17 24         5 12 19 26
# Fr    2  9 16 23 30  1  8 15 22 29   4 11 18 25         6 13 20 27
# Sa    3 10 17 24 31  2  9 16 23 30   5 12 19 26         7 14 21 28
# Su    4 11 18 25     3 10 17 24 31   6 13 20 27      1  8 15 22 29
@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # strictly after
        ("cron(0 12 * * ? *)", "2026-01-01T11:59:59Z", ["2026-01-01T12:00", "2026-01-02T12:00"]),
        ("cron(0 12 * * ? *)", "2026-01-01T12:00:00Z", ["2026-01-02T12:00"]),
        # lists, ranges, steps
        ("cron(10/25 * * * ? *)", "2026-01-01T00:00:00Z", ["2026-01-01T00:10", "2026-01-01T00:35", "2026-01-01T01:10"]),
        ("cron(0 22-2/2 * * ? *)", "2026-01-01T00:00:00Z", ["2026-01-01T02:00", "2026-01-01T22:00"]),
        ("cron(0 0 ? * 1 *)", "2026-01-01T00:00:00Z", ["2026-01-04T00:00", "2026-01-11T00:00"]),
        # ends of months, leap years
        ("cron(0 0 L * ? *)", "2028-01-31T00:00:00Z", ["2028-02-29T00:00", "2028-03-31T00:00", "2028-04-30T00:00"]),
        ("cron(0 0 29 2 ? *)", "2026-01-01T00:00:00Z", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("cron(0 0 29 2 ? *)", "2096-02-29T00:00:00Z", ["2104-02-29T00:00"]),  # 2100 is no leap year
        # the nearest workday, within the month
        ("cron(0 0 1W * ? *)", "2026-01-31T00:00:00Z", ["2026-02-02T00:00", "2026-03-02T00:00", "2026-04-01T00:00"]),
        ("cron(0 0 3W 1,5 ? 2026)", "2026-01-01T00:00:00Z", ["2026-01-02T00:00", "2026-05-04T00:00"]),
        ("cron(0 0 31W 1 ? 2026)", "2026-01-01T00:00:00Z", ["2026-01-30T00:00"]),  # the 31st is a Saturday
        ("cron(0 0 LW * ? *)", "2026-01-01T00:00:00Z", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-31T00:00"]),
        # the nth and the last weekday
        ("cron(0 0 ? * 2#5 *)", "2026-01-01T00:00:00Z", ["2026-03-30T00:00", "2026-06-29T00:00", "2026-08-31T00:00"]),
        ("cron(0 0 ? * 6L *)", "2026-01-01T00:00:00Z", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"]),
        # years
        ("cron(0 0 1 1 ? 2027-2029/2)", "2026-01-01T00:00:00Z", ["2027-01-01T00:00", "2029-01-01T00:00"]),
        ("cron(* * * * ? *)", "2199-12-31T23:58:00Z", ["2199-12-31T23:59"]),
        ("cron(0 0 1 1 ? 2025)", "2026-01-01T00:00:00Z", []),
        # once
        ("at(2026-12-31T12:00:30)", "2026-12-31T12:00:29Z", ["2026-12-31T12:00:30Z"]),
        ("at(2026-12-31T12:00:30)", "2026-12-31T12:00:30Z", []),
    ],
)  # fmt: skip
def test_the_occurrences_of_an_expression(text: str, after: str, expected: list[str]) -> None:
    assert runs(text, after, len(expected) or 1) == expected


def test_a_rate_counts_from_its_start() -> None:
    start = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    every_90 = "rate(90 minutes)"
    first, second, third = "2026-01-01T00:00:07Z", "2026-01-01T01:30:07Z", "2026-01-01T03:00:07Z"
    assert runs(every_90, "2025-06-01T00:00:00Z", 3, start=start) == [first, second, third]
    assert runs(every_90, first, 1, start=start) == [second]
    assert runs(every_90, "2026-01-01T01:30:06Z", 1, start=start) == [second]
    assert runs(every_90, "2036-01-01T00:00:07Z", 1, start=start) == ["2036-01-01T01:30:07Z"]
    with pytest.raises(InvalidInput, match="startDate: None is not accepted; a rate counts from its start"):
        next_after(parse_expression(every_90), NEW_YEAR)


def test_start_and_end_are_inclusive() -> None:
    start, end = datetime(2026, 1, 3, 12, tzinfo=UTC), datetime(2026, 1, 5, 12, tzinfo=UTC)
    noon, noons = "cron(0 12 * * ? *)", ["2026-01-03T12:00", "2026-01-04T12:00", "2026-01-05T12:00"]
    assert runs(noon, "2026-01-01T00:00:00Z", 9, start=start, end=end) == noons
    assert runs("rate(1 day)", "2026-01-01T00:00:00Z", 9, start=start, end=end) == noons
    assert runs(noon, "2026-01-04T12:00:00Z", 9, start=start, end=end) == noons[2:]
    inside = {"start": start + timedelta(microseconds=1), "end": end - timedelta(microseconds=1)}
    assert runs(noon, "2026-01-01T00:00:00Z", 9, **inside) == noons[1:2]
    # EventBridge Scheduler ignores both for a single time.
    assert runs("at(2026-01-01T08:00:00)", "2026-01-01T00:00:00Z", 9, start=start, end=end) == ["2026-01-01T08:00"]


def test_naive_instants_and_unknown_zones_are_refused() -> None:
    noon, naive = parse_expression("cron(0 12 * * ? *)"), datetime(2026, 1, 1)  # noqa: DTZ001
    for bounds in ({"after": naive}, {"after": NEW_YEAR, "start": naive}, {"after": NEW_YEAR, "end": naive}):
        with pytest.raises(InvalidInput, match="expected a datetime with a time zone"):
            next_after(noon, **bounds)
    with pytest.raises(InvalidInput, match="scheduleExpressionTimezone"):
        next_after(noon, NEW_YEAR, zone="Mars/Olympus")


@pytest.mark.parametrize("year", [1, 9999])
@pytest.mark.parametrize("text", ["cron(0 12 * * ? *)", "rate(1 day)", "at(2026-01-01T00:00:00)"])
@pytest.mark.parametrize("zone", ["Pacific/Apia", "America/Los_Angeles"])
def test_the_ends_of_pythons_calendar_raise_nothing(year: int, text: str, zone: str) -> None:
    after = datetime.min.replace(tzinfo=UTC) if year == 1 else datetime.max.replace(tzinfo=UTC)
    found = next_after(parse_expression(text), after, zone=zone, start=NEW_YEAR)
    assert (found is None) == (year == 9999)


def test_occurrences_are_utc_instants_computed_lazily() -> None:
    every_minute = upcoming(parse_expression("cron(* * * * ? *)"), NEW_YEAR, zone="Europe/Berlin")
    assert next(every_minute).instant == NEW_YEAR + timedelta(minutes=1)
    noon = parse_expression("cron(0 12 * * ? *)")
    kathmandu = timezone(timedelta(hours=5, minutes=45))
    found = next_after(noon, datetime(2026, 1, 1, 17, 45, tzinfo=kathmandu))
    assert (found, found and found.tzinfo) == (datetime(2026, 1, 2, 12, tzinfo=UTC), UTC)
    # Monrovia was 44 minutes and 30 seconds behind until 1972.
    found = next_after(noon, datetime(1970, 6, 1, tzinfo=UTC), zone="Africa/Monrovia")
    assert found == datetime(1970, 6, 1, 12, 44, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "bounds", "message"),
    [
        ("cron(0 0 1 1 ? 2020)", {}, "it never runs after 2026-01-01T00:00:00Z (UTC)"),
        ("at(2025-12-31T23:59:59)", {}, "it never runs after 2026-01-01T00:00:00Z (UTC)"),
        ("at(2026-01-01T00:30:00)", {"zone": "Asia/Tokyo"}, "it never runs after 2026-01-01T00:00:00Z (Asia/Tokyo)"),
        ("cron(30 2 8 3 ? 2026)", {"zone": "America/Los_Angeles"}, "it never runs after"),
        ("rate(1 day)", {"start": NEW_YEAR, "end": NEW_YEAR}, "its next run, 2026-01-02T00:00:00Z, would be after its"),
        ("cron(0 0 1 2 ? *)", {"end": datetime(2026, 1, 31, tzinfo=UTC)}, "endDate: '2026-01-31T00:00:00Z'"),
    ],
)
def test_an_expression_without_an_occurrence_is_refused(text: str, bounds: dict[str, object], message: str) -> None:
    expression = parse_expression(text)
    assert expressions.never_fires(expression, after=NEW_YEAR, **bounds)
    with pytest.raises(InvalidInput) as refused:
        check_fires(expression, after=NEW_YEAR, **bounds)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("rate(90 minutes)", timedelta(minutes=90)),
        ("at(2026-12-31T12:00:00)", timedelta.max),
        ("cron(0/25 * * * ? *)", timedelta(minutes=10)),  # :00 :25 :50 :00
        ("cron(0 0/9 * * ? *)", timedelta(hours=6)),  # 0 9 18 0
        ("cron(5 0,23 ? * MON *)", timedelta(hours=23)),
        ("cron(0 0 ? * MON,TUE *)", timedelta(days=1)),
        ("cron(0 0 ? * 2 *)", timedelta(days=7)),
        ("cron(0 0 L * ? *)", timedelta(days=28)),
        ("cron(0 0 31,1 * ? *)", timedelta(days=1)),
        ("cron(0 0 15W * ? *)", timedelta(days=28)),
        ("cron(0 0 29 2 ? *)", timedelta(days=4 * 365 + 1)),
        ("cron(0 0 1 1 ? 2027)", timedelta.max),
        ("cron(0,30 0 1 1 ? 2027)", timedelta(minutes=30)),
    ],
)
def test_the_shortest_gap_of_an_expression(text: str, gap: timedelta) -> None:
    assert expressions.shortest_gap(parse_expression(text)) == gap


def test_clock_warnings_name_the_affected_wall_times() -> None:
    def warned(text: str, zone: str, now: datetime = NEW_YEAR, **bounds: Any) -> list[str]:
        return expressions.clock_warnings(parse_expression(text), now, zone=zone, **bounds)

    assert warned("cron(0/15 1-2 * * ? *)", "America/Los_Angeles") == [
        "02:00 to 02:45 do not exist on 2026-03-08: 4 runs skipped",
        "01:00 to 01:45 come twice on 2026-11-01: 4 runs, each once, at the first",
    ]
    assert warned("cron(0 0 * * ? *)", "America/Santiago") == ["00:00 does not exist on 2026-09-06: skipped"]
    assert warned("at(2026-03-29T02:30:00)", "Europe/Berlin") == ["02:30 does not exist on 2026-03-29: skipped"]
    assert warned("cron(0 12 * * ? *)", "Europe/Berlin") == warned("rate(1 minute)", "Europe/Berlin") == []
    assert warned("cron(30 2 * * ? *)", "UTC") == []
    for far in (LATEST, LATEST - timedelta(seconds=1)):
        assert (
            warned("rate(1 hour)", "UTC", start=far) == warned("cron(30 2 * * ? *)", "Europe/Berlin", start=far) == []
        )
    assert warned("cron(30 2 * * ? *)", "America/Los_Angeles", end=datetime(2026, 3, 1, tzinfo=UTC)) == []
    assert warned("cron(30 2 * * ? *)", "America/Los_Angeles", start=datetime(2026, 4, 1, tzinfo=UTC)) == [
        "02:30 does not exist on 2027-03-14: skipped"  # within a year of the start
    ]
    assert warned("cron(0 12 * * ? *)", "Pacific/Apia", now=datetime(2011, 12, 1, tzinfo=UTC)) == [
        "12:00 does not exist on 2011-12-30: skipped"
    ]


# As EventBridge Scheduler documents, a wall time that does not exist is skipped, and one that comes twice runs once, at
# the first.
CLOCK_CHANGES: dict[str, list[tuple[str, str, list[str]]]] = {
    "America/Los_Angeles": [
        # 2026-03-08, 02:00 PST (-8) becomes 03:00 PDT (-7)
        ("cron(30 2 * * ? *)", "2026-03-07T08:00:00Z", [
            "2026-03-07T10:30", "2026-03-09T09:30; 02:30 does not exist on 2026-03-08: skipped", "2026-03-10T09:30"]),
        ("cron(0/30 1-3 * * ? *)", "2026-03-08T08:59:59Z", [
            "2026-03-08T09:00", "2026-03-08T09:30",
            "2026-03-08T10:00; 02:00 to 02:30 do not exist on 2026-03-08: 2 runs skipped",
            "2026-03-08T10:30", "2026-03-09T08:00"]),
        # 2026-11-01, 02:00 PDT (-7) becomes 01:00 PST (-8)
        ("cron(30 1 * * ? *)", "2026-10-31T00:00:00Z", [
            "2026-10-31T08:30", "2026-11-01T08:30; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30",
            "2026-11-02T09:30"]),
        # Asked between the two 01:30s: the second one does not run.
        ("cron(30 1 * * ? *)", "2026-11-01T09:15:00Z", ["2026-11-02T09:30"]),
        # Each wall time of the hour once.
        ("cron(0/30 0-2 1 11 ? 2026)", "2026-11-01T00:00:00Z", [
            "2026-11-01T07:00", "2026-11-01T07:30",
            "2026-11-01T08:00; 01:00 comes twice on 2026-11-01: runs once, at the first 01:00",
            "2026-11-01T08:30; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30",
            "2026-11-01T10:00", "2026-11-01T10:30"]),
    ],
    "Australia/Lord_Howe": [
        # 2026-04-05, 02:00 (+11) becomes 01:30 (+10:30): half an hour comes twice
        ("cron(0/15 1 5 4 ? 2026)", "2026-04-04T00:00:00Z", [
            "2026-04-04T14:00", "2026-04-04T14:15",
            "2026-04-04T14:30; 01:30 comes twice on 2026-04-05: runs once, at the first 01:30",
            "2026-04-04T14:45; 01:45 comes twice on 2026-04-05: runs once, at the first 01:45"]),
        # 2026-10-04, 02:00 (+10:30) becomes 02:30 (+11): half an hour does not come
        ("cron(0/15 2 * * ? *)", "2026-10-03T00:00:00Z", [
            "2026-10-03T15:30; 02:00 to 02:15 do not exist on 2026-10-04: 2 runs skipped",
            "2026-10-03T15:45", "2026-10-04T15:00"]),
    ],
    "Pacific/Apia": [
        # 2011-12-29 24:00 (-10) becomes 2011-12-31 00:00 (+14): there was no 30th
        ("cron(0 12 * * ? *)", "2011-12-28T12:00:00Z", [
            "2011-12-28T22:00", "2011-12-29T22:00",
            "2011-12-30T22:00; 12:00 does not exist on 2011-12-30: skipped", "2011-12-31T22:00"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"), [(zone, *case) for zone, cases in CLOCK_CHANGES.items() for case in cases]
)
def test_occurrences_at_clock_changes(zone: str, text: str, after: str, expected: list[str]) -> None:
    assert runs(text, after, len(expected), zone=zone) == expected


def test_a_single_time_in_a_gap_is_refused_and_one_in_a_fold_runs_at_the_first() -> None:
    expression = parse_expression("at(2026-03-08T02:30:00)")
    with pytest.raises(InvalidInput, match="in America/Los_Angeles, 02:30 does not exist on 2026-03-08: skipped"):
        check_fires(expression, after=NEW_YEAR, zone="America/Los_Angeles")
    assert format_instant(check_fires(expression, after=NEW_YEAR, zone="America/Phoenix")) == "2026-03-08T09:30:00Z"
    assert runs("at(2026-11-01T01:30:00)", "2026-01-01T00:00:00Z", 2, zone="America/Los_Angeles") == [
        "2026-11-01T08:30; 01:30 comes twice on 2026-11-01: runs once, at the first 01:30"
    ]


def test_a_rate_ignores_the_zone() -> None:
    start = datetime(2026, 3, 7, 12, tzinfo=UTC)
    found = upcoming(parse_expression("rate(1 day)"), start, zone="America/Los_Angeles", start=start)
    assert [one.instant.hour for one in islice(found, 3)] == [12, 12, 12]


def test_every_zone_is_that_of_the_package_and_none_of_the_systems() -> None:
    zoneinfo.reset_tzpath(to=[])
    try:
        noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
        for name in sorted(zone_names()):
            assert noon.astimezone(zone_of(check_zone(name))) == noon.astimezone(zoneinfo.ZoneInfo(name))
    finally:
        zoneinfo.reset_tzpath()
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")
    assert zone_of("Europe/Berlin") is not zoneinfo.ZoneInfo("Europe/Berlin"), "which the whole process shares"


@pytest.mark.parametrize(
    ("wrong", "close"),
    [("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin"), ("Amerika/New York", "America/New_York")],
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


zones = st.sampled_from(sorted(zone_names()))
moments = st.datetimes(datetime(1969, 1, 1), datetime(2201, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
rates = st.builds(
    lambda count, unit: parse_expression(f"rate({count} {unit}{'s' if count > 1 else ''})"),
    st.integers(1, 1000),
    st.sampled_from(["minute", "hour", "day"]),
)
ats = moments.filter(lambda moment: 1970 <= moment.year <= 2199).map(
    lambda moment: parse_expression(f"at({moment:%Y-%m-%dT%H:%M:%S})")
)


@st.composite
def crons(draw: st.DrawFn) -> Expression:
    text = generator.cron(draw(st.randoms(use_true_random=False)))
    try:
        return parse_expression(text)
    except InvalidInput:
        assume(False)
        raise


@given(st.one_of(rates, ats, crons(), crons()), moments, zones, moments, st.none() | moments)
def test_occurrences_rise_strictly_and_none_is_left_out(
    expression: Expression, after: datetime, zone: str, start: datetime, end: datetime | None
) -> None:
    """This holds in any zone and from any instant, with ``next_after`` and with ``upcoming``."""
    row = [one.instant for one in islice(upcoming(expression, after, zone=zone, start=start, end=end), 6)]
    assert all(earlier < later for earlier, later in pairwise([after, *row]))
    single, moment = [], after
    while len(single) < 6:
        found = next_after(expression, moment, zone=zone, start=start, end=end)
        if found is None:
            break
        single.append(found)
        moment = found
    assert single == row
    for earlier, later in pairwise([after, *row]):
        between = earlier + (later - earlier) // 2
        assert next_after(expression, between, zone=zone, start=start, end=end) == later


@given(crons(), moments)
def test_no_gap_is_shorter_than_the_shortest_gap(expression: Expression, after: datetime) -> None:
    row = [one.instant for one in islice(upcoming(expression, after), 20)]
    shortest = expressions.shortest_gap(expression)
    assert all(later - earlier >= shortest for earlier, later in pairwise(row))
