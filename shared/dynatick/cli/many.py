"""``dynatick task retry`` and ``cancel`` for many: by bucket or range instead of by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.cli.listing import Listing
from dynatick.cli.output import Column, one_line, say
from dynatick.cli.session import Session
from dynatick.cli.values import require_range

if TYPE_CHECKING:
    from dynatick.client import ManyResult, TaskView

_PATIENCE = 200  # failures in a row after which the table is taken to be away

_COLUMNS = (
    Column("TASK", "taskId", folds=True),
    Column("WHAT", "result"),
    Column("BUCKET", "taskDateTime"),
    Column("ACTION", "action", folds=True),
    Column("WHY", "why", folds=True),
)


def require_one_way(task_id: str | None, **filters: object) -> bool:
    """Whether a task is named; else it is a filter that says which. Raises CommandFailed if neither or both do."""
    given = [name for name, value in filters.items() if value is not None]
    if task_id is None and not {"bucket", "from", "to"} & set(given):
        raise CommandFailed(ExitCode.USAGE, "name a task, or say which by --bucket, or by --from and --to")
    if task_id is not None and given:
        raise CommandFailed(ExitCode.USAGE, f"a task is named, so --{given[0]} says nothing; give one of them only")
    if task_id is None:
        require_range(*(None if filters[name] is None else str(filters[name]) for name in ("bucket", "from", "to")))
    return task_id is not None


def show_results(session: Session, results: Iterator[ManyResult], done: str) -> None:
    """Prints what became of each task, and how many of which fate. ``done``: what is done to them, as a participle.

    Raises CommandFailed if the table did not take some.
    """
    counts: dict[str, int] = {}
    failures = 0  # in a row
    with Listing(_COLUMNS, session.output, name="tasks") as listing:
        for result in results:
            row = _row(result, done)
            listing.add(row)
            fate = str(row["result"])
            counts[fate] = counts.get(fate, 0) + 1
            failures = failures + 1 if fate == "unknown" else 0
            if failures == _PATIENCE:
                break
        listing.beside = {"counts": counts}
    say(", ".join(f"{number} {fate}" for fate, number in counts.items()) or "There are none")
    if counts.get("unknown"):
        raise CommandFailed(ExitCode.UNREACHABLE, f"{counts['unknown']} got no answer; do it again: what is done stays")


def _row(result: ManyResult, done: str) -> Mapping[str, object]:
    from dynatick.client import Changed, Left, Unchanged, WouldChange

    match result:
        case Changed(task_id, task):
            return {"taskId": task_id, "result": done, **_of(task)}
        case WouldChange(task_id, task):
            why = {} if task.error is None else {"why": task.error}
            return {"taskId": task_id, "result": f"to be {done}", **_of(task), **why}
        case Left(task_id, reason):
            return {"taskId": task_id, "result": "left", "why": reason}
        case Unchanged(task_id, error):
            return {"taskId": task_id, "result": "unknown", "why": one_line(str(error))}


def _of(task: TaskView) -> Mapping[str, object]:
    shown = {"taskDateTime": task.bucket, "action": task.action}
    return {name: value for name, value in shown.items() if value is not None}
