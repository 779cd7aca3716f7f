"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.", show_default=False)]
At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When: 2026-12-31T12:07:00Z, 2026-12-31#12:00, epoch seconds, +10m or now."),
]
Delay = Annotated[
    str | None, typer.Option(metavar="DURATION", help="When: this time from now, as 90s, 2h, 1h30m, 3d; or seconds.")
]
Payload = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The action's arguments, a JSON object.")]
Timeout = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="The longest that an attempt may take; it does not start with less time left."
    ),
]
WaitTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="Such as 90s or 10m. Default: as long as it takes.")
]
Waiting = Annotated[str | None, typer.Option(help="Only scheduled, or only unscheduled ones. Default: both.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the selected tasks, and change none.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, it never asks.")]
Limit = Annotated[int, typer.Option(help="The maximum number of tasks.")]
PageToken = Annotated[str | None, typer.Option(help="Continue after the page before.")]
Status = Annotated[
    str | None, typer.Option(help="Only these: scheduled, running, completed, failed, cancelled, unscheduled.")
]
