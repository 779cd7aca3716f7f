"""``dynatick status``: the state of the installation, for the person on call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dynatick.cli.output import Output, one_line, show_document, show_pairs, suggested
from dynatick.cli.session import Session, on_table
from dynatick.cli.task_display import ago
from dynatick.domain.durations import milliseconds_text

if TYPE_CHECKING:
    from dynatick.client import FailureGroup, InstallationStatus

_GROUPS = 3


@on_table
def status(session: Session) -> None:
    """Show whether ticks run, what waits, and what has failed in the last 24 hours."""
    found = session.client().status()
    if session.output is Output.TABLE:
        show_pairs(_lines(found, session.clock()))
    else:
        show_document(found.to_row(), session.output)


def _lines(found: InstallationStatus, now: datetime) -> Iterator[tuple[str, object]]:
    health = found.health
    yield "state", _state(found)
    for finding in health.findings:
        yield "attention", f"{finding.why}: {finding.remedy}"
    last = "no tick has come yet" if health.last_tick is None else f"last tick {ago(health.last_tick, now)}"
    yield "ticks", f"{last}; next {ago(found.next_tick, now)}"
    yield f"next {_hours(found.until - now)}", f"{found.waiting} waiting"
    oldest = "" if found.oldest_due is None else f", since {ago(found.oldest_due, now)} at the longest"
    running = "" if found.running is None else f"; {found.running} running"
    yield "due now", f"{found.due_now - (found.running or 0)} waiting{oldest}{running}"
    late = ", ".join(f"{name} {milliseconds_text(value)}" for name, value in found.lateness.items())
    cancelled = f", {found.cancelled} cancelled" if found.cancelled else ""
    yield f"last {_hours(now - found.since)}", f"{found.completed} completed, {found.failed} failed{cancelled}"
    if late:
        yield "lateness", late
    for group in found.failures[:_GROUPS]:
        yield "failed", _group(group, now)
    if (more := len(found.failures) - _GROUPS) > 0:
        past = _hours(now - found.since)
        yield "failed", f"… and {more} other errors: dynatick task list --status failed --last {past}"


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
    since = "" if group.first is None else f" since {ago(group.first, now)}"
    text = one_line(str(group.error))
    return f"{group.count} {group.action}{since}: {text}   ({suggested('dynatick task explain', group.task_id)})"


def _hours(span: timedelta) -> str:
    return f"{max(1, round(span / timedelta(hours=1)))}h"
