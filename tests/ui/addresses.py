"""Each kind of page of the small installation, by name."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from tests.ui import seed

NIGHT = "2027-03-24#02:05"
NOON = "2027-03-24#12:00"
EVENING = "2027-03-24#19:13"


def task(task_id: str) -> str:
    return f"/tasks/{quote(task_id, safe='')}"


def schedule(schedule_id: str) -> str:
    return f"/schedules/{quote(schedule_id, safe='')}"


def batch(batch_id: str) -> str:
    return f"/batches/{quote(batch_id, safe='')}"


def bucket(name: str, **filters: str) -> str:
    return f"/buckets/{quote(name, safe='')}" + (f"?{urlencode(filters)}" if filters else "")


ADDRESSES = {
    "now": "/",
    "timeline": "/timeline",
    "timeline-of-an-hour": "/timeline?span=hour",
    "timeline-of-noon": "/timeline?span=hour&from=2027-03-24T12:00Z",
    "timeline-of-a-week": "/timeline?span=week",
    "bucket": bucket(NOON),
    "bucket-by-status": bucket(NIGHT, status="failed"),
    "failures": "/failures",
    "failures-of-a-day": "/failures?last=24h",
    "actions": "/actions",
    "action": "/actions/send-reminder",
    "failure": f"/failures/{seed.BANK_DOWN_FINGERPRINT}",
    "redrive": "/failures/redrive?" + urlencode({"fingerprint": seed.BANK_DOWN_FINGERPRINT, "last": "24h"}),
    "tasks": "/tasks",
    "tasks-by-prefix": "/tasks?"
    + urlencode({"prefix": "charge-", "from": "2027-03-24T02:40Z", "to": "2027-03-24T02:50Z"}),
    "tasks-by-status": "/tasks?"
    + urlencode({"from": "2027-03-24T00:00Z", "to": "2027-03-24T06:00Z", "status": "failed"}),
    "search": "/search?q=reminder-",
    "occurrence-missed": task(seed.MISSED_OCCURRENCE),
    "task-waiting": task(seed.WAITS_FOR_RETRY),
    "task-completed": task("reminder-005"),
    "task-failed": task("invoice-mail-00"),
    "task-cancelled": task("old-campaign-1"),
    "task-running": task(seed.RUNNING_ID),
    "task-handed-over": task(seed.WAITING),
    "task-hostile": task(seed.HOSTILE_ID),
    "task-of-long-id": task(seed.LONG_ID),
    "task-huge": task(seed.HUGE_ID),
    "batches": "/batches",
    "batch": batch(seed.BATCH),
    "batch-ended": batch(seed.ENDED_BATCH),
    "members": batch(seed.BATCH) + "/members",
    "members-by-status": batch(seed.ENDED_BATCH) + "/members?status=failed",
    "bucket-with-members": bucket(EVENING),
    "schedules": "/schedules",
    "schedules-by-state": "/schedules?state=DISABLED",
    "schedule": schedule("probe"),
    "schedule-with-clock-change": schedule("backup"),
    "schedule-paused": schedule("digest"),
    "ticks": "/ticks",
    "changes": "/changes",
    "ticks-of-a-day": "/ticks?last=24h",
}
MISSING = {
    "no-such-task": task("no such task"),
    "no-such-schedule": schedule("none"),
    "no-such-batch": batch("none"),
    "no-such-page": "/nothing/here",
}
_SECTIONS = ("now", "timeline", "failures", "actions", "tasks", "batches", "schedules", "ticks", "changes")
EMPTY = {name: ADDRESSES[name] for name in _SECTIONS}
