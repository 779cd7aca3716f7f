"""``dynatick ui``: the pages, on loopback."""

from __future__ import annotations

from typing import Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.session import Session, on_table
from dynatick.ui.loopback import PORT


@on_table
def ui(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open the page in a browser.")] = False,
) -> None:
    """Show the installation in a browser: what ran, what failed and what will run, minute by minute.

    Listens on 127.0.0.1 only, and uses your AWS credentials. Ctrl-C ends it.
    """
    try:
        from dynatick.ui.server import serve
        from dynatick.ui.site import Site
    except ModuleNotFoundError as error:
        message = f"ui needs more packages: pip install 'dynatick[cli]' ({error})"
        raise CommandFailed(ExitCode.UNEXPECTED, message) from error
    client = session.client()
    site = Site(client=client, clock=session.clock, name=session.name(), read_only=read_only)
    serve(site, port, opens=not no_open, say=typer.echo)
