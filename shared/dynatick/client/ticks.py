"""The ticks of a range: an entry for each pass with work, and for consecutive idle or missed ticks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from dynatick.client.thread_pool import many_rows
from dynatick.client.views import instant_or_none, number_or
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import TICK_GRACE, Bucket, Time, instant_of, minute_of
from dynatick.domain.selection import minutes_between
from dynatick.domain.task import Row
from dynatick.domain.view import View
from dynatick.engine.counts import COUNTERS, Counts, tick_record_id
from dynatick.engine.cursor import Cursor, read_cursors
from dynatick.engine.ports import Store
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import InvalidInput

MAX_DAYS = 7
"""Days for which tick records are kept."""

_BATCH = 100  # records to a request
_LOOK_AHEAD = 1440  # minutes after a range, in which a record may show that its end was idle


@dataclass(kw_only=True, slots=True)
class TickView(Counts, View):
    """A pass over one shard that had work. Counts are of tasks."""

    tick: str
    shard: int
    continuation: Annotated[int, "Which invocation: a pass that runs out of time continues in another."]
    started_at: datetime | None
    finished_at: datetime | None
    lateness_max_ms: Annotated[
        int, "How long after its tick a first attempt began; with `Precision: second`, after it was due."
    ]
    lateness_mean_ms: int
    lateness_p50_ms: Annotated[int, "Half of them began within this."]
    lateness_p99_ms: int
    first_start_ms: Annotated[int | None, "From the start of the pass to the start of its first task."]
    continued: bool

    @property
    def kind(self) -> Annotated[Literal["pass"], ""]:
        return "pass"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ticks(View):
    """Consecutive ticks, without a record each."""

    shard: int
    since: Annotated[str, "The first."]
    until: Annotated[str, "The last."]
    ticks: int


class IdleTicks(_Ticks):
    """Consecutive ticks that found nothing to do."""

    __slots__ = ()

    @property
    def kind(self) -> Annotated[Literal["idle"], ""]:
        return "idle"


class MissedTicks(_Ticks):
    """Consecutive ticks without a record: they did not come, or failed. Tasks that were due ran later."""

    __slots__ = ()

    @property
    def kind(self) -> Annotated[Literal["missed"], ""]:
        return "missed"


class PausedTicks(_Ticks):
    """Consecutive ticks that ran nothing, because the installation was paused."""

    __slots__ = ()

    @property
    def kind(self) -> Annotated[Literal["paused"], ""]:
        return "paused"


TickEntry = TickView | IdleTicks | MissedTicks | PausedTicks

_NUMBERS = {counter.name: counter.attribute for counter in COUNTERS} | {
    "lateness_max_ms": attr.LATENESS_MAX_MS,
    "lateness_mean_ms": attr.LATENESS_MEAN_MS,
    "lateness_p50_ms": attr.LATENESS_P50_MS,
    "lateness_p99_ms": attr.LATENESS_P99_MS,
}
# What a record has besides, by action, takes longer to decode than all of this.
READ = (attr.TICK, attr.SHARD, attr.CONTINUATION, attr.CONTINUED, attr.STARTED_AT, attr.FINISHED_AT,
        attr.FIRST_START_MS, attr.IDLE_BEFORE, *_NUMBERS.values())  # fmt: skip

TickRecord = tuple[int, int, Row]
"""A tick record, with its minute and its shard."""


def minutes_of_range(last: timedelta, start: Time | None, end: Time | None, *, now: datetime) -> range:
    """The minutes of a range; without a ``start`` the latest. Raises InvalidInput."""
    if start is not None:
        minutes = minutes_between(start, instant_of(minute_of(now) + 1) if end is None else end, now)
        if len(minutes) > MAX_DAYS * 1440:
            raise InvalidInput("end", str(instant_of(minutes.stop)), f"expected a range of at most {MAX_DAYS} days")
        return minutes
    if not timedelta() < last <= timedelta(days=MAX_DAYS):
        raise InvalidInput("last", str(last), f"expected a duration above 0, at most {MAX_DAYS} days")
    if end is not None:
        raise InvalidInput("start", None, "expected a start with the end")
    return range(minute_of(now - last) + 1, minute_of(now) + 1)


def ticks(
    store: Store,
    settings: InstallationSettings | None,
    minutes: range,
    *,
    now: datetime,
    read: Sequence[TickRecord] | None = None,
) -> list[TickEntry]:
    """The entries of these minutes, in order of time, then shard. ``read``: their records, if they are read already."""
    if settings is None or not minutes:
        return []
    minutes = range(minutes.start, min(minutes.stop, minute_of(now) + 1))
    shards = range(settings.shards_ever)
    records: defaultdict[int, list[tuple[int, Row]]] = defaultdict(list)
    for minute, of_shard, row in tick_records(store, minutes, shards, READ) if read is None else read:
        if minute in minutes:
            records[of_shard].append((minute, row))
    cursors = read_cursors(store, shards)
    entries: list[tuple[int, int, int, TickEntry]] = []
    for shard in shards:
        found = cursors[shard]
        cursor = found if isinstance(found, Cursor) else None  # the doctor reports a malformed one
        own = records[shard]
        later = _next_record(store, cursor, minutes.stop, shard, now)
        served = {minute: _ended(row, minute) for minute, row in own}  # by its last invocation
        idle = _idle(shard, [row for _, row in own] + later, cursor, served, settings)
        for minute, row in own:
            entries.append((minute, shard, number_or(row.get(attr.CONTINUATION), 0), _view(row)))
        for first, last, run in idle:
            if first < minutes.stop and last >= minutes.start:
                entries.append((max(first, minutes.start), shard, -1, run))
        for first, entry in _without_record(shard, minutes, served, idle, cursor, settings, now):
            entries.append((first, shard, -1, entry))
    return [entry for *_, entry in sorted(entries, key=lambda found: found[:3])]


def tick_records(
    store: Store, minutes: Iterable[int], shards: Iterable[int], only: Collection[str]
) -> list[TickRecord]:
    """Some attributes of the tick records of every minute: the tick interval may have been different."""
    found: list[TickRecord] = []
    wanted = [(minute, shard) for minute in minutes for shard in shards]
    continuation = 0
    while wanted:
        ids = {tick_record_id(minute, shard, continuation): (minute, shard) for minute, shard in wanted}
        rows = many_rows(store, list(ids), consistent=False, only=only)
        found += [(*ids[record], row) for record, row in rows.items()]
        wanted = [ids[record] for record, row in rows.items() if row.get(attr.CONTINUED) is True]
        continuation += 1
    return sorted(found, key=lambda record: record[:2])


def _next_record(store: Store, cursor: Cursor | None, after: int, shard: int, now: datetime) -> list[Row]:
    """The first record after a range, which shows whether its end was idle; empty if there is none near."""
    last = minute_of(now) if cursor is None else _minute(cursor.last_tick) or minute_of(now)
    stop = min(after + _LOOK_AHEAD, last + 1)
    for first in range(after, stop, _BATCH):  # usually one is near
        found = tick_records(store, range(first, min(first + _BATCH, stop)), [shard], READ)
        if found:
            return [found[0][2]]
    return []


def _idle(
    shard: int, records: Sequence[Row], cursor: Cursor | None, served: Mapping[int, int], settings: InstallationSettings
) -> list[tuple[int, int, IdleTicks]]:
    """Consecutive idle ticks: earlier ones are in the record that follows them, the present ones in the cursor."""
    found = [row[attr.IDLE_BEFORE] for row in records if isinstance(row.get(attr.IDLE_BEFORE), Mapping)]
    if cursor is not None and cursor.idle_ticks:
        found.append({attr.SINCE: cursor.idle_since, attr.UNTIL: cursor.last_tick, attr.TICKS: cursor.idle_ticks})
    entries: list[tuple[int, int, IdleTicks]] = []
    for idle in found:
        assert isinstance(idle, Mapping)
        first, last = _minute(idle.get(attr.SINCE)), _minute(idle.get(attr.UNTIL))
        number = number_or(idle.get(attr.TICKS), 0)
        if first is None or last is None or not number:
            continue
        if first in served:  # only the last invocation of a pass was idle
            first = min(last, settings.grid.tick_after(served[first]))
        view = IdleTicks(shard=shard, since=str(Bucket(first)), until=str(Bucket(last)), ticks=number)
        entries.append((first, last, view))
    return entries


def _without_record(
    shard: int,
    minutes: range,
    passes: Mapping[int, int],
    idle: Sequence[tuple[int, int, IdleTicks]],
    cursor: Cursor | None,
    settings: InstallationSettings,
    now: datetime,
) -> list[tuple[int, MissedTicks | PausedTicks]]:
    """The missed and the paused ticks: those without a record, after the first with one, and since the present interval
    holds."""
    served = sorted([*passes.items(), *((first, last) for first, last, _ in idle)])
    if not served or cursor is None:
        return []
    end = minute_of(now - TICK_GRACE) + 1
    if cursor.is_leased(now):  # a pass is running: it serves every tick since the last one
        end = min(end, (_minute(cursor.last_tick) or end) + 1)
    end = min(minutes.stop, max(end, *(last for _, last in served)))
    found: list[tuple[int, MissedTicks | PausedTicks]] = []
    run: list[int] = []
    was_paused = False
    pauses = (*settings.pauses, *((settings.pause,) if settings.pause else ()))
    grid, since = settings.grid, settings.tick_minutes_since
    start = max(minutes.start, served[0][0], 0 if since is None else minute_of(since) + 1)
    minute = grid.tick_after(start - 1)
    begun, through = 0, minute - 1  # how many have begun by then, and the last minute that these serve
    while minute < end:
        while begun < len(served) and served[begun][0] <= minute:
            through = max(through, served[begun][1])
            begun += 1
        is_served = minute <= through
        is_paused = any(pause.covers(instant_of(minute)) for pause in pauses)
        if is_served or is_paused != was_paused:
            _close(run, shard, was_paused, found)
        if not is_served:
            run.append(minute)
        was_paused = is_paused
        minute = grid.tick_after(minute)
    _close(run, shard, was_paused, found)
    return found


def _close(run: list[int], shard: int, was_paused: bool, found: list[tuple[int, MissedTicks | PausedTicks]]) -> None:
    if run:
        kind, since, until = PausedTicks if was_paused else MissedTicks, str(Bucket(run[0])), str(Bucket(run[-1]))
        found.append((run[0], kind(shard=shard, since=since, until=until, ticks=len(run))))
        run.clear()


def _ended(row: Row, minute: int) -> int:
    """The last minute that a pass has served, with the ticks that came while it had the shard lease."""
    finished = instant_or_none(row.get(attr.FINISHED_AT))
    return minute if finished is None else max(minute, minute_of(finished))


def _view(row: Row) -> TickView:
    counts = {name: number_or(row.get(attribute), 0) for name, attribute in _NUMBERS.items()}
    first = row.get(attr.FIRST_START_MS)
    return TickView(
        tick=str(row.get(attr.TICK)),
        shard=number_or(row.get(attr.SHARD), 0),
        continuation=number_or(row.get(attr.CONTINUATION), 0),
        started_at=instant_or_none(row.get(attr.STARTED_AT)),
        finished_at=instant_or_none(row.get(attr.FINISHED_AT)),
        first_start_ms=None if first is None else number_or(first, 0),
        continued=row.get(attr.CONTINUED) is True,
        **counts,
    )


def _minute(tick: object) -> int | None:
    bucket = Bucket.canonical(tick)
    return None if bucket is None else bucket.minute
