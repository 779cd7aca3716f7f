"""Lines of a crontab become schedules that run when cron would, and never at another time."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit import brute_force
from tests.unit.bulk.support import row_of

from dynatick.bulk.conversion import Conversion
from dynatick.bulk.crontab import read_crontab
from dynatick.domain.expressions import parse_expression, upcoming
from dynatick.domain.expressions.occurrence import zone_of

NOW = datetime(2026, 11, 23, 6, 4, 30, tzinfo=UTC)

FILE = """\
# m h  dom mon dow   command
SHELL=/bin/bash
MAILTO = "ops@example.com"

*/5 * * * *  /usr/bin/poll --all
CRON_TZ=Europe/Berlin
30 2 * * mon-fri  /usr/bin/report
@daily\t/usr/bin/rotate
0 22 1 */3 *  mail -s "100\\%" ada@example.com%Dear Ada,%%the quarter is over
"""


def converted(text: str, zone: str | None = "UTC") -> list[Conversion]:
    return list(read_crontab(text, action="run-command", zone=zone, now=NOW))


def test_a_file_of_a_user() -> None:
    shell, mail, zone, poll, report, rotate, quarter = converted(FILE, None)
    for one, name in ((shell, "SHELL"), (mail, "MAILTO")):
        assert (one.row, one.error) == (None, None)
        assert one.notes == (f"{name} is left out: set what the command needs in the handler's environment",)
    assert {name: value for name, value in row_of(poll).items() if name != "taskId"} == {
        "scheduleExpression": "cron(0/5 * * * ? *)", "scheduleExpressionTimezone": "UTC", "action": "run-command",
        "payload": {"command": "/usr/bin/poll --all"}, "catchUp": "none", "overlap": "allow",
        "retryPolicy": {"maximumRetryAttempts": 0}, "description": "/usr/bin/poll --all",
    }  # fmt: skip
    assert [(one.line, one.name) for one in (poll, quarter)] == [(5, "line 5"), (9, "line 9")]
    assert (zone.name, zone.row, poll.notes, report.notes) == ("line 5", None, (), ())
    (note,) = zone.notes
    assert "on the clock of UTC" in note and "--tz" in note
    assert [(row_of(one)["scheduleExpression"], row_of(one)["payload"]) for one in (report, rotate, quarter)] == [
        ("cron(30 2 ? * MON-FRI *)", {"command": "/usr/bin/report"}),
        ("cron(0 0 * * ? *)", {"command": "/usr/bin/rotate"}),
        (
            "cron(0 22 1 1/3 ? *)",
            {"command": 'mail -s "100%" ada@example.com', "stdin": "Dear Ada,\n\nthe quarter is over\n"},
        ),
    ]
    assert {row_of(one)["scheduleExpressionTimezone"] for one in (report, rotate, quarter)} == {"Europe/Berlin"}


def test_ids_and_descriptions_say_what_it_is() -> None:
    text = """\
# Copies of all that customers sent,
#  to the other region
15 * * * * cd /srv/app && ./manage.py copy --to eu-west-1 > /dev/null 2>&1

@daily /usr/local/bin/a-very-long-name-of-a-program --with=options --that=say --nothing
@daily 'ö'
"""
    copy, long, odd = map(row_of, converted(text))
    assert [re.fullmatch(r"(.*?)-?[0-9a-f]{8}", str(row["taskId"]))[1] for row in (copy, long, odd)] == [  # type: ignore[index]
        "cd-app-manage-py-copy-to-eu-west-1", "a-very-long-name-of-a-program-with-optio", "",
    ]  # fmt: skip
    assert copy["description"] == "Copies of all that customers sent, to the other region"
    assert odd["description"] == "'ö'"
    assert row_of(converted(text)[0])["taskId"] == copy["taskId"], "the same line has the same id"
    assert row_of(converted(text.replace("15 *", "16 *"))[0])["taskId"] != copy["taskId"]


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("0 9 * * 7", "cron(0 9 ? * SUN *)"),
        ("0 9 * * 5-7", "cron(0 9 ? * SUN,FRI,SAT *)"),
        ("0 9 * * */2", "cron(0 9 ? * SUN,TUE,THU,SAT *)"),
        ("0 9 * jan,JUL Sun", "cron(0 9 ? 1,7 SUN *)"),
        ("5,10,15 8-18/5 * * *", "cron(5-15/5 8-18/5 * * ? *)"),
        ("10-59/25 0 1 2 *", "cron(10,35 0 1 2 ? *)"),
        ("*/90 * * * *", "cron(0 * * * ? *)"),
        ("0 0 */1 * 1", "cron(0 0 ? * MON *)"),  # every day of the month: Mondays
        ("0 0 1-31 * 1", "cron(0 0 * * ? *)"),  # either is enough: every day
        ("@yearly", "cron(0 0 1 1 ? *)"),
    ],
)
def test_a_line_and_its_expression(line: str, expression: str) -> None:
    (one,) = converted(f"{line} do")
    assert row_of(one)["scheduleExpression"] == expression


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("0 9 1,15 * 5 x", "line", "days that either names"),
        ("0 9 1,15 * 5 x", "line", "cron(0 9 1,15 * ? *) and cron(0 9 ? * FRI *) would run it twice"),
        ("0 9 */2 * 1 x", "line", "days that both name"),
        ("0 22-2 * * * x", "hour", "a range that ends after it begins"),
        ("* * * * 8 x", "day of week", "numbers from 0 to 7"),
        ("5/10 * * * * x", "minute", "a range or '*' before the step"),
        ("*/0 * * * * x", "minute", "a step from 1 on"),
        ("² * * * * x", "minute", "numbers from 0 to 59"),
        ("0 0 30 2 * x", "scheduleExpression", "it never runs"),
        ("* * * * *", "line", "five fields and a command"),
        ("@daily", "line", "a command"),
        ("@reboot x", "line", "no machine here that starts"),
        ("@fortnightly x", "line", "@yearly"),
        ("17 * * * * root run-parts /etc/cron.hourly", "line", "leave that field out"),
        ("CRON_TZ=Europe/Brelin", "CRON_TZ", "Europe/Berlin"),
    ],
)
def test_what_is_refused_has_its_reason(line: str, field: str, expected: str) -> None:
    (one,) = converted(line)
    assert one.row is None and one.error is not None
    assert one.error.field == field and expected in one.error.expected, one.error


def test_after_a_time_zone_that_is_not_known_no_line_is_accepted() -> None:
    zone, line, other = converted("CRON_TZ=Nowhere/Land\n0 9 * * * x\nCRON_TZ=Asia/Tokyo\n0 9 * * * x")[:3]
    assert zone.error is not None and line.error is not None and "CRON_TZ before it" in str(line.error)
    assert row_of(other)["scheduleExpressionTimezone"] == "Asia/Tokyo"


def test_ids_follow_from_what_a_line_says() -> None:
    (one,), (again,) = converted("0 9 * * * x"), converted("# moved\n\n00  9 * * *   x")
    assert one.row == again.row
    texts = ("0 9 * * * x", "1 9 * * * x", "0 9 * * * y", "CRON_TZ=Asia/Tokyo\n0 9 * * * x")
    assert len({row_of(converted(text)[-1])["taskId"] for text in texts}) == 4


@pytest.mark.parametrize(
    ("line", "zone", "expected"),
    [
        ("*/15 * * * *", "Europe/Berlin", "UTC"),  # so that it runs in the hour that comes twice
        ("7 0-23 * * *", "Europe/Berlin", "Europe/Berlin"),  # without '*', cron leaves the repeated hour out
        ("*/15 * * * *", "Asia/Kolkata", "Asia/Kolkata"),  # half an hour from UTC
        ("*/15 * * * 1", "Europe/Berlin", "Europe/Berlin"),
    ],
)
def test_a_line_of_every_hour_is_kept_on_the_clock_of_utc(line: str, zone: str, expected: str) -> None:
    (one,) = converted(f"{line} do", zone)
    assert row_of(one)["scheduleExpressionTimezone"] == expected


def test_where_the_clock_changes_it_is_said_when() -> None:
    (one,) = converted("30 2 * * * x", "Europe/Berlin")
    in_spring, in_autumn = one.notes
    assert in_spring.startswith("02:30 does not exist on 2027-03-28: skipped; cron may run it once more then")
    assert in_autumn.startswith("02:30 comes twice on 2027-10-31")
    (same,) = converted("30 2 * * * x", "Asia/Tokyo")
    assert same.notes == ()


def fields(first: int, last: int, names: tuple[str, ...] = (), begin: int = 0) -> st.SearchStrategy[str]:
    """Draws a field of a crontab: lists of values, ranges and steps."""
    value = st.integers(first, last)
    named = [names[number - begin] if 0 <= number - begin < len(names) else str(number) for number in range(last + 1)]
    single = value.map(str) | value.map(named.__getitem__)
    spans = st.tuples(value, value, st.sampled_from([str, named.__getitem__])).map(
        lambda drawn: "-".join(drawn[2](one) for one in sorted(drawn[:2]))
    )
    stepped = st.builds("{}/{}".format, st.one_of(st.just("*"), spans), st.integers(1, last))
    listed = st.lists(st.one_of(single, spans, stepped), min_size=1, max_size=4).map(",".join)
    return st.one_of(st.just("*"), st.just("*"), listed)


MONTHS = tuple(name.lower() for name in brute_force.MONTHS)
LINES = st.tuples(
    fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12, MONTHS, 1), fields(0, 7, brute_force.WEEKDAYS)
).map(" ".join)
MOMENTS = st.integers(0, 5 * 365 * 86_400).map(lambda seconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(0, seconds))
CHANGES = st.sampled_from(
    [datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC), datetime(2027, 12, 31, tzinfo=UTC)]
).flatmap(lambda instant: st.integers(0, 200_000).map(lambda seconds: instant - timedelta(seconds=seconds)))


def both(line: str, zone: str, after: datetime, number: int) -> tuple[list[datetime], list[datetime]]:
    """The next instants of cron, by brute force, and of the schedule."""
    (one,) = read_crontab(f"{line} x", action="run-command", zone=zone, now=after)
    if one.row is None:
        known = "either names|both name|never runs|at most|a range that ends"
        assert re.search(known, str(one.error)), one.error
        assume(False)
    row = row_of(one)
    ours = upcoming(parse_expression(row["scheduleExpression"]), after, zone=row["scheduleExpressionTimezone"])
    theirs = brute_force.crontab_runs(line.upper(), after, zone_of(zone))
    return list(islice(theirs, number)), [run.instant for run in islice(ours, number)]


@given(LINES, MOMENTS, st.sampled_from(["UTC", "Asia/Kolkata"]))
def test_a_schedule_runs_when_the_line_would(line: str, after: datetime, zone: str) -> None:
    theirs, ours = both(line, zone, after, 10)
    assert theirs == ours


@given(LINES, CHANGES)
def test_where_the_clock_changes_a_schedule_runs_at_no_time_that_cron_would_not(line: str, after: datetime) -> None:
    theirs, ours = both(line, "Europe/Berlin", after, 60)
    assume(theirs)
    assert {one for one in ours if one <= theirs[-1]} <= set(theirs)
    assert len(theirs) == 60 or len(ours) < 60


@given(LINES, st.one_of(MOMENTS, CHANGES), st.sampled_from(["UTC", "Europe/Berlin"]))
def test_brute_force_runs_a_line_when_cronsim_does(line: str, after: datetime, zone: str) -> None:
    assume(not re.search(r"\b(\w+)-\1/", line))  # which cronsim takes for a range to the end of the field
    with suppress(CronSimError):  # a day that never comes
        theirs = CronSim(line.upper(), after.astimezone(zone_of(zone)))
        expected = [one.astimezone(UTC) for one in islice(theirs, 20)]
        found = brute_force.crontab_runs(line.upper(), after, zone_of(zone))
        assert list(islice(found, len(expected))) == expected
