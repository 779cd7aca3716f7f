"""The options that ``schedule add`` and ``schedule update`` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from dynatick.cli.argument_values import map_of, minutes_of, seconds_of
from dynatick.cli.session import Session
from dynatick.cli.task_options import Payload, Timeout
from dynatick.domain import attributes as attr
from dynatick.errors import InvalidInput

Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone, such as Europe/Berlin.")]
StartDate = Annotated[str | None, typer.Option(metavar="TIME", help="No occurrence before; a rate counts from here.")]
EndDate = Annotated[str | None, typer.Option(metavar="TIME", help="No occurrence after.")]
Window = Annotated[
    str | None,
    typer.Option("--flexible-time-window", metavar="DURATION", help="Spread starts over this time: minutes, or 1h30m."),
]
CatchUp = Annotated[str | None, typer.Option(help="Which late occurrences to make: latest (default), all or none.")]
Overlap = Annotated[
    str | None, typer.Option(help="While the occurrence before has not ended: skip (default), allow or bufferOne.")
]
ExpectedWithin = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="So long after its time it must have completed; else it is overdue."),
]
ActionName = Annotated[str | None, typer.Option("--action", help="What to run. Default: the installation's.")]
Policy = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help='Such as {"maximumRetryAttempts": 5}.')]


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionOptions:
    """What a schedule is defined by, apart from its expression."""

    tz: Zone = None
    start_date: StartDate = None
    end_date: EndDate = None
    flexible_time_window: Window = None
    action: ActionName = None
    payload: Payload = None
    retry_policy: Policy = None
    timeout_seconds: Timeout = None
    catch_up: CatchUp = None
    overlap: Overlap = None
    expected_within_seconds: ExpectedWithin = None

    def arguments(self, session: Session) -> dict[str, Any]:
        """Returns the client's arguments; None for an option that is not given. Raises InvalidInput."""
        return {
            "timezone": self.tz,
            "start_date": session.time(self.start_date, attr.START_DATE),
            "end_date": session.time(self.end_date, attr.END_DATE),
            "flexible_time_window": minutes_of(self.flexible_time_window, attr.FLEXIBLE_TIME_WINDOW),
            "action": self.action,
            "payload": map_of(self.payload, attr.PAYLOAD),
            "retry_policy": map_of(self.retry_policy, attr.RETRY_POLICY),
            "timeout_seconds": seconds_of(self.timeout_seconds, attr.TIMEOUT_SECONDS),
            "catch_up": self.catch_up,
            "overlap": self.overlap,
            "expected_within_seconds": seconds_of(self.expected_within_seconds, attr.EXPECTED_WITHIN_SECONDS),
        }


def argument_names(attributes: Sequence[str]) -> list[str]:
    """The client's arguments of attributes to remove. Raises InvalidInput."""
    from dynatick.client.schedules import UPDATABLE

    arguments = {attribute: argument for argument, attribute in UPDATABLE.items() if argument != "expression"}
    for name in attributes:
        if name not in arguments:
            raise InvalidInput("remove", name, f"expected one of {', '.join(arguments)}")
    return [arguments[name] for name in attributes]
