"""The forms of tasks: one, many, and those that a bucket lists."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import ClosedForm, Form, OpenForm
from dynatick.api.models.problem import WrongField
from dynatick.api.models.values import (
    EXAMPLE_TASK,
    Action,
    DelaySeconds,
    DueAt,
    Payload,
    RetryPolicy,
    TaskDateTime,
    TaskId,
    TimeoutSeconds,
)
from dynatick.domain.task import MAX_ACTION_CHARACTERS

MAX_TASKS = 1000
"""Tasks in one request."""

Status = Literal["unscheduled", "scheduled", "running", "completed", "failed", "cancelled"]


class NewTask(Form):
    """A task to insert, with at most one time: without one, the installation's policy decides. Other attributes are
    your own, and the action gets them unchanged."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [EXAMPLE_TASK]})

    taskId: TaskId = None
    taskDateTime: TaskDateTime = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    action: Action = None
    payload: Payload = None
    retryPolicy: RetryPolicy = None
    timeoutSeconds: TimeoutSeconds = None


class NewTasks(ClosedForm):
    """Many tasks to insert."""

    tasks: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_TASKS,
        description="Tasks as `NewTask` describes them, each with its taskId. An invalid one affects no other.",
        examples=[[EXAMPLE_TASK]],
    )


class TaskPatch(ClosedForm):
    """The changes of a waiting task: its time (one of the three), its payload, or both."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dueAt": "2026-12-31T13:00:00Z"}]})

    taskDateTime: TaskDateTime = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    payload: Payload = None


class Selection(ClosedForm):
    """The tasks to select."""

    bucket: str | None = Field(None, description="The bucket's name.", examples=["2026-12-31#12:00"])
    start: str | None = Field(
        None, description="The first instant of a range, in RFC 3339.", examples=["2026-12-31T00:00:00Z"]
    )
    end: str | None = Field(None, description="The range ends before this instant.", examples=["2027-01-01T00:00:00Z"])
    action: str | None = Field(None, description="Only tasks of this action.", examples=["webhook"])
    dryRun: bool = Field(False, description="Return the selected tasks, and change none.")
    limit: int = Field(
        MAX_TASKS, ge=1, le=MAX_TASKS, description="The maximum number of tasks that one request changes and lists."
    )


class CancelSelection(Selection):
    """The waiting tasks to cancel: those of a bucket, or of a range from `start` to before `end`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bucket": "2026-12-31#12:00", "dryRun": True}]})


class RedriveSelection(Selection):
    """The failed (or cancelled) tasks to redrive."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bucket": "2026-12-31#12:00", "dryRun": True}]})

    status: Literal["failed", "cancelled"] = Field("failed", description="Failed or cancelled ones.")
    error: str | None = Field(None, description="Only tasks with this in their error.", examples=["answered 503"])


class ScheduleTask(ClosedForm):
    """A task in the simple form: action, payload and time."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "action": "webhook",
                    "payload": {"url": "https://example.com/hook", "data": {"n": 1}},
                    "run_at": "2026-12-31T15:00:00Z",
                }
            ]
        }
    )

    action: str = Field(min_length=1, max_length=MAX_ACTION_CHARACTERS, description="What to run.")
    payload: dict[str, Any] = Field(default_factory=dict, description="The action's arguments.")
    run_at: str = Field(description="When: an instant in RFC 3339 with its offset.", examples=["2026-12-31T15:00:00Z"])


class Task(OpenForm):
    """A task, with every attribute of its row. Rows are not always written by Dynatick, so attributes have any type."""

    taskId: str
    status: str = Field(description="unscheduled, scheduled, running, completed, failed or cancelled.")
    taskDateTime: Any = Field(None, description="Its bucket; none before the scheduler has placed it.")
    dueAt: Any = Field(None, description="When it is due.")
    action: Any = None
    payload: Any = None
    attempt: Any = Field(None, description="0 until the first; goes up with each claim.")
    run: Any = Field(None, description="One more with each redrive and each run-now of an ended task.")
    turn: Any = Field(None, description="How often its handler has rescheduled it in this run.")
    nextAttemptAt: Any = Field(None, description="When a retry, a deferral or a further turn may begin.")
    lateMilliseconds: Any = Field(
        None, description="How late the first attempt of the run began, after its tick or, to the second, its due time."
    )
    outcome: Any = Field(None, description="How it ended; on ended tasks only.")
    error: Any = None
    result: Any = None


class TaskEntry(OpenForm):
    """A task as its bucket lists it."""

    taskId: str
    taskDateTime: str
    status: str
    action: str | None = None
    dueAt: str | None = None
    finishedAt: str | None = None
    error: str | None = None
    attempt: int | None = None
    scheduleId: str | None = None
    lateMilliseconds: int | None = Field(None, description="How late its first attempt began. Of ended tasks.")


class TaskPage(OpenForm):
    """A page of a history, in order of time and id. It may be empty without being the last one."""

    tasks: list[TaskEntry]
    nextPageToken: str | None = Field(None, description="The pageToken of the next page. None: this is the last one.")


class InsertResult(OpenForm):
    """The result of one task of many."""

    position: int = Field(description="Its place in the request, from 0.")
    taskId: str | None = None
    result: Literal["inserted", "wouldInsert", "exists", "refused", "unknown"] = Field(
        description="wouldInsert: a dry run. unknown: the table gave no answer; whether it was written is not known."
    )
    detail: str | None = Field(None, description="The reason: the first of `errors`.")
    pointer: str | None = Field(None, description="The invalid value.")
    errors: list[WrongField] | None = Field(None, description="Every error of a refused task.")


class InsertResults(OpenForm):
    """One result per task, in order, and how many there are of each."""

    results: list[InsertResult]
    counts: dict[str, int]


class ChangeResult(OpenForm):
    """The result of one selected task."""

    taskId: str
    result: Literal["changed", "wouldChange", "skipped", "unknown"] = Field(
        description="skipped: another request changed the task first. unknown: the table gave no answer."
    )
    detail: str | None = None


class ChangeResults(OpenForm):
    """One result per task, in order of time and id, and how many there are of each."""

    results: list[ChangeResult]
    counts: dict[str, int]
    more: bool = Field(
        description="Whether tasks are left: repeat the request, with nextStart as start if there is one. Of a dry run "
        "without nextStart: whether there are more than it had time to count."
    )
    nextStart: str | None = Field(None, description="Where a range continues.")


class TaskEvent(OpenForm):
    """Something that has happened to a task, or that will."""

    at: str | None = None
    what: str
    error: str | None = None
    trace: str | None = Field(None, description="Where the error was raised, a line for each frame.")


class Explanation(OpenForm):
    """Why a task is where it is."""

    taskId: str
    status: str
    sentence: str = Field(description="What is most important now.")
    events: list[TaskEvent] = Field(description="In order of time.")
