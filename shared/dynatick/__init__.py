"""Dynatick: tasks to run later, on AWS, in any number, with none lost.

>>> from dynatick import TaskClient                                       # doctest: +SKIP
>>> client = TaskClient.connect("my-table")                               # doctest: +SKIP
>>> client.insert("welcome-42", due_at="2026-12-31T12:00:00Z", action="send-reminder")  # doctest: +SKIP

The names below are the public surface; each is imported when it is first used, so that importing the package costs a
Lambda function nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.actions.handler_secrets import secret
    from dynatick.actions.handlers import HandlerContext, around
    from dynatick.client import (
        BatchView,
        Exists,
        HistoryPage,
        InsertCounts,
        Inserted,
        InsertUnknown,
        NewTask,
        NoneInserted,
        Refused,
        RetryPolicyRow,
        ScheduleOccurrence,
        ScheduleView,
        TaskClient,
        TaskEntry,
        TaskRow,
        TaskView,
    )
    from dynatick.client.async_tasks import AsyncTaskClient
    from dynatick.client.operations import Health
    from dynatick.domain.buckets import Bucket, Grid
    from dynatick.domain.completion import Commit, CompleteLater
    from dynatick.domain.normalise import Unassigned
    from dynatick.domain.retry import RetryPolicy
    from dynatick.domain.task import Status
    from dynatick.errors import (
        BatchDiffers,
        BatchNotFound,
        CompletionRefused,
        ConfigurationError,
        DynatickError,
        InvalidInput,
        ItemTooLarge,
        PermanentError,
        Reschedule,
        RetryableError,
        ScheduleDiffers,
        ScheduleNotFound,
        StoreError,
        TaskChanged,
        TaskExists,
        TaskNotFound,
        TransitionRefused,
    )
    from dynatick.store.memory import MemoryStore
    from dynatick.task_function import TaskFunction, declared_schedules, task, use_client

__version__ = "0.1.0"

_HOMES = {
    "AsyncTaskClient": "dynatick.client.async_tasks",
    "BatchDiffers": "dynatick.errors",
    "BatchNotFound": "dynatick.errors",
    "BatchView": "dynatick.client",
    "Commit": "dynatick.domain.completion",
    "CompleteLater": "dynatick.domain.completion",
    "CompletionRefused": "dynatick.errors",
    "Bucket": "dynatick.domain.buckets",
    "ConfigurationError": "dynatick.errors",
    "DynatickError": "dynatick.errors",
    "Exists": "dynatick.client",
    "Grid": "dynatick.domain.buckets",
    "HandlerContext": "dynatick.actions.handlers",
    "Health": "dynatick.client.operations",
    "HistoryPage": "dynatick.client",
    "InsertCounts": "dynatick.client",
    "InsertUnknown": "dynatick.client",
    "Inserted": "dynatick.client",
    "InvalidInput": "dynatick.errors",
    "ItemTooLarge": "dynatick.errors",
    "MemoryStore": "dynatick.store.memory",
    "NewTask": "dynatick.client",
    "NoneInserted": "dynatick.client",
    "PermanentError": "dynatick.errors",
    "Refused": "dynatick.client",
    "Reschedule": "dynatick.errors",
    "RetryPolicy": "dynatick.domain.retry",
    "RetryPolicyRow": "dynatick.client",
    "RetryableError": "dynatick.errors",
    "ScheduleDiffers": "dynatick.errors",
    "ScheduleNotFound": "dynatick.errors",
    "ScheduleOccurrence": "dynatick.client",
    "ScheduleView": "dynatick.client",
    "Status": "dynatick.domain.task",
    "StoreError": "dynatick.errors",
    "TaskChanged": "dynatick.errors",
    "TaskClient": "dynatick.client",
    "TaskEntry": "dynatick.client",
    "TaskExists": "dynatick.errors",
    "TaskFunction": "dynatick.task_function",
    "TaskNotFound": "dynatick.errors",
    "TaskRow": "dynatick.client",
    "TaskView": "dynatick.client",
    "TransitionRefused": "dynatick.errors",
    "Unassigned": "dynatick.domain.normalise",
    "around": "dynatick.actions.handlers",
    "declared_schedules": "dynatick.task_function",
    "secret": "dynatick.actions.handler_secrets",
    "task": "dynatick.task_function",
    "use_client": "dynatick.task_function",
}

__all__ = [
    "AsyncTaskClient",
    "BatchDiffers",
    "BatchNotFound",
    "BatchView",
    "Bucket",
    "Commit",
    "CompleteLater",
    "CompletionRefused",
    "ConfigurationError",
    "DynatickError",
    "Exists",
    "Grid",
    "HandlerContext",
    "Health",
    "HistoryPage",
    "InsertCounts",
    "InsertUnknown",
    "Inserted",
    "InvalidInput",
    "ItemTooLarge",
    "MemoryStore",
    "NewTask",
    "NoneInserted",
    "PermanentError",
    "Refused",
    "Reschedule",
    "RetryPolicy",
    "RetryPolicyRow",
    "RetryableError",
    "ScheduleDiffers",
    "ScheduleNotFound",
    "ScheduleOccurrence",
    "ScheduleView",
    "Status",
    "StoreError",
    "TaskChanged",
    "TaskClient",
    "TaskEntry",
    "TaskExists",
    "TaskFunction",
    "TaskNotFound",
    "TaskRow",
    "TaskView",
    "TransitionRefused",
    "Unassigned",
    "around",
    "declared_schedules",
    "secret",
    "task",
    "use_client",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dynatick' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
