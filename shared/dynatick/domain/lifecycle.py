"""The life of a task: one table of transitions, and each of them as one conditional write.

The numbers in brackets are the rules of the protocol (docs/protocol.md). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dynatick.domain.buckets import Bucket
from dynatick.domain.conditional_update import Absent, AtLeast, ConditionalUpdate, Is, Plus, as_read
from dynatick.domain.instants import EPOCH, format_instant
from dynatick.domain.numbers import is_whole
from dynatick.domain.task import TERMINAL, UNSCHEDULED, LargeRow, Row, Status, Task
from dynatick.errors import shown

TRANSITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    UNSCHEDULED: {
        Status.SCHEDULED: "normalised: its bucket was set or rounded and the defaults filled in",
        Status.FAILED: "it cannot be understood",
        Status.CANCELLED: "called off before anybody looked at it",
        UNSCHEDULED: "it cannot be understood, and waits until the dead-letter queue takes its message",
    },
    Status.SCHEDULED: {
        Status.RUNNING: "claimed by a processor",
        Status.SCHEDULED: "rescheduled, or moved on because its bucket was closed already",
        Status.CANCELLED: "called off",
        Status.FAILED: "somebody changed it into what cannot be understood",
    },
    Status.RUNNING: {
        Status.COMPLETED: "its action returned",
        Status.FAILED: "a permanent error, or all attempts used up",
        Status.SCHEDULED: "a retry, or given back: time ran out, or a rate limit has its turn later",
        Status.RUNNING: "taken over after its lease ran out",
    },
    Status.COMPLETED: {Status.SCHEDULED: "run again"},
    Status.FAILED: {Status.SCHEDULED: "redriven"},
    Status.CANCELLED: {Status.SCHEDULED: "redriven"},
}
"""From each state to each that may follow, with the reason. Whatever is not here cannot happen."""

MAX_ERROR_CHARACTERS = 300
MAX_ATTEMPTS_KEPT = 10
MAX_DEFERRALS = 10**6
RELEASED: Final = format_instant(EPOCH)
"""The ``leaseUntil`` of a claim that was given back."""
TIME_INPUTS: Final = ("taskDateTime", "dueAt", "delaySeconds")


_RUNNING: Final = Is("status", str(Status.RUNNING))
_WAITING: Final = (Is("status", str(Status.SCHEDULED)),)
_GIVEN_BACK: Final = (_RUNNING, Is("leaseUntil", RELEASED))
_NORMALISED_AND_OPEN: Final = (AtLeast("attempt", 0), Absent("outcome"))
_ONE_MORE: Final = Plus(1)


def may_follow(before: str, after: str) -> bool:
    """Whether the table allows a step."""
    return after in TRANSITIONS.get(before, {})


def short(error: str) -> str:
    """An error as the row and the index keep it: one line, bounded, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in error).split())
    return line if len(line) <= MAX_ERROR_CHARACTERS else line[: MAX_ERROR_CHARACTERS - 1] + "…"


def terminal(status: Status, now: datetime, retention_days: int, error: str | None = None) -> dict[str, object]:
    """What every end of a life sets. ``outcome`` exists on terminal tasks exactly."""
    values: dict[str, object] = {
        "status": str(status),
        "outcome": str(status),
        "finishedAt": format_instant(now),
        "expiresAt": int((now + timedelta(days=retention_days)).timestamp()),
    }
    if error is not None:
        values["error"] = short(error)
    return values


def claim(
    task_id: str,
    bucket: Bucket,
    *,
    token: str,
    lease_until: datetime,
    now: datetime,
    released: bool = False,
) -> ConditionalUpdate:
    """scheduled → running (9). The attempt is counted here: a task that kills its process runs out of them (10).

    ``released``: instead from running, of a row that ``release`` has given back.
    """
    left = _GIVEN_BACK if released else _WAITING
    return ConditionalUpdate(
        task_id=task_id,
        set={
            "status": str(Status.RUNNING),
            "lease": token,
            "leaseUntil": format_instant(lease_until),
            "startedAt": format_instant(now),
            "attempt": _ONE_MORE,
        },
        conditions=(*left, Is("taskDateTime", str(bucket)), *_NORMALISED_AND_OPEN),
        returning=True,
    )


def started(row: Row, *, token: str, lease_until: datetime, now: datetime) -> Row:
    """A waiting task's row as ``claim`` would leave it: for one that is written and claimed at once."""
    values = {
        "status": str(Status.RUNNING),
        "lease": token,
        "leaseUntil": format_instant(lease_until),
        "startedAt": format_instant(now),
        "attempt": 1,
    }
    return row.changed(values) if isinstance(row, LargeRow) else {**row, **values}


def reclaim(row: Row, *, attempt: int, token: str, lease_until: datetime, now: datetime) -> ConditionalUpdate:
    """running → running, after the lease in ``row`` ran out (10). ``attempt`` is the new one's number."""
    lost = {
        **_attempt_entry(row, now),
        "error": "the lease ran out: its process died, or did not finish in time",
    }
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={
            "lease": token,
            "leaseUntil": format_instant(lease_until),
            "startedAt": format_instant(now),
            "attempt": attempt,
            "attempts": _bounded(row.get("attempts"), lost),
        },
        conditions=as_read(row, "outcome", "status", "taskDateTime", "lease", "leaseUntil"),
        returning=True,
    )


def complete(task: Task, *, now: datetime, retention_days: int, result: object = None) -> ConditionalUpdate:
    """running → completed, on the claim's token (12)."""
    values = terminal(Status.COMPLETED, now, retention_days)
    if result is not None:
        values["result"] = result
    return ConditionalUpdate(task_id=task.task_id, set=values, conditions=_held(task))


def fail(task: Task, *, now: datetime, retention_days: int, error: str) -> ConditionalUpdate:
    """running → failed, on the claim's token (12)."""
    values = terminal(Status.FAILED, now, retention_days, error)
    if task.attempt:
        values["attempts"] = _bounded(task.attempts, _ended(task, now, error))
    return ConditionalUpdate(task_id=task.task_id, set=values, conditions=_held(task))


def retry(task: Task, *, now: datetime, bucket: Bucket, error: str) -> ConditionalUpdate:
    """running → scheduled in a later bucket, on the claim's token (12)."""
    return ConditionalUpdate(
        task_id=task.task_id,
        set={
            "status": str(Status.SCHEDULED),
            "taskDateTime": str(bucket),
            "attempts": _bounded(task.attempts, _ended(task, now, error)),
        },
        conditions=_held(task),
    )


def defer_claimed(task: Task, *, bucket: Bucket) -> ConditionalUpdate:
    """running → scheduled in a later bucket, on the claim's token (12): it was not executed, and the attempt is given
    back."""
    return ConditionalUpdate(
        task_id=task.task_id,
        set={"status": str(Status.SCHEDULED), "taskDateTime": str(bucket), "attempt": task.attempt - 1},
        conditions=_held(task),
    )


def release(task: Task) -> ConditionalUpdate:
    """Give a claim back that was never executed, and the attempt with it (12).

    The row stays *running*, with a lease that ended long ago: were it scheduled, the stream would move it to the
    next tick, whereas whoever goes on with this bucket can take it at once.
    """
    return ConditionalUpdate(
        task_id=task.task_id,
        set={"attempt": task.attempt - 1, "leaseUntil": RELEASED},
        conditions=_held(task),
    )


def fail_unexecuted(row: Row, *, now: datetime, retention_days: int, error: str) -> ConditionalUpdate:
    """running → failed without executing: the lease ran out at the last attempt (10), or the row was spoilt by hand."""
    lost = {**_attempt_entry(row, now), "error": short(error)}
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={
            **terminal(Status.FAILED, now, retention_days, error),
            "attempts": _bounded(row.get("attempts"), lost),
        },
        conditions=as_read(row, "outcome", "status", "taskDateTime", "lease", "leaseUntil"),
    )


def move(row: Row, bucket: Bucket) -> ConditionalUpdate:
    """To another bucket, whatever the status: a running row keeps its lease (5, 6).

    On condition that the row exists, has no outcome, and that its bucket and time inputs are as they were read.
    """
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={"taskDateTime": str(bucket), "movedTo": str(bucket)},
        conditions=as_read(row, "outcome", *TIME_INPUTS),
        returning=True,
    )


def defer(row: Row, bucket: Bucket) -> ConditionalUpdate:
    """A ``move`` of a row that nothing could be done with: it is counted, for each one goes further than the last."""
    moved = move(row, bucket)
    return replace(moved, set={**moved.set, "deferrals": deferrals_of(row) + 1})


def defer_failure(row: Row, bucket: Bucket, *, now: datetime, error: str) -> ConditionalUpdate:
    """running → running in a later bucket: it has failed for good, but the dead-letter queue did not take its message.

    Its lease ends now, and the error stays on the row: the tick that finds it there fails it without executing it. On
    condition of the lease that the row shows (12); it may lie in another bucket by now (6).
    """
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={
            "taskDateTime": str(bucket),
            "movedTo": str(bucket),
            "deferrals": deferrals_of(row) + 1,
            "leaseUntil": format_instant(now),
            "error": short(error),
        },
        conditions=as_read(row, "outcome", "status", "lease", "leaseUntil"),
    )


def deferrals_of(row: Row) -> int:
    """How often a row was put off because nothing could be done with it."""
    number = row.get("deferrals")
    return min(int(number), MAX_DEFERRALS) if is_whole(number) and number > 0 else 0


def end_lease(row: Row, *, now: datetime) -> ConditionalUpdate:
    """running → running: a lease that no process can hold ends now, so that the task is taken over (10)."""
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={"leaseUntil": format_instant(now)},
        conditions=as_read(row, "outcome", "status", "lease", "leaseUntil"),
    )


def cancel(row: Row, *, now: datetime, retention_days: int) -> ConditionalUpdate:
    """scheduled (or not looked at yet) → cancelled (13)."""
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set=terminal(Status.CANCELLED, now, retention_days),
        conditions=as_read(row, "outcome", "status", "lease"),
        returning=True,
    )


def reschedule(row: Row, *, bucket: Bucket, due_at: datetime) -> ConditionalUpdate:
    """scheduled (or not looked at yet) → scheduled at another time; the status is written too (13).

    A row that was not looked at yet is left without ``attempt``, so it is normalised before it can be claimed.
    """
    by_hand = ("attempt",) if row.get("status") is None else ()
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={
            "status": str(Status.SCHEDULED),
            "taskDateTime": str(bucket),
            "dueAt": format_instant(due_at),
        },
        remove=tuple(name for name in ("delaySeconds", "outcome", *by_hand) if name in row),
        conditions=as_read(row, "outcome", "status", "lease", *TIME_INPUTS),
        returning=True,
    )


def revise(row: Row, *, payload: object) -> ConditionalUpdate:
    """scheduled (or not looked at yet) → the same with another payload. Not while it runs: it has been read then."""
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={"payload": payload},
        conditions=as_read(row, "outcome", "status", "lease", "payload"),
        returning=True,
    )


def redrive(row: Row, *, bucket: Bucket, due_at: datetime, run: int) -> ConditionalUpdate:
    """terminal → scheduled in a future bucket, with attempt 0 and the next ``run`` (13).

    A row that never became a task (marked failed, or cancelled, before) gets no ``attempt``: it is normalised first.
    So is one whose ``attempt`` was set by hand, which names no action.
    """
    counted = "attempt" in row and row.get("action") is not None
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set={
            "status": str(Status.SCHEDULED),
            "taskDateTime": str(bucket),
            "dueAt": format_instant(due_at),
            "run": run,
        }
        | ({"attempt": 0} if counted else {}),
        remove=tuple(
            name
            for name in (
                "outcome",
                "finishedAt",
                "expiresAt",
                "error",
                "result",
                "lease",
                "leaseUntil",
                "delaySeconds",
                "deferrals",
                *(() if counted else ("attempt",)),
            )
            if name in row
        ),
        conditions=as_read(row, "status", "outcome", "run"),
        returning=True,
    )


def is_terminal(row: Row) -> bool:
    """Whether a task's life has ended. ``outcome`` decides, for the index shows nothing else."""
    return row.get("outcome") is not None


def state_of(row: Row) -> str:
    """A row's state in the words of the table of transitions."""
    status = row.get("status")
    if status is None:
        return UNSCHEDULED
    return status if isinstance(status, str) else shown(status)


def ended_by_hand(row: Row, *, now: datetime, retention_days: int) -> ConditionalUpdate | None:
    """Completes a row whose status somebody set to a terminal one by hand, without an outcome; None for others."""
    status = row.get("status")  # of any type
    if is_terminal(row) or not isinstance(status, str) or status not in TERMINAL:
        return None
    values = terminal(Status(status), now, retention_days)
    return ConditionalUpdate(
        task_id=str(row["taskId"]),
        set=values,
        conditions=as_read(row, "outcome", "status", "lease"),
        returning=True,
    )


def _held(task: Task) -> tuple[Is, ...]:
    return (Is("lease", task.lease), _RUNNING)


def _attempt_entry(row: Row, now: datetime) -> dict[str, object]:
    entry = {
        "run": row.get("run"),
        "attempt": row.get("attempt"),
        "startedAt": row.get("startedAt"),
        "finishedAt": format_instant(now),
    }
    return {name: value for name, value in entry.items() if value is not None}


def _ended(task: Task, now: datetime, error: str) -> dict[str, object]:
    entry: dict[str, object] = {
        "run": task.run,
        "attempt": task.attempt,
        "finishedAt": format_instant(now),
        "error": short(error),
    }
    if task.started_at is not None:
        entry["startedAt"] = format_instant(task.started_at)
    return entry


def _bounded(earlier: object, entry: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The latest attempts, and the first one of this run, which bounds its retries."""
    kept = [e for e in earlier if isinstance(e, Mapping)] if isinstance(earlier, (list, tuple)) else []
    entries: list[Mapping[str, object]] = [*kept, entry]
    latest = entries[-MAX_ATTEMPTS_KEPT:]
    first = next(e for e in entries if e.get("run") == entry.get("run"))
    return latest if any(e is first for e in latest) else [first, *latest[1:]]
