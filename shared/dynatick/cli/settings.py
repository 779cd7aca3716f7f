"""``dynatick settings``: shows the current settings."""

from __future__ import annotations

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import show_one
from dynatick.cli.session import Session, on_table


@on_table
def settings(session: Session) -> None:
    """Show the current settings: tick interval, shards, actions. The template's parameters set them."""
    from dynatick.client.installation import settings_row

    settings = session.client().settings()
    if settings is None:
        raise CommandFailed(ExitCode.NOT_FOUND, "no tick has run yet; the first one writes the settings")
    show_one(settings_row(settings), session.output)
