"""What the demo shows while it runs, on a terminal and in a file."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from dynatick.client import TaskView
from dynatick_stack.demo import run
from dynatick_stack.demo.observe import Seen
from dynatick_stack.demo.view import Moment, seconds_to_tick, view
from dynatick_stack.logs import LogLine

AT = datetime(2026, 12, 31, 11, 59, 48, tzinfo=UTC)
LINE = LogLine(
    at=AT, function="processor", text="", record={"level": "INFO", "action": "pass_ended", "message": "[due] 3"}
)


def moment(*statuses: str, lines: tuple[LogLine, ...] = ()) -> Moment:
    tasks = {str(n): TaskView.from_row({"taskId": str(n), "status": status}) for n, status in enumerate(statuses)}
    seen = Seen(at=AT, tasks=tasks, calls=[], letters=[{"taskId": "1"}], lines=lines)
    return Moment(seen=seen, tasks=len(statuses), calls_expected=2, letters_expected=1, seconds=12)


def test_a_file_gets_a_line_for_each_change() -> None:
    file = io.StringIO()
    with view(Console(file=file, width=60)) as lines:
        lines.show(moment("scheduled", "scheduled", lines=(LINE,)))
        lines.show(moment("scheduled", "scheduled"))
        lines.show(moment("scheduled", "completed"))
    assert file.getvalue().splitlines() == [
        # As it is written: what is in brackets is no markup, and no line is broken.
        "11:59:48 processor pass_ended [due] 3",
        "11:59:48 demo      scheduled 2  |  webhooks 0  dead letters 1  |  next tick in 12 s",
        "11:59:48 demo      scheduled 1  completed 1  |  webhooks 0  dead letters 1  |  next tick in 12 s",
    ]


def test_a_terminal_gets_a_picture_that_is_gone_at_the_end() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=40)
    with view(console) as picture:
        picture.show(moment("scheduled", "completed", "running", lines=(LINE,)))
        shown = file.getvalue()
        picture.show(moment("completed", "completed", "completed"))
    for part in (
        "3 tasks, 2 to go",
        "scheduled",
        "webhooks",
        "0/2",
        "dead letters",
        "1/1",
        "12 s",
        "pass_ended [due] 3",
    ):
        assert part in shown
    # Lines go up and are erased: the tables come in its place.
    assert "\x1b[1A\x1b[2K" in file.getvalue()


@pytest.mark.parametrize(("second", "left"), [(0, 60), (1, 59), (59, 1)])
def test_the_countdown(second: int, left: int) -> None:
    assert seconds_to_tick(AT.replace(second=second)) == left


def test_the_insert_waits_for_a_tick_that_is_near() -> None:
    said: list[str] = []
    clock = iter([datetime(2026, 12, 31, 11, 59, 52, tzinfo=UTC), datetime(2026, 12, 31, 12, 0, tzinfo=UTC)])
    run.wait_for_room(said.append, clock=lambda: next(clock))
    assert said == ["Waiting 8 s, so that no tick comes in the middle of the insert"]
    # And not for one that is far.
    run.wait_for_room(said.append, clock=lambda: datetime(2026, 12, 31, 11, 59, 20, tzinfo=UTC))
    assert len(said) == 1
