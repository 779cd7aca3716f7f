"""The forms of buckets, ticks, settings and health."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import ClosedForm, OpenForm
from dynatick.engine.counts import COUNTERS


class BucketCounts(OpenForm):
    """How many tasks of each status a bucket holds."""

    bucket: str
    counts: dict[str, int]
    total: int
    latenessP50Ms: int | None = Field(
        None,
        description="How late the tasks that have ended began, in milliseconds after their tick: the median; "
        "with `Precision: second`, of when they were due.",
    )
    latenessP99Ms: int | None = Field(None, description="The same of 99 in 100.")
    latenessMaxMs: int | None = Field(None, description="The same of all.")
    left: dict[str, int] | None = Field(
        None,
        description="Of one bucket: tasks that have gone elsewhere since. retried, rescheduled (a further turn), "
        "deferred (failed, and waiting for the dead-letter queue), redrivenFailed, redrivenCompleted, "
        "redrivenCancelled, moved (before they ran). None: there are none.",
    )
    ran: int | None = Field(None, description="With left: tasks that have run there, those that have left among them.")
    failed: int | None = Field(None, description="With left: how many of them have failed there.")
    nextPageToken: str | None = Field(
        None, description="Of one bucket: the pageToken that continues the count. None: all are counted."
    )


class BucketList(OpenForm):
    """The buckets of a range that hold tasks, in order of time."""

    buckets: list[BucketCounts]
    nextStart: str | None = Field(None, description="Where the range continues, if it was too long for one answer.")


def _add_counts(schema: dict[str, Any]) -> None:
    schema["properties"] |= {counter.attribute: _number(counter.meaning) for counter in COUNTERS}


def _number(meaning: str) -> dict[str, object]:
    return {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "description": f"{meaning}."}


class Tick(OpenForm):
    """A tick with its counts (`pass`), or consecutive ticks: they found nothing (`idle`), did not come (`missed`), or
    ran nothing because all was paused (`paused`)."""

    model_config = ConfigDict(json_schema_extra=_add_counts)

    kind: Literal["pass", "idle", "missed", "paused"]
    shard: int
    tick: str | None = None
    since: str | None = None
    until: str | None = None
    ticks: int | None = None
    latenessP50Ms: int | None = Field(
        None,
        description="How long after its tick a first attempt began; with `Precision: second`, after it was due. "
        "Half of them began within this.",
    )
    latenessP99Ms: int | None = Field(None, description="The same of 99 in 100.")
    latenessMaxMs: int | None = Field(None, description="The same of all.")


class TickList(OpenForm):
    """Ticks in order of time, then shard."""

    ticks: list[Tick]
    nextStart: str | None = Field(None, description="Where the range continues, if it was too much for one answer.")


class PauseRequest(ClosedForm):
    """Who pauses, and why."""

    reason: str | None = None
    by: str | None = None


class Pause(OpenForm):
    """A pause: nothing is run."""

    since: str | None = None
    until: str | None = Field(None, description="None: it is in force.")
    by: str | None = None
    reason: str | None = None


class Resumed(OpenForm):
    """The end of a pause."""

    paused: Pause | None = None
    ended: Pause | None = Field(None, description="The pause that has ended. None: there was none.")


class HealthFinding(OpenForm):
    """Something that keeps tasks from running when they are due."""

    kind: str
    why: str
    remedy: str


class Health(OpenForm):
    """Whether ticks come."""

    healthy: bool
    lastTick: str | None = Field(None, description="The latest tick of the shard whose tick is the oldest.")
    lastTickAgeSeconds: float | None = None
    missingTicks: int = Field(description="Ticks that should have come since, without those of the last two minutes.")
    paused: Pause | None = Field(None, description="Nothing is run since then, because someone wanted it.")
    findings: list[HealthFinding]


class FailureGroup(OpenForm):
    """Failed tasks of one action with the same error."""

    action: str | None = None
    error: str | None = None
    count: int
    first: str | None = Field(None, description="When the first of them failed.")
    last: str | None = Field(None, description="When the latest failed.")
    taskId: str = Field(description="The latest of them.")


class Status(OpenForm):
    """The state of the installation. `since` and `until` say what was read: 24 hours each way, or less with many
    shards or tasks."""

    state: Literal["running", "paused", "failing", "stopped"]
    health: Health
    processorProblem: str | None = Field(None, description="Why the processor can't start.")
    nextTick: str
    since: str
    until: str
    dueNow: int = Field(description="Tasks that are due and have not ended.")
    oldestDue: str | None = Field(None, description="The bucket of the oldest of them.")
    running: int | None = Field(None, description="Those of them that run. None: they are too many to look at each.")
    waiting: int = Field(description="Tasks that are due later, without runs of schedules.")
    completed: int
    failed: int
    cancelled: int
    latenessMs: dict[str, int] = Field(description="p50, p99 and max of the tasks that have ended.")
    failures: list[FailureGroup]


class Settings(OpenForm):
    """The current settings."""

    tickMinutes: int = Field(description="Minutes from one tick to the next.")
    shardCount: int = Field(description="The number of shards that new tasks of a bucket are spread over.")
    shardsEver: int = Field(description="The highest number of shards there has been: every tick serves all of them.")
    actions: list[str] = Field(description="The allowed built-in actions, and the handlers.")
    handlers: dict[str, dict[str, Any] | None] = Field(
        description="The handlers, each with the JSON Schema of its payload, if it is known."
    )
    schemaVersion: int = Field(description="The version of the table's rows.")
    defaultAction: str | None = Field(None, description="The action of a task that names none.")
    retentionDays: int | None = Field(None, description="Days after which an ended task expires.")
    paused: Pause | None = Field(None, description="Nothing is run since then.")
    processorProblem: str | None = Field(None, description="Why the processor can't start.")
    maxTimeoutSeconds: int | None = Field(None, description="The highest timeoutSeconds that is accepted.")
