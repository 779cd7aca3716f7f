"""Recurring schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from dynatick.api import models, sizes
from dynatick.api.bulk import counts_of, inserted
from dynatick.api.ids import from_path, to_path
from dynatick.api.routes import Operation, answer, given
from dynatick.api.tasks import End, Match, Start, Token, shown, version_of
from dynatick.client import ScheduleView, TaskClient
from dynatick.client.history import MAX_LIMIT
from dynatick.client.schedules import UPDATABLE
from dynatick.client.task_update import known_id
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput

_ARGUMENTS: Final = {attribute: argument for argument, attribute in UPDATABLE.items()}

Id = Annotated[
    str,
    Path(
        alias="scheduleId",
        description="The schedule's id, its `taskId`, as a task's stands in a path.",
        examples=["nightly-report"],
    ),
]
State = Annotated[
    Literal["ENABLED", "DISABLED", "COMPLETED", "FAILED"] | None,
    Query(alias="scheduleState", description="Only schedules in this state."),
]
Limit = Annotated[int, Query(alias="limit", ge=1, le=MAX_LIMIT, description="At most so many.")]

_ONE = {200: ("The schedule", models.Schedule)}
_OF_ONE = frozenset({"scheduleId"})


class ScheduleRoutes:
    """The operations on schedules."""

    def __init__(self, client: TaskClient) -> None:
        self._schedules = client.schedules

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="createSchedule",
                method="POST",
                path="/v1/schedules",
                call=self.create,
                summary="Insert a schedule",
                description="The answer has `warnings` about what may surprise. Refused if there is a row of this id.",
                tag="Schedule",
                answers={201: ("The schedule was inserted", models.Schedule)},
                headers=("ETag", "Location"),
                problems=("task-exists", "item-too-large"),
            ),
            Operation(
                name="listSchedules",
                method="GET",
                path="/v1/schedules",
                call=self.list,
                summary="List the schedules",
                tag="Schedule",
                answers={200: ("A part of the list", models.ScheduleList)},
                problems=("invalid-input",),
                parameters=frozenset({"scheduleState", "limit", "pageToken"}),
            ),
            self._of_one("get", "GET", "", self.get, "Get a schedule"),
            self._of_one(
                "update",
                "PATCH",
                "",
                self.patch,
                "Change a schedule",
                "Tasks that it has made stay as they are. With `If-Match`, only if it is the one that you have seen.",
                more=("not-possible-now", "changed", "item-too-large"),
                parameters=_OF_ONE | {"If-Match"},
            ),
            Operation(
                name="deleteSchedule",
                method="DELETE",
                path="/v1/schedules/<scheduleId>",
                call=self.delete,
                summary="End a schedule",
                description="Tasks that it has made stay.",
                tag="Schedule",
                answers={204: ("It is gone", None)},
                problems=("schedule-not-found", "invalid-input"),
                parameters=_OF_ONE,
            ),
            self._of_one(
                "pause",
                "POST",
                "/pause",
                self.pause,
                "Make no runs from now on",
                more=("not-possible-now", "item-too-large"),
            ),
            self._of_one(
                "resume",
                "POST",
                "/resume",
                self.resume,
                "Make runs again",
                "Those of the pause are not made up.",
                more=("not-possible-now", "item-too-large"),
            ),
            Operation(
                name="runSchedule",
                method="POST",
                path="/v1/schedules/<scheduleId>/run",
                call=self.run,
                summary="One run at the next tick, beside the expression",
                tag="Schedule",
                answers={201: ("The task of this run", models.Task)},
                headers=("ETag", "Location"),
                problems=("schedule-not-found", "not-possible-now", "task-exists", "invalid-input", "item-too-large"),
                parameters=_OF_ONE,
            ),
            self._runs("preview", self.preview, "The next runs", models.NextOccurrences, frozenset({"count"})),
            self._runs(
                "history",
                self.history,
                "What became of the latest runs",
                models.OccurrenceList,
                frozenset({"start", "end", "limit"}),
            ),
            Operation(
                name="backfillSchedule",
                method="POST",
                path="/v1/schedules/<scheduleId>/backfill",
                call=self.backfill,
                summary="Make up the runs of a range that were not made",
                description="At the next tick, at most 1,000. Those that were made stay as they are.",
                tag="Schedule",
                answers={200: ("What became of each", models.InsertResults)},
                problems=("schedule-not-found", "not-possible-now"),
                parameters=_OF_ONE,
            ),
        ]

    @staticmethod
    def _of_one(
        verb: str,
        method: str,
        path: str,
        call: Callable[..., Response[str]],
        summary: str,
        description: str = "",
        *,
        more: tuple[str, ...] = (),
        parameters: frozenset[str] = _OF_ONE,
    ) -> Operation:
        return Operation(
            name=f"{verb}Schedule",
            method=method,
            path=f"/v1/schedules/<scheduleId>{path}",
            call=call,
            summary=summary,
            description=description,
            tag="Schedule",
            answers=_ONE,
            headers=("ETag",),
            problems=("schedule-not-found", "invalid-input", *more),
            parameters=parameters,
        )

    @staticmethod
    def _runs(
        verb: str, call: Callable[..., Response[str]], summary: str, model: Any, parameters: frozenset[str]
    ) -> Operation:
        return Operation(
            name=f"{verb}Schedule",
            method="GET",
            path=f"/v1/schedules/<scheduleId>/{verb}",
            call=call,
            summary=summary,
            tag="Schedule",
            answers={200: ("The runs", model)},
            problems=("schedule-not-found", "invalid-input"),
            parameters=_OF_ONE | parameters,
        )

    def create(self, body: Annotated[models.NewSchedule, Body()]) -> Response[str]:
        row = given(body)
        how = {argument: row.pop(name) for name, argument in _ARGUMENTS.items() if name in row}
        state, reason = row.pop("scheduleState", None), row.pop("stateReason", None)
        schedule_id, expression = row.pop("taskId", None), how.pop("expression", None)
        made = self._schedules.insert(
            schedule_id, expression, **how, enabled=state != "DISABLED", reason=reason, attributes=row
        )
        return _one(made, 201, Location=f"/v1/schedules/{to_path(made.schedule_id)}")

    def list(self, state: State = None, limit: Limit = 100, token: Token = None) -> Response[str]:
        def page_of(limit: int) -> Mapping[str, object]:
            page = self._schedules.list(state, limit=limit, page_token=token)
            return {"schedules": [one.to_row() for one in page.schedules], "nextPageToken": page.next_page_token}

        return sizes.page(page_of, limit)

    def get(self, schedule_id: Id) -> Response[str]:
        return _one(self._schedules.get(_id(schedule_id)))

    def patch(
        self, schedule_id: Id, body: Annotated[models.SchedulePatch, Body()], match: Match = None
    ) -> Response[str]:
        edits = {_ARGUMENTS[name]: getattr(body, name) for name in body.model_fields_set}  # null takes off
        if not edits:
            raise InvalidInput("body", {}, f"expected something to change: any of {', '.join(_ARGUMENTS)}")
        return _one(self._schedules.update(_id(schedule_id), version=version_of(match), **edits))

    def delete(self, schedule_id: Id) -> Response[str]:
        self._schedules.delete(_id(schedule_id))
        return Response(status_code=204, body="")

    def pause(self, schedule_id: Id, body: Annotated[models.Pause | None, Body()] = None) -> Response[str]:
        return _one(self._schedules.pause(_id(schedule_id), body.reason if body else None))

    def resume(self, schedule_id: Id) -> Response[str]:
        return _one(self._schedules.resume(_id(schedule_id)))

    def run(self, schedule_id: Id) -> Response[str]:
        task = self._schedules.run_now(_id(schedule_id))
        return shown(task, 201, Location=f"/v1/tasks/{to_path(task.task_id)}")

    def preview(
        self,
        schedule_id: Id,
        count: Annotated[int, Query(alias="count", ge=1, le=MAX_LIMIT, description="How many.")] = 10,
    ) -> Response[str]:
        known = _id(schedule_id)
        runs, warnings = self._schedules.preview(known, count), self._schedules.get(known).warnings
        shown = [{"occurrenceAt": format_instant(run.instant), "notes": list(run.notes)} for run in runs]
        return answer({"runs": shown, "warnings": list(warnings)})

    def history(self, schedule_id: Id, start: Start = None, end: End = None, limit: Limit = 100) -> Response[str]:
        runs = self._schedules.history(_id(schedule_id), start=start, end=end, limit=limit)
        return answer({"runs": [run.to_row() for run in runs]})

    def backfill(self, schedule_id: Id, body: Annotated[models.Backfill, Body()]) -> Response[str]:
        made = self._schedules.backfill(_id(schedule_id), start=body.start, end=body.end, dry_run=body.dryRun)
        results = [inserted(result) for result in made]
        if body.dryRun:
            results = [{**one, "result": "wouldInsert"} if one["result"] == "inserted" else one for one in results]
        return answer({"results": results, "counts": counts_of(results)})


def _id(segment: str) -> str:
    """The id that a path names. Raises InvalidInput under the name that it has there."""
    found = from_path(segment, "scheduleId")
    try:
        return known_id(found)
    except InvalidInput as error:
        raise InvalidInput("scheduleId", error.value, error.expected) from error


def _one(schedule: ScheduleView, status: int = 200, **headers: str) -> Response[str]:
    """A schedule as an answer."""
    return answer(schedule.to_row(), status, ETag=f'"{schedule.version}"', **headers)
