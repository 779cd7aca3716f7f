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
    subject: NotRequired[str]
    limitKey: NotRequired[str]
