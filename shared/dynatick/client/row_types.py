"""The types of maps that the client takes and returns, under the table's names."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NotRequired, TypedDict

from dynatick.domain.buckets import Bucket


class RetryPolicyRow(TypedDict, total=False):
    """How often and how long a failed attempt is retried."""

    maximumRetryAttempts: int
    maximumEventAgeInSeconds: int
    minBackoffSeconds: int
    maxBackoffSeconds: int


class TaskRow(TypedDict):
    """A task for ``insert_many``. For attributes of your own, use any mapping."""

    taskId: str
    taskDateTime: NotRequired[str | int | float | Decimal | datetime | Bucket]
    dueAt: NotRequired[str | int | float | Decimal | datetime | Bucket]
    delaySeconds: NotRequired[float | Decimal]
    action: NotRequired[str]
    payload: NotRequired[Mapping[str, object]]
    retryPolicy: NotRequired[RetryPolicyRow]
    timeoutSeconds: NotRequired[int | Decimal]


class TaskEntryRow(TypedDict):
    """A task in a history."""

    taskId: str
    taskDateTime: str
    status: str
    action: NotRequired[str]
    dueAt: NotRequired[str]
    finishedAt: NotRequired[str]
    error: NotRequired[str]
    attempt: NotRequired[int]
    scheduleId: NotRequired[str]
    lateMilliseconds: NotRequired[int]


class BucketCountsRow(TypedDict):
    """How many tasks of each status a bucket holds, and how late those that have ended began."""

    bucket: str
    counts: dict[str, int]
    total: int
    latenessP50Ms: NotRequired[int]
    latenessP99Ms: NotRequired[int]
    latenessMaxMs: NotRequired[int]
    left: NotRequired[dict[str, int]]
    ran: NotRequired[int]
    failed: NotRequired[int]


class ScheduleOccurrenceRow(TypedDict):
    """An occurrence of a schedule that was due."""

    occurrenceAt: str
    status: str
    taskId: NotRequired[str]
    taskDateTime: NotRequired[str]
    finishedAt: NotRequired[str]
    error: NotRequired[str]
    reason: NotRequired[str]
    runNow: NotRequired[bool]
    inTime: NotRequired[bool]
