"""What a write is for, by what it writes."""

from __future__ import annotations

from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.lifecycle import RELEASED
from dynatick.domain.task import Row, is_own_row


def kind_of_creation(row: Row) -> str:
    task_id = str(row["taskId"])
    if is_own_row(task_id):
        return f"new {_name(task_id)}"
    return "new occurrence, claimed" if row.get("lease") is not None else "insert"


def kind_of(change: ConditionalUpdate) -> str:
    values = change.set
    if is_own_row(change.task_id):
        name = _name(change.task_id)
        if name not in ("cursor", "limits"):
            return name
        places = " with places" if values.get("held") else ""
        return f"{name}, {'not held' if values['lease'] is None else 'held'}{places}"
    if "lease" in values:
        return "reclaim" if "attempts" in values else "claim"
    if values.get("status") == "waiting":
        return "hand over"
    if values.keys() <= {"leaseUntil", "taskDateTime", "error"} and "taskDateTime" in values and len(values) > 1:
        return "failed by its token" if "error" in values else "heartbeat"
    if values.get("leaseUntil") == RELEASED:
        return "release"
    if "outcome" in values:
        return str(values["outcome"])
    if "restoredAt" in values:
        return "restore"
    if "replacedAt" in values:
        return "replace"
    if "firstDueAt" in values:
        return "postpone"
    if "run" in values and values.get("status") == "scheduled":
        return "normalise" if "createdAt" in values else "redrive"
    if "nextAttemptAt" in values:
        return "retry"
    if "deferrals" in values:
        return "defer"
    if "movedTo" in values and "status" not in values and "nextOccurrenceAt" not in values:
        return "move"
    if "dueAt" in values and values.get("status") == "scheduled":
        return "reschedule"
    return "schedule" if "nextOccurrenceAt" in values or "acceptedDefinition" in values else "other"


def _name(task_id: str) -> str:
    return task_id.split("#")[1]
