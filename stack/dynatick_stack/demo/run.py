"""The demo from beginning to end, on a stack of its own that is gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from dynatick.client import TaskClient
from dynatick.domain.buckets import instant_of, minute_of
from dynatick_stack import emulator, local
from dynatick_stack.demo import tables
from dynatick_stack.demo.batch import Expected, last_tick, read
from dynatick_stack.demo.insert import insert, task_client
from dynatick_stack.demo.observe import Observer, Seen, listed, ticks
from dynatick_stack.demo.receiver import Receiver
from dynatick_stack.demo.verdict import Evidence, unmet
from dynatick_stack.demo.view import Moment, view
from dynatick_stack.errors import BusyError
from dynatick_stack.local import LocalStack
from dynatick_stack.venv import Say

DEADLINE_SECONDS = 300.0
LOOK_SECONDS = 0.4
SETTLE_SECONDS = 10  # a batch that is inserted this long before a tick has its buckets by then
LINGER_SECONDS = 5.0  # for what comes a moment after the last task: dead letters, tick records
PORTS = 3


def demo(console: Console, *, batch_file: Path, state_dir: Path) -> list[str]:
    """Runs it; what was not as expected. The stack is left running in ``state_dir``, for the caller to stop."""
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    with Receiver() as receiver:
        read(batch_file, now=datetime.now(UTC), receiver=receiver.url)  # what is wrong with it shows before the rest
        stack = start(state_dir, say=say)
        client = task_client(stack)
        say(f"Running on {stack.endpoint}, a tick a minute; webhooks go to {receiver.url}")
        wait_for_room(say)
        first = datetime.now(UTC)
        batch = read(batch_file, now=first, receiver=receiver.url)
        observer = Observer(stack=stack, client=client, receiver=receiver, ids=[one.task_id for one in batch])
        sent = insert(batch, dynamodb=stack.client("dynamodb"), table=stack.table, client=client)
        refused = sum(reason is not None for reason in sent.values())
        say(f"Inserted {len(sent) - refused} tasks; {refused} were refused by the client")
        seen, settled = watch(console, observer, batch, inserted=len(sent) - refused, began=began)
        found = evidence(batch, sent, seen, settled, client, since=first)
    show(console, found)
    problems = unmet(found)
    if not problems:
        say(f"All {len(batch)} expectations are met; {time.monotonic() - began:.0f} s")
    return problems


def start(state_dir: Path, *, say: Say) -> LocalStack:
    """A fresh stack on a free port."""
    for attempt in range(1, PORTS + 1):
        try:
            return local.up(emulator.free_port(), {"TickMinutes": "1"}, say=say, state_dir=state_dir)
        except BusyError:  # another program took it meanwhile
            if attempt == PORTS:
                raise
    raise AssertionError("unreachable")


def wait_for_room(say: Say, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
    """Waits for the next minute if this one is nearly over: the tick would come in the middle of the insert."""
    now = clock()
    end = instant_of(minute_of(now) + 1)
    if end - now > timedelta(seconds=SETTLE_SECONDS):
        return
    say(f"Waiting {(end - now).total_seconds():.0f} s, so that no tick comes in the middle of the insert")
    while (now := clock()) < end:
        time.sleep(min(0.1, (end - now).total_seconds()))


def watch(
    console: Console, observer: Observer, batch: Sequence[Expected], *, inserted: int, began: float
) -> tuple[Seen, int]:
    """Looks until all tasks have ended and what follows from them has come, or time is up.

    Returns the last look, and the minute in which the last task got its bucket.
    """
    calls, letters = sum(one.calls for one in batch), sum(one.ends == "failed" for one in batch)
    settled: int | None = None
    ended_at: float | None = None
    with view(console) as picture:
        while True:
            seen = observer.look()
            moment = Moment(
                seen=seen,
                tasks=inserted,
                calls_expected=calls,
                letters_expected=letters,
                seconds=time.monotonic() - began,
            )
            picture.show(moment)
            if settled is None and not seen.counts["unscheduled"]:
                settled = minute_of(seen.at)
            if not seen.waiting:
                ended_at = ended_at or time.monotonic()
                complete = len(seen.calls) >= calls and len(seen.letters) >= letters
                if complete or time.monotonic() - ended_at > LINGER_SECONDS:
                    break
            if time.monotonic() - began > DEADLINE_SECONDS:
                break
            time.sleep(LOOK_SECONDS)
    return seen, minute_of(seen.at) if settled is None else settled


def evidence(
    batch: Sequence[Expected],
    sent: dict[str, str | None],
    seen: Seen,
    settled: int,
    client: TaskClient,
    *,
    since: datetime,
) -> Evidence:
    """What the tables at the end show. The tick records come a moment after the tasks: they are waited for."""
    end = time.monotonic() + LINGER_SECONDS
    until = instant_of(settled + last_tick(batch)) + timedelta(minutes=2)
    while True:
        found = Evidence(
            batch=batch,
            sent=sent,
            seen=seen,
            listed=listed(client, instant_of(minute_of(since)), until),
            ticks=ticks(client, since, seen.at),
            settled=settled,
        )
        if found.ticks_complete or time.monotonic() > end:
            return found
        time.sleep(LOOK_SECONDS)


def show(console: Console, found: Evidence) -> None:
    for table in (*tables.history(found.listed, found.seen.tasks, width=console.width), tables.ticks(found.ticks)):
        console.print()
        console.print(table)
    console.print()
    for line in tables.counts(found):
        console.print(line, markup=False, highlight=False)
    console.print()
