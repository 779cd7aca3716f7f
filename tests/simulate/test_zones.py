"""A hundred years of schedules: the comparison holds, and finds what a wrong evaluator would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import chain, islice

import pytest
from tests.simulate import __main__ as command
from tests.simulate import zones as zones_module
from tests.simulate.clocks import minutes_of, spans
from tests.simulate.zones import EXPRESSIONS, FIRST, LAST, compare, compare_near_changes, expected, wall_times

from dynatick.domain.expressions import Occurrence, upcoming
from dynatick.domain.expressions.occurrence import zone_names, zone_of

DAILY, HOURLY = "cron(30 2 * * ? *)", "cron(0 * * * ? *)"
# Whose clocks do what is unusual: half an hour, two, at midnight, for a Ramadan, with a summer that is the standard.
UNUSUAL = ("Australia/Lord_Howe", "Antarctica/Troll", "Asia/Beirut", "Africa/Casablanca", "Europe/Dublin")


@pytest.mark.parametrize("year", [1996, 2026])
def test_the_clocks_of_zones_show_what_zoneinfo_says(year: int) -> None:
    first, last = date(year, 1, 1), date(year + 29, 12, 31)
    for name in sorted(zone_names())[::7]:
        clock = spans(name, first, last)
        assert (clock[0].begin, clock[-1].end) == (minutes_of(first), minutes_of(last) + 1440)
        for span in (clock[0], clock[-1], *clock[1:-1:37]):
            for minute in (span.begin, span.end - 1):
                shown = datetime.fromtimestamp(minute * 60, UTC).astimezone(zone_of(name))
                assert shown.utcoffset() == timedelta(minutes=span.offset), (name, shown)


@pytest.mark.parametrize("name", UNUSUAL)
def test_schedules_of_a_zone_run_when_they_must(name: str) -> None:
    clock = spans(name, FIRST, date(2028, 12, 31))
    found = compare_near_changes(name, clock, chained=True)
    assert found.problems == ()
    assert found.runs > 500 * (len(clock) - 1) > 0


def test_a_hundred_years_of_a_daily_schedule() -> None:
    found = compare("Europe/Berlin", DAILY, spans("Europe/Berlin", FIRST, LAST))
    assert found.problems == ()
    assert (found.runs, found.skipped, found.repeated) == (36524 - 100, 100, 100)


def test_what_is_expected_follows_from_the_clock() -> None:
    clock = spans("Europe/Berlin", date(2026, 3, 28), date(2026, 3, 30))
    assert [datetime.fromtimestamp(run * 60, UTC).isoformat()[:16] for run in expected(DAILY, clock)] == [
        "2026-03-28T01:30",
        "2026-03-30T00:30",
    ]
    clock = spans("Europe/Berlin", date(2026, 10, 25), date(2026, 10, 25))
    assert [run % 1440 // 60 for run in expected(HOURLY, clock)] == [0, *range(2, 24)]  # 02:00 once, at the first


def test_the_expressions_have_the_days_that_a_calendar_has() -> None:
    years = {
        text: [*wall_times(text, minutes_of(date(2026, 1, 1)), minutes_of(date(2027, 1, 1)))] for text in EXPRESSIONS
    }
    days = {text: len({wall // 1440 for wall in walls}) for text, walls in years.items()}
    assert days["cron(0 9 LW * ? *)"] == 12
    assert days["cron(0 0 29 2 ? *)"] == 0
    assert days["cron(0 3 31 * ? *)"] == 7
    assert days["cron(30 2 ? 3,10 1L *)"] == 2
    assert len(years["cron(0/15 * * * ? *)"]) == 365 * 96


Runs = Iterator[Occurrence]


def _again(runs: Runs) -> Runs:
    """With one run a second time."""
    return chain.from_iterable([run, run] if number == 7 else [run] for number, run in enumerate(runs))


def _left_out(runs: Runs) -> Runs:
    return chain(islice(runs, 7), islice(runs, 1, None))


def _later(runs: Runs) -> Runs:
    return (Occurrence(run.instant + timedelta(hours=number == 7)) for number, run in enumerate(runs))


def _swapped(runs: Runs) -> Runs:
    first, second = next(runs), next(runs)
    return chain([second, first], runs)


@pytest.mark.parametrize("wrong", [_again, _left_out, _later, _swapped])
def test_a_wrong_evaluator_is_found(wrong: Callable[[Runs], Runs], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones_module, "upcoming", lambda *args, **given: wrong(upcoming(*args, **given)))
    found = compare("UTC", DAILY, spans("UTC", FIRST, date(2026, 1, 31)))
    assert len(found.problems) == 1
    assert f"{DAILY} in UTC: 2026-01-" in found.problems[0]


def test_zones_are_shown_and_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(zones_module, "LAST", date(2026, 12, 31))
    assert command.main(["--of", "zones", "--zones", "2", "--seed", "3"]) == 0
    *_, row = capsys.readouterr().out.strip().splitlines()
    zones, clocks, changes, expressions, runs, *_, wrong, _ = (cell.strip() for cell in row.strip("|").split("|"))
    assert (clocks, expressions, wrong) == ("2", str(len(EXPRESSIONS)), "0")
    assert int(zones.replace(",", "")) >= 2
    assert int(changes.replace(",", "")) >= 0
    assert int(runs.replace(",", "")) > 2 * 365 * (96 + 24)
