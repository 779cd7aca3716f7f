"""What was due in a soak and what began, as proof/windows.py judges it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sandbox.history import History, Operation
from tests.sandbox.journal import BATCH, OK, REFUSED, SCHEDULE

from dynatick.domain.packs import parse_member_id


def account(history: History, *, skew: float, late: float, read: float) -> Iterator[dict[str, Any]]:
    """Yields the events of an account. Left out are tasks that a client has changed, or tried to: the verdict judges
    those. A task need not begin at its tick if its insert had no answer, or if it may have to wait for a turn of its
    limit key. ``late``: seconds after its tick within which a task must begin. ``read``: until when the rule fired."""
    yield {"e": "windows", "skew": skew, "late": late, "read": read}
    for at in history.ticked_at:
        yield {"e": "tick", "at": at}
    for incarnation, insert in history.incarnations.items():
        request, response = insert.request, insert.response
        if insert.status == REFUSED or request.due_at is None or _is_changed(insert, history):
            continue
        answered = request.at if response is None else response.at
        latest = request.due_at + (answered - request.at if request.delayed else 0.0)
        due = {"e": "due", "of": _name(insert), "at": request.due_at, "since": max(latest, answered)}
        yield due | {"may": insert.status != OK or request.limited}
        for attempts in history.runs.get(incarnation, {}).values():
            for one in attempts:
                key, at = one.began.key, one.began.at
                yield {
                    "e": "execution",
                    "of": _name(insert),
                    "key": key,
                    "at": at,
                    "done": one.done,
                    "cut": one.cut_off,
                }


def _name(insert: Operation) -> str:
    """A schedule's name for all of its occurrences: which of them is which, is not taken from the product."""
    task_id = insert.request.task_id
    return task_id.partition("#")[0] if insert.request.interface == SCHEDULE else insert.request.incarnation


def _is_changed(insert: Operation, history: History) -> bool:
    task_id = insert.request.task_id
    batch = parse_member_id(task_id) if insert.request.interface == BATCH else None
    others = [*history.of_task[task_id], *(history.of_task.get(batch[0], ()) if batch else ())]
    return any(one is not insert for one in others)
