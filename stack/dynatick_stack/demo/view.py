"""What is shown while the ticks pass: a picture that changes on a terminal, lines elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dynatick_stack.demo.observe import Seen
from dynatick_stack.logs import LogLine

STATUSES = {
    "unscheduled": "bright_black",
    "scheduled": "yellow",
    "running": "blue",
    "completed": "green",
    "failed": "red",
}
LOG_LINES = 8
TICK_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One look, with what it is measured by."""

    seen: Seen
    tasks: int
    calls_expected: int
    letters_expected: int
    seconds: float  # since the demo began


class View(Protocol):
    def show(self, moment: Moment) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def view(console: Console) -> View:
    """For a terminal or for a file, whichever the console writes to."""
    return LiveView(console) if console.is_terminal else LineView(console)


def seconds_to_tick(now: datetime) -> int:
    """Ticks are on the clock: at each full minute."""
    return TICK_SECONDS - now.second


class LiveView:
    """One picture, drawn anew at each look."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._log: deque[LogLine] = deque(maxlen=LOG_LINES)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, moment: Moment) -> None:
        self._log.extend(moment.seen.lines)
        self._live.update(self._picture(moment), refresh=True)

    def _picture(self, moment: Moment) -> RenderableType:
        seen = moment.seen
        to_tick = seconds_to_tick(seen.at)
        bars = Table.grid(padding=(0, 2))
        bars.add_column(min_width=14)
        bars.add_column(justify="right", min_width=7)
        bars.add_column(width=40)
        for status, style in STATUSES.items():
            number = seen.counts[status]
            bars.add_row(status, str(number), _bar(moment.tasks, number, style))
        bars.add_row()
        bars.add_row("webhooks", f"{len(seen.calls)}/{moment.calls_expected}",
                     _bar(moment.calls_expected, len(seen.calls), "cyan"))  # fmt: skip
        bars.add_row("dead letters", f"{len(seen.letters)}/{moment.letters_expected}",
                     _bar(moment.letters_expected, len(seen.letters), "magenta"))  # fmt: skip
        bars.add_row("next tick", f"{to_tick} s", _bar(TICK_SECONDS, TICK_SECONDS - to_tick, "white"))
        lines = [Text(str(line).splitlines()[0], no_wrap=True, overflow="ellipsis") for line in self._log]
        lines += [Text("")] * (LOG_LINES - len(lines))
        head = Text(f"{moment.tasks} tasks, {seen.waiting} to go · {moment.seconds:.0f} s", style="bold")
        return Group(head, Text(""), bars, Text(""), Rule("the functions' log", align="left"), *lines)


class LineView:
    """A line whenever something has changed, and what the functions log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def show(self, moment: Moment) -> None:
        _print(self._console, [str(line) for line in moment.seen.lines])
        seen = moment.seen
        counts = "  ".join(f"{status} {seen.counts[status]}" for status in STATUSES if seen.counts[status])
        line = f"{counts}  |  webhooks {len(seen.calls)}  dead letters {len(seen.letters)}"
        if line != self._last:
            self._last = line
            _print(
                self._console, [f"{seen.at:%H:%M:%S} demo      {line}  |  next tick in {seconds_to_tick(seen.at)} s"]
            )


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _bar(total: int, done: int, style: str) -> ProgressBar:
    return ProgressBar(total=max(total, 1), completed=done, complete_style=style, finished_style=style)
