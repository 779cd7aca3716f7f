"""An installation of a test's own: a table, a queue and a clock, with the functions in processes that may die.

Outside of its processes is what AWS does: the rule that ticks, the stream, asynchronous invocations. That is this
class, so that each of it can be late, missing, doubled or out of order.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import boto3
from proof.replay import Event, Replay, replay
from tests.sandbox import journal
from tests.sandbox.clock import START, SharedClock
from tests.sandbox.folder import FOLDER, SharedFolder
from tests.sandbox.handlers import ACTION, must_fail
from tests.sandbox.history import History
from tests.sandbox.index import POLLS
from tests.sandbox.journal import CANCEL, DELETE, INSERT, OK, REPLACE, RESCHEDULE, Line, Requested, Responded
from tests.sandbox.packs import rows_of, with_members
from tests.sandbox.process import Outcome, Sandbox
from tests.sandbox.seam import Fault
from tests.sandbox.stream import Record, Stream, not_done
from tests.sandbox.trace import HEADER, Tracer, events_of, traced
from tests.sandbox.verdict import Evidence, Verdict, judge
from tests.sandbox.worker import SEED, TRACED

from dynatick import TaskClient
from dynatick.domain.batches import Batch, then_id
from dynatick.domain.buckets import Bucket, Grid, instant_of, minute_of
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.packs import Pack, member_id
from dynatick.domain.schedule import is_schedule
from dynatick.domain.task import Row, is_own_row
from dynatick.engine.cursor import Cursor, cursor_id
from dynatick.store.codec import decode, encode
from dynatick.store.dynamodb import DynamoStore
from dynatick.testing.functions import rule_event
from dynatick_stack.template import ROOT, table_definition

WakeUp = tuple[Mapping[str, Any], datetime]

RECONCILE = {"dynatick": {"reconcile": True}}
SECOND = {"DYNATICK_PRECISION": "second", "DYNATICK_WAKE_UP_QUEUE_URL": "https://sqs.example/1/wake-ups"}

TIMEOUT = 120.0  # seconds of an invocation, the template's default
VISIBILITY = timedelta(seconds=TIMEOUT)  # of a message: when one that was not ended comes again
AFTER_LEASE = TIMEOUT + 10  # when every lease of a process that died is over, with the margin for skew
BATCH = 100  # records of the stream


class World:
    """With what is done to its tasks; the journal says what was.

    ``endpoint``: of the emulator. ``dynamodb``: of another DynamoDB than its own. ``speed``: of the clock.
    ``environ``: settings of the functions beside those that are always needed.
    """

    def __init__(
        self,
        endpoint: str,
        folder: Path,
        *,
        dynamodb: str | None = None,
        start: datetime = START,
        speed: float = 1.0,
        delivers_wake_ups: bool = False,
        is_traced: bool = False,
        **environ: str,
    ) -> None:
        self.tables = tables = dynamodb or endpoint
        self.clock = SharedClock(folder / "clock", start, speed=speed)
        self.folder = SharedFolder(folder)
        self.log = folder / "log"  # what all processes print
        self.table = f"sandbox-{uuid.uuid4().hex}"
        self.dynamodb = boto3.client("dynamodb", endpoint_url=tables)
        self.dynamodb.create_table(TableName=self.table, **table_definition())
        self.dynamodb.get_waiter("table_exists").wait(TableName=self.table)
        self._sqs = boto3.client("sqs", endpoint_url=endpoint)
        self._queue = self._sqs.create_queue(QueueName=self.table)["QueueUrl"]
        self.journal = self.folder.journal
        outcome_events = environ.get("DYNATICK_OUTCOME_EVENTS", "off")
        self.stream = Stream(self.table, partial(boto3.client, endpoint_url=tables), outcome_events=outcome_events)
        self.store = DynamoStore(self.table, endpoint_url=tables)
        self.client = TaskClient(self.store, clock=self.clock)
        self.delivers_wake_ups = delivers_wake_ups
        self.wake_ups_to_deliver: list[WakeUp] = []
        self.always: Sequence[Fault] = ()  # faults that every invocation meets, besides its own
        self.report: Callable[[Verdict], None] = lambda verdict: None
        self.report_trace: Callable[[Replay], None] = lambda replayed: None
        self.sandboxes: list[Sandbox] = []
        self._incarnations: dict[str, str] = {}  # of the tasks that this process has inserted: the last of each id
        self._request_ids = count()
        self._dead_letters: list[dict[str, Any]] = []
        self._polls = 0
        self._warm: dict[str, Sandbox] = {}  # of each function
        self.environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": "0",
            **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": tables,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": tables,
            "AWS_LAMBDA_FUNCTION_NAME": "processor",
            "DYNATICK_TABLE": self.table,
            "DYNATICK_DEAD_LETTER_QUEUE_URL": self._queue,
            "DYNATICK_DEFAULT_ACTION": ACTION,
            "DYNATICK_HANDLERS_MODULE": "tests.sandbox.handlers",
            "POWERTOOLS_METRICS_NAMESPACE": "Dynatick",
            "POWERTOOLS_SERVICE_NAME": "sandbox",
            FOLDER: str(folder),
            **({TRACED: "1"} if is_traced else {}),
            **environ,
        }
        self._tracer: Tracer | None = None
        self._tracing = ExitStack()
        if is_traced:
            self._tracer = self._tracing.enter_context(traced(self.folder, self.table, self._header()))

    def _header(self) -> Mapping[str, Any]:
        """What a trace of this world says first."""
        limits, rates = self._listed("DYNATICK_KEY_LIMITS"), self._listed("DYNATICK_ACTION_RATE_LIMITS")
        return {**HEADER, "executions": [ACTION], "limits": limits, "rates": rates}

    def _listed(self, setting: str) -> list[str]:
        return [one for one in self.environ.get(setting, "").split(",") if one]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, and deletes table and queue."""
        self._tracing.close()
        for sandbox in self.sandboxes:
            sandbox.close()
        self.dynamodb.delete_table(TableName=self.table)
        self._sqs.delete_queue(QueueUrl=self._queue)

    # -- the functions ---------------------------------------------------------------------------------------------

    def sandbox(self, function: str = "processor", **environ: str) -> Sandbox:
        """A new process of a function; it starts, and is not waited for."""
        own = {SEED: str(len(self.sandboxes))}
        if function == "scheduler":
            own["DYNATICK_ASSIGNMENT_POLICY"] = "assignment:next_tick"
        made = Sandbox(function, environ=self.environ | own | environ, log=self.log)
        self.sandboxes.append(made)
        return made

    def ready_sandboxes(self, number: int) -> list[Sandbox]:
        made = [self.sandbox() for _ in range(number)]
        for sandbox in made:
            sandbox.wait_until_ready()
        return made

    def deploy(self, **environ: str) -> None:
        """Other settings from now on. Sandboxes that run go on with theirs; the next invocation gets a new one."""
        self.environ |= environ
        self._warm.clear()

    def invoke(self, event: Mapping[str, Any], *, function: str = "processor", timeout: float = TIMEOUT,
               faults: Sequence[Fault] = ()) -> Outcome:  # fmt: skip
        """Runs one invocation to its end, in the function's warm process, or in a new one if that has died."""
        warm = self._warm.get(function)
        if warm is None or not warm.alive:
            warm = self._warm[function] = self.sandbox(function)
        warm.begin(event, timeout=timeout, faults=[*faults, *self.always])
        return self.end(warm)

    def end(self, sandbox: Sandbox) -> Outcome:
        """Waits for a sandbox's invocation; one whose process died is written down."""
        outcome = sandbox.wait()
        if outcome.what in ("killed", "exited"):
            self.note_death(sandbox, outcome.value)
        return outcome

    def kill(self, sandbox: Sandbox) -> None:
        """Kills a process in the middle of whatever it does."""
        with self.between_requests():
            sandbox.kill()
        self.note_death(sandbox, -signal.SIGKILL, from_outside=True)

    def note_death(self, sandbox: Sandbox, code: int, *, from_outside: bool = False) -> None:
        """Writes down that a process has died."""
        killed = journal.KILLED if from_outside else journal.KILLED_INSIDE
        why = {-signal.SIGKILL: killed, -signal.SIGALRM: journal.TIMED_OUT}.get(code, journal.EXITED)
        self.journal.add(journal.Died(pid=sandbox.pid, role=sandbox.function, why=why))
        if self._tracer is not None:
            self._tracer.died(sandbox.pid)

    def between_requests(self) -> AbstractContextManager[None]:
        """If this world is traced, no process has a request under way meanwhile, so that it may be killed."""
        return nullcontext() if self._tracer is None else self._tracer.in_order()

    @staticmethod
    def wait_a_moment(seconds: float) -> None:
        """Real time, for what goes on in other processes."""
        time.sleep(seconds)  # wait: each caller says for what

    # -- the rule, and what the functions start --------------------------------------------------------------------

    def event(self, at: datetime | None = None) -> dict[str, object]:
        """The rule's event for the present minute, or another."""
        return rule_event(at or self.clock())

    def tick(self, at: datetime | None = None, *, timeout: float = TIMEOUT, faults: Sequence[Fault] = ()) -> Outcome:
        """The rule fires, for the present minute or another, and what that starts runs too.

        Wake-ups that are due by now come first; but what a tick with ``faults`` shall meet, none may run before it.
        """
        if not faults:
            self.deliver_wake_ups()
        outcome = self.invoke(self.event(at), timeout=timeout, faults=faults)
        self.run_started(timeout=timeout)
        return outcome

    def next_tick(self, minutes: int = 1, *, timeout: float = TIMEOUT, faults: Sequence[Fault] = ()) -> Outcome:
        """Time goes on to the next minute, or several later; the stream is delivered and the rule fires."""
        tick = self._minute(minutes)
        if not faults and self.delivers_wake_ups:
            self.deliver_stream()
            self.deliver_wake_ups(tick)
        self.clock.to(tick)
        self.deliver_stream()
        return self.tick(timeout=timeout, faults=faults)

    def tick_on_grid(self, interval: int) -> Outcome:
        """Time goes on to the next tick of an interval, in minutes."""
        return self.next_tick(interval - minute_of(self.clock()) % interval)

    def frozen_tick(self, *faults: Fault) -> Sandbox:
        """The process of the next minute's tick, at the call where these freeze it."""
        self.to_next_minute()
        sandbox = self.sandbox()
        sandbox.wait_until_ready()
        sandbox.begin(self.event(), timeout=TIMEOUT, faults=faults)
        assert self.end(sandbox).what == "frozen"
        return sandbox

    def thaw(self, sandbox: Sandbox) -> Outcome:
        """Lets a frozen invocation come to its end."""
        sandbox.thaw()
        outcome = self.end(sandbox)
        assert outcome.what == "returned"
        return outcome

    def to_next_minute(self, minutes: int = 1) -> None:
        self.clock.to(self._minute(minutes))

    def _minute(self, ahead: int) -> datetime:
        return instant_of(minute_of(self.clock()) + ahead) + timedelta(milliseconds=200)

    def run_started(self, *, timeout: float = TIMEOUT) -> list[Outcome]:
        """Runs the invocations that were started asynchronously, and those that they start."""
        outcomes: list[Outcome] = []
        while events := self.started():
            outcomes += [self.invoke(event, timeout=timeout) for event in events]
        return outcomes

    def started(self) -> list[dict[str, Any]]:
        """The asynchronous invocations that were asked for since the last call."""
        return _taken(self.folder.invocations)

    def wake_ups(self) -> list[WakeUp]:
        """The wake-ups that were sent since the last call: events, with their instants."""
        return [(event, datetime.fromtimestamp(at, UTC)) for event, at in _taken(self.folder.wake_ups)]

    def wake(self, event: Mapping[str, Any] | str) -> Outcome:
        """The queue delivers a wake-up, and what that starts runs too."""
        body = event if isinstance(event, str) else json.dumps(event)
        outcome = self.invoke({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]})
        self.run_started()
        return outcome

    def deliver_wake_ups(self, until: datetime | None = None) -> None:
        """Time goes on to an instant, if one is given, and the wake-ups that were sent come at theirs, in order. As the
        queue does, it delivers one again whose invocation failed. Only if this world delivers wake-ups."""
        while self.delivers_wake_ups:
            self.wake_ups_to_deliver += self.wake_ups()
            due = [wake_up for wake_up in self.wake_ups_to_deliver if wake_up[1] <= (until or self.clock())]
            if not due:
                return
            first = event, at = min(due, key=lambda wake_up: wake_up[1])
            self.wake_ups_to_deliver.remove(first)
            self.clock.to(at)
            if self.wake(event).what != "returned":
                self.wake_ups_to_deliver.append((event, self.clock() + VISIBILITY))

    def deliver(self, records: Sequence[Record], *, faults: Sequence[Fault] = ()) -> list[Outcome]:
        """Gives records to the scheduler, in batches, as the mapping does: from the first failed one on, again."""
        outcomes: list[Outcome] = []
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            while batch:
                outcome = self.invoke({"Records": list(batch)}, function="scheduler", faults=faults)
                outcomes.append(outcome)
                assert outcome.what == "returned", outcome
                batch, faults = not_done(batch, outcome.value), ()
        return outcomes

    def deliver_stream(self, *, faults: Sequence[Fault] = ()) -> list[Outcome]:
        return self.deliver(self.stream.new(), faults=faults)

    # -- the table -------------------------------------------------------------------------------------------------

    def items(self) -> dict[str, Any]:
        """Every row by id, as DynamoDB spells it."""
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        return {item["taskId"]["S"]: item for page in pages for item in page["Items"]}

    def rows(self) -> dict[str, Row]:
        """Every row that is no own one, by id; and each member of a pack, as if it had one."""
        tasks = {task_id: decode(item) for task_id, item in self.items().items() if not is_own_row(task_id)}
        return with_members(tasks)

    def batches(self) -> dict[str, Row]:
        """The rows of batches, by id."""
        return {task_id: row for task_id, row in self.rows().items() if Batch.of(row) is not None}

    def packs(self) -> list[Row]:
        """The rows of packs."""
        return [row for item in self.items().values() if "pack" in (row := decode(item))]

    def row(self, task_id: str) -> Row:
        row = self.store.get(task_id)
        assert row is not None, f"there is no row {task_id}"
        return row

    def open(self) -> set[str]:
        return {task_id for task_id, row in self.rows().items() if "outcome" not in row}

    def cursors(self) -> list[Cursor]:
        found: list[Cursor] = []
        while (row := self.store.get(cursor_id(len(found)))) is not None:
            found.append(Cursor.from_row(len(found), row))
        return found

    def dead_letters(self) -> list[dict[str, Any]]:
        """The messages that have come to the dead-letter queue, earlier calls' included; they are taken out."""
        while messages := self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._dead_letters.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return self._dead_letters

    def dead_letter_ids(self) -> set[str]:
        """The tasks that have some."""
        return {letter["taskId"] for letter in self.dead_letters()}

    def polls(self) -> int:
        """How many polls there were since the last call."""
        before, self._polls = self._polls, (self.folder.path / POLLS).stat().st_size
        return self._polls - before

    def executed(self) -> set[str]:
        """The tasks whose effect happened, once or more."""
        return {execution.task_id for execution in self.journal.done()}

    # -- what clients do -------------------------------------------------------------------------------------------

    @property
    def inserted(self) -> KeysView[str]:
        """The ids under which there were tasks."""
        return self._incarnations.keys()

    def note(self, operation: str, *ids: str, interface: str = "client", fails: Collection[str] = (),
             due_at: datetime | None = None, limited: bool = False) -> None:  # fmt: skip
        """Writes down an operation on these tasks, which succeeded. ``fails``: those of them that can't but fail.
        ``due_at``: as the response showed it. ``limited``: they have limit keys."""
        at, due, lines = self.folder.now(), None if due_at is None else due_at.timestamp(), list[Line]()
        for task_id in ids:
            if operation == INSERT:
                self._incarnations.setdefault(task_id, task_id)
            incarnation, request_id = self._incarnations.get(task_id, task_id), f"test.{next(self._request_ids)}"
            lines += [
                Requested(request_id=request_id, operation=operation, interface=interface, task_id=task_id,
                          incarnation=incarnation, at=at, fails=task_id in fails,
                          due_at=due if operation == INSERT else None, limited=limited),
                Responded(request_id=request_id, status=OK, at=at, due_at=due),
            ]  # fmt: skip
        self.journal.add(*lines)

    def note_inserts(self, tasks: Iterable[Mapping[str, Any]], *, fails: bool = False) -> None:
        """Writes down that a client has inserted these. ``fails``: they can't but fail, whatever their payloads plan;
        here and below."""
        plans = {task["taskId"]: task.get("payload") for task in tasks}
        self.note(INSERT, *plans, fails={task_id for task_id, plan in plans.items() if fails or must_fail(plan)})

    def insert(self, task_id: str, *, client: TaskClient | None = None, **arguments: Any) -> None:
        """Inserts by a client; it must be taken."""
        (client or self.client).insert(task_id, **arguments)
        self.note_inserts([{"taskId": task_id, **arguments}])

    def insert_many(self, tasks: Sequence[Mapping[str, object]], *, fails: bool = False) -> None:
        """Inserts by the client; all must be taken."""
        refused = [result for result in self.client.insert_lazily(tasks) if type(result).__name__ != "Inserted"]
        assert not refused, refused[:3]
        self.note_inserts(tasks, fails=fails)

    def insert_soon(self, ids: int | Iterable[str], *, fails: bool = False, **fields: object) -> list[str]:
        """Tasks that are due in half a minute, or as ``fields`` say. A number of them are t000, t001, … Returns their
        ids."""
        names = [f"t{n:03d}" for n in range(ids)] if isinstance(ids, int) else list(ids)
        fields = fields if fields.keys() & {"dueAt", "taskDateTime"} else {"delaySeconds": 30, **fields}
        self.insert_many([{"taskId": task_id, **fields} for task_id in names], fails=fails)
        return names

    def insert_batch(
        self, batch_id: str, payloads: Sequence[Mapping[str, object]], *, fails: bool = False, **fields: Any
    ) -> list[str]:
        """A batch that is due in half a minute. Returns the ids of its members."""
        now = self.clock()
        grid = Grid(shard_count=int(self.environ.get("DYNATICK_SHARD_COUNT", "1")))
        due = {"due_at": now + timedelta(seconds=30), "now": now, "grid": grid}
        for row in rows_of(batch_id, payloads, **{"action": ACTION, **due, **fields}):
            self.dynamodb.put_item(TableName=self.table, Item=encode(row))
        members = [{"taskId": member_id(batch_id, n), "payload": payload} for n, payload in enumerate(payloads)]
        self.note_inserts(members, fails=fails)
        return [str(member["taskId"]) for member in members]

    def load_batch(
        self, batch_id: str, payloads: Iterable[Mapping[str, Any]], *, client: TaskClient | None = None, **more: Any
    ) -> list[str]:
        """A whole batch, by a client, which is due at the next minute and is followed by a task; it must be taken.
        Returns the ids of its members, and of what follows."""
        payloads = list(payloads)
        due_at = instant_of(minute_of(self.clock()) + 1)
        given = payloads if "over" in more else iter(payloads)  # whose number is not known before
        (client or self.client).batches.insert(
            given, batch_id=batch_id, action=ACTION, due_at=due_at, then={"action": ACTION}, **more
        )
        keyed = {"limitKey": more["limit_key"]} if "limit_key" in more else {}
        members = [
            {"taskId": member_id(batch_id, n), "payload": payload, **keyed} for n, payload in enumerate(payloads)
        ]
        tasks = [*members, {"taskId": then_id(batch_id)}]
        self.note_inserts(tasks)
        return [str(task["taskId"]) for task in tasks]

    def insert_for_next_tick(self, ids: int | Iterable[str], **fields: object) -> list[str]:
        """However late in its minute it is."""
        return self.insert_soon(ids, taskDateTime=self.bucket(1), **fields)

    def bucket(self, ahead: int) -> Bucket:
        """Returns the bucket of the present minute, or of one a given number of minutes ahead."""
        return Bucket(minute_of(self.clock()) + ahead)

    def put(self, *, fails: bool = False, **row: Any) -> None:
        """put-item, as anybody may do it."""
        task_id, operation = row["taskId"], REPLACE if row["taskId"] in self.inserted else INSERT
        if operation == REPLACE:
            incarnation = self._incarnations[task_id] = f"{self._incarnations[task_id]}/again"
            row["payload"] = {"incarnation": incarnation, **row.get("payload", {})}
        self.dynamodb.put_item(TableName=self.table, Item=encode(row))
        if not is_schedule(row):
            self.note(operation, task_id, fails=[task_id] if fails or must_fail(row.get("payload")) else ())

    def cancel(self, task_id: str) -> None:
        self.client.cancel(task_id)
        self.note(CANCEL, task_id)

    def reschedule(self, task_id: str, **when: Any) -> None:
        self.note(RESCHEDULE, task_id, due_at=self.client.reschedule(task_id, **when).due_at)

    def insert_again(self, task_id: str, if_exists: str, **arguments: Any) -> str | None:
        """Inserts a task that is there. What the answer says has happened to it."""
        view = self.client.insert(task_id, if_exists=if_exists, **arguments)
        if view.effect in ("replaced", "postponed", "restarted"):
            self.note(RESCHEDULE, task_id, due_at=view.due_at)
        return view.effect

    def delete(self, *ids: str) -> None:
        """delete-item, likewise."""
        for task_id in ids:
            self.dynamodb.delete_item(TableName=self.table, Key={"taskId": {"S": task_id}})
        self.note(DELETE, *ids)

    def edit(self, task_id: str, name: str, value: str) -> None:
        """update-item, likewise."""
        self.dynamodb.update_item(
            TableName=self.table, Key={"taskId": {"S": task_id}}, UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name}, ExpressionAttributeValues={":value": {"S": value}},
        )  # fmt: skip

    # -- the end ---------------------------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Returns whether every task has ended and every bucket is drained."""
        rows = self.rows().values()
        buckets = (Bucket.canonical(row.get("taskDateTime")) for row in rows)
        last = max((bucket.minute for bucket in buckets if bucket is not None), default=0)
        return all("outcome" in row for row in rows) and all(one.drained_through >= last for one in self.cursors())

    def finish(self, maximum: int = 40) -> None:
        """Ticks, at least once, until all is settled."""
        for _ in range(maximum):
            outcome = self.next_tick()
            assert outcome.what == "returned", outcome
            if self.is_settled():
                return
        raise AssertionError(f"after {maximum} ticks still open: {sorted(self.open())[:20]}, cursors {self.cursors()}")

    def judge(self, *, history: History | None = None, timeout: float = TIMEOUT, **given: Any) -> Verdict:
        """How every task ended. ``given``: what the journal does not know (see Evidence)."""
        return judge(
            Evidence(
                history=history or History().take(self.journal),
                rows={task_id: row for task_id, row in self.rows().items() if Batch.of(row) is None},
                batches=self.batches(),
                drained={shard: cursor.drained_through for shard, cursor in enumerate(self.cursors())},
                dead_letters={(task_id, str(one.get("createdAt")), one.get("run", 1))
                              for one in self.dead_letters() for task_id in self._named_by(one)},
                limits=parse_limits(self._listed("DYNATICK_KEY_LIMITS")),
                rates=parse_limits(self._listed("DYNATICK_ACTION_RATE_LIMITS")),
                findings=[f"{finding.task_id}: {finding.why}" for finding in self.client.operations.doctor().findings],
                timeout=timeout,
                **given,
            )
        )  # fmt: skip

    def _named_by(self, letter: Mapping[str, Any]) -> Iterable[str]:
        """The task of a dead letter, and the members if it is a pack, which fail with it."""
        row = self.store.get(letter["taskId"])
        pack = None if row is None else Pack.of(row)
        return [letter["taskId"], *(map(pack.member_id, range(pack.span.members)) if pack is not None else ())]

    def assert_survived(
        self,
        executed: int | None = None,
        *,
        repeated: int | None = None,
        failed: int = 0,
        cancelled: int = 0,
        deleted: int = 0,
        replaced: int = 0,
        **given: Any,
    ) -> Verdict:
        """Ticks until all is settled. Then nothing may be lost or wait, or be executed again unless its process died or
        its record was refused, and this number of tasks has ended in each way: by default, all others were executed.
        ``repeated``: runs that were executed more than once, if it is known how many. ``given``: as ``judge`` takes it.
        """
        self.finish()
        verdict = self.judge(schedules_end=False, **given)
        assert not verdict.problems, "\n".join(verdict.problems)
        otherwise = {"failed": failed, "cancelled": cancelled, "deleted": deleted, "replaced": replaced}
        executed = sum(verdict.inserted.values()) - sum(otherwise.values()) if executed is None else executed
        expected = {"executed": executed, **otherwise}
        assert verdict.results == {name: number for name, number in expected.items() if number}, verdict.results
        assert repeated in (None, sum(verdict.repeated.values())), verdict.repeated
        self.assert_trace_is_lawful()
        self.report(verdict)
        return verdict

    def assert_trace_is_lawful(self) -> None:
        """By the rules alone, as another judge knows them. All tasks have ended."""
        if self._tracer is not None:
            self.report_trace(replay(self.trace()))

    def trace(self) -> Iterator[Event]:
        """What has happened, as long as all processes rest: every task has ended. Raises AssertionError if it lacks an
        execution that the journal has."""
        assert self._tracer is not None, "it is not traced"
        noted = set[tuple[object, ...]]()
        for event in events_of(self._tracer.file):
            if event["e"] == "begin":
                noted.add((event["id"], event["run"], event["attempt"]))
            yield event
        began = {(one.task_id, one.run, one.attempt) for one in self.journal.of(journal.Began)}
        assert began <= noted, f"the trace lacks executions that the journal has: {[*(began - noted)][:5]}"
        yield {"e": "rest", "at": self.folder.now()}

    def restoring(self) -> AbstractContextManager[None]:
        """What is put and deleted meanwhile is a restore of the table."""
        return nullcontext() if self._tracer is None else self._tracer.restoring()


def _taken(path: Path) -> list[Any]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    return lines
