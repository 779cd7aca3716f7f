"""The forms of requests about schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import ClosedForm, Form
from dynatick.api.models.values import (
    TEXT_OR_NUMBER,
    Action,
    LimitKey,
    Payload,
    RetryPolicy,
    Subject,
    TaskId,
    TimeoutSeconds,
    value,
    whole,
)
from dynatick.domain.schedule import MAX_EXPECTED_WITHIN_SECONDS

_SCHEDULE: dict[str, Any] = {
    "taskId": "nightly-report",
    "scheduleExpression": "cron(0 3 * * ? *)",
    "scheduleExpressionTimezone": "Europe/Berlin",
    "action": "log",
}
Expression = Annotated[
    Any,
    value(
        "When: `rate(…)`, `cron(…)` in AWS's syntax, or `at(…)`.", "rate(5 minutes)", {"type": "string", "minLength": 1}
    ),
]
Timezone = Annotated[
    Any,
    value("The IANA name of the time zone that cron and at are meant in; UTC.", "Europe/Berlin", {"type": "string"}),
]
StartDate = Annotated[Any, value("No occurrence before this instant.", "2027-01-01T00:00:00Z", *TEXT_OR_NUMBER)]
EndDate = Annotated[Any, value("No occurrence after this instant.", "2028-01-01T00:00:00Z", *TEXT_OR_NUMBER)]
Window = Annotated[Any, value("Minutes over which the starts of occurrences are spread.", 15, whole(0, 1440))]
CatchUp = Annotated[
    Any,
    value(
        "Which late occurrences are made after an outage: the latest (default), all, or none.",
        "latest",
        {"type": "string", "enum": ["latest", "all", "none"]},
    ),
]
Overlap = Annotated[
    Any,
    value(
        "An occurrence that is due before the previous one has ended is skipped (default), made all the same, or "
        "buffered until then.",
        "skip",
        {"type": "string", "enum": ["skip", "allow", "bufferOne"]},
    ),
]

ExpectedWithin = Annotated[
    Any,
    value(
        "Seconds after the time at which an occurrence may start. One that has not completed by then is overdue: a log "
        "event, a metric and an alarm.",
        3600,
        whole(1, MAX_EXPECTED_WITHIN_SECONDS),
    ),
]


class NewSchedule(Form):
    """A recurring schedule to insert. Other attributes are your own, and each of its tasks gets them."""

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
    subject: Subject = None
    limitKey: LimitKey = None
    catchUp: CatchUp = None
    overlap: Overlap = None
    expectedWithinSeconds: ExpectedWithin = None
    scheduleState: Literal["ENABLED", "DISABLED"] | None = Field(
        None, description="DISABLED: it is paused from the start.", examples=["ENABLED"]
    )
    stateReason: str | None = Field(None, description="Why it is paused.")


class SchedulePatch(ClosedForm):
    """The changes of a schedule; null removes an attribute."""

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
    limitKey: LimitKey = None
    catchUp: CatchUp = None
    overlap: Overlap = None
    expectedWithinSeconds: ExpectedWithin = None


class SchedulePause(ClosedForm):
    """Why a schedule is paused."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the reports are being moved"}]})

    reason: str | None = Field(None, description="Stored as `stateReason`.")


class Backfill(ClosedForm):
    """The occurrences to make: those from `start` to `end`, both included."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"start": "2026-12-01T00:00:00Z", "end": "2026-12-02T00:00:00Z", "dryRun": True}]
        }
    )

    start: str = Field(description="The first nominal instant, in RFC 3339.", examples=["2026-12-01T00:00:00Z"])
    end: str = Field(description="The last one; not after now.", examples=["2026-12-02T00:00:00Z"])
    dryRun: bool = Field(False, description="Return the missing ones, and make none.")
