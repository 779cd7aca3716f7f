"""Whether everything became of the batch that had to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynatick.client import TaskEntry, TaskView, TickEntry, TickView
from dynatick.domain.buckets import Bucket, Grid
from dynatick_stack.demo.batch import REFUSED, Expected
from dynatick_stack.demo.observe import ENDED, Seen, by_id
from dynatick_stack.demo.receiver import Call


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was found out."""

    batch: Sequence[Expected]
    sent: Mapping[str, str | None]  # by id: why it was refused, or None
    seen: Seen
    listed: Sequence[TaskEntry]  # the history of all buckets
    ticks: Sequence[TickEntry]
    settled: int  # the minute in which the last task had its bucket: ticks are counted from here
    grid: Grid = field(default_factory=Grid)

    @property
    def inserted(self) -> list[Expected]:
        return [one for one in self.batch if self.sent.get(one.task_id, "") is None]

    @property
    def refused(self) -> list[Expected]:
        return [one for one in self.batch if self.sent.get(one.task_id, "") is not None]

    @property
    def ticks_complete(self) -> bool:
        """Whether the tick records tell of all that ran: each comes a moment after its last task."""
        return self.completed_by_ticks == self.count("completed")

    @property
    def completed_by_ticks(self) -> int:
        return sum(tick.completed for tick in self.ticks if isinstance(tick, TickView))

    def count(self, status: str) -> int:
        return self.seen.counts[status]

    @property
    def calls_expected(self) -> int:
        return sum(one.calls for one in self.batch)

    @property
    def letters_expected(self) -> int:
        return sum(one.ends == "failed" for one in self.batch)


def unmet(found: Evidence) -> list[str]:
    """What is not as it had to be, one line each; empty if all is well."""
    lines: list[str] = []
    listed = by_id(found.listed)
    for one in found.batch:
        problems = (
            _refusal(one, found)
            if one.ends == REFUSED or found.sent.get(one.task_id, "") is not None
            else [*_task(one, found), *_calls(one, found), *_letters(one, found), *_listing(one, found, listed)]
        )
        lines += [f"{one.task_id} ({one.name}): {problem}" for problem in problems]
    known = {one.task_id for one in found.batch}
    lines += [f"a webhook came for {call.task_id!r}, which is not of the batch"
              for call in found.seen.calls if call.task_id not in known]  # fmt: skip
    lines += [f"a dead letter came for {letter.get('taskId')!r}, which is not of the batch"
              for letter in found.seen.letters if letter.get("taskId") not in known]  # fmt: skip
    if not found.ticks_complete:
        completed = found.count("completed")
        lines.append(f"the ticks tell of {found.completed_by_ticks} completed tasks, the table of {completed}")
    return lines


def _refusal(one: Expected, found: Evidence) -> Iterator[str]:
    reason = found.sent.get(one.task_id, "it was not sent")
    if one.ends != REFUSED:
        yield f"the door refused it: {reason}"
    elif reason is None:
        yield "the door took it, and had to refuse it"
    elif one.error is not None and one.error not in reason:
        yield f"the door refused it without a word of {one.error!r}: {reason}"
    if one.task_id in found.seen.tasks:
        yield "it was refused, and is in the table"


def _task(one: Expected, found: Evidence) -> Iterator[str]:
    task = found.seen.tasks.get(one.task_id)
    if task is None:
        yield "it is not in the table"
        return
    if task.status != one.ends:
        reason = f" ({task.error})" if task.error else ""
        yield f"it is {task.status}{reason}, expected {one.ends}"
        return
    if one.attempts is not None and task.attempt != one.attempts:
        yield f"it took {task.attempt} attempts, expected {one.attempts}"
    if one.error is not None and one.error not in (task.error or ""):
        yield f"its error is {task.error!r}, expected a word of {one.error!r}"
    if task.error and one.ends == "completed":
        yield f"it has an error although it completed: {task.error}"
    yield from _time(one, task, found)


def _time(one: Expected, task: TaskView, found: Evidence) -> Iterator[str]:
    bucket = Bucket.canonical(task.bucket)
    latest = found.grid.tick_after(found.settled) + (one.by - 1) * found.grid.tick_minutes
    if bucket is None:
        yield f"it lies in no bucket, but in {task.bucket!r}"
    elif bucket.minute > latest:
        yield f"it ended in {bucket}, expected by {Bucket(latest)}"
    if task.started_at is not None and task.due_at is not None and task.started_at < task.due_at:
        yield f"it started early, at {task.started_at}, and was due at {task.due_at}"


def _calls(one: Expected, found: Evidence) -> Iterator[str]:
    calls = [call for call in found.seen.calls if call.task_id == one.task_id]
    attempts = [call.attempt for call in calls]
    if attempts != [str(number) for number in range(1, one.calls + 1)]:
        yield f"{_plural(len(calls), 'webhook')} came (attempts {', '.join(attempts) or 'none'}), expected {one.calls}"
    if len({call.key for call in calls}) > 1:
        yield f"its attempts had several idempotency keys: {', '.join(sorted({call.key for call in calls}))}"
    yield from (problem for call in calls for problem in _problems(call))


def _problems(call: Call) -> list[str]:
    return [f"a webhook came without what receivers rely on: {problem}" for problem in call.problems()]


def _letters(one: Expected, found: Evidence) -> Iterator[str]:
    letters: list[Mapping[str, Any]] = [letter for letter in found.seen.letters if letter.get("taskId") == one.task_id]
    wanted = int(one.ends == "failed")
    if len(letters) != wanted:
        yield f"{_plural(len(letters), 'dead letter')} came, expected {wanted}"
    for letter in letters:
        if one.error is not None and one.error not in str(letter.get("error")):
            yield f"its dead letter says {letter.get('error')!r}, expected a word of {one.error!r}"


def _listing(one: Expected, found: Evidence, listed: Mapping[str, Sequence[TaskEntry]]) -> Iterator[str]:
    task = found.seen.tasks.get(one.task_id)
    if task is None or task.status not in ENDED:
        return
    entries = listed.get(one.task_id, [])
    if [(entry.bucket, entry.status) for entry in entries] != [(task.bucket, task.status)]:
        shown = ", ".join(f"{entry.bucket} as {entry.status}" for entry in entries) or "no bucket"
        yield f"the history lists it in {shown}, expected {task.bucket} as {task.status}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
