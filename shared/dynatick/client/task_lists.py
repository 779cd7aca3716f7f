"""The part of the client that reads the tasks of a bucket or a range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from dynatick.actions.dead_letter_queue import DeadLetterQueue
from dynatick.client import history as histories
from dynatick.client.buckets import Scope, scope
from dynatick.client.history import export
from dynatick.client.new_task import Time
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_decisions import TaskDecisions
from dynatick.client.task_update import Departures
from dynatick.client.views import BucketCounts, HistoryPage, TaskEntry
from dynatick.domain.buckets import Bucket
from dynatick.domain.task import Row, Status
from dynatick.engine.ports import Clock, Store
from dynatick.engine.settings import InstallationSettings


class TaskLists:
    """Reads tasks. ``TaskClient`` has these methods."""

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

    def settings(self) -> InstallationSettings | None:
        """The current tick interval, shards and actions, read now; None before the first tick."""
        return self._settings_cache.refresh()

    def _check_payload(self, action: str, payload: object) -> None:
        self._settings_cache.check_payload(action, payload, of_handlers=self._check_actions)

    def _scope(self, bucket: str | Bucket | None, start: Time | None, end: Time | None) -> Scope:
        settings = self._settings_cache.refresh()
        return scope(bucket, start, end, settings.shards_ever if settings else 1)
