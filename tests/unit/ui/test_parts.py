"""The pure parts: heights of bars, errors that are alike, how values are shown, links."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest
from tests.builders import NOON

from dynatick.client.operations import MinuteCounts, TickView
from dynatick.domain.buckets import minute_of
from dynatick.ui import links
from dynatick.ui.chart import KINDS, Bar, Chart, FailureBars, Pace, middle, parts, summary
from dynatick.ui.display import clock, duration, many, relative
from dynatick.ui.kept import Recent
from dynatick.ui.readings import rates_of


def bar(minutes: int = 1, **counts: int) -> Bar:
    return Bar(start=NOON, minutes=minutes, counts=counts)


@pytest.mark.parametrize(
    "counts",
    [{"completed": 1}, {"completed": 100_000, "failed": 1}, dict.fromkeys(KINDS, 1), {"failed": 7, "missed": 1}],
)
def test_parts_of_a_bar_are_linear_and_without_gap(counts: dict[str, int]) -> None:
    drawn, total = parts(bar(**counts), 120, 2 * sum(counts.values())), sum(counts.values())
    assert [one.kind for one in drawn] == [kind for kind in KINDS if kind in counts]
    bottom = 120.0
    for part in drawn:
        assert part.height == pytest.approx(60 * counts[part.kind] / total, abs=0.06)
        assert part.y + part.height == pytest.approx(bottom, abs=0.11)
        bottom = part.y
    assert bottom == 60, "half of the largest has half of the height"


def heights(path: str) -> list[float]:
    return [float(y) - float(top) for y, top in re.findall(r"M\d+ ([\d.]+)V([\d.]+)", path)]


def test_a_chart_has_what_failed_in_a_row_of_its_own_where_one_is_seen_and_a_hundred_is_more() -> None:
    bars = [
        Bar(start=NOON + timedelta(minutes=n), minutes=1, counts={"completed": 1000} if failed else {}, attempts=failed)
        for n, failed in enumerate((1, 100, 0, 1000))
    ]
    drawn = Chart(bars=bars, step=10, height=148)
    assert (drawn.largest, drawn.most_failures) == (1000, 1000)
    assert heights(drawn.failures) == [3, 3, 24], "no less than can be seen"
    assert heights(replace(drawn, bars=bars[:2]).failures) == [3, 24]
    assert heights(replace(drawn, bars=bars[:1]).failures) == [24], "and the largest is printed"
    assert heights(drawn.lines["completed"]) == [120, 120, 120]
    assert [x for x, _ in drawn.shown] == [0, 10, 30]


def test_a_chart_that_is_loaded_apart_has_few_bytes() -> None:
    bars = [
        Bar(start=NOON + timedelta(minutes=n), minutes=1, counts=counts, attempts=0)
        for n, counts in enumerate(({"completed": 4}, {"completed": 2, "failed": 2}, {}, {"completed": 1}))
    ]
    drawn = Chart(bars=bars, step=10, height=42)
    assert drawn.lines == {"completed": "4:0 14 34:21", "failed": "14:14-0"}
    assert drawn.failures == ""
    assert [x for x, _ in drawn.links] == [0, None, 30]


def test_a_time_without_records_has_its_failed_tasks_in_the_row() -> None:
    uncounted, counted = (Bar(start=NOON, minutes=1, counts={"failed": 2}, attempts=n) for n in (None, 5))
    assert (uncounted.failures, uncounted.words) == (2, "2 failed")
    assert (counted.failures, counted.words) == (5, "2 failed, 5 failed attempts")
    assert Bar(start=NOON, minutes=1, counts={}, attempts=1).is_shown
    assert not Bar(start=NOON, minutes=1, counts={}, attempts=0).is_shown


def test_now_stands_at_now_and_only_in_the_chart_that_it_is_in() -> None:
    drawn = Chart(bars=[bar(15, completed=1), replace(bar(15), start=NOON + timedelta(minutes=15))], step=10, height=84)
    places = [drawn.place_of(NOON + timedelta(minutes=minutes)) for minutes in (-1, 0, 12, 15, 29.25, 30)]
    assert places == [None, 0, 8, 10, 19.5, None]


def test_a_chart_knows_how_many_tasks_the_ticks_of_a_bar_can_run() -> None:
    drawn = Chart(bars=[bar(completed=400)], step=10, height=148)
    assert drawn.capacity is None, "not known"
    assert (Pace(5.0, 1).of(1), Pace(5.0, 5).of(1), Pace(5.0, 5).of(15)) == (300, 1500, 4500)
    assert replace(drawn, pace=Pace(5.0, 1)).capacity == 300


def test_the_pace_is_that_of_ticks_with_many_tasks() -> None:
    def tick(minute: int, begin: float, end: float, shard: int = 0) -> TickView:
        at = NOON + timedelta(minutes=minute)
        return TickView(
            tick=f"2026-12-31#12:{minute:02}", shard=shard, continuation=0, continued=False, first_start_ms=None,
            started_at=at + timedelta(seconds=begin), finished_at=at + timedelta(seconds=end),
            lateness_max_ms=0, lateness_mean_ms=0, lateness_p50_ms=0, lateness_p99_ms=0,
        )  # fmt: skip

    first = minute_of(NOON)
    counts = {first + n: MinuteCounts(completed=90, failures=30) for n in range(5)} | {
        first: MinuteCounts(completed=99)
    }
    counts[first + 3] = MinuteCounts(completed=500, has_wake_ups=True)
    entries = [
        tick(0, 0, 1), tick(1, 1, 11), tick(2, 0, 20), tick(2, 10, 40, shard=1), tick(3, 0, 1), tick(6, 0, 1),
    ]  # fmt: skip
    assert rates_of(entries, counts) == [12, 3], "both shards at once; not of few tasks, nor where wake-ups ran others"


def test_a_scale_names_a_round_number_near_its_middle() -> None:
    named = {0: None, 1: None, 2: 1, 3: 2, 5: 2, 7: 4, 9: 5, 10: 5, 99: 50, 505: 300, 2408: 1000, 100_000: 50_000}
    assert {largest: middle(largest) for largest in named} == named
    for largest in range(4, 3000):
        value = middle(largest)
        assert value is not None and 0.4 <= value / largest <= 0.6
        assert len(str(value).rstrip("0")) <= 2, "two digits, and noughts"


def test_the_line_of_the_middle_is_where_its_number_is() -> None:
    drawn = Chart(bars=[bar(completed=505)], step=10, height=148)
    assert (drawn.bars_height, drawn.middle) == (120, pytest.approx(120 * (1 - 300 / 505), abs=0.06))
    assert Chart(bars=[bar(completed=1)], step=10, height=148).middle == 120


def test_failed_attempts_are_drawn_linearly_from_zero_and_the_largest_fills_the_height() -> None:
    first = minute_of(NOON)
    failed = FailureBars.of(
        {first: 1, first + 3: 100, first + 4: 900, first + 60: 5}, NOON, NOON + timedelta(hours=1), 2
    )
    assert (failed.total, failed.largest, len(failed.numbers)) == (1001, 900, 30)
    assert [(n, round(share, 4)) for n, _, share in failed.bars] == [(0, 0.0011), (1, 0.1111), (2, 1.0)]
    assert failed.name(1) == "31 Dec 12:02: 100 failed attempts"
    assert FailureBars.of({}, NOON, NOON + timedelta(hours=1), 1).bars == []


def test_a_bar_has_a_name_and_leads_to_its_tasks() -> None:
    assert bar(completed=1204, failed=1).name == "12:00: 1,204 completed, 1 failed"
    assert bar(completed=1).url == "/buckets/2026-12-31T12:00Z"
    assert bar(15, completed=1).url == "/timeline?span=hour&from=2026-12-31T12%3A00Z"
    assert Bar(start=NOON, minutes=1, counts={}, is_gap=True).name == "12:00: ticks did not come"
    assert summary([bar(failed=1), bar(failed=2, completed=3)]) == {"completed": 3, "failed": 3}
    assert summary([replace(bar(failed=1), attempts=4), bar()]) == {"failed": 1, "attempts": 4}


def test_instants_and_durations_are_as_short_as_can_be_understood() -> None:
    assert clock(NOON, NOON) == "12:00"
    assert clock(NOON + timedelta(seconds=5), NOON) == "12:00:05"
    assert clock(NOON + timedelta(days=1), NOON) == "01 Jan 12:00"
    assert clock(NOON - timedelta(days=400), NOON) == "2025-11-26 12:00"
    assert relative(NOON - timedelta(seconds=12), NOON) == "12 s ago"
    assert relative(NOON + timedelta(days=3), NOON) == "in 3 days"
    assert relative(NOON, NOON) == "now"
    assert (many(1, "task"), many(1200, "task")) == ("1 task", "1,200 tasks")
    shown = {None: "\u2013", 0: "0 ms", 999: "999 ms", 1200: "1.2 s", 12_000: "12 s", 120_000: "2 min"}
    assert {milliseconds: duration(milliseconds) for milliseconds in shown} == shown


@pytest.mark.parametrize("text", ["a", "..", ".", "~", "~..", "a/b", "ä%41", "2026-12-31#12:00"])
def test_a_segment_stands_for_its_text(text: str) -> None:
    segment = links.segment(text)
    assert segment not in (".", "..") and "/" not in segment
    assert links.of_segment(segment) == text


def test_of_several_readers_one_reads() -> None:
    recent, reads, together = Recent(60), [], Barrier(8)

    def read() -> int:
        reads.append(1)
        return len(reads)

    def ask() -> None:
        together.wait()
        assert recent.get("key", read) == 1

    with ThreadPoolExecutor(8) as readers:
        for asked in [readers.submit(ask) for _ in range(8)]:
            asked.result()
    assert len(reads) == 1
    recent.clear()
    assert recent.get("key", read) == 2
    assert [Recent(0).get("key", read) for _ in range(2)] == [3, 4]
