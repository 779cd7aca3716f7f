"""The Python door: insert tasks, change them, and see what became of them.

client = TaskClient.connect("my-table")
client.insert("welcome-42", due_at="2026-12-31T12:00:00Z", action="webhook", payload={"url": "https://…"})
client.history("2026-12-31#12:00", status="failed")
"""

from dynatick.actions.payload import check_payload, payload_schemas
from dynatick.client.bulk_change import Changed, Left, ManyResult, Unchanged, WouldChange
from dynatick.client.connect import ClientSettings
from dynatick.client.doctor import Diagnosis
from dynatick.client.insertion import Exists, Failed, InsertCounts, Inserted, InsertResult, NoneInserted, Refused
from dynatick.client.installation import Health
from dynatick.client.new_task import NewTask, Time
from dynatick.client.row_types import BucketCountsRow, RetryPolicyRow, ScheduleOccurrenceRow, TaskEntryRow, TaskRow
from dynatick.client.schedule_occurrences import ScheduleOccurrence
from dynatick.client.schedule_views import SchedulePage, ScheduleView
from dynatick.client.schedules import Schedules
from dynatick.client.tasks import TaskClient
from dynatick.client.ticks import IdleTicks, MissedTicks, TickEntry, TickView
from dynatick.client.views import BucketCounts, HistoryPage, TaskEntry, TaskView
from dynatick.engine.diagnosis import Finding, Kind

__all__ = [
    "BucketCounts",
    "BucketCountsRow",
    "Changed",
    "ClientSettings",
    "Diagnosis",
    "Exists",
    "Failed",
    "Finding",
    "Health",
    "HistoryPage",
    "IdleTicks",
    "InsertCounts",
    "InsertResult",
    "Inserted",
    "Kind",
    "Left",
    "ManyResult",
    "MissedTicks",
    "NewTask",
    "NoneInserted",
    "Refused",
    "RetryPolicyRow",
    "ScheduleOccurrence",
    "ScheduleOccurrenceRow",
    "SchedulePage",
    "ScheduleView",
    "Schedules",
    "TaskClient",
    "TaskEntry",
    "TaskEntryRow",
    "TaskRow",
    "TaskView",
    "TickEntry",
    "TickView",
    "Time",
    "Unchanged",
    "WouldChange",
    "check_payload",
    "payload_schemas",
]
