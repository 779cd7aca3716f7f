"""Recurring schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Final, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from dynatick.api import limits
from dynatick.api.bulk import InsertResults, inserted
from dynatick.api.ids import from_path, to_path
from dynatick.api.models import schedule as models
from dynatick.api.routes import Call, Routes, answer, route, values_of
from dynatick.api.tasks import End, Limit, Match, Start, Token, shown, version_of
from dynatick.client import ScheduleOccurrence, SchedulePage, ScheduleView, TaskView
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

_ONE = {200: ("The schedule", ScheduleView)}
_CHANGE = ("not-possible-now", "changed", "item-too-large")


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


def _of_one(
    verb: str, request: str, summary: str, description: str = "", *, problems: tuple[str, ...] = ()
) -> Callable[[Call], Call]:
    return route(
        request,
        f"{verb}Schedule",
        summary,
        description=description,
        answers=_ONE,
        headers=("ETag",),
        problems=("schedule-not-found", "invalid-input", *problems),
    )


def _occurrences(verb: str, summary: str, view: type[View]) -> Callable[[Call], Call]:
    return route(
        f"GET /v1/schedules/<scheduleId>/{verb}",
        f"{verb}Schedule",
        summary,
        answers={200: ("The occurrences", view)},
        problems=("schedule-not-found", "invalid-input"),
    )


class ScheduleRoutes(Routes):
    """The operations on schedules."""

    tag = "Schedule"

    @route(
        "POST /v1/schedules",
        "createSchedule",
        "Insert a schedule",
        description="Refused if a task or schedule has this id. The answer has `warnings` about behaviour that "
        "may be unexpected.",
        answers={201: ("The schedule was inserted", ScheduleView)},
        headers=("ETag", "Location"),
        problems=("task-exists", "item-too-large"),
    )
    def create(self, body: Annotated[models.NewSchedule, Body()]) -> Response[str]:
        row = values_of(body)
        arguments = {argument: row.pop(name) for name, argument in _ARGUMENTS.items() if name in row}
        state, reason = row.pop(attr.SCHEDULE_STATE, None), row.pop(attr.STATE_REASON, None)
        schedule_id, expression = row.pop(attr.TASK_ID, None), arguments.pop("expression", None)
        arguments["subject"] = row.pop(attr.SUBJECT, None)
        made = self._client.schedules.insert(
            schedule_id, expression, **arguments, enabled=state != "DISABLED", reason=reason, attributes=row
        )
        return shown(made, 201, Location=f"/v1/schedules/{to_path(made.schedule_id)}")

    @route(
        "GET /v1/schedules",
        "listSchedules",
        "List the schedules",
        answers={200: ("A page of the list", SchedulePage)},
        problems=("invalid-input",),
    )
    def list(
        self, state: State = None, subject: Subject = None, limit: Limit = 100, token: Token = None
    ) -> Response[str]:
        page_of = partial(self._client.schedules.list, state, subject=subject, page_token=token)
        return limits.page(page_of, limit)

    @_of_one("get", "GET /v1/schedules/<scheduleId>", "Get a schedule")
    def get(self, schedule_id: Id) -> Response[str]:
        return shown(self._client.schedules.get(_id(schedule_id)))

    @_of_one(
        "update",
        "PATCH /v1/schedules/<scheduleId>",
        "Change a schedule",
        "Tasks that it has made stay as they are. With `If-Match`, only if it is unchanged since you read it.",
        problems=_CHANGE,
    )
    def patch(
        self, schedule_id: Id, body: Annotated[models.SchedulePatch, Body()], match: Match = None
    ) -> Response[str]:
        edits = {_ARGUMENTS[name]: getattr(body, name) for name in body.model_fields_set}  # null removes an attribute
        if not edits:
            raise InvalidInput("body", {}, f"expected something to change: any of {', '.join(_ARGUMENTS)}")
        return shown(self._client.schedules.update(_id(schedule_id), version=version_of(match), **edits))

    @route(
        "DELETE /v1/schedules/<scheduleId>",
        "deleteSchedule",
        "End a schedule",
        description="Tasks that it has made stay.",
        answers={204: ("It was deleted", None)},
        problems=("schedule-not-found", "changed", "invalid-input"),
    )
    def delete(self, schedule_id: Id, match: Match = None) -> Response[str]:
        self._client.schedules.delete(_id(schedule_id), version=version_of(match))
        return Response(status_code=204, body="")

    @_of_one(
        "pause",
        "POST /v1/schedules/<scheduleId>/pause",
        "Pause a schedule: it makes no occurrences from now on",
        problems=_CHANGE,
    )
    def pause(
        self, schedule_id: Id, body: Annotated[models.SchedulePause | None, Body()] = None, match: Match = None
    ) -> Response[str]:
        reason = body.reason if body else None
        return shown(self._client.schedules.pause(_id(schedule_id), reason, version=version_of(match)))

    @_of_one(
        "resume",
        "POST /v1/schedules/<scheduleId>/resume",
        "Resume a schedule: it makes occurrences again",
        "Those of the pause are not made.",
        problems=_CHANGE,
    )
    def resume(self, schedule_id: Id, match: Match = None) -> Response[str]:
        return shown(self._client.schedules.resume(_id(schedule_id), version=version_of(match)))

    @route(
        "POST /v1/schedules/<scheduleId>/run",
        "runSchedule",
        "Make an extra occurrence at the next tick",
        answers={201: ("The task of this occurrence", TaskView)},
        headers=("ETag", "Location"),
        problems=("schedule-not-found", "task-exists", "invalid-input", *_CHANGE),
    )
    def run(self, schedule_id: Id, match: Match = None) -> Response[str]:
        task = self._client.schedules.run_now(_id(schedule_id), version=version_of(match))
        return shown(task, 201, Location=f"/v1/tasks/{to_path(task.task_id)}")

    @_occurrences("preview", "List the next occurrences", NextOccurrences)
    def preview(
        self,
        schedule_id: Id,
        count: Annotated[int, Query(alias="count", ge=1, le=MAX_LIMIT, description="The number of occurrences.")] = 10,
    ) -> Response[str]:
        known = _id(schedule_id)
        found, warnings = self._client.schedules.preview(known, count), self._client.schedules.get(known).warnings
        occurrences = [NextOccurrence(occurrence_at=one.instant, notes=one.notes) for one in found]
        return answer(NextOccurrences(occurrences=occurrences, warnings=warnings))

    @_occurrences("history", "List the latest occurrences", OccurrenceList)
    def history(self, schedule_id: Id, start: Start = None, end: End = None, limit: Limit = 100) -> Response[str]:
        found = self._client.schedules.history(_id(schedule_id), start=start, end=end, limit=limit)
        return answer(OccurrenceList(occurrences=found))

    @route(
        "POST /v1/schedules/<scheduleId>/backfill",
        "backfillSchedule",
        "Make the missing occurrences of a range",
        description="At the next tick, at most 1,000. Those that exist stay as they are.",
        answers={200: ("One result per occurrence", InsertResults)},
        problems=("schedule-not-found", "not-possible-now"),
    )
    def backfill(self, schedule_id: Id, body: Annotated[models.Backfill, Body()]) -> Response[str]:
        made = self._client.schedules.backfill(_id(schedule_id), start=body.start, end=body.end, dry_run=body.dryRun)
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
