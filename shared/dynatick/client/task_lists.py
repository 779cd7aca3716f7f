"""The part of the client that reads tasks and ticks of a bucket or a range, and the state of the installation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from dynatick.actions.dead_letter_queue import DeadLetterQueue
from dynatick.client import history as histories
from dynatick.client import task_update
from dynatick.client import ticks as tick_lists
from dynatick.client.buckets import Scope, scope
from dynatick.client.doctor import Diagnosis, examine
from dynatick.client.explanation import Explanation, explain, explain_missing
from dynatick.client.history import export
from dynatick.client.installation import Health, InstallationStatus, health_of, status_of_installation
from dynatick.client.new_task import Time
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_decisions import TaskDecisions
from dynatick.client.task_update import Departures
from dynatick.client.ticks import TickEntry
from dynatick.client.views import BucketCounts, HistoryPage, TaskEntry
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.pause import Pause
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import Row, Status
from dynatick.engine.cursor import Cursor
from dynatick.engine.diagnosis import Finding
from dynatick.engine.idle_record import read_cursors
from dynatick.engine.ports import Clock, Store
from dynatick.engine.reconcile import Reconciled
from dynatick.engine.settings import InstallationSettings, pause, resume
from dynatick.errors import InvalidInput

_MAX_TEXT = 500  # characters of a pause's reason


class TaskLists:
    """Reads tasks and ticks. ``TaskClient`` has these methods."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        check_actions: bool = True,
        settings_ttl_seconds: float = 60,
        dead_letter_queue: DeadLetterQueue | None = None,
    ) -> None:
        self.store = store
        self.dead_letter_queue = dead_letter_queue
        self._clock = clock
        self._check_actions = check_actions
        self._settings_cache = SettingsCache(store, clock, timedelta(seconds=settings_ttl_seconds))
        self._decisions = TaskDecisions(self._settings_cache, clock)

    def _departures(self) -> Departures:
        return Departures(self.store, self._settings_cache, self._clock)

    def history(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        attempts: bool = False,
        limit: int = 100,
        page_token: str | None = None,
    ) -> HistoryPage:
        """The tasks of a bucket (all its shards, unless one is named), or of a range from ``start`` to before ``end``.

        In order of time, shard and id. ``status``, ``action``, ``schedule_id``, ``prefix`` of the id: only matching
        tasks. ``limit``: the maximum number, up to 1,000; a page may hold fewer. Only the last page has no
        ``next_page_token``. A range spans at most 31 days. A task is listed in one bucket, that of its latest attempt.
        ``attempts``: also reads the rows of ended tasks, for their number of attempts.
        """
        filter_ = histories.HistoryFilter(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        scope_ = self._scope(bucket, start, end)
        return histories.history(self.store, scope_, filter_, limit=limit, page_token=page_token, attempts=attempts)

    def iter_history(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
    ) -> Iterator[TaskEntry]:
        """All tasks that ``history`` lists; pages are read as they are consumed."""
        filter_ = histories.HistoryFilter(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        return histories.every_entry(self.store, self._scope(bucket, start, end), filter_)

    def export(
        self,
        bucket: str | Bucket | None = None,
        *,
        start: Time | None = None,
        end: Time | None = None,
        status: Status | str | None = None,
        action: str | None = None,
        schedule_id: str | None = None,
        prefix: str | None = None,
        after: tuple[str, str] | None = None,
    ) -> Iterator[Row]:
        """The whole rows of the tasks that ``history`` lists, read as they are consumed. Numbers are Decimal.

        Memory does not grow with their number. A task that changes meanwhile may be missing, or appear twice.
        ``after``: the ``taskDateTime`` and ``taskId`` of a row of an earlier export with the same arguments, which
        this one continues.
        """
        filter_ = histories.HistoryFilter(status=status, action=action, schedule_id=schedule_id, prefix=prefix)
        return export(self.store, self._scope(bucket, start, end), filter_, after=after)

    def bucket_counts(
        self, bucket: str | Bucket | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> Iterator[BucketCounts]:
        """How many tasks of each status each bucket holds, and how late those that have ended began, in order of time,
        without empty buckets.

        Reads every entry of these buckets. The arguments are those of ``history``. Of one bucket, also how many tasks
        ran there and have gone elsewhere since, if any did: one more read for each shard.
        """
        scope_ = self._scope(bucket, start, end)
        counts = histories.bucket_counts(self.store, scope_)
        if bucket is None:
            return counts
        return histories.with_departures(self.store, scope_, counts)

    def bucket_departures(self, bucket: str | Bucket) -> Mapping[str, int]:
        """How many tasks ran or waited in a bucket and have gone elsewhere since, by how: ``retried``, ``rescheduled``,
        ``deferred``, ``redrivenFailed``, ``redrivenCompleted``, ``redrivenCancelled``, ``moved``; without zeros. One
        read for each shard. Not counted are deleted tasks, and what other programs write past the client."""
        return histories.departures_from(self.store, self._scope(bucket, None, None))

    def iter_listed(
        self, bucket: str | Bucket | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> Iterator[TaskEntry]:
        """The tasks of a bucket or range (arguments as for ``history``) as the index lists them, in order of time,
        shard and id; pages are read as they are consumed.

        Reads no rows, so it costs a fraction of ``iter_history``; but the status of a task that has not ended is
        ``open``, and a task that changes at this moment may be missing, or appear twice.
        """
        return histories.listed_entries(self.store, self._scope(bucket, start, end))

    def ticks(
        self,
        last: timedelta = timedelta(minutes=60),
        *,
        start: Time | None = None,
        end: Time | None = None,
    ) -> list[TickEntry]:
        """What the latest ticks did, or those from ``start`` to before ``end`` (default: now); at most seven days.

        Consecutive idle ticks are one entry, and so are consecutive missed ones.
        """
        now = self._clock()
        minutes = tick_lists.minutes_of_range(last, start, end, now=now)
        return tick_lists.ticks(self.store, self._settings_cache.refresh(), minutes, now=now)

    def tick_range(
        self,
        last: timedelta = timedelta(minutes=60),
        *,
        start: Time | None = None,
        end: Time | None = None,
    ) -> tuple[datetime, datetime]:
        """The range that ``ticks`` reads for the same arguments: from its first minute to the end of its last."""
        minutes = tick_lists.minutes_of_range(last, start, end, now=self._clock())
        return instant_of(minutes.start), instant_of(minutes.stop)

    def doctor(
        self,
        *,
        repair: bool = False,
        report: Callable[[Finding], None] | None = None,
        page_read: Callable[[Reconciled], None] | None = None,
    ) -> Diagnosis:
        """Reads the whole table and finds tasks that no tick would run, rows that the scheduler has not read, expired
        leases, and shards whose ticks do not come. Writes nothing, unless ``repair``.

        ``report`` is called with each finding, after its repair; ``page_read`` after each page of the table.
        """
        return examine(
            self.store,
            self._settings_cache.refresh(),
            clock=self._clock,
            repair=repair,
            report=report,
            page_read=page_read,
        )

    def health(self) -> Health:
        """Whether ticks come and drain their buckets, by the settings and the cursors: two requests. ``doctor`` reads
        every task, too."""
        return health_of(self.store, self._settings_cache.refresh(), self._clock())

    def status(self) -> InstallationStatus:
        """The state of the installation for the person on call: ticks, what waits, what has failed in 24 hours.

        Reads the index minute by minute, about one read unit for each two, and one for each twenty tasks.
        """
        settings, now = self._settings_cache.refresh(), self._clock()
        return status_of_installation(self.store, settings, health_of(self.store, settings, now), now)

    def explain(self, task_id: str) -> Explanation:
        """Why a task is where it is, what happened to it, and what will. Its ``status`` is None if there is none."""
        settings, row = self._settings_cache.refresh(), self.store.get(task_update.known_id(task_id))
        if row is None:
            return explain_missing(task_id, settings)
        bucket, cursors = RowView(row).bucket, dict[int, Cursor]()
        if bucket is not None and not is_terminal(row):
            found = read_cursors(self.store, range(bucket.shard, bucket.shard + 1))[bucket.shard]
            if isinstance(found, Cursor):  # the doctor reports a malformed one
                cursors[bucket.shard] = found
        return explain(row, settings, cursors, self._clock())

    def settings(self) -> InstallationSettings | None:
        """The current tick interval, shards and actions, read now; None before the first tick."""
        return self._settings_cache.refresh()

    def pause(self, *, reason: str | None = None, by: str | None = None) -> Pause:
        """Pauses everything: from the next tick on nothing is run, until ``resume``; then ticks run what is due.

        Tasks that run go on to their end. A pass at work stops within ten seconds. Returns the pause in force: an
        earlier one, if there is one. ``by``: who pauses. Raises ConfigurationError before the first tick.
        """
        return pause(self.store, now=self._clock(), by=_text(by, attr.BY), reason=_text(reason, attr.REASON))

    def resume(self) -> Pause | None:
        """Ends the pause, and returns it; None: there was none. The next tick runs what is due."""
        return resume(self.store, now=self._clock())

    def _scope(self, bucket: str | Bucket | None, start: Time | None, end: Time | None) -> Scope:
        settings = self._settings_cache.refresh()
        return scope(bucket, start, end, settings.shards_ever if settings else 1)


def _text(value: str | None, field: str) -> str | None:
    if value is not None and len(value) > _MAX_TEXT:
        raise InvalidInput(field, value, f"expected at most {_MAX_TEXT} characters")
    return value or None
