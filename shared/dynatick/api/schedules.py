"""Recurring schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from dynatick.api import sizes
from dynatick.api.bulk import InsertResults, inserted
from dynatick.api.ids import from_path, to_path
from dynatick.api.models import schedule as models
from dynatick.api.routes import Operation, answer, values_of
from dynatick.api.tasks import End, Match, Start, Token, shown, version_of
from dynatick.client import ScheduleOccurrence, SchedulePage, ScheduleView, TaskClient, TaskView
from dynatick.client.history import MAX_LIMIT
from dynatick.client.schedules import UPDATABLE
from dynatick.client.task_update import known_id
from dynatick.domain import attributes as attr
from dynatick.domain.view import View
from dynatick.errors import InvalidInput

_ARGUMENTS: Final = {attribute: argument for argument, attribute in UPDATABLE.items()}

Id = Annotated[
    str,
    Path(
        alias=attr.SCHEDULE_ID,
        description="The schedule's id, its `taskId`, in the form that a task's id has in a path.",
        examples=["nightly-report"],
    ),
]
Subject = Annotated[str | None, Query(alias="subject", description="Only schedules with this subject.")]
State = Annotated[
    Literal["ENABLED", "DISABLED", "COMPLETED", "FAILED"] | None,
    Query(alias=attr.SCHEDULE_STATE, description="Only schedules in this state."),
]
Limit = Annotated[int, Query(alias="limit", ge=1, le=MAX_LIMIT, description="The maximum number.")]

_ONE = {200: ("The schedule", ScheduleView)}
_OF_ONE = frozenset({attr.SCHEDULE_ID})


@dataclass(frozen=True, kw_only=True, slots=True)
class OccurrenceList(View):
    """Occurrences that were due, oldest first."""

    occurrences: Sequence[ScheduleOccurrence]


@dataclass(frozen=True, kw_only=True, slots=True)
class NextOccurrence(View):
    """A future occurrence."""

    occurrence_at: Annotated[datetime, "Its nominal instant."]
    notes: Annotated[Sequence[str], "How clock changes affect it."]


@dataclass(frozen=True, kw_only=True, slots=True)
class NextOccurrences(View):
    """The next occurrences. Those of a paused schedule: as if it were resumed."""

    occurrences: Sequence[NextOccurrence]
    warnings: Annotated[Sequence[str], "How it fits the ticks, and a year of clock changes."]


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
                description="Refused if a task or schedule has this id. The answer has `warnings` about behaviour that "
                "may be unexpected.",
                tag="Schedule",
                answers={201: ("The schedule was inserted", ScheduleView)},
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
                answers={200: ("A page of the list", SchedulePage)},
                problems=("invalid-input",),
                parameters=frozenset({attr.SCHEDULE_STATE, "limit", "pageToken"}),
            ),
            self._of_one("get", "GET", "", self.get, "Get a schedule"),
            self._of_one(
                "update",
                "PATCH",
                "",
                self.patch,
                "Change a schedule",
                "Tasks that it has made stay as they are. With `If-Match`, only if it is unchanged since you read it.",
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
                answers={204: ("It was deleted", None)},
                problems=("schedule-not-found", "changed", "invalid-input"),
                parameters=_OF_ONE | {"If-Match"},
            ),
            self._of_one(
                "pause",
                "POST",
                "/pause",
                self.pause,
                "Pause a schedule: it makes no occurrences from now on",
                more=("not-possible-now", "changed", "item-too-large"),
                parameters=_OF_ONE | {"If-Match"},
            ),
            self._of_one(
                "resume",
                "POST",
                "/resume",
                self.resume,
                "Resume a schedule: it makes occurrences again",
                "Those of the pause are not made.",
                more=("not-possible-now", "changed", "item-too-large"),
                parameters=_OF_ONE | {"If-Match"},
            ),
            Operation(
                name="runSchedule",
                method="POST",
                path="/v1/schedules/<scheduleId>/run",
                call=self.run,
                summary="Make an extra occurrence at the next tick",
                tag="Schedule",
                answers={201: ("The task of this occurrence", TaskView)},
                headers=("ETag", "Location"),
                problems=(
                    "schedule-not-found",
                    "not-possible-now",
                    "changed",
                    "task-exists",
                    "invalid-input",
                    "item-too-large",
                ),
                parameters=_OF_ONE | {"If-Match"},
            ),
            self._occurrences(
                "preview", self.preview, "List the next occurrences", NextOccurrences, frozenset({"count"})
            ),
            self._occurrences(
                "history",
                self.history,
                "List the latest occurrences",
                OccurrenceList,
                frozenset({"start", "end", "limit"}),
            ),
            Operation(
                name="backfillSchedule",
                method="POST",
                path="/v1/schedules/<scheduleId>/backfill",
                call=self.backfill,
                summary="Make the missing occurrences of a range",
                description="At the next tick, at most 1,000. Those that exist stay as they are.",
                tag="Schedule",
                answers={200: ("One result per occurrence", InsertResults)},
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
    def _occurrences(
        verb: str, call: Callable[..., Response[str]], summary: str, model: Any, parameters: frozenset[str]
    ) -> Operation:
        return Operation(
            name=f"{verb}Schedule",
            method="GET",
            path=f"/v1/schedules/<scheduleId>/{verb}",
            call=call,
            summary=summary,
            tag="Schedule",
            answers={200: ("The occurrences", model)},
            problems=("schedule-not-found", "invalid-input"),
            parameters=_OF_ONE | parameters,
        )

    def create(self, body: Annotated[models.NewSchedule, Body()]) -> Response[str]:
        row = values_of(body)
        arguments = {argument: row.pop(name) for name, argument in _ARGUMENTS.items() if name in row}
        state, reason = row.pop(attr.SCHEDULE_STATE, None), row.pop(attr.STATE_REASON, None)
        schedule_id, expression = row.pop(attr.TASK_ID, None), arguments.pop("expression", None)
        arguments["subject"] = row.pop(attr.SUBJECT, None)
        made = self._schedules.insert(
            schedule_id, expression, **arguments, enabled=state != "DISABLED", reason=reason, attributes=row
        )
        return _one(made, 201, Location=f"/v1/schedules/{to_path(made.schedule_id)}")

    def list(
        self, state: State = None, subject: Subject = None, limit: Limit = 100, token: Token = None
    ) -> Response[str]:
        def page_of(limit: int) -> SchedulePage:
            return self._schedules.list(state, subject=subject, limit=limit, page_token=token)

        return sizes.page(page_of, limit)

    def get(self, schedule_id: Id) -> Response[str]:
        return _one(self._schedules.get(_id(schedule_id)))

    def patch(
        self, schedule_id: Id, body: Annotated[models.SchedulePatch, Body()], match: Match = None
    ) -> Response[str]:
        edits = {_ARGUMENTS[name]: getattr(body, name) for name in body.model_fields_set}  # null removes an attribute
        if not edits:
            raise InvalidInput("body", {}, f"expected something to change: any of {', '.join(_ARGUMENTS)}")
        return _one(self._schedules.update(_id(schedule_id), version=version_of(match), **edits))

    def delete(self, schedule_id: Id, match: Match = None) -> Response[str]:
        self._schedules.delete(_id(schedule_id), version=version_of(match))
        return Response(status_code=204, body="")

    def pause(
        self, schedule_id: Id, body: Annotated[models.SchedulePause | None, Body()] = None, match: Match = None
    ) -> Response[str]:
        reason = body.reason if body else None
        return _one(self._schedules.pause(_id(schedule_id), reason, version=version_of(match)))

    def resume(self, schedule_id: Id, match: Match = None) -> Response[str]:
        return _one(self._schedules.resume(_id(schedule_id), version=version_of(match)))

    def run(self, schedule_id: Id, match: Match = None) -> Response[str]:
        task = self._schedules.run_now(_id(schedule_id), version=version_of(match))
        return shown(task, 201, Location=f"/v1/tasks/{to_path(task.task_id)}")

    def preview(
        self,
        schedule_id: Id,
        count: Annotated[int, Query(alias="count", ge=1, le=MAX_LIMIT, description="The number of occurrences.")] = 10,
    ) -> Response[str]:
        known = _id(schedule_id)
        found, warnings = self._schedules.preview(known, count), self._schedules.get(known).warnings
        occurrences = [NextOccurrence(occurrence_at=one.instant, notes=one.notes) for one in found]
        return answer(NextOccurrences(occurrences=occurrences, warnings=warnings))

    def history(self, schedule_id: Id, start: Start = None, end: End = None, limit: Limit = 100) -> Response[str]:
        found = self._schedules.history(_id(schedule_id), start=start, end=end, limit=limit)
        return answer(OccurrenceList(occurrences=found))

    def backfill(self, schedule_id: Id, body: Annotated[models.Backfill, Body()]) -> Response[str]:
        made = self._schedules.backfill(_id(schedule_id), start=body.start, end=body.end, dry_run=body.dryRun)
        results = [inserted(result) for result in made]
        if body.dryRun:
            results = [replace(one, result="wouldInsert") if one.result == "inserted" else one for one in results]
        return answer(InsertResults(results=results))


def _id(segment: str) -> str:
    """The id of a path. Raises InvalidInput for the field ``scheduleId``."""
    found = from_path(segment, attr.SCHEDULE_ID)
    try:
        return known_id(found)
    except InvalidInput as error:
        raise InvalidInput(attr.SCHEDULE_ID, error.value, error.expected) from error


def _one(schedule: ScheduleView, status: int = 200, **headers: str) -> Response[str]:
    """A schedule as an answer."""
    return answer(schedule, status, ETag=f'"{schedule.version}"', **headers)
