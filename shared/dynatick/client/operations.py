"""The installation: its state, its ticks and its faults, and pauses, of everything or of an action.

Apart from the client for tasks, so that an application that inserts tasks does not import what examines the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta

from dynatick.client import task_update
from dynatick.client import ticks as tick_lists
from dynatick.client.action_counts import (
    MAX_PAST,
    ActionFigures,
    ActionList,
    ActionSummary,
    MinuteCounts,
    Waiting,
    action_list,
    read_counts,
    read_waiting,
    ticks_and_counts,
)
from dynatick.client.batch_members import row_of
from dynatick.client.change_records import ChangeRecords, ChangeView
from dynatick.client.doctor import Diagnosis, examine
from dynatick.client.explanation import Explanation, TaskEvent, explain, explain_missing, limits_of
from dynatick.client.failures import FailureGroup
from dynatick.client.history import listed_pages
from dynatick.client.installation import (
    MAX_HOURS,
    Health,
    InstallationStatus,
    failure_groups,
    health_of,
    status_of_installation,
)
from dynatick.client.key_queues import KeyLoad, KeyQueue, read_key_queue
from dynatick.client.payload_check import MAX_READS, PayloadCheck, PayloadChecker, UnfitPayloads, check_table
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.ticks import IdleTicks, MissedTicks, PausedTicks, TickEntry, TickView
from dynatick.client.views import ListedPage
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Time, instant_of, minute_of
from dynatick.domain.pause import ActionPause, Pause
from dynatick.domain.row import RowView, is_terminal
from dynatick.domain.task import check_users_action
from dynatick.engine.cursor import Cursor, read_cursors
from dynatick.engine.ports import Clock, Store
from dynatick.engine.rates import read_reserved
from dynatick.engine.reconcile import Finding, Kind, Reconciled
from dynatick.engine.settings import pause, pause_action, resume, resume_action
from dynatick.errors import InvalidInput

__all__ = [
    "ActionFigures",
    "ActionList",
    "ActionPause",
    "ActionSummary",
    "ChangeRecords",
    "ChangeView",
    "Diagnosis",
    "Explanation",
    "FailureGroup",
    "Finding",
    "Health",
    "IdleTicks",
    "InstallationStatus",
    "KeyLoad",
    "Kind",
    "ListedPage",
    "MinuteCounts",
    "MissedTicks",
    "Operations",
    "Pause",
    "PausedTicks",
    "PayloadCheck",
    "TaskEvent",
    "TickEntry",
    "TickView",
    "UnfitPayloads",
    "Waiting",
    "action_list",
]

MAX_FAILURES = timedelta(days=7)
_MAX_TEXT = 500  # characters of a pause's reason


class Operations:
    """What the person on call needs. ``TaskClient.operations`` returns it; errors are those of ``TaskClient``."""

    def __init__(self, store: Store, settings_cache: SettingsCache, clock: Clock) -> None:
        self.store, self._settings_cache, self._clock = store, settings_cache, clock
        self.changes = ChangeRecords(store, clock)
        """The changes of many tasks, by whichever interface they were made."""

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

    def minute_counts(self, *, start: Time, end: Time | None = None) -> Mapping[int, MinuteCounts]:
        """What the ticks from ``start`` to before ``end`` (default: now) ran, by minute and action; at most seven days.

        Minutes are numbers since 1970, those in which nothing ran are left out. Two requests for each 100 minutes and
        shard.
        """
        minutes = tick_lists.minutes_of_range(timedelta(hours=1), start, end, now=self._clock())
        return read_counts(self.store, self._settings_cache.refresh(), minutes)

    def ticks_and_counts(
        self, *, start: Time, end: Time | None = None
    ) -> tuple[list[TickEntry], Mapping[int, MinuteCounts]]:
        """What ``ticks`` and ``minute_counts`` return, of tick records that are read once."""
        now = self._clock()
        minutes = tick_lists.minutes_of_range(timedelta(hours=1), start, end, now=now)
        return ticks_and_counts(self.store, self._settings_cache.refresh(), minutes, now=now)

    def listed_pages(self, *, start: Time, end: Time, threads: Executor | None = None) -> Iterator[ListedPage]:
        """The tasks from ``start`` to before ``end`` as ``iter_listed`` has them, page by page, in order of time and
        shard; but most of those that have completed are only counted, and those that are to run if the whole range
        is to come. So a day of 50,000 tasks is not carried over. ``threads``: those that read, for a caller that
        reads many ranges; without them each call starts sixteen of its own."""
        selection = self._settings_cache.select(None, start=start, end=end, reads_settings=False)
        return listed_pages(self.store, selection, self._settings_cache.grid(), self._clock(), threads)

    def waiting_by_action(self) -> Mapping[str, Waiting]:
        """What is due, runs, or is to be tried again within the hour, by action: polls the buckets that are not drained
        and those of the next hour."""
        return read_waiting(self.store, self._settings_cache.refresh(), self._clock())

    def actions(self, last: timedelta = timedelta(hours=24)) -> ActionList:
        """Each action with what waits, what ran in the ``last`` hours, up to three days, and in as many before. The one
        with the most attempts that failed first. ``not_counted`` says why attempts, and the share of them that failed,
        are not known, if wake-ups run tasks.

        Reads records, and no task that has ended: 60 requests for a day and the day before on one shard.
        """
        if not timedelta() < last <= MAX_PAST:
            raise InvalidInput("last", str(last), f"expected a duration above 0, at most {MAX_PAST.days} days")
        now = self._clock()
        middle = minute_of(now - last) + 1
        first, stop = 2 * middle - minute_of(now) - 1, minute_of(now) + 1
        settings = self._settings_cache.refresh()
        counts = read_counts(self.store, settings, range(first, stop))
        return action_list(counts, middle, read_waiting(self.store, settings, now), settings)

    def failures(self, last: timedelta = timedelta(hours=24)) -> list[FailureGroup]:
        """The tasks of the ``last`` hours, up to seven days, that are failed now, in groups of the same error: the
        group with the most tasks first. Errors are the same if only numbers and addresses differ.

        Reads the index minute by minute, about one read unit for each two, and one for each twenty tasks.
        """
        if not timedelta() < last <= MAX_FAILURES:
            raise InvalidInput("last", str(last), f"expected a duration above 0, at most {MAX_FAILURES.days} days")
        return failure_groups(self.store, self._settings_cache.refresh(), self._clock(), last)

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

    def status(self, *, hours: int = 1) -> InstallationStatus:
        """The state of the installation for the person on call: ticks, what waits, what has failed.

        Reads the index minute by minute for the past and the next ``hours``, up to 24, about one read unit for each two
        minutes, and one for each twenty tasks; further back if older buckets are not drained. Beside that the records
        of 24 hours, and the rows of up to 100 tasks that are due next, to check their payloads: about 160 requests for
        an hour, on one shard. Raises InvalidInput.
        """
        _check_hours(hours)
        settings, now = self._settings_cache.refresh(), self._clock()
        health = health_of(self.store, settings, now)
        return status_of_installation(self.store, settings, health, now, hours=hours)

    def check_payloads(
        self, schemas: Mapping[str, str] | None = None, *, max_reads: int | None = MAX_READS
    ) -> PayloadCheck:
        """Checks the payloads of waiting tasks and schedules by the types of their handlers, a read of the
        table for each MB, of 256 read units: ``max_reads`` at most, which are a sample unless they reach its end. None:
        all of it.

        ``schemas``: the payloads' JSON Schemas as text, by action; None: those that the processor has published.
        """
        known = self._settings_cache.refresh()
        published = {} if known is None else known.payload_schemas
        wanted = published if schemas is None else schemas
        checker = PayloadChecker(wanted, self.store, known.default_action if known else None)
        return check_table(self.store, checker, max_reads=max_reads)

    def explain(self, task_id: str) -> Explanation:
        """Why a task is where it is, what happened to it, and what will. Its ``status`` is None if there is none; of an
        occurrence of a schedule it says why it was not made."""
        settings, row = self._settings_cache.refresh(), row_of(self.store, task_update.known_id(task_id))
        if row is None:
            return explain_missing(self.store, task_id, settings, self._clock())
        bucket, cursors = RowView(row).bucket, dict[int, Cursor]()
        queue: KeyQueue | None = None
        if bucket is not None and not is_terminal(row):
            found = read_cursors(self.store, range(bucket.shard, bucket.shard + 1))[bucket.shard]
            if isinstance(found, Cursor):  # the doctor reports a malformed one
                cursors[bucket.shard] = found
                if settings is not None:
                    queue = read_key_queue(self.store, row, settings, found, self._clock())
        rates = read_reserved(self.store, limits_of(row)) if RowView(row).is_running else ()
        return explain(row, settings, cursors, self._clock(), queue, rates)

    def pause(self, *, reason: str | None = None, by: str | None = None) -> Pause:
        """Pauses everything: from the next tick on nothing is run, until ``resume``; then ticks run what is due.

        Tasks that run go on to their end. A pass at work stops within ten seconds. Returns the pause in force: an
        earlier one, if there is one. ``by``: who pauses. Raises ConfigurationError before the first tick.
        """
        return pause(self.store, now=self._clock(), by=_text(by, attr.BY), reason=_text(reason, attr.REASON))

    def resume(self) -> Pause | None:
        """Ends the pause, and returns it; None: there was none. The next tick runs what is due."""
        return resume(self.store, now=self._clock())

    def pause_action(self, action: str, *, reason: str | None = None, by: str | None = None) -> ActionPause:
        """Pauses one action: ten seconds later none of its tasks begins, until ``resume_action``. All others run.

        Tasks that run go on to their end; what is inserted waits, and what schedules make. Returns the pause in force:
        an earlier one, if there is one. Up to 100 actions may be paused. ``by``: who pauses. Raises InvalidInput for an
        action that the processor does not know, and ConfigurationError before the first tick.
        """
        self._settings_cache.check_known(check_users_action(action))
        return pause_action(
            self.store, action, now=self._clock(), by=_text(by, attr.BY), reason=_text(reason, attr.REASON)
        )

    def resume_action(self, action: str) -> ActionPause | None:
        """Ends the pause of an action, and returns it; None: there was none.

        ``waiting_begin_by`` of what it returns is the latest tick at which a task begins that waits: they begin within
        a quarter of the pause's length, at most 15 minutes, and a tick.
        """
        ended = resume_action(self.store, check_users_action(action), now=self._clock())
        settings = self._settings_cache.refresh()
        if ended is None or ended.until is None or settings is None:
            return ended
        return replace(ended, waiting_begin_by=ended.begin_by(ended.until, settings.grid))


def _check_hours(hours: object) -> None:
    if isinstance(hours, bool) or not isinstance(hours, int) or not 1 <= hours <= MAX_HOURS:
        raise InvalidInput("hours", hours, f"expected a number from 1 to {MAX_HOURS}")


def _text(value: str | None, field: str) -> str | None:
    if value is not None and len(value) > _MAX_TEXT:
        raise InvalidInput(field, value, f"expected at most {_MAX_TEXT} characters")
    return value or None
