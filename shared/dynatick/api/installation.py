"""The installation over HTTP: its settings and its health."""

from __future__ import annotations

from aws_lambda_powertools.event_handler import Response

from dynatick.api.models import installation as models
from dynatick.api.problems import Problem
from dynatick.api.routes import Operation, answer
from dynatick.client import TaskClient
from dynatick.client.installation import settings_row


class Installation:
    """The operations on the installation."""

    def __init__(self, client: TaskClient) -> None:
        self._client = client

    def operations(self) -> list[Operation]:
        return [
            Operation(
                name="getSettings",
                method="GET",
                path="/v1/settings",
                call=self.settings,
                summary="Get the current settings",
                description="The template's parameters, and the processor's handlers.",
                tag="Installation",
                answers={200: ("The settings", models.Settings)},
                problems=("no-settings",),
            ),
            Operation(
                name="getHealth",
                method="GET",
                path="/v1/health",
                call=self.health,
                summary="Get the health of the installation",
                description="For monitors: 200 if the table answers, ticks come and buckets are drained; 503 if not, "
                "with the findings. Two requests to the table. `dynatick doctor` reads every task, too.",
                tag="Installation",
                answers={200: ("Ticks come", models.Health)},
                problems=("unhealthy",),
            ),
        ]

    def settings(self) -> Response[str]:
        settings = self._client.settings()
        if settings is None:
            raise Problem(code="no-settings", detail="no tick has come yet; the first one writes the settings")
        return answer(settings_row(settings))

    def health(self) -> Response[str]:
        found = self._client.health()
        if found.is_healthy:
            return answer(found.to_row())
        detail = "; ".join(finding.why for finding in found.findings[:3])
        raise Problem(code="unhealthy", detail=detail, more=found.to_row())
