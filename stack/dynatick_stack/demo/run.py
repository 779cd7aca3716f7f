"""The demo from beginning to end, on a stack of its own that is gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dynatick import cli
from dynatick.client import Inserted, Refused, TaskClient
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.durations import rounded_text
from dynatick.domain.instants import format_instant
from dynatick.errors import InvalidInput
from dynatick.store.codec import encode
from dynatick_stack import local, processes
from dynatick_stack.demo.batch import FAILED, INSERT, MANY, PUT, Planned, batch, unmet
from dynatick_stack.demo.observe import Observer, served_through
from dynatick_stack.demo.receiver import Receiver
from dynatick_stack.errors import StackError
from dynatick_stack.local import LocalStack

DEADLINE_SECONDS = 300.0
POLL_SECONDS = 0.4
FIRST = "first"
PARAMETERS = {"TickMinutes": "1", "Precision": "second"}
LINGER_SECONDS = 5.0  # for dead letters and webhooks that have not come with the last task


def demo(state_dir: Path) -> list[str]:
    """Runs it; what was not as expected. The stack is left running in ``state_dir``, for the caller to stop."""
    began = time.monotonic()
    with Receiver() as receiver:
        stack = local.up(0, PARAMETERS, say=say, state_dir=state_dir)
        client = stack.task_client()
        say(f"Running on {stack.endpoint}, a tick a minute; webhooks go to {receiver.url}")
        show_first(stack, client)
        first = datetime.now(UTC)
        planned = batch(first, receiver.url)
        observer = Observer(stack, client, receiver, [one.task_id for one in planned])
        refused = insert(planned, stack.client("dynamodb"), stack.table, client)
        say(f"Inserted {len(planned) - len(refused)} tasks; {len(refused)} were refused by the client")
        watch(observer, planned)
    since, tick = (str(Bucket(minute_of(first) + minutes)) for minutes in (0, 1))
    # The wake-ups may have run its tasks before it came, and its record comes a moment after them.
    ticked = processes.wait_until(lambda: served_through(client, since) >= tick, DEADLINE_SECONDS, every=POLL_SECONDS)
    until = format_instant(datetime.now(UTC) + timedelta(minutes=2))
    for command in ("task list --limit 200 --attempts", "tick list"):
        run_command(stack, f"{command} --from {format_instant(instant_of(minute_of(first)))} --to {until}")
    called = [call.task_id for call in observer.calls]
    letters = [str(letter.get("taskId")) for letter in observer.letters]
    problems = list(unmet(planned, refused, observer.tasks, called, letters))
    if not ticked:
        problems.append(f"the tick {tick} has not come")
    say(f"\n{observer}")
    if not problems:
        say(f"All {len(planned)} expectations are met; {time.monotonic() - began:.0f} s")
    return problems


def say(text: str) -> None:
    print(text, flush=True)


def show_first(stack: LocalStack, client: TaskClient) -> None:
    """Inserts a task without a time, and shows how it ended. If its wake-up is lost, a tick runs it."""
    client.insert(FIRST, action="log", payload={"text": "Hello"})
    say(f"Inserted the task {FIRST!r}, without a time: it runs at once")
    if not processes.wait_until(lambda: client.get(FIRST).finished_at is not None, DEADLINE_SECONDS, every=0.05):
        raise StackError(f"the task {FIRST!r} has not ended after {DEADLINE_SECONDS:.0f} s")
    task = client.get(FIRST)
    assert task.started_at and task.created_at
    run_command(stack, f"task get {FIRST}")
    say(f"It began {rounded_text(task.started_at - task.created_at)} after it was inserted\n")


def run_command(stack: LocalStack, command: str) -> None:
    """Shows a command, and what it prints."""
    say(f"\n$ dynatick {command}")
    if code := cli.run([*command.split(), "--local", "--endpoint-url", stack.endpoint]):
        raise StackError(f"dynatick {command} ended with {code}")


def insert(planned: Sequence[Planned], dynamodb: Any, table: str, client: TaskClient) -> dict[str, str]:
    """Inserts tasks, each by its interface. Returns the reasons of those that were refused, by id."""
    refused: dict[str, str] = {}
    for one in planned:
        if one.interface == PUT:
            dynamodb.put_item(TableName=table, Item=encode(one.row))
        elif one.interface == INSERT:
            try:
                client.insert(one.task_id, **{name: value for name, value in one.row.items() if name != "taskId"})
            except InvalidInput as error:
                refused[one.task_id] = str(error)
    many = [one for one in planned if one.interface == MANY]
    for one, result in zip(many, client.insert_lazily([one.row for one in many]), strict=True):
        if isinstance(result, Refused):
            refused[one.task_id] = str(result.error)
        elif not isinstance(result, Inserted):
            raise StackError(f"{one.task_id}: {result}")
    return refused


def watch(observer: Observer, planned: Sequence[Planned]) -> None:
    """Prints what the functions log, and each change, until all tasks have ended and what follows from them has come,
    or time is up."""
    calls, letters = sum(one.calls for one in planned), sum(one.ends == FAILED for one in planned)
    deadline, ended_at, last = time.monotonic() + DEADLINE_SECONDS, None, ""
    while time.monotonic() < deadline:
        for line in observer.read():
            say(str(line))
        if (text := str(observer)) != last:
            last, now = text, datetime.now(UTC)
            say(f"{now:%H:%M:%S} demo      {text}  |  next tick in {60 - now.second} s")
        if not observer.waiting:
            ended_at = ended_at or time.monotonic()
            complete = len(observer.calls) >= calls and len(observer.letters) >= letters
            if complete or time.monotonic() - ended_at > LINGER_SECONDS:
                return
        time.sleep(POLL_SECONDS)
