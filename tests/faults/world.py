"""The installation of a fault test. Outside of its processes is what AWS does: the rule that ticks, the stream,
asynchronous invocations. That is this class, so that each of it can be late, missing, doubled or out of order.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, KeysView, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import ClientError
from tests.faults.polls import FILE as POLLS
from tests.sandbox.handlers import must_fail
from tests.sandbox.history import history_of
from tests.sandbox.installation import SandboxInstallation
from tests.sandbox.journal import CANCEL, DELETE, INSERT, REPLACE, RESCHEDULE, read
from tests.sandbox.process import Outcome, Sandbox
from tests.sandbox.seam import Fault
from tests.sandbox.stream import Record, batches, sequence
from tests.sandbox.verdict import Verdict, judge

from dynatick import TaskClient
from dynatick.domain.buckets import Bucket, instant_of, minute_of
from dynatick.domain.schedule import is_schedule
from dynatick.domain.task import Row
from dynatick.store.codec import encode

WakeUp = tuple[Mapping[str, Any], datetime]

SECOND = {"DYNATICK_PRECISION": "second", "DYNATICK_WAKE_UP_QUEUE_URL": "https://sqs.example/1/wake-ups"}

LIFE = 120.0  # seconds of an invocation, the template's default
VISIBILITY = timedelta(seconds=LIFE)  # of a message: when one that was not ended comes again
AFTER_LEASE = LIFE + 10  # when every lease of a process that died is over, with the margin for skew


class World(SandboxInstallation):
    """With what is done to its tasks; the journal says what was."""

    worker = "tests.faults.worker"

    def __init__(self, endpoint: str, folder: Path, *, delivers_wake_ups: bool = False, **given: Any) -> None:
        super().__init__(endpoint, folder, **given)
        self.delivers_wake_ups = delivers_wake_ups
        self.waiting: list[WakeUp] = []  # those that it has still to deliver
        self._elsewhere = given.get("dynamodb") is not None
        self.always: Sequence[Fault] = ()  # faults that every invocation meets, besides its own
        self._polls = 0
        self._warm: dict[str, Sandbox] = {}  # of each function

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the functions ---------------------------------------------------------------------------------------------

    def deploy(self, **environ: str) -> None:
        """Other settings from now on. Sandboxes that run go on with theirs; the next invocation gets a new one."""
        self.environ |= environ
        self._warm.clear()

    def invoke(self, event: Mapping[str, Any], *, function: str = "processor", life: float = LIFE,
               faults: Sequence[Fault] = ()) -> Outcome:  # fmt: skip
        """One invocation to its end, in the function's warm process, or in a new one if that has died."""
        warm = self._warm.get(function)
        if warm is None or not warm.alive:
            warm = self._warm[function] = self.sandbox(function)
        warm.begin(event, life=life, faults=[*faults, *self.always])
        return self.end(warm)

    def end(self, sandbox: Sandbox) -> Outcome:
        """Waits for a sandbox's invocation; one whose process died is written down."""
        outcome = sandbox.wait()
        if outcome.what in ("killed", "exited"):
            self.note_death(sandbox, outcome.value)
        return outcome

    def kill(self, sandbox: Sandbox) -> None:
        """Kills a process in the middle of whatever it does."""
        sandbox.kill()
        self.note_death(sandbox, -signal.SIGKILL, struck=True)

    @staticmethod
    def wait_a_moment(seconds: float) -> None:
        """Real time, for what goes on in other processes."""
        time.sleep(seconds)

    # -- the rule --------------------------------------------------------------------------------------------------

    def event(self, at: datetime | None = None) -> dict[str, Any]:
        """The rule's event for the present minute, or another."""
        return {"source": "aws.events", "time": (at or self.clock()).strftime("%Y-%m-%dT%H:%M:00Z")}

    def tick(self, at: datetime | None = None, *, life: float = LIFE, faults: Sequence[Fault] = ()) -> Outcome:
        """The rule fires, for the present minute or another, and what that starts runs too.

        Wake-ups that are due by now come first; but what a tick with ``faults`` shall meet, none may run before it.
        """
        if not faults:
            self.deliver_wake_ups()
        outcome = self.invoke(self.event(at), life=life, faults=faults)
        self.run_started(life=life)
        return outcome

    def run_started(self, *, life: float = LIFE) -> list[Outcome]:
        """Runs the invocations that were started asynchronously, and those that they start."""
        outcomes: list[Outcome] = []
        while events := self.started():
            outcomes += [self.invoke(event, life=life) for event in events]
        return outcomes

    def started(self) -> list[dict[str, Any]]:
        """The asynchronous invocations that were asked for since the last call."""
        return self._taken(self.here.invocations)

    def wake_ups(self) -> list[WakeUp]:
        """The wake-ups that were sent since the last call: events, with their instants."""
        return [(event, datetime.fromtimestamp(at, UTC)) for event, at in self._taken(self.here.wake_ups)]

    def wake(self, event: Mapping[str, Any] | str) -> Outcome:
        """The queue delivers a wake-up, and what that starts runs too."""
        body = event if isinstance(event, str) else json.dumps(event)
        outcome = self.invoke({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]})
        self.run_started()
        return outcome

    def deliver_wake_ups(self, until: datetime | None = None) -> None:
        """Time goes on to an instant, if one is given, and the wake-ups that were sent come at theirs, in order. As the
        queue does, it delivers one again whose invocation failed. Only if this world delivers wake-ups."""
        if not self.delivers_wake_ups:
            return
        while True:
            self.waiting += self.wake_ups()
            due = [wake_up for wake_up in self.waiting if wake_up[1] <= (until or self.clock())]
            if not due:
                return
            first = min(due, key=lambda wake_up: wake_up[1])
            self.waiting.remove(first)
            event, at = first
            self.clock.to(at)
            if self.wake(event).what != "returned":
                self.waiting.append((event, self.clock() + VISIBILITY))

    @staticmethod
    def _taken(path: Path) -> list[Any]:
        if not path.exists():
            return []
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.unlink()
        return lines

    def polls(self) -> int:
        """How many polls there were since the last call."""
        before, self._polls = self._polls, (self.folder / POLLS).stat().st_size
        return self._polls - before

    def next_tick(self, minutes: int = 1, *, life: float = LIFE, faults: Sequence[Fault] = ()) -> Outcome:
        """Time goes on to the next minute, or several later; the stream is delivered and the rule fires."""
        tick = self._minute(minutes)
        if not faults and self.delivers_wake_ups:
            self.deliver(self.stream.new())
            self.deliver_wake_ups(tick)
        self.clock.to(tick)
        self.deliver(self.stream.new())
        return self.tick(life=life, faults=faults)

    def frozen_tick(self, *faults: Fault) -> Sandbox:
        """The process of the next minute's tick, at the call where these freeze it."""
        self.to_next_minute()
        sandbox = self.sandbox()
        sandbox.wait_until_ready()
        sandbox.begin(self.event(), life=LIFE, faults=faults)
        assert self.end(sandbox).what == "frozen"
        return sandbox

    def thaw(self, sandbox: Sandbox) -> None:
        """Lets a frozen invocation come to its end."""
        sandbox.thaw()
        assert self.end(sandbox).what == "returned"

    def to_next_minute(self, minutes: int = 1) -> None:
        self.clock.to(self._minute(minutes))

    def _minute(self, ahead: int) -> datetime:
        return instant_of(minute_of(self.clock()) + ahead) + timedelta(milliseconds=200)

    def tick_on_grid(self, interval: int) -> Outcome:
        """Time goes on to the next tick of an interval, in minutes."""
        return self.next_tick(interval - minute_of(self.clock()) % interval)

    def finish(self, maximum: int = 40) -> int:
        """Ticks until nothing is open any more and every bucket is drained; how many that took."""
        last = max((bucket for row in self.rows().values()
                    if (bucket := Bucket.canonical(row.get("taskDateTime")))), default=Bucket(0))  # fmt: skip
        for number in range(1, maximum + 1):
            assert self.next_tick().what == "returned"
            if not self.open() and all(cursor.drained_through >= last.minute for cursor in self.cursors()):
                return number
        raise AssertionError(f"after {maximum} ticks still open: {sorted(self.open())[:20]}, cursors {self.cursors()}")

    # -- the stream ------------------------------------------------------------------------------------------------

    def deliver(self, records: Sequence[Record], *, faults: Sequence[Fault] = ()) -> list[Outcome]:
        """Gives records to the scheduler, in batches, as the mapping does: from the first failed one on, again."""
        outcomes: list[Outcome] = []
        for batch in batches(records):
            while batch:
                outcome = self.invoke({"Records": list(batch)}, function="scheduler", faults=faults)
                outcomes.append(outcome)
                assert outcome.what == "returned", outcome
                failed = {failure["itemIdentifier"] for failure in outcome.value["batchItemFailures"]}
                first = next((n for n, record in enumerate(batch) if sequence(record) in failed), len(batch))
                batch, faults = batch[first:], ()
        return outcomes

    # -- the table -------------------------------------------------------------------------------------------------

    @property
    def inserted(self) -> KeysView[str]:
        """The ids under which there were tasks."""
        return self.lives.keys()

    def note_inserts(self, tasks: Iterable[Mapping[str, Any]], *, fails: bool = False) -> None:
        """Writes down that a client has inserted these. ``fails``: they can't but fail, whatever their payloads plan;
        here and below."""
        plans = {task["taskId"]: task.get("payload") for task in tasks}
        self.note(INSERT, *plans, fails={task_id for task_id, plan in plans.items() if fails or must_fail(plan)})

    def put(self, *, fails: bool = False, **row: Any) -> None:
        """put-item, as anybody may do it."""
        task_id, what = row["taskId"], REPLACE if row["taskId"] in self.inserted else INSERT
        if what == REPLACE:
            life = self.lives[task_id] = f"{self.lives[task_id]}/again"
            row["payload"] = {"life": life, **row.get("payload", {})}
        self.dynamodb.put_item(TableName=self.table, Item=encode(row))
        if not is_schedule(row):
            self.note(what, task_id, fails=[task_id] if fails or must_fail(row.get("payload")) else ())

    def insert(self, task_id: str, *, client: TaskClient | None = None, **arguments: Any) -> None:
        """By the client, or by another; it must be taken."""
        (client or self.client).insert(task_id, **arguments)
        self.note_inserts([{"taskId": task_id, **arguments}])

    def cancel(self, task_id: str) -> None:
        self.client.cancel(task_id)
        self.note(CANCEL, task_id)

    def reschedule(self, task_id: str, **when: Any) -> None:
        self.note(RESCHEDULE, task_id, due_at=self.client.reschedule(task_id, **when).due_at)

    def takes_long_ids(self) -> bool:
        """Whether put-item takes an id that no index can hold. The emulator does, DynamoDB Local does not."""
        if not self._elsewhere:
            return True
        try:
            self.dynamodb.put_item(
                TableName=self.table,
                Item={"taskId": {"S": "x" * 2000}},
                ConditionExpression="attribute_exists(taskId)",  # so that nothing is written
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return True
            if "Size limit exceeded" not in str(error):
                raise
        return False

    def insert_many(self, tasks: Sequence[Mapping[str, object]], *, fails: bool = False) -> None:
        """By the client; all must be taken."""
        refused = [result for result in self.client.insert_lazily(tasks) if type(result).__name__ != "Inserted"]
        assert not refused, refused[:3]
        self.note_inserts(tasks, fails=fails)

    def insert_for_next_tick(self, ids: Iterable[str], **more: object) -> set[str]:
        """However late in its minute it is. Returns the ids."""
        due = Bucket(minute_of(self.clock()) + 1)
        tasks = [{"taskId": task_id, "taskDateTime": due, **more} for task_id in ids]
        self.insert_many(tasks)
        return {task["taskId"] for task in tasks}

    def delete(self, task_id: str) -> None:
        """delete-item, likewise."""
        self.dynamodb.delete_item(TableName=self.table, Key={"taskId": {"S": task_id}})
        self.note(DELETE, task_id)

    def edit(self, task_id: str, name: str, value: str) -> None:
        """update-item, likewise."""
        self.dynamodb.update_item(
            TableName=self.table, Key={"taskId": {"S": task_id}}, UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name}, ExpressionAttributeValues={":value": {"S": value}},
        )  # fmt: skip

    def row(self, task_id: str) -> Row:
        row = self.store.get(task_id)
        assert row is not None, f"there is no row {task_id}"
        return row

    def open(self) -> set[str]:
        return {task_id for task_id, row in self.rows().items() if "outcome" not in row}

    def judge(self, **given: Any) -> Verdict:
        """How every task ended. ``given``: what the journal does not know (see Evidence)."""
        history = history_of(read(self.folder / "journal"))
        return judge(self.evidence(history, life=LIFE, schedules_end=False, **given))
