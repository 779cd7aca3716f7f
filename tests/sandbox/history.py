"""The journal's lines put together: what was asked, which attempts there were, and how each ended. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.sandbox.journal import (
    INSERT,
    REPLACE,
    UNCLEAR,
    Answered,
    Asked,
    Began,
    Died,
    Disturbed,
    Ended,
    Line,
    Met,
    Recorded,
    Ticked,
)

INSERTS = (INSERT, REPLACE)


@dataclass(eq=False)
class Wish:
    """What a client asked for. ``answered``: None if it died before the answer. ``position``: of the answer, here and
    below in the order of the journal."""

    asked: Asked
    answered: Answered | None = None
    position: int | None = None

    @property
    def answer(self) -> str:
        return UNCLEAR if self.answered is None else self.answered.answer


@dataclass(eq=False)
class Attempt:
    """An execution."""

    began: Began
    position: int
    ended: Ended | None = None
    ended_position: int | None = None
    recorded: bool = False  # the engine has its outcome
    not_before: float | None = None  # of the next attempt, as its record has it
    refused: bool = False  # a fault has hit the call that was to record it
    died: bool = False  # its process, before the outcome was recorded

    @property
    def done(self) -> bool:
        return self.ended is not None and self.ended.done

    @property
    def cut(self) -> str | None:
        """Why its outcome did not get into the table; None if nothing came between."""
        if self.recorded:
            return None
        return "killed" if self.died else "refused" if self.refused else None


@dataclass
class History:
    wishes: dict[str, Wish] = field(default_factory=dict)  # by the ask's number
    runs: defaultdict[str, defaultdict[int, list[Attempt]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )  # by life and run
    of_task: defaultdict[str, list[Wish]] = field(default_factory=lambda: defaultdict(list))  # wishes, by task's id
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)  # of roles, and why
    faults: Counter[str] = field(default_factory=Counter)
    ticks: Counter[str] = field(default_factory=Counter)
    disturbances: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)  # by what was asked
    begun: int = 0  # attempts
    done: int = 0

    @property
    def lives(self) -> dict[str, Wish]:
        """Each task's insert, by life."""
        return {wish.asked.life: wish for wish in self.wishes.values() if wish.asked.what in INSERTS}

    def attempts(self, life: str, run: int) -> Sequence[Attempt]:
        return self.runs[life][run] if life in self.runs and run in self.runs[life] else ()


class Historian:
    """Takes the lines one by one, so that it can be asked at any time."""

    def __init__(self) -> None:
        self.history = History()
        self._position = 0
        self._open: defaultdict[int, dict[str, Attempt]] = defaultdict(dict)  # not recorded; by process and task

    def take(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._position += 1
            self._take(line)

    def _take(self, line: Line) -> None:
        history = self.history
        match line:
            case Asked():
                wish = history.wishes[line.number] = Wish(line)
                history.of_task[line.task_id].append(wish)
            case Answered():
                wish = history.wishes[line.number]
                wish.answered, wish.position = line, self._position
                history.answers[wish.asked.what, line.answer] += 1
            case Began():
                attempt = Attempt(line, self._position)
                history.runs[line.life][line.run].append(attempt)
                self._open[line.pid][line.task_id] = attempt
                history.begun += 1
            case Ended():
                attempt = self._attempt(line)
                attempt.ended, attempt.ended_position = line, self._position
                history.done += line.done
            case Recorded():
                for task_id in line.task_ids:
                    if (found := self._open[line.pid].get(task_id)) is not None and found.ended is not None:
                        found.recorded, found.not_before = True, line.not_before.get(task_id)
                        del self._open[line.pid][task_id]
            case Met():
                history.faults[line.fault] += 1
                for task_id in line.task_ids:
                    if (found := self._open[line.pid].get(task_id)) is not None and found.ended is not None:
                        found.refused = True
            case Died():
                history.deaths[line.role, line.why] += 1
                for attempt in self._open.pop(line.pid, {}).values():
                    attempt.died = True
            case Ticked():
                history.ticks[line.recorded_as] += 1
            case Disturbed():
                history.disturbances[line.what] += 1

    def _attempt(self, line: Ended) -> Attempt:
        return next(
            one
            for one in reversed(self.history.runs[line.life][line.run])
            if (one.began.pid, one.began.attempt) == (line.pid, line.attempt)
        )


def history_of(lines: Iterable[Line]) -> History:
    historian = Historian()
    historian.take(lines)
    return historian.history
