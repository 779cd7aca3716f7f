"""Changing many: those that are named, or those of a bucket or range."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, told
from dynatick.cli.listing import Listing
from dynatick.cli.output import Column, one_line, say
from dynatick.cli.session import Session
from dynatick.cli.task_selection import ids_of, is_single
from dynatick.errors import DynatickError, StoreError

if TYPE_CHECKING:
    from dynatick.client import ManyResult, TaskView

T = TypeVar("T")

_AT_A_TIME = 8  # requests, where each takes one of its own
_TOGETHER = 200  # ids whose answers are held
_COUNTED = 1000  # tasks, before one is asked
_PATIENCE = 200  # failures in a row after which the table is taken to be away

_COLUMNS = (
    Column("TASK", "taskId", folds=True),
    Column("WHAT", "result"),
    Column("BUCKET", "taskDateTime"),
    Column("ACTION", "action", folds=True),
    Column("WHY", "why", folds=True),
)


def are_named(ids: Sequence[str] | None, **options: object) -> bool:
    """Whether tasks are named; else options say which. Raises CommandFailed if neither or both do."""
    given = [name.replace("_", "-") for name, value in options.items() if value not in (None, False)]
    if not ids and not {"bucket", "from", "to", "last"} & set(given):
        message = "name a task, or say which by --bucket, --last, or --from and --to"
        raise CommandFailed(ExitCode.USAGE, message)
    if ids and given:
        raise CommandFailed(ExitCode.USAGE, f"a task is named, so --{given[0]} says nothing; give one of them only")
    return bool(ids)


def each(ids: Sequence[str], do: Callable[[str], T]) -> Iterator[tuple[str, T | DynatickError]]:
    """What is answered to each id, in order, several at a time. What one raises does not stop the others."""

    def one(task_id: str) -> T | DynatickError:
        try:
            return do(task_id)
        except DynatickError as error:
            return error

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="dynatick-each") as pool:
        for start in range(0, len(ids), _TOGETHER):
            part = ids[start : start + _TOGETHER]
            yield from zip(part, pool.map(one, part), strict=True)


def change_each(
    session: Session,
    typed: Sequence[str],
    change: Callable[[str], T],
    done: str,
    *,
    show: Callable[[T], None],
    row: Callable[[T], Mapping[str, object]] = lambda task: _of(task),  # type: ignore[arg-type]
    columns: Sequence[Column] = (),
    name: str = "tasks",
) -> None:
    """Changes what is named: one is shown whole, of several each has its line. Raises CommandFailed if any failed.

    ``done``: what is done to them, as a participle. ``row``: what the line of one says of it.
    """
    if is_single(typed):
        show(change(typed[0]))
        return
    counts: dict[str, int] = {}
    failed: list[ExitCode] = []
    unknown = 0  # in a row
    ids = ids_of(typed)
    with Listing(columns or _COLUMNS, session.output, name=name) as listing:
        for task_id, answer in each(ids, change):
            if isinstance(answer, DynatickError):
                result = "unknown" if isinstance(answer, StoreError) else "refused"
                failed.append(code_of(answer))
                listing.add({"taskId": task_id, "result": result, "why": one_line(told(answer))})
            else:
                result = done
                listing.add({"taskId": task_id, "result": done, **row(answer)})
            counts[result] = counts.get(result, 0) + 1
            unknown = unknown + 1 if result == "unknown" else 0
            if unknown == _PATIENCE:
                break
        listing.beside = {"counts": counts}
    say(_summed(counts))
    if failed:
        raise CommandFailed(max(failed), f"{len(failed)} of {len(ids)} not {done}")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be done with many tasks: as a verb and as a participle."""

    verb: str
    done: str
    dry_run: bool
    yes: bool  # without asking


def change_many(session: Session, change: Callable[..., Iterator[ManyResult]], wish: Wish) -> None:
    """Changes those that ``change`` means, a method of the client, once it is confirmed. Raises CommandFailed."""
    if wish.dry_run or wish.yes or not _is_watched():
        show_results(session, change(dry_run=wish.dry_run), wish.done)
        return
    number = sum(1 for _ in change(dry_run=True, limit=_COUNTED + 1))
    if not number:
        show_results(session, iter(()), wish.done)
        return
    many = "1 task" if number == 1 else f"{number} tasks" if number <= _COUNTED else f"more than {_COUNTED} tasks"
    print(f"{wish.verb.capitalize()} {many}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed(ExitCode.INTERRUPTED, "nothing was changed")
    show_results(session, change(dry_run=False), wish.done)


def _is_watched() -> bool:
    """Whether there is a terminal to ask on: nothing waits for an answer that cannot come."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


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
            recorded_as = str(row["result"])
            counts[recorded_as] = counts.get(recorded_as, 0) + 1
            failures = failures + 1 if recorded_as == "unknown" else 0
            if failures == _PATIENCE:
                break
        listing.beside = {"counts": counts}
    say(_summed(counts))
    if counts.get("unknown"):
        raise CommandFailed(ExitCode.UNREACHABLE, f"{counts['unknown']} got no answer; do it again: what is done stays")


def _summed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {recorded_as}" for recorded_as, number in counts.items()) or "There are none"


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
