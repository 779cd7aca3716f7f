"""The forms of requests about batches."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import ClosedForm, Form
from dynatick.api.models.values import (
    Action,
    DelaySeconds,
    DueAt,
    LimitKey,
    RetryPolicy,
    Subject,
    TimeoutSeconds,
    text,
    value,
    whole,
)
from dynatick.domain.batches import MAX_OVER
from dynatick.domain.packs import MAX_BATCH, MAX_BATCH_ID_BYTES, MAX_MEMBERS

MAX_PAYLOADS = 10_000
"""Payloads in one request."""

_BATCH: dict[str, Any] = {
    "batchId": "newsletter-2027-01",
    "action": "webhook",
    "dueAt": "2027-01-15T08:00:00Z",
    "overSeconds": 7200,
    "payloads": [{"url": "https://example.com/hook", "data": {"n": 1}}],
}
BatchId = Annotated[
    Any,
    value(
        f"Your own name for the batch; at most {MAX_BATCH_ID_BYTES} bytes in UTF-8.",
        _BATCH["batchId"],
        text(MAX_BATCH_ID_BYTES),
    ),
]
OverSeconds = Annotated[
    Any,
    value(
        "The members are spread evenly over this time.",
        7200,
        {"type": "number", "minimum": 0, "maximum": MAX_OVER.total_seconds()},
    ),
]
Total = Annotated[
    Any, value("How many payloads there will be, if they are loaded in parts.", 1_000_000, whole(0, MAX_BATCH))
]
Then = Annotated[
    Any,
    value(
        "A task that is inserted when all members have ended: its action, payload and so on, without id and due time.",
        {"action": "log", "payload": {"of": "newsletter-2027-01"}},
        {"type": "object"},
    ),
]


class NewBatch(Form):
    """A batch to insert: a task for each payload. Other attributes are your own, and each of its members gets them."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_BATCH]})

    batchId: BatchId
    action: Action
    payloads: list[dict[str, Any]] | None = Field(
        None,
        max_length=MAX_PAYLOADS,
        description="The payloads of its members. Left out: they are loaded in parts.",
        examples=[_BATCH["payloads"]],
    )
    total: Total = None
    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
    overSeconds: OverSeconds = None
    then: Then = None
    retryPolicy: RetryPolicy = None
    timeoutSeconds: TimeoutSeconds = None
    subject: Subject = None
    limitKey: LimitKey = None


class PackOfBatch(ClosedForm):
    """The payloads of 500 members, or in the last part of the rest."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"payloads": _BATCH["payloads"]}]})

    payloads: list[dict[str, Any]] = Field(
        max_length=MAX_MEMBERS, description="The payloads of its members.", examples=[_BATCH["payloads"]]
    )


class BatchPatch(ClosedForm):
    """Another time for a batch: one of the two."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dueAt": _BATCH["dueAt"]}]})

    dueAt: DueAt = None
    delaySeconds: DelaySeconds = None
