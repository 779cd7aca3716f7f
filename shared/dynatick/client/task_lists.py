"""The part of the client that reads the tasks of a bucket or a range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Unpack

from dynatick.actions.dead_letter_queue import DeadLetterQueue
from dynatick.client import history as histories
from dynatick.client.batch_members import exported, exported_after, find_member
from dynatick.client.settings_cache import SettingsCache
from dynatick.client.task_decisions import TaskDecisions
from dynatick.client.task_update import Departures
from dynatick.client.views import BucketCounts, HistoryPage, TaskCounts, TaskEntry
from dynatick.domain.buckets import Bucket, Time
from dynatick.domain.row import RowView
from dynatick.domain.selection import STATUSES, Selected, Selection
from dynatick.domain.task import Row
from dynatick.engine.ports import Clock, Store
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import InvalidInput

if TYPE_CHECKING:
    from dynatick.client.change_records import ChangeRecord


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
        caller: str | Callable[[], str | None] = "program",
        interface: str = "Python",
    ) -> None:
        self.store = store
        self.dead_letter_queue = dead_letter_queue
        self.caller, self.interface = caller, interface
        self.record: ChangeRecord | None = None  # counts changes of many tasks, instead of a record for each
        self.began: datetime | None = None  # when that change of many tasks began with which its changes go on
        self._clock = clock
        ttl = timedelta(seconds=settings_ttl_seconds)
        self._settings_cache = SettingsCache(store, clock, ttl, check_actions=check_actions)
        self._decisions = TaskDecisions(self._settings_cache, clock)

    def _departures(self) -> Departures:
        return Departures(self.store, self._settings_cache, self._clock)

    def select(self, bucket: str | Bucket | None = None, **selected: Unpack[Selected]) -> Selection:
        """The tasks of a bucket (all its shards, unless one is named), or of a range from ``start`` to before ``end``,
        of at most 31 days. ``last``: the range of a duration up to now, a timedelta or ``1h30m``; ``next``: that from
        now on; with both, around now. ``subject``: those that have it, in order of id, without a bucket or range
        wherever they are.

        ``status``, ``action``, ``schedule_id``, ``prefix`` of the id, ``error``: only tasks that match. ``error`` is a
        part of the task's error, or a function that decides by the whole. Reads no task. ``history`` and all others
        take these arguments, or a selection instead of them, as which relative times stay what they are.
        """
        return self._selection(bucket, selected)

    def history(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        attempts: bool = False,
        limit: int = 100,
        page_token: str | None = None,
        **selected: Unpack[Selected],
    ) -> HistoryPage:
        """The tasks that ``select`` describes, in order of time, shard and id.

        ``limit``: the maximum number, up to 1,000; a page may hold fewer. Only the last page has no
        ``next_page_token``. A task is listed in one bucket, that of its latest attempt.
        ``attempts``: also reads the rows of ended tasks, for their number of attempts.
        """
        selection = self._selection(bucket, selected)
        return histories.history(self.store, selection, limit=limit, page_token=page_token, attempts=attempts)

    def iter_history(
        self, bucket: str | Bucket | Selection | None = None, **selected: Unpack[Selected]
    ) -> Iterator[TaskEntry]:
        """All tasks that ``history`` lists; pages are read as they are consumed."""
        return histories.every_entry(self.store, self._selection(bucket, selected))

    def export(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        after: tuple[str, str] | None = None,
        **selected: Unpack[Selected],
    ) -> Iterator[Row]:
        """The whole rows of the tasks that ``history`` lists, read as they are consumed. Numbers are Decimal.

        Memory does not grow with their number. A task that changes meanwhile may be missing, or appear twice.
        ``after``: the ``taskDateTime`` and ``taskId`` of a row of an earlier export with the same arguments, which
        this one continues. The members of batches are among them, as tasks of their own, and batches are not.
        """
        selection = self._selection(bucket, selected)
        member = None if after is None else find_member(self.store, after[1])
        if after is None or member is None:
            return exported(self.store, histories.export(self.store, selection, after=after), selection)
        rows = histories.export(self.store, selection, after=(after[0], RowView(member.row).task_id))
        return chain(exported_after(self.store, member, selection), exported(self.store, rows, selection))

    def bucket_counts(
        self,
        bucket: str | Bucket | Selection | None = None,
        *,
        listed: HistoryPage | None = None,
        **selected: Unpack[Selected],
    ) -> Iterator[BucketCounts]:
        """How many of the tasks that ``select`` describes each bucket holds, by status, and how late those that have
        ended began, in order of time, without empty buckets.

        Reads every entry of these buckets. Of one bucket without filters, also how many tasks ran there and have gone
        elsewhere since, if any did: one more read for each shard. ``listed``: the first page of the ``history`` of a
        bucket, whose tasks are counted without reading them again.
        """
        selection = self._selection(bucket, selected)
        if listed is not None and selection.bucket is None:
            raise InvalidInput("listed", "a page", "expected it with one bucket only")
        counts = histories.bucket_counts(self.store, selection, listed)
        if selection.bucket is None or selection.is_filtered:
            return counts
        return histories.with_departures(self.store, selection, counts)

    def count_tasks(self, bucket: str | Bucket | Selection | None = None, **selected: Unpack[Selected]) -> TaskCounts:
        """How many of the tasks that ``select`` describes there are, by status and action, and how late those that have
        ended began. Reads every entry of these buckets, and the rows of those that have not ended."""
        settings = self._settings_cache.current()
        default = None if settings is None else settings.default_action
        return histories.count_tasks(self.store, self._selection(bucket, selected), default or "")

    def bucket_departures(self, bucket: str | Bucket) -> Mapping[str, int]:
        """How many tasks ran or waited in a bucket and have gone elsewhere since, by how: ``retried``, ``rescheduled``,
        ``deferred``, ``redrivenFailed``, ``redrivenCompleted``, ``redrivenCancelled``, ``moved``; without zeros. One
        read for each shard. Not counted are deleted tasks, and what other programs write past the client."""
        return histories.departures_from(self.store, self.select(bucket))

    def iter_listed(
        self, bucket: str | Bucket | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> Iterator[TaskEntry]:
        """The tasks of a bucket, range or subject (arguments as for ``select``) as the index lists them, in order of
        time, shard and id; pages are read as they are consumed.

        Reads no rows but those of packs, so it costs a fraction of ``iter_history``; but the status of a task that has
        not ended is ``open``, or ``waiting`` if it waits for a completion until a tick to come, and a task that changes
        at this moment, or that lies in a shard added in the last minute, may be missing, or appear twice.
        """
        selection = self._settings_cache.select(bucket, start=start, end=end, reads_settings=False)
        return histories.listed_entries(self.store, selection, self._settings_cache.grid(), self._clock())

    def settings(self) -> InstallationSettings | None:
        """The current tick interval, shards and actions, read now; None before the first tick."""
        return self._settings_cache.refresh()

    def _selection(
        self,
        bucket: str | Bucket | Selection | None,
        selected: Selected,
        statuses: Sequence[str] = STATUSES,
        *,
        instead: str = "",
    ) -> Selection:
        """The selection of a method's arguments, whose status is one of these. Raises InvalidInput."""
        if not isinstance(bucket, Selection):
            selection = self._settings_cache.select(bucket, **selected)
        elif any(value is not None for value in selected.values()):
            raise InvalidInput("bucket", bucket.words(), "expected either a selection or arguments, not both")
        else:
            selection = bucket
        selection.check_status(statuses, instead=instead)
        return selection
