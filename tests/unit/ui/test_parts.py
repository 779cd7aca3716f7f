"""The pure parts: heights of bars, errors that are alike, how values are shown, links."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from tests.builders import NOON

from dynatick.domain.buckets import minute_of
from dynatick.ui import links
from dynatick.ui.chart import KINDS, Bar, FailureBars, height_of, parts, summary
from dynatick.ui.display import clock, duration, many, relative
from dynatick.ui.readings import error_pattern
from dynatick.ui.recent import Recent


def bar(minutes: int = 1, **counts: int) -> Bar:
    return Bar(start=NOON, minutes=minutes, counts=counts)


def test_heights_grow_with_the_logarithm_and_end() -> None:
    heights = [height_of(tasks) for tasks in (0, 1, 10, 100, 1000, 10**6)]
    assert heights == sorted(heights)
    assert (heights[:2], heights[4:]) == ([0, 0.2], [1, 1])
    assert height_of(1000, 60) < 1


@pytest.mark.parametrize(
    "counts",
    [{"completed": 1}, {"completed": 100_000, "failed": 1}, dict.fromkeys(KINDS, 1), {"failed": 7, "missed": 1}],
)
def test_parts_fill_a_bar_without_gap_and_each_is_seen(counts: dict[str, int]) -> None:
    drawn = parts(bar(**counts), 100)
    assert [one.kind for one in drawn] == [kind for kind in KINDS if kind in counts]
    bottom = 100.0
    for part in drawn:
        assert part.height >= 2
        assert abs(part.y + part.height - bottom) < 0.2
        bottom = part.y
    assert bottom >= -0.2


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


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("no such mailbox: ada1@example.com", "no such mailbox: bob@example.com"),
        ("order 10001 is gone", "order 20002 is gone"),
        ("KeyError: 'user-17'", "KeyError: 'user-18'"),
        ("row 5f2c1a9e-0000-4000-8000-000000000001", "row 00000000-0000-4000-8000-000000000002"),
        ("it broke\nat line 1", "it broke\nat line 2"),
    ],
)
def test_errors_that_name_single_things_are_alike_and_so_is_their_shape(first: str, second: str) -> None:
    assert error_pattern(first) == error_pattern(second) == error_pattern(error_pattern(first))
    assert error_pattern("answered 503") != error_pattern("answered 404")
    assert error_pattern("ValueError: a") != error_pattern("TypeError: a")


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
