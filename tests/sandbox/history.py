"""The journal's lines put together: operations of clients, attempts, and how each ended. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.sandbox import journal
from tests.sandbox.journal import INSERT, REPLACE, TICK, UNKNOWN, Line

INSERTS = (INSERT, REPLACE)


@dataclass(eq=False)
class Operation:
    """A client's operation. ``response``: None if the client died before it. ``position``: of the response, here and
    below in the order of the journal."""

    request: journal.Requested
    response: journal.Responded | None = None
    position: int | None = None

    @property
    def status(self) -> str:
        return UNKNOWN if self.response is None else self.response.status


@dataclass(eq=False)
class Attempt:
    """An execution."""

    began: journal.Began
    position: int
    ended: journal.Ended | None = None
    ended_position: int | None = None
    recorded: bool = False  # the table has its outcome
    not_before: float | None = None  # of the next attempt, as its record has it
    refused: bool = False  # a fault has hit the call that was to record it
    died: bool = False  # its process, before the outcome was recorded

    @property
    def done(self) -> bool:
        return self.ended is not None and self.ended.done

    @property
    def cut_off(self) -> str | None:
        """Why its outcome did not get into the table; None if nothing came between."""
        if self.recorded:
            return None
        return "killed" if self.died else "refused" if self.refused else None


@dataclass
class History:
    """Takes the lines one by one, so that it can be asked at any time."""

    operations: dict[str, Operation] = field(default_factory=dict)  # by request id
    runs: defaultdict[str, defaultdict[int, list[Attempt]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )  # by incarnation and run
    of_task: defaultdict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)  # of roles, and why
    faults: Counter[str] = field(default_factory=Counter)
    ticks: Counter[str] = field(default_factory=Counter)
    ticked_at: list[float] = field(default_factory=list)  # when the rule's events came
    disturbances: Counter[str] = field(default_factory=Counter)  # of all processes
    responses: Counter[tuple[str, str]] = field(default_factory=Counter)  # operation and status
    begun: int = 0  # attempts
    done: int = 0
    _position: int = 0
    _unrecorded: defaultdict[int, dict[str, Attempt]] = field(default_factory=lambda: defaultdict(dict))  # by process

    @property
    def incarnations(self) -> dict[str, Operation]:
        """The insert of each task."""
        inserts = (one for one in self.operations.values() if one.request.operation in INSERTS)
        return {insert.request.incarnation: insert for insert in inserts}

    def attempts(self, incarnation: str, run: int) -> Sequence[Attempt]:
        return self.runs[incarnation][run] if run in self.runs.get(incarnation, {}) else ()

    def take(self, lines: Iterable[Line]) -> History:
        for line in lines:
            self._position += 1
            self._take(line)
        return self

    def _take(self, line: Line) -> None:
        match line:
            case journal.Requested():
                operation = self.operations[line.request_id] = Operation(line)
                self.of_task[line.task_id].append(operation)
            case journal.Responded():
                operation = self.operations[line.request_id]
                operation.response, operation.position = line, self._position
                self.responses[operation.request.operation, line.status] += 1
            case journal.Began():
                attempt = self._unrecorded[line.pid][line.task_id] = Attempt(line, self._position)
                self.runs[line.incarnation][line.run].append(attempt)
                self.begun += 1
            case journal.Ended():
                attempt = next(
                    one
                    for one in reversed(self.runs[line.incarnation][line.run])
                    if (one.began.pid, one.began.attempt) == (line.pid, line.attempt)
                )
                attempt.ended, attempt.ended_position = line, self._position
                self.done += line.done
            case journal.Recorded():
                for attempt in self._ended(line):
                    attempt.recorded, attempt.not_before = True, line.not_before.get(attempt.began.task_id)
                    del self._unrecorded[line.pid][attempt.began.task_id]
            case journal.FaultInjected():
                self.faults[line.fault] += 1
                for attempt in self._ended(line):
                    attempt.refused = True
            case journal.Died():
                self.deaths[line.role, line.why] += 1
                for attempt in self._unrecorded.pop(line.pid, {}).values():
                    attempt.died = True
            case journal.Disturbance():
                (self.ticks if line.of == TICK else self.disturbances)[line.what] += 1
                self.ticked_at += [] if line.at is None else [line.at]

    def _ended(self, line: journal.Recorded | journal.FaultInjected) -> list[Attempt]:
        """The attempts of the line's process and tasks that have ended and are not recorded yet."""
        unrecorded = self._unrecorded[line.pid]
        found = (unrecorded[task_id] for task_id in line.task_ids if task_id in unrecorded)
        return [attempt for attempt in found if attempt.ended is not None]
