"""Batches over HTTP: as many members as fit into a request."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from dynatick.api import limits
from dynatick.api.ids import from_path, to_path
from dynatick.api.limits import check_range
from dynatick.api.models import batch as models
from dynatick.api.models.task import Status
from dynatick.api.routes import Routes, answer, route, values_of
from dynatick.api.tasks import End, Limit, Start, Token
from dynatick.client.batches import (
    BatchCancelled,
    BatchInserted,
    BatchPage,
    BatchRedriven,
    BatchRescheduled,
    BatchView,
    MemberPage,
    PackLoaded,
)
from dynatick.domain import attributes as attr
from dynatick.domain.batches import MAX_OVER
from dynatick.domain.packs import check_batch_id
from dynatick.errors import InvalidInput

Id = Annotated[
    str,
    Path(
        alias=attr.BATCH_ID,
        description="The batch's id, in the form that a task's id has in a path.",
        examples=["newsletter-2027-01"],
    ),
]
Number = Annotated[
    int, Path(alias="number", description="Of the part, from 0: its first member is number 500 times that.", ge=0)
]


class BatchRoutes(Routes):
    """The operations on batches."""

    tag = "Batch"

    @route(
        "POST /v1/batches",
        "createBatch",
        "Insert a batch",
        description="A task for each payload; a member is read by its own id, that of the batch with `/` and "
        "nine digits, from 0. The same request again continues where it was cut off, and changes nothing "
        "once all members are in. Of more payloads than a request takes, give the `total` instead, put each "
        "500 of them by `loadPack`, and then `sealBatch`.",
        answers={201: ("All members are in", BatchInserted)},
        headers=("Location",),
        problems=("task-exists", "not-possible-now", "item-too-large"),
    )
    def create(self, body: Annotated[models.NewBatch, Body()]) -> Response[str]:
        row = values_of(body)
        made = self._client.batches.insert(
            row.pop("payloads", None),
            batch_id=row.pop(attr.BATCH_ID, None),
            action=row.pop(attr.ACTION, None),
            due_at=row.pop(attr.DUE_AT, None),
            delay=_seconds(row.pop(attr.DELAY_SECONDS, None), attr.DELAY_SECONDS),
            over=_over(row.pop("overSeconds", None)),
            total=row.pop("total", None),
            then=row.pop("then", None),
            retry_policy=row.pop(attr.RETRY_POLICY, None),
            timeout_seconds=row.pop(attr.TIMEOUT_SECONDS, None),
            subject=row.pop(attr.SUBJECT, None),
            limit_key=row.pop(attr.LIMIT_KEY, None),
            attributes=row,
        )
        return answer(made, 201, Location=f"/v1/batches/{to_path(made.batch_id)}")

    @route(
        "GET /v1/batches",
        "listBatches",
        "List the batches, the latest first",
        description="By when their last members are due: all, or those from `start` to `end`, at most 31 "
        "days. The members of one that is not due yet are not counted.",
        answers={200: ("A page of the list", BatchPage)},
        problems=("invalid-input",),
    )
    def list(self, start: Start = None, end: End = None, limit: Limit = 100, token: Token = None) -> Response[str]:
        if start is not None or end is not None:
            check_range("/v1/batches", None, start, end)
        return answer(self._client.batches.list(start=start, end=end, limit=limit, page_token=token))

    @route(
        "GET /v1/batches/<batchId>",
        "getBatch",
        "Get a batch, and how its members stand",
        answers={200: ("The batch", BatchView)},
        problems=("task-not-found", "invalid-input"),
    )
    def get(self, batch_id: Id) -> Response[str]:
        return answer(self._client.batches.get(_id(batch_id)))

    @route(
        "GET /v1/batches/<batchId>/members",
        "listMembers",
        "List the members of a batch",
        description="In order of number. A page may hold fewer than `limit`, and even none, without being the "
        "last one.",
        answers={200: ("A page of the members", MemberPage)},
        problems=("task-not-found", "invalid-input"),
    )
    def members(
        self,
        batch_id: Id,
        status: Annotated[Status | None, Query(alias="status", description="Only members of this status.")] = None,
        limit: Limit = 100,
        token: Token = None,
    ) -> Response[str]:
        page_of = partial(self._client.batches.members_page, _id(batch_id), status, page_token=token)
        return limits.page(page_of, limit)

    @route(
        "PUT /v1/batches/<batchId>/packs/<number>",
        "loadPack",
        "Load a part of a batch",
        description="500 payloads, or in the last part the rest, of a batch that was inserted with its `total` "
        "and without `payloads`. In any order, several at a time, and any number of times.",
        answers={200: ("The part is in", PackLoaded)},
        problems=("task-not-found", "not-possible-now", "item-too-large"),
    )
    def load_pack(self, batch_id: Id, number: Number, body: Annotated[models.PackOfBatch, Body()]) -> Response[str]:
        return answer(self._client.batches.load_pack(_id(batch_id), number, body.payloads))

    @route(
        "POST /v1/batches/<batchId>/seal",
        "sealBatch",
        "Say that all parts of a batch are in",
        description="Before that it does not end, and what follows is not inserted. Refused, with their "
        "numbers, while parts are missing; any number of times.",
        answers={200: ("All members are in", BatchInserted)},
        problems=("task-not-found", "not-possible-now", "invalid-input"),
    )
    def seal(self, batch_id: Id) -> Response[str]:
        return answer(self._client.batches.seal(_id(batch_id)))

    @route(
        "PATCH /v1/batches/<batchId>",
        "rescheduleBatch",
        "Give the members that wait another time",
        description="One of the two. Members with rows of their own keep theirs.",
        answers={200: ("What was rescheduled", BatchRescheduled)},
        problems=("task-not-found", "not-possible-now"),
    )
    def reschedule(self, batch_id: Id, body: Annotated[models.BatchPatch, Body()]) -> Response[str]:
        row = values_of(body)
        delay = _seconds(row.get(attr.DELAY_SECONDS), attr.DELAY_SECONDS)
        return answer(self._client.batches.reschedule(_id(batch_id), due_at=row.get(attr.DUE_AT), delay=delay))

    @route(
        "POST /v1/batches/<batchId>/redrive",
        "redriveBatch",
        "Start the members that have failed anew, at the next tick",
        description="A batch that has ended runs again until they have ended. What followed is not inserted again.",
        answers={200: ("How many were redriven", BatchRedriven)},
        problems=("task-not-found", "invalid-input"),
    )
    def redrive(self, batch_id: Id) -> Response[str]:
        return answer(self._client.batches.redrive(_id(batch_id)))

    @route(
        "POST /v1/batches/<batchId>/cancel",
        "cancelBatch",
        "Cancel the members that wait, and what would follow",
        description="Those that run end by themselves.",
        answers={200: ("What was cancelled", BatchCancelled)},
        problems=("task-not-found", "not-possible-now", "invalid-input"),
    )
    def cancel(self, batch_id: Id) -> Response[str]:
        return answer(self._client.batches.cancel(_id(batch_id)))


def _id(segment: str) -> str:
    """The id of a path. Raises InvalidInput."""
    return check_batch_id(from_path(segment, attr.BATCH_ID))


def _over(value: object) -> timedelta | None:
    over = _seconds(value, "overSeconds")
    if over is not None and (not timedelta() <= over <= MAX_OVER or over.microseconds):
        raise InvalidInput("overSeconds", value, "expected whole seconds, a day at most")
    return over


def _seconds(value: object, field: str) -> timedelta | None:
    if value is None:
        return None
    wrong = InvalidInput(field, value, "expected a number of seconds")
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise wrong
    try:
        return timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        raise wrong from None
