"""The maps that the client takes and gives, under the table's names, for type checkers and editors."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NotRequired, TypedDict

from dynatick.domain.buckets import Bucket


class RetryPolicyRow(TypedDict, total=False):
    """How often and how long a failed attempt is tried again."""

    maximumRetryAttempts: int
    maximumEventAgeInSeconds: int
    minBackoffSeconds: int
    maxBackoffSeconds: int


class TaskRow(TypedDict):
    """A task to be inserted, as ``insert_many`` takes it. With attributes of one's own beside these, any mapping will
    do."""

    taskId: str
    taskDateTime: NotRequired[str | int | float | Decimal | datetime | Bucket]
    dueAt: NotRequired[str | int | float | Decimal | datetime | Bucket]
    delaySeconds: NotRequired[float | Decimal]
    action: NotRequired[str]
    payload: NotRequired[Mapping[str, object]]
    retryPolicy: NotRequired[RetryPolicyRow]
    timeoutSeconds: NotRequired[int | Decimal]


class TaskEntryRow(TypedDict):
    """A task as its bucket lists it."""

    taskId: str
    taskDateTime: str
    status: str
    action: NotRequired[str]
    dueAt: NotRequired[str]
    finishedAt: NotRequired[str]
    error: NotRequired[str]
    attempt: NotRequired[int]
    scheduleId: NotRequired[str]


class BucketCountsRow(TypedDict):
    """How many tasks of each status a bucket holds."""

    bucket: str
    counts: dict[str, int]
    total: int


class ScheduleOccurrenceRow(TypedDict):
    """One run of a schedule that was due."""

    occurrenceAt: str
    status: str
    taskId: NotRequired[str]
    taskDateTime: NotRequired[str]
    finishedAt: NotRequired[str]
    error: NotRequired[str]
    reason: NotRequired[str]
    runNow: NotRequired[bool]
