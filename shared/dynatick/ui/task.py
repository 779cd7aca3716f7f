"""A task: its life, its attempts, its payload, and what can be done to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dynatick.client import TaskView
from dynatick.client.views import text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION, tasks_changed
from dynatick.domain.buckets import Bucket
from dynatick.domain.instants import parse_instant
from dynatick.domain.packs import parse_pack_id
from dynatick.domain.row import RECURRING, RowView
from dynatick.domain.task import Status
from dynatick.errors import InvalidInput, TaskChanged, TaskNotFound, TransitionRefused
from dynatick.json_reader import loads
from dynatick.ui import links, query
from dynatick.ui.changes import Form, change
from dynatick.ui.display import clock
from dynatick.ui.site import TICK, Notice, Site, site_of

_UNBEGUN = (Status.SCHEDULED, "unscheduled")


def trace_of(row: Mapping[str, object]) -> str | None:
    """Where the handler of a task raised, at its latest failed attempt."""
    kept = row.get(attr.ATTEMPTS)
    last = kept[-1] if isinstance(kept, list) and kept else None
    trace = last.get(attr.TRACE) if isinstance(last, Mapping) else None
    return trace if isinstance(trace, str) else None


def schedule_id_of(task: TaskView) -> str | None:
    """The schedule whose occurrence it is."""
    schedule_id = task.row.get(attr.SCHEDULE_ID)
    return schedule_id if isinstance(schedule_id, str) else None


def possible(task: TaskView) -> tuple[str, ...]:
    """What can be done to a task, what is done most often first."""
    status = task.status
    if status in _UNBEGUN or RowView(task.row).is_released:
        return ("run-now", "reschedule", "cancel")
    if status == Status.WAITING:
        return ("cancel",)
    if not tasks_changed(task.row):  # a pack of which each member has ended by itself
        return ()
    if status == Status.CANCELLED:
        return ("restore", "run-now")
    if status == Status.FAILED:
        return ("redrive",)
    return ("run-now",) if status == Status.COMPLETED else ()


def _page(request: Request) -> Response:
    site = site_of(request)
    task_id = links.of_segment(request.path_params["task"])
    now = site.clock()
    try:
        task = site.client.get(task_id)
    except TaskNotFound:
        missing = site.client.operations.explain(task_id)
        sentence = missing.sentence
        if missing.schedule_id is not None:
            return site.page(
                request, "occurrence.html", "schedules", now=now, task_id=task_id, schedule_id=missing.schedule_id,
                explanation=f"{sentence[0].upper()}{sentence[1:]}.",
            )  # fmt: skip
        return site.problem(request, 404, f"{sentence[0].upper()}{sentence[1:]}.")
    if task.status == RECURRING:
        return RedirectResponse(links.schedule(task_id), 303)
    if task.action == BATCH_ACTION:
        return RedirectResponse(links.batch(task_id), 303)
    if attr.PACK in task.row and (named := parse_pack_id(task_id)) is not None:
        return RedirectResponse(links.batch(named[0], "members", page=named[1].first), 303)
    explanation = site.client.operations.explain(task_id)
    return site.page(
        request, "task.html", "tasks", now=now,
        follows=TICK, task=task, attempts=_attempts(task), possible=possible(task),
        events=explanation.events, explanation=f"It {explanation.sentence.removeprefix(task_id).strip()}.",
        schedule_id=schedule_id_of(task), batch_id=text_or_none(task.row.get(attr.BATCH_ID)), trace=trace_of(task.row),
    )  # fmt: skip


def _row(request: Request) -> Response:
    """The whole row, however large."""
    task = site_of(request).client.get(links.of_segment(request.path_params["task"]))
    text = json.dumps(task.to_row(), indent=2, ensure_ascii=False, default=str)
    return Response(text, media_type="application/json")


def _change(request: Request, form: Form) -> Response:
    site = site_of(request)
    task_id = links.of_segment(request.path_params["task"])
    do = request.path_params["change"]
    now = site.clock()
    try:
        notice = _do(site, task_id, do, form, now)
    except (TransitionRefused, TaskChanged, InvalidInput) as error:
        notice = Notice(f"Nothing was changed: {error}", is_problem=True)
    return site.answer(links.task(task_id), notice)


def _do(site: Site, task_id: str, do: str, form: Form, now: datetime) -> Notice:
    client = site.client
    match do:
        case "cancel":
            client.cancel(task_id)
            return Notice(f"Cancelled at {clock(now, now)}.")
        case "redrive":
            changed = form.get("payload")
            task = client.redrive(task_id, payload=None if changed is None else _payload_of(changed))
            return Notice(f"Redriven: run {task.run} begins at {_tick_of(task, now)}.")
        case "restore":
            task = client.restore(task_id)
            return Notice(f"Restored: it runs at {_tick_of(task, now)}.")
        case "run-now":
            task = client.run_now(task_id)
            return Notice(f"It runs at the next tick, {_tick_of(task, now)}.")
        case "reschedule":
            due_at = query.required_instant(form, "due_at")
            task = client.reschedule(task_id, due_at=due_at)
            return Notice(f"Rescheduled: it is due at {clock(task.due_at, now)}.")
        case _:
            raise TaskNotFound(task_id)


def _payload_of(text: str) -> Mapping[str, object]:
    """Raises InvalidInput."""
    payload = loads(text, attr.PAYLOAD)
    if not isinstance(payload, dict):
        raise InvalidInput(attr.PAYLOAD, payload, "expected a JSON object")
    return payload


def _tick_of(task: TaskView, now: datetime) -> str:
    bucket = Bucket.canonical(task.bucket)
    return "the next tick" if bucket is None else clock(bucket.instant, now)


def _attempts(task: TaskView) -> list[Mapping[str, Any]]:
    """The attempts that the row keeps, the latest first."""
    kept = task.row.get(attr.ATTEMPTS)
    found = [one for one in kept if isinstance(one, Mapping)] if isinstance(kept, list) else []
    return [_attempt(one) for one in reversed(found)]


def _attempt(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    started, finished = _instant(entry.get(attr.STARTED_AT)), _instant(entry.get(attr.FINISHED_AT))
    return {
        "run": entry.get(attr.RUN),
        "attempt": entry.get(attr.ATTEMPT),
        "started": started,
        "took_ms": None if started is None or finished is None else (finished - started).total_seconds() * 1000,
        "error": entry.get(attr.ERROR),
    }


def _instant(value: object) -> datetime | None:
    try:
        return None if value is None else parse_instant(value, "instant")
    except InvalidInput:
        return None


ROUTES = [
    Route("/tasks/{task}", _page),
    Route("/tasks/{task}/row", _row),
    Route("/tasks/{task}/{change}", change(_change), methods=["POST"]),
]
