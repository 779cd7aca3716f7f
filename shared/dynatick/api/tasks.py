"""Single tasks over HTTP. Many in one request: ``dynatick.api.bulk``."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Header, Path, Query

from dynatick.api import limits
from dynatick.api.ids import from_path, to_path
from dynatick.api.limits import Wait, check_range
from dynatick.api.models import task as models
from dynatick.api.problems import Problem
from dynatick.api.routes import Call, Routes, answer, route, values_of
from dynatick.client import HistoryPage, NewTask, ScheduleView, TaskClient, TaskView
from dynatick.client.history import MAX_LIMIT
from dynatick.client.if_exists import CREATED, MAX_UNTIL
from dynatick.client.operations import Explanation
from dynatick.domain import attributes as attr
from dynatick.domain.task import TERMINAL
from dynatick.domain.traceparent import parse_traceparent
from dynatick.errors import InvalidInput, TaskExists, TaskNotFound

_MAX_KEY = 255

TaskId = Annotated[
    str,
    Path(
        alias=attr.TASK_ID,
        description="The task's id, percent-encoded. An id with `/`, `?`, `%` or a control character, one that "
        "begins with `~`, and `.`, `..`, `bulk`, `cancel`, `delete`, `redrive`, `restore`, `run` are written as `~` "
        "and the id in base64url.",
        examples=["welcome-42"],
    ),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="A name for this request. A repetition with the same name inserts nothing, and its answer is the "
        "task of the first request. Without a taskId, the id is derived from it.",
    ),
]
Trace = Annotated[
    str | None,
    Header(
        alias=attr.TRACEPARENT,
        description="The span that the task comes from, as W3C Trace Context has it. A malformed one is ignored.",
    ),
]
Match = Annotated[
    str | None,
    Header(alias="If-Match", description='Only if it still has this ETag, such as "5c1e…".'),
]
Bucket = Annotated[
    str | None, Query(alias="bucket", description="The bucket's name, `#` as `%23`.", examples=["2026-12-31#12:00"])
]
Start = Annotated[
    str | None,
    Query(alias="start", description="The first instant of a range: RFC 3339, a bucket, or relative, such as -1h."),
]
Subject = Annotated[
    str | None,
    Query(
        alias="subject",
        description="Only tasks with this subject: in order of id, and without a range wherever they are.",
        examples=["customer:4711"],
    ),
]
Limit = Annotated[int, Query(alias="limit", ge=1, le=MAX_LIMIT, description="The maximum number.")]
Token = Annotated[str | None, Query(alias="pageToken", description="The nextPageToken of the previous page.")]
End = Annotated[str | None, Query(alias="end", description="The range ends before this instant, which may be `now`.")]

_ONE = {200: ("The task", TaskView)}
MADE = {
    201: ("The task was inserted", TaskView),
    200: ("The request is a repetition: the task of the first request", TaskView),
}


def _verb(verb: str, summary: str, description: str = "") -> Callable[[Call], Call]:
    return route(
        f"POST /v1/tasks/<taskId>/{verb}",
        f"{verb}Task",
        summary,
        description=description,
        answers=_ONE,
        headers=("ETag",),
        problems=("task-not-found", "not-possible-now", "changed", "invalid-input", "item-too-large"),
    )


class Tasks(Routes):
    """The operations on tasks."""

    tag = "Task"

    @route(
        "POST /v1/tasks",
        "createTask",
        "Insert a task",
        description="Refused if a task or schedule has this id, so it is safe to repeat; with an "
        "`Idempotency-Key` each repetition has the same answer.",
        answers=MADE,
        headers=("ETag", "Location"),
        problems=("task-exists", "item-too-large", "idempotency-key-reused"),
    )
    def create(self, body: Annotated[models.NewTask, Body()], key: Key = None, trace: Trace = None) -> Response[str]:
        return insert(self._client, values_of(body), key, trace)

    @route(
        "GET /v1/tasks",
        "listTasks",
        "List the tasks of a bucket, of a range or of a subject",
        description="In order of time, shard and id. A task is listed in one bucket, that of its latest "
        "attempt. Give a `bucket`, `start` and `end`, or a `subject`; a range spans at most 31 days.",
        answers={200: ("A page of the list", HistoryPage)},
        problems=("invalid-input",),
    )
    def list(
        self,
        bucket: Bucket = None,
        start: Start = None,
        end: End = None,
        subject: Subject = None,
        status: Annotated[models.Status | None, Query(alias="status", description="Only tasks of this status.")] = None,
        limit: Limit = 100,
        token: Token = None,
    ) -> Response[str]:
        if subject is None or start is not None or end is not None:
            check_range("/v1/tasks", bucket, start, end, ("subject", subject), ("status", status))
        selection = self._client.select(bucket, start=start, end=end, subject=subject, status=status)
        return limits.page(partial(self._client.history, selection, page_token=token), limit)

    @route(
        "GET /v1/tasks/<taskId>",
        "getTask",
        "Get a task, and wait for its end if you like",
        answers=_ONE,
        headers=("ETag",),
        problems=("task-not-found", "invalid-input"),
    )
    def get(self, task_id: TaskId, wait: Wait = 0) -> Response[str]:
        found = from_path(task_id)
        return shown(self._waiting.watch(wait, lambda: self._client.get(found), lambda task: task.status in TERMINAL))

    @route(
        "GET /v1/tasks/<taskId>/explanation",
        "explainTask",
        "Explain where a task is",
        description="Why it runs, waits or has ended, in a sentence, and what has happened to it.",
        answers={200: ("The explanation", Explanation)},
        problems=("task-not-found", "invalid-input"),
    )
    def explain(self, task_id: TaskId) -> Response[str]:
        found = self._client.operations.explain(from_path(task_id))
        if found.status is None:
            raise Problem(code="task-not-found", detail=found.sentence)
        return answer(found)

    @route(
        "PATCH /v1/tasks/<taskId>",
        "updateTask",
        "Give a waiting task another time or payload",
        description="A failed one can get another payload. With `If-Match`, only if it is unchanged since "
        "you read it. Other attributes stay.",
        answers=_ONE,
        headers=("ETag",),
        problems=("task-not-found", "not-possible-now", "changed", "item-too-large"),
    )
    def patch(self, task_id: TaskId, body: Annotated[models.TaskPatch, Body()], match: Match = None) -> Response[str]:
        changes = values_of(body)
        return shown(
            self._client.update(
                from_path(task_id),
                task_date_time=changes.get(attr.TASK_DATE_TIME),
                due_at=changes.get(attr.DUE_AT),
                delay_seconds=changes.get(attr.DELAY_SECONDS),
                payload=changes.get(attr.PAYLOAD),
                version=version_of(match),
            )
        )

    @route(
        "PUT /v1/tasks/<taskId>",
        "putTask",
        "Insert a task, or replace or postpone the one that is there",
        description="`ifExists` says what happens to a task of this id, and `effect` in the answer which it "
        "was. *replace*: a waiting task becomes the one given; action, subject and limit key must be the same. "
        "*postpone*: it is moved to the time given, if that is later, and keeps all else. *keep*: it stays. "
        "A task that runs is never changed; one that has ended begins another run. With `If-Match`, only if the task "
        "is there, and unchanged since you read it; `ifExists=refuse` stands for `If-None-Match`.",
        answers={
            201: ("The task was inserted", models.TaskPut),
            200: ("It was there: kept, replaced, postponed or restarted", models.TaskPut),
        },
        headers=("ETag", "Location"),
        problems=("task-exists", "not-possible-now", "changed", "item-too-large"),
    )
    def put(
        self,
        task_id: TaskId,
        body: Annotated[models.NewTask, Body()],
        if_exists: Annotated[
            models.IfExists, Query(alias="ifExists", description="What happens to a task of this id.")
        ] = "replace",
        until: Annotated[
            float | None,
            Query(alias="untilSeconds", gt=0, description="Postpone it by so much at most, after its first time."),
        ] = None,
        match: Match = None,
        none_match: Annotated[
            str | None, Header(alias="If-None-Match", description="Not accepted: see `ifExists`.")
        ] = None,
        trace: Trace = None,
    ) -> Response[str]:
        if none_match is not None:
            raise InvalidInput("If-None-Match", none_match, "leave it out; ifExists=refuse inserts, and changes none")
        if match is not None and (if_exists == "refuse" or version_of(match) is None):
            raise InvalidInput("If-Match", match, "expected an ETag, and none with ifExists=refuse")
        found, row = from_path(task_id), {**_origin(trace), **values_of(body)}
        if row.setdefault(attr.TASK_ID, found) != found:
            raise InvalidInput(attr.TASK_ID, row[attr.TASK_ID], f"expected {found!r}, as in the path, or none")
        if until is not None and (if_exists != "postpone" or until > MAX_UNTIL.total_seconds()):
            expected = f"expected a number up to {MAX_UNTIL.total_seconds():.0f}, with ifExists=postpone only"
            raise InvalidInput("untilSeconds", until, expected)
        task = self._client.insert_task(
            NewTask.from_row(row),
            if_exists=if_exists,
            until=None if until is None else timedelta(seconds=until),
            version=version_of(match),
        )
        made = models.TaskPut(effect=str(task.effect), task=task)
        headers = {"ETag": f'"{task.version}"', "Location": f"/v1/tasks/{to_path(found)}"}
        return answer(made, 201 if task.effect == CREATED else 200, **headers)

    @route(
        "DELETE /v1/tasks/<taskId>",
        "deleteTask",
        "Delete a task that waits or has ended",
        description="Deletes its row. A running task can't be deleted. With `If-Match`, only if it is "
        "unchanged since you read it.",
        answers={204: ("It was deleted", None)},
        problems=("task-not-found", "not-possible-now", "changed", "invalid-input"),
    )
    def delete(self, task_id: TaskId, match: Match = None) -> Response[str]:
        self._client.delete(from_path(task_id), version=version_of(match))
        return Response(status_code=204, body="")

    @_verb("cancel", "Cancel a waiting task")
    def cancel(self, task_id: TaskId, match: Match = None) -> Response[str]:
        return shown(self._client.cancel(from_path(task_id), version=version_of(match)))

    @_verb("run", "Run a task at the next tick", "An ended one runs again.")
    def run(self, task_id: TaskId, match: Match = None) -> Response[str]:
        return shown(self._client.run_now(from_path(task_id), version=version_of(match)))

    @_verb(
        "redrive",
        "Start a failed task anew",
        "At the next tick, with its payload or with another one, which is checked by the type of its handler.",
    )
    def redrive(
        self, task_id: TaskId, body: Annotated[models.Redrive | None, Body()] = None, match: Match = None
    ) -> Response[str]:
        asked = body or models.Redrive.model_validate({})
        return shown(
            self._client.redrive(
                from_path(task_id),
                payload=asked.payload,
                set_fields=asked.set,
                unset_fields=asked.unset,
                dry_run=asked.dryRun,
                version=version_of(match),
            )
        )

    @_verb(
        "restore",
        "Take a cancellation back",
        "The task waits for its time again; if that has passed, it runs at the next tick.",
    )
    def restore(self, task_id: TaskId, match: Match = None) -> Response[str]:
        return shown(self._client.restore(from_path(task_id), version=version_of(match)))

    @route(
        "POST /v1/completions",
        "completeTask",
        "Complete or fail a task that its handler has handed over, or send its heartbeat",
        description="The same again changes nothing. Refused once its attempt is over: a heartbeat so hears "
        "that the task was cancelled.",
        answers={200: ("The task as it is now", TaskView)},
        headers=("ETag",),
        problems=("completion-refused", "invalid-input", "item-too-large"),
    )
    def settle(self, body: Annotated[models.Completion, Body()]) -> Response[str]:
        if body.outcome != "failed" and (body.error is not None or body.retry):
            raise InvalidInput("outcome", body.outcome, "expected failed, since there is an error or a retry")
        if body.outcome != "completed" and body.result is not None:
            raise InvalidInput("outcome", body.outcome, "expected completed, since there is a result")
        if body.outcome == "heartbeat":
            return shown(self._client.heartbeat(body.token))
        if body.outcome == "completed":
            return shown(self._client.complete(body.token, body.result))
        if body.error is None:
            raise InvalidInput(attr.ERROR, None, "expected a text that says why")
        return shown(self._client.fail(body.token, body.error, retry=body.retry))


def insert(client: TaskClient, row: dict[str, Any], key: str | None, trace: str | None) -> Response[str]:
    """Inserts a task. With a key, a repetition is distinguished from another request."""
    digest = None
    if key is not None:
        if not 0 < len(key) <= _MAX_KEY:
            raise InvalidInput("Idempotency-Key", key, f"expected 1 to {_MAX_KEY} characters")
        digest = _digest(key, row)
        row = {attr.TASK_ID: f"key-{_digest(key)}", **row}
    task = NewTask.from_row({attr.TASK_ID: str(uuid.uuid4()), **_origin(trace), **row})
    try:
        view = client.insert_task(task, idempotency_digest=digest)
    except TaskExists as error:
        if digest is None:
            raise
        return _repeated(client, error, digest)
    return shown(view, 201, Location=f"/v1/tasks/{to_path(view.task_id)}")


def _origin(trace: str | None) -> Mapping[str, object]:
    """What a row has of a request's header: nothing, if that is malformed, as W3C Trace Context wants it."""
    parent = parse_traceparent(trace)
    return {} if parent is None else {attr.TRACEPARENT: str(parent)}


def _repeated(client: TaskClient, error: TaskExists, digest: str) -> Response[str]:
    """The answer to an insert whose id exists: a repetition, or an error."""
    try:
        existing = client.get(error.task_id)
    except TaskNotFound:  # it was deleted just now
        raise error from None
    known = existing.row.get(attr.IDEMPOTENCY_DIGEST)
    if known == digest:
        return shown(existing, 200, Location=f"/v1/tasks/{to_path(existing.task_id)}", Idempotency_Replayed="true")
    if known is None:
        raise error
    detail = f"{error}; another request inserted it"
    raise Problem(code="idempotency-key-reused", detail=detail)


def shown(view: TaskView | ScheduleView, status: int = 200, **headers: str) -> Response[str]:
    """The answer with a task or a schedule, and its version."""
    return answer(view, status, ETag=f'"{view.version}"', **headers)


def version_of(match: str | None) -> str | None:
    """The version of an If-Match; None for ``*``."""
    return None if match is None or match.strip() == "*" else match.strip().removeprefix('"').removesuffix('"')


def _digest(key: str, row: Mapping[str, object] | None = None) -> str:
    text = key if row is None else key + json.dumps(row, sort_keys=True, default=repr)  # 1.5 is not "1.5"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
