"""What is shown while a soak goes on: a picture that changes on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from tests.soak.history import History
from tests.soak.journal import INSERT, REPLACE, YES
from tests.soak.plan import Plan

LINE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    history: History
    phase: str
    seconds: float  # of inserting that have passed

    @property
    def text(self) -> str:
        history = self.history
        inserted = sum(history.answers[what, YES] for what in (INSERT, REPLACE))
        faults = sum(history.faults.values())
        deaths = sum(history.deaths.values())
        return (
            f"{inserted} inserted, {history.done} executed, {sum(history.ticks.values())} ticks, "
            f"{deaths} processes died, {faults} faults"
        )


class View(Protocol):
    def show(self, moment: Moment) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def view(console: Console, plan: Plan) -> View:
    """For a terminal or for a file, whichever the console writes to."""
    return LiveView(console, plan) if console.is_terminal else LineView(console)


class LiveView:
    def __init__(self, console: Console, plan: Plan) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._job = self._progress.add_task("starting", total=plan.minutes * 60, said="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, moment: Moment) -> None:
        self._progress.update(self._job, completed=moment.seconds, description=moment.phase, said=moment.text)


class LineView:
    """A line now and then."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def show(self, moment: Moment) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            line = f"{moment.seconds:5.0f} s  {moment.phase}: {moment.text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
