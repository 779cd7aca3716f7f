"""Many tasks in one request over HTTP: insert, and cancel, restore, run or redrive by a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body

from dynatick.api.limits import MAX_CHARACTERS, Timer, listed, parts
from dynatick.api.models import task as models
from dynatick.api.problems import MAX_WRONG, Wrong, path_of, pointer
from dynatick.api.routes import Call, Routes, answer, route
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
from dynatick.client.bulk_change import given_payload, given_selection, going_on
from dynatick.client.change_records import counted_in, new_record
from dynatick.domain.instants import format_instant
from dynatick.domain.selection import Selection
from dynatick.domain.view import Json, View
from dynatick.errors import shown

_NOT_KNOWN = "the table gave no answer; whether it was written is not known. Repeat the request"


@dataclass(frozen=True, kw_only=True, slots=True)
class InsertAnswer(View):
    """The result of one task of many."""

    FORM = "InsertResult"

    position: Annotated[int, "Its place in the request, from 0."]
    task_id: str | None
    result: Annotated[
        Literal["inserted", "wouldInsert", "exists", "refused", "unknown"],
        "wouldInsert: a dry run. unknown: the table gave no answer; whether it was written is not known.",
    ]
    detail: Annotated[str | None, "The reason: the first of `errors`."] = None
    pointer: Annotated[str | None, "The invalid value."] = None
    errors: Annotated[
        Sequence[Wrong], Json(optional=True), "Every error of a refused task; in a very long answer the first."
    ] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class InsertResults(View):
    """One result per task, in order, and how many there are of each."""

    results: Sequence[InsertAnswer]

    @property
    def counts(self) -> Annotated[Mapping[str, int], ""]:
        return Counter(one.result for one in self.results)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeResult(View):
    """The result of one selected task."""

    task_id: str
    result: Annotated[
        Literal["changed", "wouldChange", "skipped", "unknown"],
        "skipped: it can't be changed, or another request changed it first. unknown: the table gave no answer.",
    ]
    detail: str | None = None
    tasks: Annotated[int | None, "Of the pack of a batch: how many members that are. Left out: one task."] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeResults(View):
    """One result per task, in order of time and id, and how many there are of each."""

    results: Annotated[
        Sequence[ChangeResult],
        "Up to limit: those that are skipped as far as the others leave room. In a very long answer fewer.",
    ]
    counts: Annotated[Mapping[str, int], "Of all, also of those without a result here."]
    more: Annotated[
        bool,
        "Whether tasks are left: repeat the request, with this began, and with nextStart as start if there is one. Of "
        "a dry run without nextStart: whether there are more than it had time to count.",
    ]
    next_start: Annotated[str | None, Json(null=True), "Where a range continues."]
    began: Annotated[str, "When the first of these requests came."]


def _by_filter(verb: str, summary: str, description: str = "") -> Callable[[Call], Call]:
    return route(
        f"POST /v1/tasks/{verb}",
        f"{verb}Tasks",
        summary,
        description="Stops at `limit`, or after some seconds: repeat it as long as `more` is true, with the `began` of "
        "the answer. Tasks that were changed are not changed again: those that ended since then are left out. Those "
        "that are skipped don't count for `limit`. "
        f"{description}".rstrip(),
        answers={200: ("One result per task", ChangeResults)},
    )


class Bulk(Routes):
    """The operations on many tasks."""

    tag = "Task"

    @route(
        "POST /v1/tasks/bulk",
        "createTasks",
        "Insert many tasks",
        description="One result per task: an existing or invalid task does not affect the others. "
        "Repeated, it inserts the missing ones.",
        answers={200: ("One result per task", InsertResults)},
    )
    def create_many(self, body: Annotated[models.NewTasks, Body()]) -> Response[str]:
        results = [inserted(result) for result in self._client.insert_lazily(body.tasks)]
        return answer_of(results)

    @_by_filter("cancel", "Cancel the waiting tasks of a bucket, of a range or of a subject")
    def cancel_many(self, body: Annotated[models.CancelSelection, Body()]) -> Response[str]:
        return self._change_many("cancel", body, self._select(body), TaskClient.cancel_many)

    @_by_filter("redrive", "Redrive the failed tasks of a bucket, of a range or of a subject")
    def redrive_many(self, body: Annotated[models.RedriveSelection, Body()]) -> Response[str]:
        redrive = partial(TaskClient.redrive_many, payload=body.payload, set_fields=body.set, unset_fields=body.unset)
        given = given_payload(body.payload, body.set, body.unset)
        return self._change_many("redrive", body, self._select(body, error=body.error), redrive, given)

    @_by_filter(
        "delete",
        "Delete the tasks of a bucket, of a range or of a subject",
        "Running ones are skipped. Of a subject alone, its schedules are deleted first, and its batches with their "
        "members.",
    )
    def delete_many(self, body: Annotated[models.DeleteSelection, Body()]) -> Response[str]:
        return self._change_many("delete", body, self._select(body, status=body.status), TaskClient.delete_many)

    @_by_filter("restore", "Take the cancellations of a bucket, of a range or of a subject back")
    def restore_many(self, body: Annotated[models.RestoreSelection, Body()]) -> Response[str]:
        return self._change_many("restore", body, self._select(body), TaskClient.restore_many)

    @_by_filter("run", "Run the tasks of a bucket, of a range or of a subject at the next tick")
    def run_many(self, body: Annotated[models.RunSelection, Body()]) -> Response[str]:
        return self._change_many("run", body, self._select(body, status=body.status), TaskClient.run_now_many)

    def _select(self, body: models.SelectionForm, status: str | None = None, error: str | None = None) -> Selection:
        return self._client.select(
            body.bucket,
            start=body.start,
            end=body.end,
            subject=body.subject,
            status=status,
            action=body.action,
            error=error,
        )

    def _change_many(
        self,
        name: str,
        body: models.SelectionForm,
        selection: Selection,
        change: Callable[..., Iterator[ManyResult]],
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> Response[str]:
        """The answer of ``change``, a method of the client, with one record for the request."""
        client, began = going_on(self._client, body.began)
        if body.dryRun:
            return answer(self._results(body, selection, partial(change, client), began))
        record = new_record(client, name, {**given_selection(selection), **given, "limit": body.limit})
        with record:
            results = self._results(body, selection, partial(change, counted_in(client, record)), began)
            record.is_aborted = False  # what is left is for the next request
        return answer(results)

    def _results(
        self,
        body: models.SelectionForm,
        selection: Selection,
        change: Callable[..., Iterator[ManyResult]],
        began: datetime,
    ) -> ChangeResults:
        """Part by part, so that the answer comes in time. At most ``limit`` tasks are changed; those that are skipped
        don't count, since a later request would skip them again. A dry run counts all. A change is stopped within a
        part only if it has come by more tasks than ``limit``, and every change is reported."""
        results: list[ChangeResult] = []
        counts: Counter[str] = Counter()
        more, next_start = False, None
        timer, left, stopped = Timer(self._seconds), body.limit, False

        def stop() -> bool:
            nonlocal stopped
            stopped = len(results) >= body.limit and timer.is_up
            return stopped

        for part, out_of_time in parts(selection, timer):
            begins = format_instant(part.start) if selection.is_divisible else None
            if out_of_time:
                more, next_start = True, begins
                break
            limits = {} if body.dryRun else {"limit": left, "stop": stop}
            for result in change(part, dry_run=body.dryRun, **limits):
                changed = _changed(result)
                counts[changed.result] += 1 if changed.tasks is None else changed.tasks
                results.append(changed)
                left -= _is_changed(changed)
                if body.dryRun and timer.is_up:
                    more = True
                    break
            if more:
                break
            if not body.dryRun and (not left or stopped):
                more, next_start = True, begins
                break
        return ChangeResults(
            results=listed(results, body.limit, is_done=_is_changed), counts=counts, more=more, next_start=next_start,
            began=format_instant(began),
        )  # fmt: skip


def _is_changed(result: ChangeResult) -> bool:
    """Whether it may be changed."""
    return result.result != "skipped"


def answer_of(results: Sequence[InsertAnswer]) -> Response[str]:
    """The answer of many inserts. If it were too long, it has the first error of each refused task alone."""
    made = answer(InsertResults(results=results))
    if len(made.body or "") <= MAX_CHARACTERS:
        return made
    return answer(InsertResults(results=[replace(one, errors=one.errors[:1]) for one in results]))


def inserted(result: InsertResult) -> InsertAnswer:
    """The result of an insert."""
    answered = partial(InsertAnswer, position=result.position, task_id=result.task_id)
    match result:
        case Inserted():
            return answered(result="inserted")
        case Exists():
            return answered(result="exists")
        case Refused(error=error):
            item = ["tasks", str(result.position)]
            errors = [
                Wrong(
                    f"{one.field}: {shown(one.value)} is not accepted; {one.expected}",
                    pointer([*item, *path_of(one.field)]),
                )
                for one in (error, *error.others)[:MAX_WRONG]
            ]
            return answered(result="refused", detail=errors[0].detail, pointer=errors[0].pointer, errors=errors)
        case InsertUnknown():
            return answered(result="unknown", detail=_NOT_KNOWN)


def _changed(result: ManyResult) -> ChangeResult:
    match result:
        case Changed(tasks=tasks):
            return ChangeResult(task_id=result.task_id, result="changed", tasks=None if tasks == 1 else tasks)
        case WouldChange(tasks=tasks):
            return ChangeResult(task_id=result.task_id, result="wouldChange", tasks=None if tasks == 1 else tasks)
        case Skipped(reason=reason):
            return ChangeResult(task_id=result.task_id, result="skipped", detail=reason)
        case ChangeUnknown():
            return ChangeResult(task_id=result.task_id, result="unknown", detail=_NOT_KNOWN)
