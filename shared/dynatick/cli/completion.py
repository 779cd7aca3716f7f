"""``dynatick complete``, ``fail`` and ``heartbeat``: of tasks that their handlers have handed over."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dynatick.cli.session import Session, on_table
from dynatick.cli.task_display import show_view
from dynatick.json_reader import loads

Token = Annotated[
    str,
    typer.Argument(
        metavar="TOKEN",
        envvar="DYNATICK_COMPLETION_TOKEN",
        help="context.completion_token of its handler; - reads it from stdin. A secret.",
        show_default=False,
        show_envvar=True,
    ),
]


@on_table
def complete(
    session: Session,
    token: Token,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="What is recorded.")] = None,
) -> None:
    """Complete a task that its handler has handed over. The same again changes nothing."""
    show_view(session, session.client().complete(_read(token), None if result is None else loads(result, "result")))


@on_table
def fail(
    session: Session,
    token: Token,
    error: Annotated[str, typer.Option(help="Why.")],
    retry: Annotated[bool, typer.Option("--retry", help="It is attempted again, by its retry policy.")] = False,
) -> None:
    """Fail a task that its handler has handed over; without --retry, for good, with the next tick."""
    show_view(session, session.client().fail(_read(token), error, retry=retry))


@on_table
def heartbeat(session: Session, token: Token) -> None:
    """Say that the work on a task goes on. Exit code 5 if it was cancelled, or its attempt is over."""
    show_view(session, session.client().heartbeat(_read(token)))


def _read(token: str) -> str:
    return sys.stdin.read().strip() if token == "-" else token
