"""Which buckets and which tasks arguments select, and the words that select the same. What is refused: with the client,
the command line, the HTTP API and the pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import NOON

from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.selection import Selection
from dynatick.errors import InvalidInput

NOW = NOON + timedelta(seconds=30)
BUCKET = "2026-12-31#12:00"
MINUTE = Bucket.parse(BUCKET).minute


def select(bucket: str | Bucket | None = None, *, shards_ever: int = 1, **arguments: Any) -> Selection:
    return Selection.of(bucket, now=NOW, shards_ever=shards_ever, **arguments)


@pytest.mark.parametrize(
    ("arguments", "minutes"),
    [
        ({"bucket": "2026-12-31#12:00"}, range(1)),
        ({"start": "2026-12-31T12:00:00Z", "end": "2026-12-31T12:02:00Z"}, range(2)),
        ({"start": "2026-12-31#12:00", "end": NOON + timedelta(seconds=61)}, range(2)),
        ({"start": "-1m", "end": "now"}, range(2)),  # the minutes that begin in it, and the next tick's
        ({"start": "now", "end": "+90s"}, range(1, 2)),
        ({"last": "1m"}, range(2)),
        ({"last": timedelta(minutes=2, seconds=30)}, range(-2, 2)),
        ({"last": "1m", "grid": Grid(tick_minutes=5)}, range(6)),
        ({"next": "2m"}, range(1, 3)),
        ({"next": timedelta(hours=1), "last": "1m"}, range(61)),
    ],
)
def test_the_minutes_of_a_range(arguments: Mapping[str, Any], minutes: range) -> None:
    assert select(**arguments).minutes == range(MINUTE + minutes.start, MINUTE + minutes.stop)


def test_the_buckets_of_all_shards_in_order_or_the_latest_first() -> None:
    named = [str(bucket) for bucket in select("2026-12-31#12:00#7", shards_ever=2).buckets()]
    assert named == ["2026-12-31#12:00#7"]
    two = select(start="-1m30s", end="+30s", shards_ever=2)
    early, late = Bucket(MINUTE - 1), Bucket(MINUTE)
    assert list(two.buckets()) == [early, Bucket(MINUTE - 1, 1), late, Bucket(MINUTE, 1)]
    assert list(two.buckets(since=Bucket(MINUTE - 1, 1))) == [Bucket(MINUTE - 1, 1), late, Bucket(MINUTE, 1)]
    assert list(two.buckets(latest_first=True)) == [late, Bucket(MINUTE, 1), early, Bucket(MINUTE - 1, 1)]
    assert list(two.buckets(latest_first=True, since=Bucket(MINUTE, 1)))[1:] == [early, Bucket(MINUTE - 1, 1)]
    assert late in two and Bucket(MINUTE, 2) not in two and Bucket(MINUTE + 1) not in two


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({}, True), ({"status": "failed"}, True), ({"status": "completed"}, False), ({"action": "mail"}, True),
        ({"action": "log"}, False), ({"schedule_id": "s"}, True), ({"schedule_id": "t"}, False),
        ({"error": "503 SERVICE"}, True), ({"error": "504"}, False), ({"error": str.isupper}, False),
    ],
)  # fmt: skip
def test_what_fits(filters: Mapping[str, Any], fits: bool) -> None:
    assert select(last="1h", **filters).fits(BUCKET, "failed", "mail", "s", "answered 503 service unavailable") is fits


def test_of_a_range_up_to_now_what_waits_for_a_later_tick_does_not_fit() -> None:
    later = "2026-12-31#12:01"
    for status in ("scheduled", "unscheduled"):
        assert select(last="1h").fits(BUCKET, status, "mail", None, None)
        assert not select(last="1h").fits(later, status, "mail", None, None)
        assert select(start="-1h", end="+10m").fits(later, status, "mail", None, None)
    assert select(last="1h").fits(later, "completed", "mail", None, None), "it ran before the tick of its bucket"


def test_a_subject_needs_no_range_and_may_have_one() -> None:
    ever = select(subject="customer:ada")
    assert (ever.has_range, ever.is_all_of_subject, ever.is_divisible) == (False, True, False)
    assert ever.holds("2026-12-31#12:00") and ever.holds(""), "one without a bucket, too"
    assert ever.words() == {"subject": "customer:ada"}
    narrowed = select("2026-12-31#12:00", subject="customer:ada", action="mail")
    assert (narrowed.has_range, narrowed.is_all_of_subject) == (True, False)
    assert [narrowed.holds(name) for name in ("2026-12-31#12:00", "2026-12-31#12:01", "")] == [True, False, False]
    assert narrowed.words() == {"bucket": "2026-12-31#12:00", "subject": "customer:ada", "action": "mail"}


def test_its_words_select_the_same_later() -> None:
    filters = {"status": "failed", "action": "log", "prefix": "a-"}
    words = select(last="1h", schedule_id="s", **filters).words()
    between = {"from": "2026-12-31T11:01:00Z", "to": "2026-12-31T12:01:00Z"}
    assert words == {**between, **filters, "schedule": "s"}
    assert select(start=words["from"], end=words["to"]).minutes == range(MINUTE - 59, MINUTE + 1)
    assert select("2026-12-31#12:00#1").words() == {"bucket": "2026-12-31#12:00#1"}


@pytest.mark.parametrize(
    ("arguments", "field", "expected"),
    [
        ({"next": "2h", "start": "now"}, "next", "expected either a duration or a range, not both"),
        ({"next": "2h", "bucket": BUCKET}, "bucket", "expected either a bucket or a range, not both"),
        ({"next": "soon"}, "next", "expected numbers with their units"),
        ({"next": 5}, "next", "expected a duration: a timedelta"),
        ({"next": "0s"}, "next", "expected a duration above 0"),
        ({"last": "0s"}, "last", "expected a duration above 0"),
        ({"last": timedelta(hours=-1)}, "last", "expected a duration above 0"),
        ({"start": "+30m", "end": "now"}, "end", "expected a time later than start, .30m"),
        ({"next": timedelta(-1)}, "next", "expected a duration above 0"),
        ({"next": "40d"}, "next", "expected a range of at most 31 days"),
        ({"last": "20d", "next": "20d"}, "last", "expected a range of at most 31 days"),
    ],
)
def test_a_time_from_now_on_that_is_refused(arguments: Mapping[str, Any], field: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected) as refused:
        select(**arguments)
    assert refused.value.field == field
