"""The installation over HTTP: its settings and its health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query

from dynatick.api.ids import from_path
from dynatick.api.models import forms
from dynatick.api.problems import Problem
from dynatick.api.routes import Routes, answer, route
from dynatick.client.installation import MAX_HOURS, SettingsView, settings_view
from dynatick.client.operations import ActionList, ActionPause, Health, InstallationStatus, Pause
from dynatick.domain import attributes as attr
from dynatick.domain.durations import duration_of
from dynatick.domain.view import Json, View
from dynatick.engine.settings import InstallationSettings

Past = Annotated[
    str,
    Query(alias="last", description="What ran in this time, up to 3 days, and in as long before.", examples=["24h"]),
]

OfAction = Annotated[
    str,
    Path(
        alias=attr.ACTION,
        description="The action's name, in the form that a task's id has in a path.",
        examples=["send-reminder"],
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumedAction(View):
    """The end of an action's pause."""

    paused: Annotated[ActionPause | None, Json(null=True)] = None
    ended: Annotated[ActionPause | None, Json(null=True), "The pause that has ended. None: there was none."]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed(View):
    """The end of a pause."""

    paused: Annotated[Pause | None, Json(null=True)] = None
    ended: Annotated[Pause | None, Json(null=True), "The pause that has ended. None: there was none."]


class Installation(Routes):
    """The operations on the installation."""

    tag = "Installation"

    @route(
        "GET /v1/settings",
        "getSettings",
        "Get the current settings",
        description="The template's parameters, and the processor's handlers.",
        answers={200: ("The settings", SettingsView)},
        problems=("no-settings",),
    )
    def settings(self) -> Response[str]:
        return answer(settings_view(self._known()))

    @route(
        "GET /v1/health",
        "getHealth",
        "Get the health of the installation",
        description="For monitors: 200 if the table answers, ticks come and buckets are drained; 503 if not, "
        "with the findings. Two requests to the table. `dynatick doctor` reads every task, too.",
        answers={200: ("Ticks come, or all is paused", Health)},
        problems=("unhealthy",),
    )
    def health(self) -> Response[str]:
        found = self._client.operations.health()
        if found.is_healthy:
            return answer(found)
        detail = "; ".join(finding.why for finding in found.findings[:3])
        raise Problem(code="unhealthy", detail=detail, more=found.to_row())

    @route(
        "GET /v1/status",
        "getStatus",
        "Get the state of the installation",
        description="For a person: whether ticks run, what waits, and what has failed. Reads the index minute "
        "by minute, an hour back and ahead unless `hours` says more; a monitor asks for `/v1/health`.",
        answers={200: ("The state", InstallationStatus)},
        problems=("invalid-input",),
    )
    def status(
        self, hours: Annotated[int, Query(alias="hours", ge=1, le=MAX_HOURS, description="Back and ahead.")] = 1
    ) -> Response[str]:
        return answer(self._client.operations.status(hours=hours))

    @route(
        "GET /v1/actions",
        "listActions",
        "List the actions",
        description="Of each what waits, and what ran and failed, beside the same time before; the one of "
        "which the most attempts failed first. `notCounted` says why attempts and shares are not known, where "
        "wake-ups run tasks. About 60 requests to the table for a day, on one shard.",
        answers={200: ("The actions", ActionList)},
        problems=("invalid-input",),
    )
    def actions(self, last: Past = "24h") -> Response[str]:
        return answer(self._client.operations.actions(duration_of(last, "last")))

    @route(
        "POST /v1/pause",
        "pause",
        "Pause everything",
        description="From the next tick on nothing is run, until `POST /v1/resume`. Tasks that run go on to "
        "their end. The answer is the pause in force: an earlier one, if there is one.",
        answers={200: ("The pause in force", Pause)},
        problems=("no-settings",),
    )
    def pause(self, body: Annotated[forms.PauseRequest, Body()]) -> Response[str]:
        self._known()
        return answer(self._client.operations.pause(reason=body.reason, by=body.by))

    @route(
        "POST /v1/resume",
        "resume",
        "End the pause",
        description="The next tick runs what is due.",
        answers={200: ("The pause that has ended, if there was one", Resumed)},
        problems=("no-settings",),
    )
    def resume(self) -> Response[str]:
        self._known()
        return answer(Resumed(ended=self._client.operations.resume()))

    @route(
        "POST /v1/actions/<action>/pause",
        "pauseAction",
        "Pause an action",
        description="Ten seconds later none of its tasks begins, until `POST …/resume`; all others run. Tasks "
        "that run go on to their end. The answer is the pause in force: an earlier one, if there is one.",
        answers={200: ("The pause in force", ActionPause)},
        problems=("no-settings", "invalid-input"),
    )
    def pause_action(
        self, action: OfAction, body: Annotated[forms.PauseRequest | None, Body()] = None
    ) -> Response[str]:
        self._known()
        found = self._client.operations.pause_action(
            from_path(action, attr.ACTION), reason=body.reason if body else None, by=body.by if body else None
        )
        return answer(found)

    @route(
        "POST /v1/actions/<action>/resume",
        "resumeAction",
        "End the pause of an action",
        description="What waits begins within a quarter of the pause's length, at most 15 minutes: "
        "`waitingBeginBy` says by when.",
        answers={200: ("The pause that has ended, if there was one", ResumedAction)},
        problems=("no-settings", "invalid-input"),
    )
    def resume_action(self, action: OfAction) -> Response[str]:
        self._known()
        return answer(ResumedAction(ended=self._client.operations.resume_action(from_path(action, attr.ACTION))))

    def _known(self) -> InstallationSettings:
        settings = self._client.settings()
        if settings is None:
            raise Problem(code="no-settings", detail="no tick has come yet; the first one writes the settings")
        return settings
