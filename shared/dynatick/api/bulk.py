"""Many tasks in one request over HTTP: insert, and cancel or redrive by a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body

from dynatick.api.models import task as models
from dynatick.api.problems import MAX_WRONG, path_of, pointer
from dynatick.api.ranges import Seconds, Timer, parts
from dynatick.api.routes import Operation, answer
from dynatick.client import (
    Changed,
    ChangeUnknown,
    Exists,
    Inserted,
    InsertResult,
    InsertUnknown,
    ManyResult,
    Refused,
    Skipped,
    TaskClient,
    WouldChange,
)
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput, shown

_NOT_KNOWN = "the table gave no answer; whether it was written is not known. Repeat the request"

Select = Callable[..., Iterator[ManyResult]]


class Bulk:
    """The operations on many tasks."""

    def __init__(self, client: TaskClient, seconds: Seconds) -> None:
        self._client = client
        self._seconds = seconds

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="createTasks",
                method="POST",
                path="/v1/tasks/bulk",
                call=self.create_many,
                summary="Insert many tasks",
                description="One result per task: an existing or invalid task does not affect the others. "
                "Repeated, it inserts the missing ones.",
                tag="Task",
                answers={200: ("One result per task", models.InsertResults)},
            ),
            self._by_filter(
                "/v1/tasks/cancel",
                self.cancel_many,
                "Cancel the waiting tasks of a bucket or of a range",
            ),
            self._by_filter(
                "/v1/tasks/redrive",
                self.redrive_many,
                "Redrive the failed tasks of a bucket or of a range",
            ),
        ]

    @staticmethod
    def _by_filter(path: str, call: Callable[..., Response[str]], summary: str) -> Operation:
        return Operation(
            name=f"{path.rpartition('/')[2]}Tasks",
            method="POST",
            path=path,
            call=call,
            summary=summary,
            description="Stops at `limit`, or after some seconds: repeat it as long as `more` is true. Tasks that were "
            "changed are not changed again.",
            tag="Task",
            answers={200: ("One result per task", models.ChangeResults)},
        )

    def create_many(self, body: Annotated[models.NewTasks, Body()]) -> Response[str]:
        results = [inserted(result) for result in self._client.insert_lazily(body.tasks)]
        return answer({"results": results, "counts": counts_of(results)})

    def cancel_many(self, body: Annotated[models.CancelSelection, Body()]) -> Response[str]:
        return self._change_many(body, self._client.cancel_many)

    def redrive_many(self, body: Annotated[models.RedriveSelection, Body()]) -> Response[str]:
        def select(*bucket: str, **arguments: object) -> Iterator[ManyResult]:
            return self._client.redrive_many(*bucket, **arguments, status=body.status, error=body.error)  # type: ignore[arg-type]

        return self._change_many(body, select)

    def _change_many(self, body: models.Selection, select: Select) -> Response[str]:
        """Part by part, so that the answer comes in time. A dry run lists at most ``limit`` tasks, but counts all. Only
        a dry run is stopped within a part, since every change must be reported."""
        results: list[dict[str, object]] = []
        counts: Counter[str] = Counter()
        more, next_start = False, None
        timer = Timer(self._seconds)
        for ranged, begins in self._ranges(body, timer):
            if ranged is None:
                more, next_start = True, begins
                break
            room = body.limit - len(results)
            limit = None if body.dryRun else room
            for result in select(**ranged, action=body.action, dry_run=body.dryRun, limit=limit):
                row = _changed(result)
                counts[str(row["result"])] += 1
                if len(results) < body.limit:
                    results.append(row)
                if body.dryRun and timer.is_up:
                    more = True
                    break
            if more:
                break
            if not body.dryRun and len(results) >= body.limit:
                more, next_start = True, begins
                break
        return answer({"results": results, "counts": dict(counts), "more": more, "nextStart": next_start})

    def _ranges(self, body: models.Selection, timer: Timer) -> Iterator[tuple[dict[str, object] | None, str | None]]:
        """The selections one after another, each with its start; None instead of one when the time is up."""
        if body.bucket is not None:
            if body.start is not None or body.end is not None:
                raise InvalidInput("bucket", body.bucket, "expected either a bucket or a range, not both")
            yield {"bucket": body.bucket}, None
            return
        for part in parts(self._client, body.start, body.end, timer):
            ranged: dict[str, object] = {"start": part.start, "end": part.end}
            yield None if part.out_of_time else ranged, format_instant(part.start)


def inserted(result: InsertResult) -> dict[str, object]:
    """The result of an insert as JSON."""
    row: dict[str, object] = {"position": result.position}
    if result.task_id is not None:
        row[attr.TASK_ID] = result.task_id
    match result:
        case Inserted():
            return {**row, "result": "inserted"}
        case Exists():
            return {**row, "result": "exists"}
        case Refused(error=error):
            item = ["tasks", str(result.position)]
            errors = [
                {
                    "detail": f"{one.field}: {shown(one.value)} is not accepted; {one.expected}",
                    "pointer": pointer([*item, *path_of(one.field)]),
                }
                for one in (error, *error.others)[:MAX_WRONG]
            ]
            return {**row, "result": "refused", **errors[0], "errors": errors}
        case InsertUnknown():
            return {**row, "result": "unknown", "detail": _NOT_KNOWN}


def _changed(result: ManyResult) -> dict[str, object]:
    match result:
        case Changed():
            return {attr.TASK_ID: result.task_id, "result": "changed"}
        case WouldChange():
            return {attr.TASK_ID: result.task_id, "result": "wouldChange"}
        case Skipped(reason=reason):
            return {attr.TASK_ID: result.task_id, "result": "skipped", "detail": reason}
        case ChangeUnknown():
            return {attr.TASK_ID: result.task_id, "result": "unknown", "detail": _NOT_KNOWN}


def counts_of(results: list[dict[str, object]]) -> dict[str, int]:
    """How many there are of each."""
    return dict(Counter(str(result["result"]) for result in results))
