"""``dynatick settings``, ``status``, ``pause``, ``resume`` and ``ui``: the installation as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Output, say, show_document, show_one, show_pairs
from dynatick.cli.session import Session, user, with_options
from dynatick.cli.task_display import ago, unfit_lines
from dynatick.domain import attributes as attr
from dynatick.domain.durations import milliseconds_text
from dynatick.domain.instants import format_instant
from dynatick.domain.terminal_text import one_line, quoted, suggested
from dynatick.ui.loopback import PORT

if TYPE_CHECKING:
    from dynatick.client.operations import ActionPause, FailureGroup, InstallationStatus, Pause

_GROUPS = 3
_WHAT_IS_PAUSED = "What is paused: dynatick status"


@with_options
def settings(session: Session) -> None:
    """Show the current settings: tick interval, shards, actions. The template's parameters set them."""
    from dynatick.client.installation import settings_view

    settings = session.client().settings()
    if settings is None:
        raise CommandFailed(ExitCode.NOT_FOUND, "no tick has run yet; the first one writes the settings")
    show_one(settings_view(settings).to_row(), session.output)


@with_options
def status(
    session: Session,
    hours: Annotated[
        int, typer.Option(help="Read the tasks of this many hours back and ahead, up to 24: it takes longer.")
    ] = 1,
) -> None:
    """Show whether ticks run, what waits, and what has failed.

    Of the last 24 hours it counts the attempts by the records of the ticks, of the last hour the tasks, and shows which
    have failed."""
    found = session.client().operations.status(hours=hours)
    if session.output is Output.TABLE:
        show_pairs(_lines(found, session.clock()))
    else:
        show_document(found.to_row(), session.output)


def _lines(found: InstallationStatus, now: datetime) -> Iterator[tuple[str, object]]:
    health = found.health
    yield "state", _state(found)
    for of_action in health.paused_actions:
        yield "paused", f"{one_line(of_action.action)} {one_line(str(of_action))}"
    for finding in health.findings:
        yield "attention", f"{finding.why}: {finding.remedy}"
    last = "no tick has come yet" if health.last_tick is None else f"last tick {ago(health.last_tick, now)}"
    following = f"next {ago(found.next_tick, now)}" if health.pause is None else "they run nothing while all is paused"
    yield "ticks", f"{last}; {following}"
    handed_over = f"; {found.awaiting_completion} waiting for a completion" if found.awaiting_completion else ""
    yield f"next {_hours(found.until - now)}", f"{found.waiting} waiting{handed_over}"
    oldest = "" if found.oldest_due is None else f", since {ago(found.oldest_due, now)} at the longest"
    running = "" if found.running is None else f"; {found.running} running"
    yield "due now", f"{found.due_now - (found.running or 0)} waiting{oldest}{running}"
    for key in found.keys:
        of = f"limit {key.limit}" if key.limit is not None else "no limit"
        yield "key", f"{one_line(key.key)}: {key.waiting} waiting, {key.running} running, {of}"
    late = ", ".join(f"{name} {milliseconds_text(value)}" for name, value in found.lateness.items())
    cancelled = f", {found.cancelled} cancelled" if found.cancelled else ""
    yield f"last {_hours(now - found.since)}", f"{found.completed} completed, {found.failed} failed{cancelled}"
    if late:
        yield "lateness", late
    day = found.day
    attempts = "not all counted" if day.attempts is None else day.attempts
    share = "" if not day.failed_percent else f" ({day.failed_percent:g} %)"
    yield "attempts", f"{attempts} in 24h, {day.failures} failed{share}: dynatick action list"
    if found.payloads is not None:
        for unfit in unfit_lines(found.payloads):
            yield "will fail", f"{unfit}; of the next {found.payloads.checked}"
    for group in found.failures[:_GROUPS]:
        yield "failed", _group(group, now)
    if (more := len(found.failures) - _GROUPS) > 0:
        past = _hours(now - found.since)
        yield "failed", f"… and {more} other errors: dynatick failure list --last {quoted(past)}"


def _state(found: InstallationStatus) -> str:
    pause = found.health.pause
    if pause is not None:
        return f"paused {pause}"
    if found.processor_problem is not None:
        return "the processor can't start, so nothing runs"
    if not found.health.is_healthy:
        missing = found.health.missing_ticks
        return f"stopped: {missing} ticks are missing" if missing else "stopped"
    return "running"


def _group(group: FailureGroup, now: datetime) -> str:
    what = f"{group.count} {', '.join(group.actions)} since {ago(group.first, now)}"
    return f"{what}: {one_line(str(group.error))}   ({suggested('dynatick task explain', group.task_id)})"


def _hours(span: timedelta) -> str:
    return f"{max(1, round(span / timedelta(hours=1)))}h"


@with_options
def pause(
    session: Session,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for those who wonder.")] = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who. Default: the user of this machine.")] = None,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="Only this action; all others run.")] = None,
) -> None:
    """Run nothing from the next tick on, until dynatick resume; with --action, nothing of one action. Tasks that run go
    on to their end."""
    client = session.client()
    before, operations = client.settings(), client.operations
    paused: Pause | ActionPause
    if action is None:
        paused = operations.pause(reason=reason, by=by or user())
        done = "It was paused already" if before is not None and before.pause is not None else "Paused"
    else:
        paused = operations.pause_action(action, reason=reason, by=by or user())
        is_earlier = before is not None and action in before.paused_actions
        done = f"{one_line(action)} {'was paused already' if is_earlier else 'is paused'}"
    if session.output is not Output.TABLE:
        show_document({attr.PAUSED: paused.to_row()}, session.output)
    say_paused(f"{done}:", paused, action)


def say_paused(done: str, paused: Pause, action: str | None = None) -> None:
    """Says of a pause, of everything or of one action, since when it is, and the command that ends it."""
    say(f"{done} {one_line(str(paused))}")
    say("To end it: dynatick resume" + ("" if action is None else f" --action {quoted(action)}"))


@with_options
def resume(
    session: Session,
    action: Annotated[str | None, typer.Option(metavar="NAME", help="End the pause of this action.")] = None,
) -> None:
    """End the pause: the next tick runs what is due. With --action, end the pause of one action: what waits begins
    within a quarter of its length, at most 15 minutes."""
    if action is not None:
        _resume_action(session, action)
        return
    ended = session.client().operations.resume()
    if session.output is not Output.TABLE:
        show_document({attr.PAUSED: None}, session.output)
    if ended is None:
        say(f"It was not paused\n{_WHAT_IS_PAUSED}")
    else:
        say(f"Resumed; it was paused {one_line(str(ended))}. The next tick runs what is due")
        say("What waits: dynatick status")


def _resume_action(session: Session, action: str) -> None:
    ended = session.client().operations.resume_action(action)
    if session.output is not Output.TABLE:
        show_document({attr.PAUSED: None, "ended": None if ended is None else ended.to_row()}, session.output)
    if ended is None:
        say(f"{one_line(action)} was not paused\n{_WHAT_IS_PAUSED}")
        return
    by = ended.waiting_begin_by
    begin = "" if by is None else f". Tasks that wait begin by {format_instant(by)}"
    say(f"Resumed {one_line(action)}; it was paused {one_line(str(ended))}{begin}")
    say("What waits: dynatick action list")


@with_options
def ui(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open the page in a browser.")] = False,
) -> None:
    """Show the installation in a browser: what ran, what failed and what will run, minute by minute.

    Listens on 127.0.0.1 only, and uses your AWS credentials. Each change is a line of JSON on stderr. Ctrl-C ends it.
    """
    try:
        from dynatick.ui.server import serve
        from dynatick.ui.site import Site
        from dynatick.ui.trail import log_changes
        from dynatick.ui.trouble import Access, sign_in_of
    except ModuleNotFoundError as error:
        message = f"ui needs more packages: pip install 'dynatick[cli]' ({error})"
        raise CommandFailed(ExitCode.UNEXPECTED, message) from error
    client = session.client()
    from dynatick.cli import stack

    def caller() -> str | None:
        return None if session.local else stack.caller(session)

    log_changes()
    access = Access(
        profile=session.profile or os.environ.get("AWS_PROFILE"),
        region=session.region,
        table=session.table,
        sign_in=sign_in_of(stack.profiles(), session.profile, os.environ),
    )
    site = Site(
        client=client, clock=session.clock, name=session.name(), region=stack.region(session), read_only=read_only,
        caller=caller, access=access,
    )  # fmt: skip
    serve(site, port, opens=not no_open, say=typer.echo)
