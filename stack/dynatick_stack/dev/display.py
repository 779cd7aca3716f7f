"""What ``dynatick dev`` prints: a line for each task that is inserted, each attempt, each tick, and whatever the
functions say."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from dynatick.cli.output import printable_lines
from dynatick.client.views import TaskView, text_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.batches import BATCH_ACTION
from dynatick.domain.durations import rounded_text
from dynatick.domain.instants import parse_instant
from dynatick.domain.terminal_text import printable
from dynatick_stack.dev.insertions import NOTHING_INSERTED, Inserted, Insertion
from dynatick_stack.logs import LogLine

# Lines of a function that ended as it should.
_ROUTINE = {
    "attempt_recorded", "batch_ended", "import_ended", "import_skipped", "pass_ended", "reconcile_ended",
    "recovery_ended", "request_answered", "shard_leased_elsewhere", "task_logged",
    "wake_up_ended",
}  # fmt: skip
_COUNTS = ("completed", "failed", "retried", "rescheduled", "deferred", "missed", "recovered")
_INDENT = " " * 12
_MAX_INSERTIONS = 20  # of one moment that are named; an import would hide everything else

Key = tuple[str, int, int, int]  # task, run, turn, attempt


@dataclass(kw_only=True)
class Display:
    """``folder``: the project's, whose lines a traceback shows."""

    folder: Path
    _raised: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    _ticks: deque[str] = field(default_factory=partial(deque, maxlen=4))  # that were shown last

    def wanted(self, lines: Sequence[LogLine]) -> list[str]:
        """The ids of the tasks whose rows ``show`` needs."""
        return [str(line.record["task_id"]) for line in lines if line.record and _action(line) == "attempt_recorded"]

    def show(
        self, lines: Sequence[LogLine], tasks: Mapping[str, TaskView], inserted: Inserted = NOTHING_INSERTED
    ) -> list[str]:
        """What there is to print of these, in order of time; of the same second, what was inserted comes first.

        ``tasks``: by their ids, as they are now.
        """
        shown = [(one.at, _of_insertion(one)) for one in inserted.tasks[:_MAX_INSERTIONS]]
        if unnamed := inserted.others + len(inserted.tasks) - len(shown):
            text = f"{unnamed:,} {'more ' if shown else ''}task{'' if unnamed == 1 else 's'}"
            shown.append((inserted.since, _headed(inserted.since, "inserted", text)))
        shown += [(line.at, text) for line in lines for text in self._one(line, tasks)]
        return [printable_lines(text) for _, text in sorted(shown, key=itemgetter(0))]

    def _one(self, line: LogLine, tasks: Mapping[str, TaskView]) -> list[str]:
        record = line.record
        if record is None:
            return [_headed(line.at, "output", line.text)]
        action = _action(line)
        if action == "handler_raised":
            self._raised[_key(record)] = record  # its attempt follows
            return []
        if action == "attempt_recorded":
            if record["handler"] == BATCH_ACTION and record["result"] == "rescheduled":
                return []  # it looks again, each second at first, whether its members have ended
            return self._attempt(line.at, record, tasks.get(str(record["task_id"])))
        if action == "pass_ended":
            text = _of_tick(record)
            if text is None or text in self._ticks:
                return []  # a deployment runs one, too
            self._ticks.append(text)
            return [_headed(line.at, "tick", text)]
        if record.get("level") in ("DEBUG", "INFO") and action in _ROUTINE:
            return []
        return [_headed(line.at, line.function, line.said())]

    def _attempt(self, at: datetime, record: Mapping[str, Any], task: TaskView | None) -> list[str]:
        """One attempt of a task. Its row may be gone, or another attempt further."""
        key = _key(record)
        is_latest = task is not None and (task.task_id, task.run, task.turn, task.attempt) == key
        details = []
        started = parse_instant(record["started_at"], "started_at")
        late = max(started - parse_instant(record["due_at"], "due_at"), timedelta())
        result = str(record["result"])
        if result == "completed":
            took = task.finished_at - started if is_latest and task and task.finished_at else None
            details.append(f"{rounded_text(late)} after due" + ("" if took is None else f", {rounded_text(took)}"))
        else:
            details.append(f"attempt {record['attempt']} of {record['max_attempts']}")
            if task is not None and task.next_attempt_at is not None:
                details[-1] += f", again at {task.next_attempt_at:%H:%M:%S}"
        raised = self._raised.pop(key, None)
        if raised is not None:
            details.append(f"{raised.get('exception_name', 'error')}: {_message(raised)}")
        elif task is not None and result != "completed" and (error := _error_of(task, key)):
            details.append(error)
        word = "failed" if result == "retried" else result
        text = f"{record['handler'] or '':<16} {printable(str(record['task_id'])):<16} {'   '.join(details)}"
        return [_headed(at, word, text), *(self._frames(raised) if raised else ())]

    def _frames(self, raised: Mapping[str, Any]) -> list[str]:
        """The project's own lines of a traceback, the innermost last."""
        frames = (raised.get("stack_trace") or {}).get("frames", ())
        shown = []
        for frame in frames:
            path = self._own(str(frame["file"]))
            if path is not None:
                shown += [
                    f"{_INDENT}{path}:{frame['line']} in {frame['function']}",
                    f"{_INDENT}  {frame['statement']}",
                ]
        return shown

    def _own(self, file: str) -> str | None:
        """A file of the layer as it is called in the project; None for any other."""
        parts = Path(file).parts
        below = (Path(*parts[n + 1 :]) for n, part in enumerate(parts[:-1]) if part == "python")
        return next((str(path) for path in below if (self.folder / path).is_file()), None)


def _of_insertion(one: Insertion) -> str:
    if one.problem is not None:
        when = one.problem
    elif one.due_at is None:
        when = str(one.expression)
    elif one.due_at < one.at + timedelta(seconds=1):
        when = "due now"
    else:
        when = f"due at {one.due_at:%H:%M:%S}" if one.due_at.date() == one.at.date() else f"due at {one.due_at:%F %T}"
    return _headed(one.at, "inserted", f"{printable(one.action):<16} {printable(one.task_id):<16} {printable(when)}")


def _action(line: LogLine) -> str:
    return str((line.record or {}).get("action", ""))


def _key(record: Mapping[str, Any]) -> Key:
    return str(record["task_id"]), int(record["run"]), int(record["turn"]), int(record["attempt"])


def _headed(at: datetime, word: str, text: str) -> str:
    return f"{at:%H:%M:%S}  {word:<10} {text}".rstrip()


def _of_tick(record: Mapping[str, Any]) -> str | None:
    """None: nothing was due."""
    counts = [f"{record[name]} {name}" for name in _COUNTS if record.get(name)]
    return f"{record['tick']:<16} {', '.join(counts)}" if counts else None


def _error_of(task: TaskView, key: Key) -> str | None:
    """The error of an attempt: of one that is to be retried, it is in the list of attempts."""
    _, run, _, number = key
    attempts = task.row.get(attr.ATTEMPTS)
    for one in attempts if isinstance(attempts, list) else ():
        if isinstance(one, Mapping) and (one.get(attr.RUN), one.get(attr.ATTEMPT)) == (run, number):
            return text_or_none(one.get(attr.ERROR))
    return task.error


def _message(raised: Mapping[str, Any]) -> str:
    trace = raised.get("stack_trace") or {}
    return str(trace.get("value", ""))
