"""The Python client: insert tasks, change them, list them. ``dynatick.client.operations``: the installation.

client = TaskClient.connect("my-table")
client.insert("welcome-42", due_at="2026-12-31T12:00:00Z", action="webhook", payload={"url": "https://…"})
client.history("2026-12-31#12:00", status="failed")
"""

from dynatick.actions.payload import check_payload, payload_schemas
from dynatick.client.batches import BatchCancelled, Batches, BatchInserted, BatchView
from dynatick.client.bulk_change import Changed, ChangeUnknown, ConfirmedChange, ManyResult, Skipped, WouldChange
from dynatick.client.connect import ClientSettings
from dynatick.client.dead_letters import (
    DeadLetterPage,
    DeadLetters,
    DeadLetterView,
    HandledLetter,
    HandledLetters,
    LetterResult,
    LetterState,
)
from dynatick.client.insertion import Exists, InsertCounts, Inserted, InsertResult, InsertUnknown, NoneInserted, Refused
from dynatick.client.new_task import NewTask, RetryPolicyRow, TaskRow
from dynatick.client.schedule_occurrences import ExpectedOccurrence, ScheduleOccurrence
from dynatick.client.schedule_sync import ScheduleChange, SyncResult
from dynatick.client.schedule_views import SchedulePage, ScheduleView
from dynatick.client.schedules import Schedules
from dynatick.client.tasks import TaskClient
from dynatick.client.views import BucketCounts, HistoryPage, TaskEntry, TaskView
from dynatick.domain.buckets import Time

__all__ = [
    "BatchCancelled",
    "BatchInserted",
    "BatchView",
    "Batches",
    "BucketCounts",
    "ChangeUnknown",
    "Changed",
    "ClientSettings",
    "ConfirmedChange",
    "DeadLetterPage",
    "DeadLetterView",
    "DeadLetters",
    "Exists",
    "ExpectedOccurrence",
    "HandledLetter",
    "HandledLetters",
    "HistoryPage",
    "InsertCounts",
    "InsertResult",
    "InsertUnknown",
    "Inserted",
    "LetterResult",
    "LetterState",
    "ManyResult",
    "NewTask",
    "NoneInserted",
    "Refused",
    "RetryPolicyRow",
    "ScheduleChange",
    "ScheduleOccurrence",
    "SchedulePage",
    "ScheduleView",
    "Schedules",
    "Skipped",
    "SyncResult",
    "TaskClient",
    "TaskEntry",
    "TaskRow",
    "TaskView",
    "Time",
    "WouldChange",
    "check_payload",
    "payload_schemas",
]
