"""``dynatick pause`` and ``resume``: stops everything, and goes on."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from dynatick.cli.output import Output, say, show_document
from dynatick.cli.session import Session, on_table
from dynatick.domain import attributes as attr


@on_table
def pause(
    session: Session,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who wonder.")] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who. Default: the user of this machine.")] = None,
) -> None:
    """Run nothing from the next tick on, until dynatick resume. Tasks that run go on to their end."""
    client = session.client()
    wanted = by or _user()
    before = client.settings()
    found = client.pause(reason=reason, by=wanted)
    if session.output is not Output.TABLE:
        show_document({attr.PAUSED: found.to_row()}, session.output)
    is_earlier = before is not None and before.pause is not None
    say(f"{'It was paused already' if is_earlier else 'Paused'}: {found}")


@on_table
def resume(session: Session) -> None:
    """End the pause: the next tick runs what is due."""
    ended = session.client().resume()
    if session.output is not Output.TABLE:
        show_document({attr.PAUSED: None}, session.output)
    if ended is None:
        say("It was not paused")
    else:
        say(f"Resumed; it was paused {ended}. The next tick runs what is due")


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return None
