"""The scheduler function's work: every row of a stream batch, inserted or changed by hand, gets its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Lost, Written
from dynatick.domain.ends import End, OutcomeEvents, ends_in
from dynatick.domain.instants import EPOCH
from dynatick.domain.normalise import needs_normalising, rederive, unchanged_inputs
from dynatick.domain.numbers import is_count
from dynatick.domain.row import Due, RowView, due_of, is_terminal
from dynatick.domain.schedule import is_or_was_schedule, is_schedule
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.conditional_write import write_many
from dynatick.engine.orders import send_wake_ups, wake_ups_of
from dynatick.engine.placement import Placer, Undelivered, is_rejection, rejections_to
from dynatick.engine.pools import LettersUntilRefused
from dynatick.engine.ports import Clock, DeadLetters, Store, WakeUps
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.settings import InstallationSettings, publish_settings
from dynatick.errors import DynatickError

# -- assign ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record of the stream: the row after and before a change (None: there was none)."""

    key: str  # the record's sequence number
    new: Row | None  # None: it was deleted
    old: Row | None
    at: datetime | None = None  # when it was made; None: not known

    @property
    def may_need_place(self) -> bool:
        """False: it is only for its end."""
        if self.new is None or self.old is None:
            return True
        view = RowView(self.new)
        return view.is_unbegun or view.awaits_completion or view.is_recurring


@dataclass(frozen=True, slots=True)
class Assigned:
    """Counts of a batch. ``failed``: the records that must be sent again, with the reasons."""

    seen: int
    normalised: int
    moved: int
    rejected: int
    # Of what may be due before the next planning, in order of the records. A datetime: when a pass is to run it.
    wake_ups: Sequence[tuple[Bucket, Due | datetime]]
    undelivered: int  # malformed rows that stay open, because the dead-letter queue refused their messages
    failed: Sequence[tuple[str, str]]
    events: int = 0  # on the user's bus
    set_aside: int = 0  # events that the bus didn't take, in the queue of what was lost


def assign(arrivals: Sequence[Arrival], placer: Placer) -> Assigned:
    """Places every row of a batch. Idempotent; a row that fails doesn't keep another from its place.

    First the changes that the images ask for are written in batches. Then each row is placed, which reads the cursor
    after the write and so checks the move again (protocol 7). A record fails only if the table does: a tick repeats
    what the dead-letter queue refuses, which must not stop the stream.
    """
    latest: dict[str, _Latest] = {}
    for arrival in arrivals:
        if arrival.new is not None and not is_own_row(task_id := RowView(arrival.new).task_id):
            latest[task_id] = _after(latest.get(task_id), arrival, arrival.new, placer)
    images, rejections = _write_at_once(latest, placer)
    failed: list[tuple[str, str]] = []
    undelivered = 0
    closed: dict[int, int] = {}  # read after every image was taken, as rule 5 wants
    woken: list[tuple[str, Bucket, Due | datetime]] = []
    # Rejections last: their letters may wait for the dead-letter queue.
    for task_id, image in sorted(images.items(), key=lambda item: item[0] in rejections):
        record, rejection = latest[task_id], rejections.get(task_id)
        if record.is_in_flight:
            continue
        try:
            ready = image is not None and rejection is None and placer.make_ready(image) is None
            row = image
            if image is None or not ready or not placer.is_ahead(image, closed):
                row = placer.place(task_id, image, first=rejection, revision_of=record.revision_of)
            if record.is_new_time and (wake_up := _wake_up(row, placer, closed)) is not None:
                woken.append((record.key, *wake_up))
        except Undelivered:
            undelivered += 1
        except DynatickError as error:
            failed.append((record.key, str(error)))
    return Assigned(
        seen=len(latest),
        normalised=placer.normalised,
        moved=placer.moved,
        rejected=placer.failed,
        wake_ups=_before_failed(woken, [key for key, _ in failed], arrivals),
        undelivered=undelivered,
        failed=failed,
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """The records of one task, taken together."""

    key: str  # of the last record
    new: Row  # as the last record shows it
    revision: int  # with which a new schedule begins
    edit: ConditionalUpdate | None  # for a time that was changed by hand
    is_new_time: bool  # an instant that the processor has not set: the scheduler sends its wake-up
    is_in_flight: bool  # a pass is at work on it, and holds its bucket back for it

    def revision_of(self, row: Row) -> int:
        """Returns the revision with which a row begins that was read later: it may be another one, with a record still
        to come."""
        return self.revision if row == self.new else 1


def _after(before: _Latest | None, arrival: Arrival, new: Row, placer: Placer) -> _Latest:
    """Adds a record. Kept of earlier ones: a time changed by hand, unless it was changed again, and the revision
    of a schedule that a put has replaced."""
    edit, now = None, placer.clock()
    if arrival.old is not None:
        grid, defaults = placer.settings.grid, placer.rules.defaults
        edit = rederive(arrival.old, new, now=now, grid=grid, defaults=defaults)
    if (
        edit is None
        and before is not None
        and before.edit is not None
        and before.edit.conditions == unchanged_inputs(new)
    ):
        edit = before.edit
    revision = max(_next_revision(arrival.old, now), 1 if before is None else before.revision)
    new_time = _is_new_time(arrival.old, new) or (before is not None and before.is_new_time)
    return _Latest(arrival.key, new, revision, edit, new_time, _is_in_flight(arrival.old, new))


def _is_in_flight(old: Row | None, new: Row) -> bool:
    """Whether a pass has written what a record shows, and goes on with it: an occurrence that it has just made, or a
    schedule of which it makes more. Moved to the next tick, the rest would be made then, with ticks an hour apart an
    hour later each time."""
    if old is None:
        view = RowView(new)
        waits_for_turn = view.is_scheduled and view.is_moved and view.limit_key is not None
        return view.schedule_id is not None and (view.is_running or waits_for_turn)
    return (
        is_schedule(new)
        and old.get(attr.NEXT_OCCURRENCE_AT) != new.get(attr.NEXT_OCCURRENCE_AT)
        and all(old.get(name) == new.get(name) for name in (*attr.DEFINITION, attr.DEFINED_AT, attr.TASK_DATE_TIME))
    )


def _is_new_time(old: Row | None, new: Row) -> bool:
    """Whether a record shows an instant whose wake-up its writer hasn't sent: a processor sends those of retries and
    further turns, and of a schedule's next run, and so does the normalising of a row. Otherwise a deferred task would
    wake itself for ever (19)."""
    if old is None or needs_normalising(new):
        return True
    before = RowView(old)
    if is_schedule(new):
        return any(old.get(name) != new.get(name) for name in (*attr.DEFINITION, attr.DEFINED_AT))
    if before.is_released:
        return RowView(new).is_scheduled  # a request has rescheduled it
    if before.is_unscheduled or (before.is_running and not before.awaits_completion):
        return False
    return not before.is_scheduled or _due(old) != _due(new)


def _due(row: Row) -> Due | None:
    return due_of(RowView(row).task_id, row.get(attr.DUE_AT), row.get(attr.NEXT_ATTEMPT_AT))


def _wake_up(row: Row | None, placer: Placer, closed: dict[int, int]) -> tuple[Bucket, Due | datetime] | None:
    """The wake-up of a task or schedule whose bucket was planned before it was written; None: it needs none, or gets
    one later."""
    rules = placer.rules
    if rules.precision is not Precision.SECOND or row is None or is_terminal(row):
        return None
    view, due = RowView(row), None if is_schedule(row) else _due(row)
    bucket = view.bucket
    has_wake_up = view.is_scheduled and due is not None and row.get(attr.ACTION) not in rules.limited_actions
    if bucket is None or not (has_wake_up or is_schedule(row)):
        return None
    if not placer.is_ahead(row, closed) or not rules.is_planned(bucket.minute, closed[bucket.shard]):
        return None
    if due is None or rules.is_limited(view.limit_key):  # only a pass begins it
        return bucket, bucket.instant if due is None else due.at
    return bucket, due


def _before_failed(
    woken: Sequence[tuple[str, Bucket, Due | datetime]], failed: Sequence[str], arrivals: Sequence[Arrival]
) -> Sequence[tuple[Bucket, Due | datetime]]:
    """Those of records before the first failed one: Lambda sends that and all after it again."""
    positions = {arrival.key: n for n, arrival in enumerate(arrivals)}
    first = min((positions[key] for key in failed), default=len(arrivals))
    return [(bucket, due) for key, bucket, due in woken if positions[key] < first]


def _write_at_once(
    latest: Mapping[str, _Latest], placer: Placer
) -> tuple[dict[str, Row | None], Mapping[str, ConditionalUpdate]]:
    """Writes the changes that the images ask for. Returns the rows after that (None: not known), and the rejections,
    which are not written yet: each needs its dead letter first."""
    images: dict[str, Row | None] = {}
    rejections: dict[str, ConditionalUpdate] = {}
    due: list[ConditionalUpdate] = []
    for task_id, record in latest.items():
        images[task_id] = record.new
        change = record.edit or placer.make_ready(record.new, revision=record.revision)
        if change is None:
            continue
        if is_rejection(change):
            rejections[task_id] = change
        else:
            due.append(change)
    results = write_many(placer.store, due)
    for change, result in zip(due, results, strict=True):
        placer.count(change, result)
        images[change.task_id] = (
            result.row if isinstance(result, Written) else result.present if isinstance(result, Lost) else None
        )
    return images, rejections


def _next_revision(old: Row | None, now: datetime) -> int:
    """The revision of a schedule that replaces ``old``: its occurrences must not get ids that earlier ones had. If it
    replaces a task, an earlier schedule is not known: then the minute is higher than any count."""
    if old is None or RowView(old).is_unscheduled:
        return 1
    if not is_or_was_schedule(old):
        return minute_of(now)
    revision = old.get(attr.REVISION)
    return int(revision) + 1 if is_count(revision, 1) else 1


# -- events of ends ----------------------------------------------------------------------------------------------------

_HELD_UP_FOR = timedelta(minutes=1)
"""How long a bus that takes nothing may hold up its part of the stream; then its events are set aside."""


class EventBus(Protocol):
    """The user's event bus, for events of ends."""

    def put(self, ends: Sequence[End]) -> tuple[int, str | None]:
        """Puts events in order, as long as there is time. Returns how many of the first are on the bus, and why the
        next one is not; None: only time was missing. Doesn't raise."""

    def set_aside(self, ends: Sequence[End]) -> tuple[int, str | None]:
        """Sends events to the queue of what was lost, and answers as ``put`` does."""


def publish_ends(arrivals: Sequence[Arrival], bus: EventBus, wanted: OutcomeEvents, now: datetime) -> Published:
    """Puts an event on the bus for each end, at least once: it is on the bus, or was set aside because its record is
    old, or its record fails, so that Lambda sends it again."""
    found = [(arrival, end) for arrival in arrivals for end in ends_in(arrival.old, arrival.new, wanted)]
    if not found:
        return Published()
    events, problem = bus.put([end for _, end in found])
    left = found[events:]
    # A record of which an invocation can't put all events, such as that of a large pack, would come back for ever.
    if problem is None and (not left or left[0][0] is not found[0][0]):
        return Published(events, 0, {arrival.key: "there was no time to put its event" for arrival, _ in left})
    young: list[tuple[Arrival, End]] = []
    old: list[tuple[Arrival, End]] = []
    for arrival, end in left:
        is_old = arrival.at is None or now - arrival.at > _HELD_UP_FOR
        (old if is_old else young).append((arrival, end))
    aside, unsent = bus.set_aside([end for _, end in old]) if old else (0, None)
    return Published(
        events,
        aside,
        {arrival.key: f"its event: {unsent or problem or 'no time'}" for arrival, _ in (*old[aside:], *young)},
    )


@dataclass(frozen=True, slots=True)
class Published:
    """Counts of the events of a batch. ``failed``: reasons, by the keys of the records to be sent again."""

    events: int = 0
    set_aside: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)


# -- scheduler ---------------------------------------------------------------------------------------------------------

_SETTINGS_FRESH_FOR = timedelta(minutes=1)


@dataclass(kw_only=True, slots=True)
class Scheduler:
    """Everything that an invocation needs but its event. ``decode`` makes a row of an image of the stream."""

    store: Store
    dead_letters: DeadLetters
    rules: Rules
    clock: Clock
    decode: Callable[[Any], Row]
    wake_ups: WakeUps | None = None  # with Precision.SECOND
    bus: EventBus | None = None  # unless outcome_events is OFF
    outcome_events: OutcomeEvents = OutcomeEvents.OFF
    _settings: InstallationSettings | None = field(default=None, init=False)
    _published_at: datetime = field(init=False)

    def handle(self, event: Mapping[str, Any]) -> Assigned:
        """Places the rows of a stream event. ``Assigned.failed`` has the records that Lambda is to send again."""
        arrivals = [self._arrival(record) for record in event["Records"]]
        send_letter = rejections_to(LettersUntilRefused(self.dead_letters), self.clock)
        placer = Placer(self.store, self.rules, self._publish_settings(), self.clock, send_letter)
        assigned = assign([arrival for arrival in arrivals if arrival.may_need_place], placer)
        if self.wake_ups is not None:
            send_wake_ups(self.wake_ups, wake_ups_of(assigned.wake_ups, threads=self.rules.threads))
        if self.bus is None:
            return assigned
        # Last: no row waits for the bus to get its place.
        published = publish_ends(arrivals, self.bus, self.outcome_events, self.clock())
        return replace(
            assigned,
            failed=[*assigned.failed, *published.failed.items()],
            events=published.events,
            set_aside=published.set_aside,
        )

    def _publish_settings(self) -> InstallationSettings:
        now = self.clock()
        if self._settings is None or now - self._published_at > _SETTINGS_FRESH_FOR:
            self._settings = publish_settings(self.store, self.rules.grid, now=now, defaults=self.rules.defaults)
            self._published_at = now
        return self._settings

    def _arrival(self, record: Mapping[str, Any]) -> Arrival:
        change = record["dynamodb"]
        new, old, at = (change.get(name) for name in ("NewImage", "OldImage", "ApproximateCreationDateTime"))
        return Arrival(
            key=str(change.get("SequenceNumber", record.get("eventID", ""))),
            new=None if new is None else self.decode(new),
            old=None if old is None else self.decode(old),
            at=EPOCH + timedelta(seconds=at) if isinstance(at, (int, float)) else None,
        )
