"""The forms of requests about tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import Began, ClosedForm, Form
from dynatick.api.models.values import (
    EXAMPLE_TASK,
    Action,
    DelaySeconds,
    DueAt,
    LimitKey,
    Payload,
    RetryPolicy,
    Subject,
    TaskDateTime,
    TaskId,
    TimeoutSeconds,
)
from dynatick.client import TaskView
from dynatick.domain.task import MAX_ACTION_CHARACTERS
from dynatick.domain.view import View

MAX_TASKS = 1000
"""Tasks in one request."""

IfExists = Literal["refuse", "keep", "replace", "postpone"]
Status = Literal["unscheduled", "scheduled", "running", "waiting", "completed", "failed", "cancelled"]


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
    subject: Subject = None
    limitKey: LimitKey = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskPut(View):
    """How a put ended, and the task as it is now."""

    effect: Annotated[str, "created, kept, replaced, postponed or restarted."]
    task: TaskView


class NewTasks(ClosedForm):
    """Many tasks to insert."""

    tasks: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_TASKS,
        description="Tasks as `NewTask` describes them, each with its taskId. An invalid one affects no other.",
        examples=[[EXAMPLE_TASK]],
    )


class TaskPatch(ClosedForm):
    """Changes of a waiting task: its time (one of the three), its payload, or both. Of a failed one, its payload."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dueAt": "2026-12-31T13:00:00Z"}]})

    taskDateTime: TaskDateTime = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    payload: Payload = None


class Completion(ClosedForm):
    """What has become of the work on a task, by its completion token."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"token": "Ocq-wZE2-cpH_ABBhGJixXQtOQ", "result": {"frames": 86400}}]}
    )

    token: str = Field(description="`context.completion_token` of its handler. A secret.")
    outcome: Literal["completed", "failed", "heartbeat"] = Field(
        "completed", description="`heartbeat`: the work goes on, and the deadline of the next one begins anew."
    )
    result: Any = Field(None, description="Of a completed one: any JSON, which is recorded.")
    error: str | None = Field(None, description="Of a failed one: why.", examples=["no such file"])
    retry: bool = Field(False, description="Of a failed one: it is attempted again, by its policy.")


class PayloadChange(ClosedForm):
    """Another payload for a task that is redriven: a whole one, or its own with other fields."""

    payload: dict[str, Any] | None = Field(None, description="In the place of its own.")
    set: dict[str, Any] | None = Field(None, description="New values of some fields of its own payload.")
    unset: list[str] = Field(default_factory=list, description="Fields that its payload is to have no more.")


class Redrive(PayloadChange):
    """How to redrive a task."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"set": {"text": "It is time"}, "dryRun": True}]})

    dryRun: bool = Field(False, description="Return the task as it would be, and change nothing.")


class SelectionForm(ClosedForm):
    """The tasks to select."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bucket": "2026-12-31#12:00", "dryRun": True}]})

    bucket: str | None = Field(None, description="The bucket's name.", examples=["2026-12-31#12:00"])
    start: str | None = Field(
        None, description="The first instant of a range, in RFC 3339, or relative.", examples=["2026-12-31T00:00:00Z"]
    )
    end: str | None = Field(None, description="The range ends before this instant.", examples=["2027-01-01T00:00:00Z"])
    subject: str | None = Field(
        None, description="Only tasks with this subject; a range is not needed then.", examples=["customer:4711"]
    )
    action: str | None = Field(None, description="Only tasks of this action.", examples=["webhook"])
    began: Began = None
    dryRun: bool = Field(False, description="Return the selected tasks, and change none.")
    limit: int = Field(
        MAX_TASKS,
        ge=1,
        le=MAX_TASKS,
        description="The maximum number of tasks that one request changes and lists; a pack of a batch is one.",
    )


class CancelSelection(SelectionForm):
    """The waiting tasks to cancel: those of a bucket, of a range from `start` to before `end`, or of a subject."""


class DeleteSelection(SelectionForm):
    """The tasks to delete: those of a bucket, of a range from `start` to before `end`, or of a subject."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"subject": "customer:4711", "dryRun": True}]})

    status: Status | None = Field(None, description="Only tasks of this status.")


class RedriveSelection(PayloadChange, SelectionForm):
    """The failed tasks to redrive."""

    status: Literal["failed"] = Field("failed", description="Failed ones; see also restore and run.")
    error: str | None = Field(None, description="Only tasks with this in their error.", examples=["answered 503"])


class RestoreSelection(SelectionForm):
    """The cancelled tasks to restore."""


class RunSelection(SelectionForm):
    """The tasks to run at the next tick: waiting ones, or ended ones again."""

    status: Literal["unscheduled", "scheduled", "completed", "failed", "cancelled"] | None = Field(
        None, description="Only these. Default: those that wait, scheduled or unscheduled."
    )


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
