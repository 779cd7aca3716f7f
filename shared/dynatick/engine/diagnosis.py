"""What can be wrong with a row or with the cursor of a shard. Pure: ``reconcile`` reads and repairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import EPOCH, format_instant
from dynatick.domain.normalise import needs_normalising
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.schedule import is_at_rest
from dynatick.domain.task import Row, is_own_row
from dynatick.domain.view import View
from dynatick.engine.claims import LONGEST_LEASE, lease_is_over
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.engine.placement import make_ready
from dynatick.engine.rules import Rules
from dynatick.engine.settings import SETTINGS_ID, InstallationSettings
from dynatick.errors import InvalidInput

_STALE_AFTER = timedelta(hours=1)  # after its lease; a tick reclaims a task long before
_TICKS_MISSED = 3
_CLOSED_LATE = timedelta(minutes=2)  # in addition to the missed ticks
_CLOSED_EARLY = timedelta(minutes=5)  # the clock of the machine that runs the doctor may be wrong by that much
_DRAINED_LATE = timedelta(hours=1)  # more than the longest lease and the longest index lag


class Kind(StrEnum):
    """What is wrong, in a word."""

    NEVER_NORMALISED = "never-normalised"  # it was never made a task
    NOT_UNDERSTOOD = "not-understood"  # it cannot be made a task, and is not marked failed
    NO_BUCKET = "no-bucket"  # its taskDateTime names none
    UNSERVED_SHARD = "unserved-shard"  # its shard was never in use
    BEHIND_CURSOR = "behind-cursor"  # its bucket was drained without it
    NO_OUTCOME = "no-outcome"  # its status says that it has ended, and nothing else does
    NULL_OUTCOME = "null-outcome"  # it has not ended, and carries an outcome that is NULL
    MAY_EXPIRE = "may-expire"  # it has not ended and carries an expiry
    STALE_LEASE = "stale-lease"  # running, and not reclaimed since its lease expired
    ENDLESS_LEASE = "endless-lease"  # running for longer than any process can
    PROCESSOR_FAILS = "processor-fails"  # the processor can't start, so no tick runs anything
    NO_TICK = "no-tick"  # no tick has come yet
    CURSOR_BEHIND = "cursor-behind"  # ticks don't come, or don't close their buckets
    CURSOR_STUCK = "cursor-stuck"  # ticks come, but a bucket is not drained
    CURSOR_AHEAD = "cursor-ahead"  # future buckets are closed
    CURSOR_UNREADABLE = "cursor-unreadable"  # the shard cannot be served
    LIMITS_STUCK = "limits-stuck"  # tasks wait for limit keys, and no tick acquires the limits lease for them


REMEDIES: Mapping[Kind, str] = {
    Kind.NEVER_NORMALISED: "it is made a task",
    Kind.NOT_UNDERSTOOD: "the daily reconcile marks it failed with the reason, which goes to the dead-letter queue too",
    Kind.NO_BUCKET: "it goes to the next tick",
    Kind.UNSERVED_SHARD: "it goes to a shard that is served",
    Kind.BEHIND_CURSOR: "it goes to the next tick",
    Kind.NO_OUTCOME: "its outcome is set to its status",
    Kind.NULL_OUTCOME: "the attribute is removed",
    Kind.MAY_EXPIRE: "its expiry is removed",
    Kind.STALE_LEASE: "the next tick reclaims it",
    Kind.ENDLESS_LEASE: "its lease was written by hand: it is ended, and the next tick reclaims the task",
    Kind.PROCESSOR_FAILS: "repair it and deploy again; the next tick runs what is due",
    Kind.NO_TICK: "see that the rule is enabled and the processor runs",
    Kind.CURSOR_BEHIND: "see that the rule is enabled and the processor runs; the next tick catches up",
    Kind.CURSOR_STUCK: "find what holds it back: a task that keeps running, or a processor that keeps failing",
    Kind.CURSOR_AHEAD: "find the clock that is wrong; what is due runs once the time has come",
    Kind.LIMITS_STUCK: "see that ticks come and are not cut short; a record that was changed by hand: delete it",
    Kind.CURSOR_UNREADABLE: "it was changed by hand: delete it, then repair by the doctor; the next tick makes it anew",
}
"""What repairs each kind. A cursor needs a person."""

_WHILE_PAUSED = (Kind.NO_TICK, Kind.CURSOR_BEHIND, Kind.CURSOR_STUCK)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding(View):
    """Something wrong with a row, which may be a cursor."""

    kind: Kind
    task_id: str
    why: Annotated[str, "Without anything of the payload."]
    repaired: bool = False
    left: Annotated[str | None, "Why the repair failed."] = None

    @property
    def remedy(self) -> Annotated[str, "What to do about it."]:
        return REMEDIES[self.kind]


def what_is_wrong(
    row: Row, rules: Rules, settings: InstallationSettings, drained: Mapping[int, int], now: datetime
) -> Finding | None:
    """What is wrong with a row; None: some tick will run it, or it needs none.

    ``drained``: the drained watermarks of the shards whose cursor can be read. They only grow, so no tick will poll a
    bucket at or before its shard's.
    """
    if is_terminal(row) or is_own_row(RowView(row).task_id):
        return None
    change = make_ready(row, rules, settings, now=now)
    if change is not None:
        return _unready(row, change)
    if is_at_rest(row):
        return None
    bucket = RowView(row).bucket
    if bucket is None:
        return _found(Kind.NO_BUCKET, row, "its taskDateTime names no bucket")
    if bucket.shard >= settings.shards_ever:
        return _found(Kind.UNSERVED_SHARD, row, f"its shard {bucket.shard} is not served")
    if bucket.minute <= drained.get(bucket.shard, -1):
        return _found(Kind.BEHIND_CURSOR, row, f"its bucket {bucket} was drained without it")
    if not RowView(row).is_running:
        return None
    if lease_is_over(row, now):
        if str(row.get(attr.ACTION)) in settings.paused_actions:
            return None  # it waits, and so does its next attempt
        return _stale(row, bucket, settings.grid, now)
    if lease_is_over(row, now + LONGEST_LEASE) or RowView(row).awaits_completion:
        return None
    return _found(
        Kind.ENDLESS_LEASE, row, f"its lease ends at {row.get(attr.LEASE_UNTIL)}, longer than any process runs"
    )


def judge_installation(
    cursors: Mapping[int, Cursor | InvalidInput | None], settings: InstallationSettings, now: datetime
) -> Iterator[Finding]:
    """What is wrong with the processor, and with the cursors of the shards in use. While all is paused, no finding
    says that ticks do nothing; after a pause, only if none has come since as long as without one."""
    if settings.processor_problem is not None:
        why = f"the processor can't start: {settings.processor_problem}"
        yield Finding(kind=Kind.PROCESSOR_FAILS, task_id=SETTINGS_ID, why=why)
    for finding in judge_cursors(cursors, settings.grid, now):
        if finding.kind not in _WHILE_PAUSED or not (settings.pause or _just_resumed(finding.kind, settings, now)):
            yield finding


def _just_resumed(kind: Kind, settings: InstallationSettings, now: datetime) -> bool:
    """Whether ticks may still have done too little because of the latest pause."""
    wait = _DRAINED_LATE if kind is Kind.CURSOR_STUCK else _CLOSED_LATE
    ends = [one.until for one in settings.pauses if one.until is not None]
    return bool(ends) and now <= max(ends) + _TICKS_MISSED * timedelta(minutes=settings.grid.tick_minutes) + wait


def judge_cursors(cursors: Mapping[int, Cursor | InvalidInput | None], grid: Grid, now: datetime) -> Iterator[Finding]:
    """What is wrong with the cursors of the shards in use; None: there is no such row."""
    tick = timedelta(minutes=grid.tick_minutes)
    for shard, cursor in cursors.items():
        if cursor is None:
            yield _of_shard(Kind.NO_TICK, shard, "no tick has served it yet")
        elif isinstance(cursor, InvalidInput):
            yield _of_shard(Kind.CURSOR_UNREADABLE, shard, f"its cursor cannot be understood ({cursor})")
        elif cursor.closed_through > minute_of(now + _CLOSED_EARLY):
            closed = Bucket(cursor.closed_through)
            yield _of_shard(Kind.CURSOR_AHEAD, shard, f"buckets are closed through {closed}, which is still to come")
        elif instant_of(cursor.served_through) + _TICKS_MISSED * tick + _CLOSED_LATE < now:
            yield _of_shard(Kind.CURSOR_BEHIND, shard, f"no tick has come since {Bucket(cursor.served_through)}")
        elif cursor.checkpoint_at + _TICKS_MISSED * tick + _DRAINED_LATE < now and not cursor.is_leased(now):
            # The drained watermark soon reaches a checkpoint, and then there is a new one (4).
            first = Bucket(cursor.drained_through)
            yield _of_shard(Kind.CURSOR_STUCK, shard, f"ticks come, but nothing after {first} is drained")


def _unready(row: Row, change: ConditionalUpdate) -> Finding:
    """A row that needs a change before it is a task."""
    view = RowView(row)
    if (status := view.terminal_status) is not None:
        return _found(Kind.NO_OUTCOME, row, f"its status is {status}, and it has no outcome")
    if attr.OUTCOME in change.set:
        return _found(Kind.NOT_UNDERSTOOD, row, "it cannot be made a task, and is not marked failed")
    if needs_normalising(row) or not view.is_live:
        return _found(Kind.NEVER_NORMALISED, row, "it was never normalised")
    if view.bucket is None:
        return _found(Kind.NO_BUCKET, row, "its taskDateTime names no bucket")
    if attr.OUTCOME in row:
        return _found(Kind.NULL_OUTCOME, row, "it has not ended, and its outcome is NULL")
    return _found(Kind.MAY_EXPIRE, row, "it has not ended, and carries expiresAt")


def _stale(row: Row, bucket: Bucket, grid: Grid, now: datetime) -> Finding | None:
    """A running row whose lease is over. The tick of its bucket, or the next one, reclaims it."""
    # A released lease has no end of its own.
    view = RowView(row)
    ended = view.started_at if view.is_released else view.lease_until
    if ended is not None:
        why = f"its lease ended at {format_instant(ended)}, and no tick has reclaimed it"
    else:
        ended, why = EPOCH, "it is running, and its lease can't be read"
    waits_since = ended if bucket.minute > grid.tick_after(minute_of(now)) else max(ended, bucket.instant)
    if now - waits_since <= max(_STALE_AFTER, 2 * timedelta(minutes=grid.tick_minutes)):
        return None
    return _found(Kind.STALE_LEASE, row, why)


def _found(kind: Kind, row: Row, why: str) -> Finding:
    return Finding(kind=kind, task_id=RowView(row).task_id, why=why)


def _of_shard(kind: Kind, shard: int, why: str) -> Finding:
    return Finding(kind=kind, task_id=cursor_id(shard), why=f"shard {shard}: {why}")
