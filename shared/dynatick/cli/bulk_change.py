"""Changes many tasks: by their ids, or those of a bucket or range."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dynatick.cli.arguments import Asking, ids_of, is_single, timeout_of
from dynatick.cli.exit_code import CommandFailed, ExitCode, code_of, error_text
from dynatick.cli.output import NONE, Column, Output, say, show_one, show_rows
from dynatick.cli.session import Session
from dynatick.domain import attributes as attr
from dynatick.domain.terminal_text import one_line
from dynatick.errors import DynatickError, StoreError

if TYPE_CHECKING:
    from dynatick.client import ManyResult, TaskView
    from dynatick.client.change_records import FollowedRuns

T = TypeVar("T")

_MAX_AT_A_TIME = 8  # requests
_CHUNK = 200  # ids whose results memory holds
_MAX_COUNTED = 1000  # tasks, for the question before a change
_TASKS = "tasks"  # of a row that stands for several
MAX_FAILURES = 200  # in a row; after them the command stops

_COLUMNS = (
    Column("TASK", attr.TASK_ID, folds=True),
    Column("WHAT", "result"),
    Column("BUCKET", attr.TASK_DATE_TIME),
    Column("ACTION", attr.ACTION, folds=True),
    Column("WHY", "why", folds=True),
)


def are_named(ids: Sequence[str] | None, **options: object) -> bool:
    """Whether ids name the tasks; else options select them. Raises CommandFailed if neither or both do."""
    used = [name.replace("_", "-") for name, value in options.items() if value not in (None, False)]
    if not ids and not {"bucket", "from", "to", "last", "next", "subject"} & set(used):
        message = "name a task, or select tasks by --bucket, --subject, --last, --next, or --from and --to"
        raise CommandFailed(ExitCode.USAGE, message)
    if ids and used:
        raise CommandFailed(ExitCode.USAGE, f"--{used[0]} has no effect on named tasks; use one of them only")
    return bool(ids)


def each(ids: Sequence[str], do: Callable[[str], T]) -> Iterator[tuple[str, T | DynatickError]]:
    """The result or the error for each id, in order, with several requests at a time."""
    from dynatick.client.thread_pool import thread_pool

    def one(task_id: str) -> T | DynatickError:
        try:
            return do(task_id)
        except DynatickError as error:
            return error

    with thread_pool(_MAX_AT_A_TIME, "dynatick-each") as pool:
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            yield from zip(chunk, pool.map(one, chunk), strict=True)


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
    """Changes the named tasks: one is shown whole, several as a list. Raises CommandFailed if any failed.

    ``done``: the result in words, as a participle. ``row``: further attributes in the list.
    """
    if is_single(typed):
        show(change(typed[0]))
        return
    failed: list[ExitCode] = []
    ids = ids_of(typed)

    def rows() -> Iterator[Mapping[str, object]]:
        for task_id, answer in each(ids, change):
            if isinstance(answer, DynatickError):
                failed.append(code_of(answer))
                result = "unknown" if isinstance(answer, StoreError) else "refused"
                yield {attr.TASK_ID: task_id, "result": result, "why": one_line(error_text(answer))}
            else:
                yield {attr.TASK_ID: task_id, "result": done, **row(answer)}

    list_results(session, rows(), columns or _COLUMNS, name=name)
    if failed:
        raise CommandFailed(max(failed), f"{len(failed)} of {len(ids)} not {done}")


def delete_each(
    session: Session,
    typed: Sequence[str],
    delete: Callable[[str], object],
    *,
    columns: Sequence[Column] = (),
    name: str = "tasks",
) -> None:
    """Deletes what is named. Raises CommandFailed if any could not be deleted."""

    def deleted(row_id: str) -> str:
        delete(row_id)
        return row_id

    def show(row_id: str) -> None:
        if session.output is Output.TABLE:
            say(f"deleted {row_id}")
        else:
            show_one({attr.TASK_ID: row_id, "deleted": True}, session.output)

    change_each(session, typed, deleted, "deleted", show=show, row=lambda _: {}, columns=columns, name=name)


def list_results(
    session: Session,
    rows: Iterable[Mapping[str, object]],
    columns: Sequence[Column],
    *,
    name: str,
    more: Callable[[], Mapping[str, object]] = dict,
) -> Mapping[str, int]:
    """Prints rows as they come, and how many there are of each ``result``; stops if many are unknown in a row. Returns
    the counts. ``more``: further members of the document, at its end."""
    counts: Counter[str] = Counter()

    def counted() -> Iterator[Mapping[str, object]]:
        unknown = 0  # in a row
        for row in rows:
            yield row
            result = str(row["result"])
            counts[result] += int(str(row.get(_TASKS, 1)))
            unknown = unknown + 1 if result == "unknown" else 0
            if unknown == MAX_FAILURES:
                return

    show_rows(counted(), columns, session.output, name=name, more=lambda: {"counts": counts, **more()})
    say(", ".join(f"{number} {result}" for result, number in counts.items()) or NONE)
    return counts


def check_answered(counts: Mapping[str, int], then: str = "repeat the command") -> None:
    """Raises CommandFailed if some results are unknown. ``then``: what to do about them."""
    if counts.get("unknown"):
        raise CommandFailed(ExitCode.UNREACHABLE, f"{counts['unknown']} got no answer; {then}")


@dataclass(frozen=True, slots=True)
class BulkCommand:
    """A change of many tasks, as a verb and as a participle."""

    verb: str
    done: str
    asking: Asking
    runs: FollowedRuns | None = None  # of a redrive: what follows them
    repeated: str | None = None  # what the command again does to those that it has changed; None: nothing


def change_many(session: Session, change: Callable[..., Iterator[ManyResult]], command: BulkCommand) -> None:
    """Calls ``change``, a method of the client, after the user has confirmed it: for as many tasks as the question
    named, since others may match by then. Raises CommandFailed."""
    from dynatick.client import ConfirmedChange, WouldChange

    if command.asking.dry_run:
        show_results(session, change(dry_run=True), command)
        return
    if command.asking.yes or not is_interactive():
        _change(session, change(dry_run=False), command)
        return
    found = [one.tasks for one in change(dry_run=True, limit=_MAX_COUNTED + 1) if isinstance(one, WouldChange)]
    if not found:  # then it shows why each is skipped
        show_results(session, change(dry_run=True), command)
        return
    number = len(found)
    tasks = sum(found[:_MAX_COUNTED])
    many = "1 task" if tasks == 1 else f"{tasks} tasks" if number <= _MAX_COUNTED else f"more than {tasks} tasks"
    confirm(f"{command.verb.capitalize()} {many}?")
    confirmed = ConfirmedChange(change, number if number <= _MAX_COUNTED else None)
    _change(session, confirmed.results(), command)
    if confirmed.has_more():
        then = f"the command again {command.repeated}" if command.repeated else "repeat the command for them"
        say(f"More tasks match by now, and were not {command.done}: {then}")


def _change(session: Session, results: Iterator[ManyResult], command: BulkCommand) -> None:
    """Shows the results of a change, and ends it if they are not all shown: its record then says so."""
    with closing(results):  # type: ignore[type-var]  # those of the client are generators
        show_results(session, results, command)


def check_wait(timeout: str | None, *, wait: bool) -> None:
    """Raises CommandFailed if there is a time for a wait that was not asked for."""
    if timeout is not None and not wait:
        raise CommandFailed(ExitCode.USAGE, "--timeout has no effect without --wait")


def wait_for_runs(session: Session, runs: FollowedRuns, timeout: str | None, done: str) -> None:
    """Waits until runs have ended, and prints what has come of them. Raises CommandFailed unless all have completed."""
    if not runs.followed:
        return
    counts = runs.wait(session.client().store, timeout=timeout_of(timeout), pause=time.sleep)
    say(f"{counts.followed} {done}: {counts}" + (f"; {runs.not_followed} not followed" if runs.not_followed else ""))
    if counts.waiting:
        raise CommandFailed(ExitCode.TIMED_OUT, f"{counts.waiting} have not ended in time")
    if counts.completed < counts.followed:
        raise CommandFailed(ExitCode.NOT_COMPLETED, f"{counts.followed - counts.completed} did not complete")


def confirm(question: str) -> None:
    """Asks the user. Raises CommandFailed unless the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed(ExitCode.INTERRUPTED, "nothing was changed")


def is_interactive() -> bool:
    """Whether there is a terminal on which the user can answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def show_results(session: Session, results: Iterator[ManyResult], command: BulkCommand) -> None:
    """Prints the result of each task, and the counts. Raises CommandFailed if some results are unknown."""
    from dynatick.client import Changed

    def rows() -> Iterator[Mapping[str, object]]:
        for result in results:
            if command.runs is not None and isinstance(result, Changed):
                command.runs.add(result.task)
            yield _row(result, command.done)

    counts = list_results(session, rows(), _COLUMNS, name="tasks")
    if command.repeated:
        check_answered(
            counts, f"see which were {command.done}, and name the others: the command again {command.repeated}"
        )
    else:
        check_answered(counts)


def _row(result: ManyResult, done: str) -> Mapping[str, object]:
    from dynatick.client import Changed, ChangeUnknown, Skipped, WouldChange

    match result:
        case Changed(task_id, task, tasks):
            return {attr.TASK_ID: task_id, "result": done, **_number(tasks), **_of(task)}
        case WouldChange(task_id, task, tasks):
            why = {} if task.error is None else {"why": task.error}
            return {attr.TASK_ID: task_id, "result": f"to be {done}", **_number(tasks), **_of(task), **why}
        case Skipped(task_id, reason):
            return {attr.TASK_ID: task_id, "result": "skipped", "why": reason}
        case ChangeUnknown(task_id, error):
            return {attr.TASK_ID: task_id, "result": "unknown", "why": one_line(str(error))}


def _number(tasks: int) -> Mapping[str, object]:
    return {} if tasks == 1 else {_TASKS: tasks}


def _of(task: TaskView) -> Mapping[str, object]:
    shown = {attr.TASK_DATE_TIME: task.bucket, attr.ACTION: task.action}
    return {name: value for name, value in shown.items() if value is not None}
