"""The forms of requests and answers, for the OpenAPI document and for the first check of a request.

Values are described here and judged by the client, so that each door judges them alike.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from dynatick.domain.task import MAX_ACTION_CHARACTERS, MAX_TASK_ID_BYTES
from dynatick.domain.timeout import MAX_TIMEOUT_SECONDS

MAX_TASKS = 1000
"""Tasks in one request."""

EXAMPLE_TASK: dict[str, Any] = {
    "taskId": "welcome-42",
    "dueAt": "2026-12-31T12:00:00Z",
    "action": "webhook",
    "payload": {"url": "https://example.com/hook", "data": {"n": 1}},
}

Status = Literal["unscheduled", "scheduled", "running", "completed", "failed", "cancelled"]


def _value(description: str, example: object, *kinds: dict[str, Any]) -> WithJsonSchema:
    """How a value is described; as everywhere, null is as good as nothing. (Powertools takes no list of types.)"""
    return WithJsonSchema({"anyOf": [*kinds, {"type": "null"}], "description": description, "examples": [example]})


_TEXT_OR_NUMBER: tuple[dict[str, Any], ...] = ({"type": "string"}, {"type": "number"})

TaskId = Annotated[
    Any,
    _value(
        f"Your own name for the task; at most {MAX_TASK_ID_BYTES} bytes in UTF-8.",
        "welcome-42",
        {"type": "string", "minLength": 1, "maxLength": MAX_TASK_ID_BYTES},
    ),
]
TaskDateTime = Annotated[
    Any,
    _value(
        "The bucket, by its name or as an instant (RFC 3339 with its offset, or epoch seconds), rounded up to a tick.",
        "2026-12-31#12:00",
        *_TEXT_OR_NUMBER,
    ),
]
DueAt = Annotated[
    Any,
    _value(
        "When the task is due: an instant in RFC 3339 with its offset, or epoch seconds.",
        "2026-12-31T12:00:00Z",
        *_TEXT_OR_NUMBER,
    ),
]
DelaySeconds = Annotated[
    Any, _value("When the task is due, in seconds from now.", 60, {"type": "number", "minimum": 0})
]
Action = Annotated[
    Any,
    _value(
        "What is to be done: a handler of yours, or a built-in action. Left out: the installation's default.",
        "webhook",
        {"type": "string", "minLength": 1, "maxLength": MAX_ACTION_CHARACTERS},
    ),
]
Payload = Annotated[Any, _value("The action's arguments.", EXAMPLE_TASK["payload"], {"type": "object"})]
_COUNT = {"type": "integer", "minimum": 0}
RetryPolicy = Annotated[
    Any,
    _value(
        "How often and how long a failed attempt is tried again.",
        {"maximumRetryAttempts": 5},
        {
            "type": "object",
            "properties": {
                "maximumRetryAttempts": _COUNT,
                "maximumEventAgeInSeconds": _COUNT,
                "minBackoffSeconds": _COUNT,
                "maxBackoffSeconds": _COUNT,
            },
        },
    ),
]
TimeoutSeconds = Annotated[
    Any,
    _value(
        "How long an attempt takes at the most: it is not begun with less time left. Left out: what the handler says.",
        60,
        {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_SECONDS},
    ),
]


class _Form(BaseModel):
    """Built when it is first used: a request needs one of them, at the most."""

    model_config = ConfigDict(defer_build=True)


class NewTask(_Form):
    """A task to be inserted, with one time at the most: without one, the installation's policy decides. Further
    attributes are your own, and reach the action untouched."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [EXAMPLE_TASK]})

    taskId: TaskId = None
    taskDateTime: TaskDateTime = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    action: Action = None
    payload: Payload = None
    retryPolicy: RetryPolicy = None
    timeoutSeconds: TimeoutSeconds = None


class _Closed(_Form):
    """What has no other attributes than these."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewTasks(_Closed):
    """Many tasks to be inserted."""

    tasks: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_TASKS,
        description="Tasks as `NewTask` describes them, each with its taskId. One that is wrong holds up no other.",
        examples=[[EXAMPLE_TASK]],
    )


class TaskPatch(_Closed):
    """What is to change on a task that waits: its time (one of the three), its payload, or both."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dueAt": "2026-12-31T13:00:00Z"}]})

    taskDateTime: TaskDateTime = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    payload: Payload = None


class Selection(_Closed):
    """Which tasks are meant."""

    bucket: str | None = Field(None, description="The bucket's name.", examples=["2026-12-31#12:00"])
    start: str | None = Field(
        None, description="The first instant of a range, in RFC 3339.", examples=["2026-12-31T00:00:00Z"]
    )
    end: str | None = Field(None, description="The range ends before this instant.", examples=["2027-01-01T00:00:00Z"])
    action: str | None = Field(None, description="Only tasks of this action.", examples=["webhook"])
    dryRun: bool = Field(False, description="Say which tasks are meant, and change none.")
    limit: int = Field(
        MAX_TASKS, ge=1, le=MAX_TASKS, description="At most so many tasks are changed, and listed, by one request."
    )


class CancelSelection(Selection):
    """The waiting tasks that are to be called off: those of a bucket, or of a range from `start` to before `end`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bucket": "2026-12-31#12:00", "dryRun": True}]})


class RedriveSelection(Selection):
    """The failed (or cancelled) tasks that are to get another run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bucket": "2026-12-31#12:00", "dryRun": True}]})

    status: Literal["failed", "cancelled"] = Field("failed", description="Which ones.")
    error: str | None = Field(None, description="Only tasks with this in their error.", examples=["answered 503"])


class ScheduleTask(_Closed):
    """A task in the simple form: what, with what, and when."""

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

    action: str = Field(min_length=1, max_length=MAX_ACTION_CHARACTERS, description="What is to be done.")
    payload: dict[str, Any] = Field(default_factory=dict, description="The action's arguments.")
    run_at: str = Field(description="When: an instant in RFC 3339 with its offset.", examples=["2026-12-31T15:00:00Z"])


_SCHEDULE: dict[str, Any] = {
    "taskId": "nightly-report",
    "scheduleExpression": "cron(0 3 * * ? *)",
    "scheduleExpressionTimezone": "Europe/Berlin",
    "action": "log",
}
Expression = Annotated[
    Any,
    _value(
        "When: `rate(…)`, `cron(…)` in AWS's syntax, or `at(…)`.",
        "rate(5 minutes)",
        {"type": "string", "minLength": 1},
    ),
]
Timezone = Annotated[
    Any,
    _value("The IANA name of the time zone that cron and at are meant in; UTC.", "Europe/Berlin", {"type": "string"}),
]
StartDate = Annotated[Any, _value("No run before this instant.", "2027-01-01T00:00:00Z", *_TEXT_OR_NUMBER)]
EndDate = Annotated[Any, _value("No run after this instant.", "2028-01-01T00:00:00Z", *_TEXT_OR_NUMBER)]
Window = Annotated[
    Any,
    _value("Minutes over which the starts of runs are spread.", 15, {"type": "integer", "minimum": 0, "maximum": 1440}),
]
CatchUp = Annotated[
    Any,
    _value(
        "What becomes of runs that an outage left out: the latest is made (default), all are, or none.",
        "latest",
        {"type": "string", "enum": ["latest", "all", "none"]},
    ),
]
Overlap = Annotated[
    Any,
    _value(
        "What becomes of a run while the one before has not ended: it is left out (default), made all the same, or "
        "kept until then.",
        "skip",
        {"type": "string", "enum": ["skip", "allow", "bufferOne"]},
    ),
]


class NewSchedule(_Form):
    """A recurring schedule to be inserted. Further attributes are your own, and reach each of its tasks."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_SCHEDULE]})

    taskId: TaskId
    scheduleExpression: Expression
    scheduleExpressionTimezone: Timezone = None
    startDate: StartDate = None
    endDate: EndDate = None
    flexibleTimeWindow: Window = None
    action: Action = None
    payload: Payload = None
    retryPolicy: RetryPolicy = None
    timeoutSeconds: TimeoutSeconds = None
    catchUp: CatchUp = None
    overlap: Overlap = None
    scheduleState: Literal["ENABLED", "DISABLED"] | None = Field(
        None, description="DISABLED: it begins paused.", examples=["ENABLED"]
    )
    stateReason: str | None = Field(None, description="Why it begins paused.")


class SchedulePatch(_Closed):
    """What is to change on a schedule; null takes an attribute off."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scheduleExpression": "cron(0 4 * * ? *)"}]})

    scheduleExpression: Expression = None
    scheduleExpressionTimezone: Timezone = None
    startDate: StartDate = None
    endDate: EndDate = None
    flexibleTimeWindow: Window = None
    action: Action = None
    payload: Payload = None
    retryPolicy: RetryPolicy = None
    timeoutSeconds: TimeoutSeconds = None
    catchUp: CatchUp = None
    overlap: Overlap = None


class Pause(_Closed):
    """Why a schedule is paused, if that is to be kept."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the reports are being moved"}]})

    reason: str | None = Field(None, description="Kept as `stateReason`.")


class Backfill(_Closed):
    """The runs that are to be made up: those from `start` to `end`, itself part of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"start": "2026-12-01T00:00:00Z", "end": "2026-12-02T00:00:00Z", "dryRun": True}]
        }
    )

    start: str = Field(description="The first nominal instant, in RFC 3339.", examples=["2026-12-01T00:00:00Z"])
    end: str = Field(description="The last one; not after now.", examples=["2026-12-02T00:00:00Z"])
    dryRun: bool = Field(False, description="Say which are missing, and make none.")


# -- answers ---------------------------------------------------------------------------------------------------------


class _Answer(_Form):
    model_config = ConfigDict(extra="allow")


class Task(_Answer):
    """A task, with every attribute that its row has. Anybody may write rows: a type is as good as what was put."""

    taskId: str
    status: str = Field(description="unscheduled, scheduled, running, completed, failed or cancelled.")
    taskDateTime: Any = Field(None, description="Its bucket; none until somebody has looked at it.")
    dueAt: Any = Field(None, description="When it is due.")
    action: Any = None
    payload: Any = None
    attempt: Any = Field(None, description="0 until the first; goes up with each claim.")
    run: Any = Field(None, description="Goes up with each retry by hand and each run now.")
    outcome: Any = Field(None, description="How it ended; on ended tasks only.")
    error: Any = None
    result: Any = None


class TaskEntry(_Answer):
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


class TaskPage(_Answer):
    """A part of a history, in order of time and id. It may be empty and still not be the last."""

    tasks: list[TaskEntry]
    nextPageToken: str | None = Field(None, description="Give it as pageToken for the next page. None: the last one.")


class WrongField(_Form):
    """One value that is not accepted."""

    detail: str
    pointer: str | None = Field(None, description="Where it stands in the body, as a JSON pointer.")
    parameter: str | None = Field(None, description="The parameter in path, query or header.")


class InsertResult(_Answer):
    """What became of one task of many."""

    position: int = Field(description="Where it stood in the request, from 0.")
    taskId: str | None = None
    result: Literal["inserted", "wouldInsert", "exists", "refused", "failed"] = Field(
        description="wouldInsert: a dry run. failed: the table gave no answer; whether it was written is not known."
    )
    detail: str | None = Field(None, description="Why not: the first of `errors`.")
    pointer: str | None = Field(None, description="The value that is not accepted.")
    errors: list[WrongField] | None = Field(None, description="All that is wrong with a task that is refused.")


class InsertResults(_Answer):
    """One result a task, in order, and how many there are of each."""

    results: list[InsertResult]
    counts: dict[str, int]


class ChangeResult(_Answer):
    """What became of one task that was selected."""

    taskId: str
    result: Literal["changed", "wouldChange", "left", "failed"] = Field(
        description="left: somebody else was first. failed: the table gave no answer."
    )
    detail: str | None = None


class ChangeResults(_Answer):
    """One result a task, in order of time and id, and how many there are of each."""

    results: list[ChangeResult]
    counts: dict[str, int]
    more: bool = Field(
        description="Whether not all is done: repeat the request, with nextStart as start if there is one. Of a dry "
        "run without nextStart: whether there are more than it had time to count."
    )
    nextStart: str | None = Field(None, description="Where to go on in a range.")


class BucketCounts(_Answer):
    """How many tasks of each status a bucket holds."""

    bucket: str
    counts: dict[str, int]
    total: int
    nextPageToken: str | None = Field(
        None, description="Of one bucket: give it as pageToken to count on. None: all are counted."
    )


class BucketList(_Answer):
    """The buckets of a range that hold tasks, in order of time."""

    buckets: list[BucketCounts]
    nextStart: str | None = Field(None, description="Where to go on, if the range was too long for one answer.")


class Tick(_Answer):
    """What a tick did (`pass`, with its figures), or a run of ticks that found nothing (`idle`) or left no trace
    (`missed`)."""

    kind: Literal["pass", "idle", "missed"]
    shard: int
    tick: str | None = None
    since: str | None = None
    until: str | None = None
    ticks: int | None = None
    due: int | None = None
    claimed: int | None = None
    completed: int | None = None
    failed: int | None = None
    retried: int | None = None


class TickList(_Answer):
    """In order of time, then shard."""

    ticks: list[Tick]
    nextStart: str | None = Field(None, description="Where to go on, if it was too much for one answer.")


class Schedule(_Answer):
    """A schedule, with every attribute that its row has. Instants of runs are nominal: as the expression names them."""

    taskId: str
    scheduleState: str = Field(description="ENABLED, DISABLED (paused), COMPLETED, FAILED; or unscheduled.")
    scheduleExpression: Any = None
    scheduleExpressionTimezone: Any = None
    nextOccurrenceAt: Any = Field(None, description="The next run.")
    lastOccurrenceAt: Any = Field(None, description="The latest one.")
    lastTaskId: Any = Field(None, description="The task that was made for it.")
    missedOccurrences: Any = Field(None, description="How many were left out, but for those of pauses.")
    stateReason: Any = None
    error: Any = Field(None, description="Why it failed.")
    warnings: list[str] | None = Field(None, description="What may surprise.")


class ScheduleList(_Answer):
    """A part of the schedules, in order of state and id."""

    schedules: list[Schedule]
    nextPageToken: str | None = Field(None, description="Give it as pageToken for the next page. None: the last one.")


class Run(_Answer):
    """One run of a schedule that was due."""

    occurrenceAt: str = Field(description="Its nominal instant.")
    status: str = Field(
        description="Of its task; missed: it was not made; due: its tick is to come; gone: there is no trace of it."
    )
    taskId: str | None = None
    taskDateTime: str | None = None
    finishedAt: str | None = None
    error: str | None = None
    reason: str | None = Field(None, description="Why it was not made: outage, overlap, paused, id-taken or too-large.")
    runNow: bool | None = Field(None, description="It was asked for, beside the expression.")


class OccurrenceList(_Answer):
    """Runs that were due, oldest first."""

    runs: list[Run]


class NextOccurrence(_Answer):
    """A run to come."""

    occurrenceAt: str = Field(description="Its nominal instant.")
    notes: list[str] = Field(description="What the clock's jumps do to it.")


class NextOccurrences(_Answer):
    """The next runs. Of a paused schedule: as if it were resumed."""

    runs: list[NextOccurrence]
    warnings: list[str] = Field(description="What may surprise: how it fits the ticks, a year of the clock's jumps.")


class Settings(_Answer):
    """What is in force."""

    tickMinutes: int = Field(description="Minutes from one tick to the next.")
    shardCount: int = Field(description="Into so many parts new tasks of a bucket are spread.")
    shardsEver: int = Field(description="The most there ever were: every tick serves all of them.")
    actions: list[str] = Field(description="What tasks may do: built-in actions that are allowed, and handlers.")
    handlers: dict[str, dict[str, Any] | None] = Field(
        description="Those of the actions that are handlers, each with the JSON Schema of its payload, if it is known."
    )
    defaultAction: str | None = Field(None, description="Of a task that names none.")
    retentionDays: int | None = Field(None, description="How long an ended task stays.")
    maxTimeoutSeconds: int | None = Field(None, description="The longest timeoutSeconds that can be served.")


class HealthFinding(_Answer):
    """Something that keeps tasks from running when they are due."""

    kind: str
    why: str
    remedy: str


class Health(_Answer):
    """Whether ticks come."""

    healthy: bool
    lastTick: str | None = Field(None, description="The latest tick, of the shard that waits longest for one.")
    lastTickAgeSeconds: float | None = None
    missingTicks: int = Field(description="That should have come since, but for those of the last two minutes.")
    findings: list[HealthFinding]


class ProblemDetails(_Answer):
    """What is wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="For programs; it does not change.")
    requestId: str = Field(description="Name it when you ask the operator; the logs have it.")
    errors: list[WrongField] | None = None
