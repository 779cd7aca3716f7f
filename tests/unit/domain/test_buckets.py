"""The grid and its buckets: ticks of instants, names of buckets, shards of tasks."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from tests.builders import no_such_time
from tests.unit.domain.strategies import LAST, grids, instants, intervals, minutes, task_ids
from tests.unit.domain.support import refusal

from dynatick.domain.buckets import MAX_SHARDS, TICK_MINUTES, Bucket, Grid, instant_of, minute_of, parse_time
from dynatick.errors import InvalidInput


@given(intervals, instants)
def test_an_instants_tick_is_never_early_and_less_than_an_interval_late(n: int, instant: datetime) -> None:
    tick = Grid(tick_minutes=n).tick_at_or_after(instant)
    assert tick % n == 0
    assert instant_of(minute_of(instant)) <= instant < instant_of(minute_of(instant) + 1)
    late = (instant_of(tick) if tick <= minute_of(datetime.max.replace(tzinfo=UTC)) else instant) - instant
    assert timedelta() <= late < timedelta(minutes=n)


@given(intervals, minutes)
def test_the_tick_after_a_minute_is_the_first_on_the_grid_that_is_later(n: int, minute: int) -> None:
    after = Grid(tick_minutes=n).tick_after(minute)
    assert (minute < after <= minute + n, after % n) == (True, 0)


def test_the_intervals_are_all_divisors_of_a_day_that_cron_can_express() -> None:
    by_minutes = [n for n in range(1, 60) if 60 % n == 0]
    by_hours = [60 * n for n in range(1, 25) if 24 % n == 0]
    assert list(TICK_MINUTES) == by_minutes + by_hours


@pytest.mark.parametrize(
    ("tick_minutes", "shard_count", "message"),
    [(7, 1, "tickMinutes: 7 is not accepted; expected one of 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 120"),
     (0, 1, "tickMinutes: 0 is not accepted"), (-5, 1, "tickMinutes: -5 is not accepted"),
     (1, 0, "shardCount: 0 is not accepted; expected a number from 1 to 256"),
     (1, 257, "shardCount: 257 is not accepted; expected a number from 1 to 256")],
)  # fmt: skip
def test_a_grid_out_of_range_is_refused(tick_minutes: int, shard_count: int, message: str) -> None:
    with pytest.raises(InvalidInput, match="^" + re.escape(message)):
        Grid(tick_minutes=tick_minutes, shard_count=shard_count)


@pytest.mark.parametrize(
    ("name", "bucket"),
    [("1970-01-01#00:00", Bucket(0)), ("1970-01-01#00:01#7", Bucket(1, 7)), ("2026-12-31#12:00", Bucket(29_978_640)),
     ("2028-02-29#23:59#255", Bucket(30_591_359, 255)), ("9999-01-01#00:00", Bucket(minute_of(LAST) + 1))],
)  # fmt: skip
def test_a_bucket_has_one_name(name: str, bucket: Bucket) -> None:
    assert str(bucket) == name
    assert Bucket.parse(name) == bucket


@given(grids, instants, task_ids)
@example(Grid(tick_minutes=1440), LAST, "x")
def test_the_bucket_of_every_accepted_instant_can_be_read_again(grid: Grid, instant: datetime, task_id: str) -> None:
    bucket = grid.bucket_of(task_id, instant)
    assert Bucket.parse(str(bucket)) == Bucket.canonical(str(bucket)) == bucket
    assert bucket.shard < grid.shard_count


@given(minutes, minutes)
def test_the_order_of_names_is_the_order_of_time(one: int, other: int) -> None:
    assert (str(Bucket(one)) < str(Bucket(other))) == (one < other)


NO_NAMES: dict[str, list[object]] = {
    f"there is no such time ({no_such_time(2026, 12, 31, 24)})": ["2026-12-31#24:00"],
    f"there is no such time ({no_such_time(2027, 2, 29)})": ["2027-02-29#12:00"],
    "expected a time between 1970 and 9998": ["1969-12-31#23:59", "9999-01-01#00:01"],
    "expected a bucket such as 2026-12-31#12:00 or 2026-12-31#12:00#3": [
        "2026-12-31#12:00#0", "2026-12-31#12:00#03", "2026-12-31#12:00#-1", "2026-12-31#12:00#", "2026-12-31 12:00",
        "2026-12-31#12:00#1#2", "2026-12-31#12:00 ", "2026-12-31#12:00\n", "2026-12-31#12:00:30", "2026-1-1#1:00", "",
        None, 7, ["2026-12-31#12:00"], b"2026-12-31#12:00", "٢٠٢٦-12-31#12:00",  # digits, but not ASCII's
    ],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "value"), [(reason, value) for reason in NO_NAMES for value in NO_NAMES[reason]])
def test_a_value_that_is_not_a_buckets_name_is_refused(reason: str, value: object) -> None:
    field, expected = refusal(Bucket.parse, value)
    assert field == "taskDateTime"
    assert expected.startswith(reason)
    assert Bucket.canonical(value) is None


@pytest.mark.parametrize(
    ("task_id", "of_2", "of_3", "of_4", "of_256"),
    [
        # The shard of a task must be the same in every process, on every machine, in every version.
        ("a", 1, 0, 3, 67),  # CRC-32 0xE8B7BE43
        ("task-1", 1, 1, 3, 239),  # 0xC9DFC1EF
        ("order#4711", 0, 2, 2, 174),  # 0x997973AE
        ("ä☃", 0, 0, 2, 2),  # 0xCDD13D02
        ("x" * 1024, 1, 2, 3, 99),  # 0x48D7F063
    ],
)
def test_the_shard_of_a_task_never_changes(task_id: str, of_2: int, of_3: int, of_4: int, of_256: int) -> None:
    assert [Grid(shard_count=n).shard_of(task_id) for n in (1, 2, 3, 4, 256)] == [0, of_2, of_3, of_4, of_256]


@pytest.mark.parametrize("shards", [2, 3, MAX_SHARDS])
def test_tasks_are_spread_evenly_over_shards(shards: int) -> None:
    counts = Counter(Grid(shard_count=shards).shard_of(f"order-{n:06d}") for n in range(400 * shards))
    assert len(counts) == shards
    assert 0.6 * 400 < min(counts.values()) <= max(counts.values()) < 1.4 * 400


def test_a_time_is_a_bucket_or_an_instant() -> None:
    assert parse_time("2026-12-31#12:07") == Bucket(29_978_647)
    assert parse_time(" 2026-12-31#12:07#2 ") == Bucket(29_978_647, 2)
    instant = datetime(2026, 12, 31, 12, 7, tzinfo=UTC)
    for value in ("2026-12-31T13:07:00+01:00", 1_798_718_820, instant.astimezone(timezone(timedelta(hours=1)))):
        assert parse_time(value) == instant
