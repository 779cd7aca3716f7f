"""The command ``dynatick dev``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from dynatick_stack import folders, local, template
from dynatick_stack.cli import failures
from dynatick_stack.emulator import PORT
from dynatick_stack.files import exclusive
from dynatick_stack.project import Project, find
from dynatick_stack.venv import Say

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def dev(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the local AWS endpoint.", show_default=f"{PORT}, or a free one"),
    ] = None,
) -> None:
    """Run this project on this machine: the whole system, with your handlers, deployed anew when you save.

    Tasks, ticks and logs are shown as they come; times are UTC. Ctrl-C ends it, and what it held is gone.
    """
    with failures(interrupted="Stopped; nothing is left running", code=0):
        run(find(Path.cwd()), port, say=typer.echo)


def run(project: Project, port: int | None, *, say: Say) -> None:
    """Runs until it is interrupted. Leaves nothing running, however it ends."""
    own = project.folder / ".dynatick"
    own.mkdir(exist_ok=True)
    (own / ".gitignore").write_text("*\n", encoding="utf-8")
    given = os.environ.get("DYNATICK_STATE_DIR")  # as for the other commands
    state_dir = (Path(given) if given else own / "local").resolve()
    busy = f"dynatick dev runs in {project.folder} already"
    with exclusive(own / "dev.lock", busy=busy):
        try:
            _run(project, port, state_dir, say)
        finally:
            local.down(state_dir=state_dir)


def _run(project: Project, port: int | None, state_dir: Path, say: Say) -> None:
    # Here, since what they import takes a moment, in which an interruption is to be met.
    from dynatick_stack.dev.session import Session

    session = Session(project=project, root=_root(project), state_dir=state_dir, say=say)
    session.start(port)
    while True:
        session.follow()
        time.sleep(session.seconds_between)


def _root(project: Project) -> Path:
    """The folder of what is deployed, without sample handlers; a wheel has none."""
    if not folders.IS_CHECKOUT:
        return template.ROOT
    from dynatick_stack.checkout import without_sample

    return without_sample(project.folder / ".dynatick" / "system")
