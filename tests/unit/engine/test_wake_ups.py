"""Wake-ups: tasks begin at their second, and whatever happens to a wake-up, its tasks are neither lost, early nor run
again without need (protocol 17 to 19)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import (
    RiggedStore,
    World,
    bucket_at,
    fails,
    ids,
    of,
    passed,
    raises_for,
    rules,
)

from dynatick import TaskClient
from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant, parse_instant
from dynatick.domain.row import RELEASED, Due, due_of
from dynatick.domain.task import Row, Task
from dynatick.engine.counts import PassReport, bucket_record_id
from dynatick.engine.cursor import acquire_shard, cursor_id
from dynatick.engine.orders import MAX_TASKS, PassOnTime, WakeUp, parse_event, wake_ups_of
from dynatick.engine.ports import ActionContext
from dynatick.engine.processor import Invoked
from dynatick.engine.rules import Precision
from dynatick.engine.scheduler import Assigned, Scheduler
from dynatick.engine.settings import SETTINGS_ID
from dynatick.engine.wake_ups import MAX_EARLY, MAX_LATE
from dynatick.errors import StoreError
from dynatick.store.codec import decode, encode

Message = tuple[Mapping[str, object], datetime]

pytestmark = pytest.mark.usefixtures("time_passes")  # a wake-up waits for its instants


@dataclass
class Queue:
    """A queue of wake-ups in memory. ``refuses``: it takes none."""

    sent: list[Message] = field(default_factory=list)
    refuses: bool = False

    def send(self, wake_ups: Sequence[Message]) -> int:
        if self.refuses:
            return len(wake_ups)
        self.sent += [(json.loads(json.dumps(event)), at) for event, at in wake_ups]
        return 0

    def take(self) -> list[Message]:
        taken, self.sent = sorted(self.sent, key=lambda one: one[1]), []
        return taken


@dataclass
class Second(World):
    queue: Queue = field(default_factory=Queue)
    began: list[tuple[str, datetime]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rules = replace(self.rules, precision=Precision.SECOND)
        run = self.actions.run

        def noted(task: Task, context: ActionContext) -> object:
            self.began.append((task.task_id, self.clock()))
            return run(task, context)

        self.actions.run = noted  # type: ignore[method-assign]
        self.wake_ups = self.queue

    def deliver(self, *messages: Message, early: float = 0.0) -> list[Invoked]:
        """The queue delivers messages (None: all that it has), each when it is due or ``early`` by seconds."""
        done = []
        for event, at in messages or self.queue.take():
            self.clock.to(at - timedelta(seconds=early))
            done.append(self.message(json.dumps(event)))
        return done

    def message(self, body: str) -> Invoked:
        return self.handle({"Records": [{"eventSource": "aws:sqs", "messageId": "1", "body": body}]})

    def insert_due(self, task_id: str, seconds: float, **more: object) -> None:
        """Writes a task as a client inserts it, due a given number of seconds after noon."""
        due = NOON + timedelta(seconds=seconds)
        bucket = self.rules.grid.bucket_of(task_id, due)
        assert self.store.create(scheduled_row(task_id, bucket, dueAt=format_instant(due), **more))

    def inserted(self, task_id: str) -> None:
        """The stream shows an insert."""
        self.scheduled([(self.row(task_id), None)])

    def scheduled(self, records: Sequence[tuple[Row | None, Row | None]]) -> Assigned:
        """The stream shows rows after and before their changes."""
        scheduler = Scheduler(
            store=self.store, dead_letters=self.dead_letters, rules=self.rules, clock=self.clock, decode=decode,
            wake_ups=self.wake_ups,
        )  # fmt: skip
        images = [{"NewImage": new, "OldImage": old} for new, old in records]
        changes = [{name: encode(row) for name, row in one.items() if row is not None} for one in images]
        return scheduler.handle(
            {"Records": [{"dynamodb": {"SequenceNumber": str(n), **change}} for n, change in enumerate(changes)]}
        )

    def sent_for(self) -> list[datetime]:
        """The instants of the wake-ups that the queue has, which it forgets."""
        return [at for _, at in self.queue.take()]

    def woken(self, *messages: Message, early: float = 0.0) -> PassReport:
        """Delivers a wake-up and returns its report."""
        (done,) = self.deliver(*messages, early=early)
        assert done.woken is not None
        return done.woken


def world(**settings: object) -> Second:
    """A world at noon whose first tick has been."""
    made = Second(**settings)  # type: ignore[arg-type]
    made.tick()
    return made


@pytest.fixture
def w() -> Second:
    return world()


def with_planned(*seconds: float, **more: object) -> Second:
    """A world at 12:01 with tasks t0, t1, … due ``seconds`` after noon; the queue has their wake-ups."""
    w = world()
    for n, due in enumerate(seconds):
        w.insert_due(f"t{n}", due, **more)
    w.next_tick()
    return w


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def wake_up(*tasks: tuple[str, float], bucket: int = 1) -> WakeUp:
    due = tuple(Due(after_noon(seconds), task_id) for task_id, seconds in tasks)
    return WakeUp(bucket=bucket_at(bucket), due=due)


# -- which tasks share one -------------------------------------------------------------------------------------------


def test_a_wake_up_is_for_one_bucket_and_limited() -> None:
    of_a_second = [(bucket_at(1), Due(after_noon(30 + n / 1000), f"t{n:04d}")) for n in range(MAX_TASKS + 1)]
    others = [(bucket_at(1), Due(after_noon(33), "later")), (bucket_at(2), Due(after_noon(33), "elsewhere"))]
    long = [(bucket_at(3), Due(after_noon(130), f"{n:03d}" + "x" * 1000)) for n in range(60)]
    made = list(wake_ups_of([*others, *long, *reversed(of_a_second)], threads=16))
    assert [(one.bucket, len(one.due)) for one in made] == [
        (bucket_at(1), MAX_TASKS), (bucket_at(1), 1), (bucket_at(1), 1), (bucket_at(2), 1), (bucket_at(3), 47),
        (bucket_at(3), 13),
    ]  # fmt: skip
    assert made[0].due == tuple(due for _, due in of_a_second[:MAX_TASKS]), "in the order of their instants"
    assert list(wake_ups_of([], threads=16)) == []


@pytest.mark.parametrize(
    ("seconds", "threads", "sizes"),
    [([0, 1, 2, 3], 16, [4]), ([0, 1, 2, 3, 3.001], 16, [4, 1]), ([0, 1.001, 1.5], 16, [1, 2]),
     ([0, 0.5, 0.9, 0.999], 2, [4]), ([0, 0.5, 1], 2, [2, 1]), ([0, 0.5, 0.9, 1, 1.1], 2, [3, 2]),
     ([n / 10 for n in range(40)], 16, [16, 16, 8]), ([n / 10 for n in range(40)], 256, [31, 9]),
     ([n / 50 for n in range(150)], 256, [MAX_TASKS, 50])],
)  # fmt: skip
def test_tasks_that_follow_closely_share_a_wake_up_while_each_gets_a_thread(
    seconds: Sequence[float], threads: int, sizes: Sequence[int]
) -> None:
    tasks = [(bucket_at(1), Due(after_noon(one), f"t{n:03d}")) for n, one in enumerate(seconds)]
    assert [len(one.due) for one in wake_ups_of(tasks, threads=threads)] == sizes


@pytest.mark.parametrize(
    ("due_at", "next_attempt_at", "due"),
    [("2026-12-31T12:00:30Z", None, Due(after_noon(30), "t")),
     ("2026-12-31T12:00:30Z", "2026-12-31T12:00:40.500Z", Due(after_noon(40.5), "t", "nextAttemptAt")),
     ("2026-12-31T13:00:30+01:00", None, None), (Decimal(1), None, None), (None, None, None), ("soon", None, None),
     ("2026-12-31T12:00:30Z", "soon", None)],
)  # fmt: skip
def test_what_counts_is_the_next_attempt_else_the_due_time(
    due_at: object, next_attempt_at: object, due: Due | None
) -> None:
    assert due_of("t", due_at, next_attempt_at) == due


# -- planned ---------------------------------------------------------------------------------------------------------


def test_a_tick_plans_the_buckets_of_the_next_two_once() -> None:
    # At 12:01. The buckets through 12:02 were planned at noon, when they were empty.
    w = with_planned(70, 70.5, 71, 119.999, 120, 125, 185)
    assert w.sent_for() == [after_noon(125)]
    w.next_tick()
    assert w.sent_for() == [after_noon(185)]
    w.tick()  # once more the same
    assert w.sent_for() == []
    assert w.cursor().planned_through == bucket_at(4).minute


def test_tasks_close_together_share_a_wake_up_and_what_is_due_on_the_tick_gets_its_pass() -> None:
    w = with_planned(150.25, 151.25, 153, 180, 180)
    assert [parse_event(event, NOON) for event, _ in w.queue.take()] == [
        wake_up(("t0", 150.25), ("t1", 151.25), bucket=3), wake_up(("t2", 153), bucket=3),
        PassOnTime(tick=bucket_at(3).minute, shard=0),
    ]  # fmt: skip


def test_a_held_shard_is_planned_all_the_same(w: Second) -> None:
    w.insert_due("a", 150)
    w.clock.to(after_noon(55))
    assert acquire_shard(w.store, 0, bucket_at(0).minute, token="another's", now=w.clock()).cursor is not None
    assert passed(w.next_tick()).leased_elsewhere
    assert w.sent_for() == [after_noon(150)]


def test_planning_that_fails_harms_nothing(w: Second) -> None:
    w.insert_due("a", 150)
    w.rigged.before_poll = raises_for(bucket_at(3))
    assert passed(w.next_tick()).planning_failed == "cannot read: the table is not there"
    w.rigged.before_poll = None
    w.queue.refuses = True
    w.insert_due("b", 210)
    report = passed(w.next_tick())
    assert (report.planned, report.unsent) == (1, 1)
    w.ticks(2)
    assert [task_id for task_id, _ in w.began] == ["a", "b"]


# -- received --------------------------------------------------------------------------------------------------------


def test_tasks_begin_at_their_instants_and_the_tick_runs_what_no_wake_up_ran_and_nothing_runs_twice() -> None:
    w = with_planned(150.3, 151.2, 155, 158, 160, 180)
    first, second, *lost = w.queue.take()
    woken = w.woken(first, early=0.2)
    assert (woken.due, woken.claimed, woken.completed, woken.woken_late) == (2, 2, 2, 0)
    assert woken.lateness.max == 0
    assert w.began == [("t0", after_noon(150.3)), ("t1", after_noon(151.2))]
    assert w.woken(second).completed == 1
    w.deliver(first)
    assert sorted(w.ran) == ["t0", "t1", "t2"]
    w.clock.to(after_noon(180.2))
    report = passed(w.tick())
    assert (report.claimed, report.woken_late) == (3, 2), "one was due on the tick"
    assert w.row("_dynatick#tick#2026-12-31#12:03#0#0")["wokenLate"] == 2
    w.deliver(*lost)  # late
    w.assert_each_ran_once(*(f"t{n}" for n in range(6)))
    w.until_drained()


def over_it(**more: object) -> Callable[[Second], None]:
    row = scheduled_row("t0", bucket_at(3), dueAt="2026-12-31T12:02:30Z") | more
    return lambda w: w.rigged.put(row)


CHANGES: Mapping[str, Callable[[Second], object]] = {
    "another instant": over_it(dueAt="2026-12-31T12:02:50Z"),
    "another bucket": over_it(taskDateTime=str(bucket_at(4))),
    "unscheduled": lambda w: w.rigged.put({"taskId": "t0", "dueAt": "2026-12-31T12:02:30Z"}),
    "claimed by another process": over_it(
        status="running", lease="of another", leaseUntil="2026-12-31T12:04:00Z", attempt=1
    ),
    "a retry": over_it(nextAttemptAt="2026-12-31T12:02:55Z"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_task_that_was_changed_after_its_wake_up_was_sent_is_not_woken(change: str) -> None:
    w = with_planned(150)
    CHANGES[change](w)
    assert w.woken().claimed == 0
    assert w.began == []


def test_a_wake_up_that_comes_far_too_early_is_sent_again_for_its_instant(w: Second) -> None:
    w.insert_due("near", 60 + MAX_EARLY.total_seconds() / 40)
    w.insert_due("far", 60 + 10 + MAX_EARLY.total_seconds())
    w.clock.to(after_noon(60))
    event = wake_up(("near", 60.5), ("far", 90), bucket=2).to_event()
    w.message(json.dumps(event))
    assert [task_id for task_id, _ in w.began] == ["near"]
    assert [(parse_event(event, NOON), at) for event, at in w.queue.take()] == [
        (wake_up(("far", 90), bucket=2), after_noon(90))
    ]


@pytest.mark.parametrize("order", [wake_up(("t", 150), bucket=3), PassOnTime(tick=bucket_at(3).minute, shard=0)])
def test_a_stale_wake_up_reads_and_writes_nothing(w: Second, order: WakeUp | PassOnTime) -> None:
    w.insert_due("t", 150)
    w.clock.to(after_noon(181) + MAX_LATE)
    w.rigged.forget()
    assert w.message(json.dumps(order.to_event())).stale_wake_up
    assert (w.rigged.reads, w.rigged.writes, w.started, w.queue.take()) == ([], [], [], [])


def test_a_pass_on_time_that_comes_far_too_early_is_sent_again(w: Second) -> None:
    w.message(json.dumps(PassOnTime(tick=bucket_at(3).minute, shard=0).to_event()))
    assert (w.started, w.sent_for()) == ([], [after_noon(180)])


@pytest.mark.parametrize("body", ["", "no JSON", "[]", "7", "{}", '{"dynatick": {"wakeUp": 7}}', "[" * 100_000])
def test_a_message_that_is_no_wake_up_is_reported_and_not_delivered_again(body: str) -> None:
    assert world().message(body).malformed_wake_up is not None


def test_no_more_tasks_are_claimed_than_threads_are_free() -> None:
    w, together = world(rules=rules(threads=2)), list[int]()
    w.behave(lambda *_: together.append(sum(row["status"] == "running" for row in w.open_rows().values())), *ids(9))
    for task_id in ids(9):
        w.insert_due(task_id, 150)
    w.next_tick()
    w.deliver()
    w.assert_each_ran_once(*ids(9))
    assert 0 < max(together) <= 2


def test_a_malformed_row_fails_with_its_reason() -> None:
    w = with_planned(150, payload="no map")
    w.deliver()
    assert w.outcome("t0") == "failed"
    assert "payload" in str(w.row("t0")["error"])


def test_a_wake_up_counts_the_tasks_that_it_began_late() -> None:
    w = with_planned(150, 155)
    for seconds, (event, _), count in zip((155.1, 159.9), w.queue.take(), (1, 0), strict=True):
        woken = w.woken((event, after_noon(seconds)))
        assert (woken.completed, woken.woken_late) == (1, count)


def test_what_only_a_tick_begins_and_a_backlog_are_not_woken_late() -> None:
    w = world(rules=rules(limited_actions=frozenset({"limited"})))
    w.insert_due("limited", 130, action="limited")
    w.put(taskId="s", scheduleExpression="at(2026-12-31T12:02:15)")
    w.insert_due("just inserted", 130, createdAt="2026-12-31T12:02:58Z")
    w.next_tick()
    w.queue.take()
    w.clock.to(after_noon(180.2))
    report = passed(w.tick())
    assert (report.completed, report.woken_late) == (3, 0)
    # Continued by another invocation, and left to a later tick.
    w.rigged.put(scheduled_row("rest", bucket_at(4)))
    w.rigged.put(scheduled_row("old", bucket_at(3)))
    w.clock.to(after_noon(260))
    order = {"dynatick": {"tick": str(bucket_at(4)), "shard": 0, "continuation": 1}}
    continued = w.handle(order).passed
    assert continued is not None
    assert (continued.completed, continued.woken_late) == (2, 0)


def test_a_wake_up_claims_nothing_once_its_time_is_up() -> None:
    w = world(rules=rules(threads=1, in_one_thread=True))
    for task_id in ("t0", "t1"):
        w.insert_due(task_id, 150)
    w.next_tick()
    w.behave(lambda task, context: str(w.clock.forward(seconds=101)), "t0")
    assert w.woken(*w.queue.take()[:1]).claimed == 1
    assert w.ran == ["t0"]
    assert w.row("t1")["status"] == "scheduled"


def test_a_wake_up_claims_nothing_more_once_the_table_has_not_answered() -> None:
    w = world(rules=rules(threads=1, in_one_thread=True))
    for task_id in ("t0", "t1"):
        w.insert_due(task_id, 150)
    w.next_tick()
    (planned,) = w.queue.take()[:1]
    w.rigged.throttled = lambda change: change.task_id == "t0"
    w.rigged.before_read = raises_for("t0")
    with pytest.raises(StoreError):
        w.deliver(planned)
    assert w.ran == []
    assert w.row("t1")["status"] == "scheduled"


def test_an_instant_after_its_bucket_is_not_planned(w: Second) -> None:
    w.rigged.put(scheduled_row("t", bucket_at(3), dueAt="2026-12-31T12:03:30Z"))
    w.next_tick()
    assert w.sent_for() == []


def test_planning_ends_at_a_number_of_tasks(w: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatick.engine.wake_ups.MAX_PLANNED", 2)
    monkeypatch.setattr("dynatick.engine.wake_ups._PAGE", 1)
    for task_id in ids(5):
        w.insert_due(task_id, 150)
    assert passed(w.next_tick()).planned == 2


def test_planning_ends_when_its_time_is_up(w: Second, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynatick.engine.wake_ups._PAGE", 1)
    for task_id in ids(5):
        w.insert_due(task_id, 150)
    w.rigged.before_poll = lambda bucket: bucket == bucket_at(3) and w.clock.forward(seconds=11) and None
    report = passed(w.next_tick())
    assert (report.planned, w.queue.take()) == (1, [])
    assert report.unsent == 1


# -- on the tick -----------------------------------------------------------------------------------------------------


def test_what_is_due_on_the_tick_begins_with_a_pass_that_starts_on_time() -> None:
    w = with_planned(180)
    (done,) = w.deliver(early=0.2)
    assert done.passed is None, "no pass runs inside the delivery"
    assert w.clock() == after_noon(180)
    assert passed(w.run_started()).tick == bucket_at(3).minute
    assert w.began == [("t0", after_noon(180))]
    w.tick(after_noon(180))  # EventBridge's own
    assert len(w.began) == 1


def test_each_further_run_of_a_schedule_begins_on_time(w: Second) -> None:
    """In one thread: what a tick plans is read before a schedule moves there."""
    w.rules = replace(w.rules, in_one_thread=True)
    w.put(taskId="s", scheduleExpression="rate(1 minute)", startDate="2026-12-31T12:03:00Z")
    w.put(taskId="t", scheduleExpression="rate(2 minutes)", startDate="2026-12-31T12:03:00Z")
    for minutes in [3], [], [4, 5], [5], [6, 7], [7], [8, 9], [9]:  # once by each pass that moves a schedule there
        w.next_tick()
        orders = [parse_event(event, NOON) for event, _ in w.queue.take()]
        assert orders == [PassOnTime(tick=bucket_at(one).minute, shard=0) for one in minutes]
    assert w.outcome("s#1#2026-12-31T12:07:00Z") == "completed"


def test_the_runs_of_a_schedule_do_not_wait_until_the_queue_has_the_wake_up_of_the_next(
    w: Second,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w.put(taskId="s", scheduleExpression="rate(1 minute)", startDate="2026-12-31T12:03:00Z")
    w.ticks(2)
    begun, had_begun = threading.Event(), list[bool]()
    monkeypatch.setattr(w.actions, "run", lambda task, context: begun.set())
    monkeypatch.setattr(w.queue, "send", lambda wake_ups: had_begun.append(begun.wait(60)) or 0)
    w.next_tick()
    assert had_begun == [True]


# -- what a wake-up does not end -------------------------------------------------------------------------------------


def test_a_retry_begins_when_its_backoff_ends_and_not_before() -> None:
    policy = {"minBackoffSeconds": 4, "maxBackoffSeconds": 4, "maximumRetryAttempts": 2}
    w = with_planned(130, retryPolicy=policy)
    w.behave(fails, "t0")
    (planned,) = w.queue.take()
    w.deliver(planned)
    ((event, at),) = w.queue.take()
    next_attempt = parse_instant(w.row("t0")["nextAttemptAt"], "nextAttemptAt")
    assert at == next_attempt
    w.deliver(planned)  # doubled: its instant no longer counts
    assert len(w.began) == 1
    w.deliver((event, at), early=0.1)
    w.deliver()
    assert w.outcome("t0") == "failed"
    _, (_, second), (_, third) = w.began
    assert second == next_attempt
    assert timedelta(seconds=2) <= third - second <= timedelta(seconds=4), "between half a backoff and a whole one"


def test_a_retry_goes_into_a_bucket_that_is_still_open_and_its_wake_up_names_that_one() -> None:
    w = with_planned(130, retryPolicy={"minBackoffSeconds": 40, "maxBackoffSeconds": 40})
    w.assert_a_retry_goes_to_an_open_bucket("t0", w.deliver)
    assert len(w.began) == 1
    w.deliver()
    assert len(w.began) == 2


def test_a_failure_whose_letter_is_refused_goes_into_a_bucket_that_is_still_open() -> None:
    w = with_planned(130, retryPolicy={"maximumRetryAttempts": 0})
    w.life, w.dead_letters = timedelta(minutes=14), MemoryDeadLetters(lambda letter: True)
    w.behave(fails, "t0")
    with w.rigged.meanwhile(lambda change: attr.ERROR in change.set, lambda: w.first_pass(12)):
        w.deliver()
    assert str(w.row("t0")["taskDateTime"]) > str(bucket_at(12))
    w.deliver()
    assert (w.outcome("t0"), len(w.began)) == (None, 1)


def test_retries_that_are_recorded_together_read_the_cursor_once() -> None:
    w = world(rules=rules(in_one_thread=True))
    w.behave(fails, *ids(10))
    for task_id in ids(10):
        w.insert_due(task_id, 130)
    w.next_tick()
    (planned,) = w.queue.take()
    w.rigged.forget()
    w.deliver(planned)
    assert w.rigged.reads == [SETTINGS_ID, cursor_id(0), bucket_record_id(bucket_at(3))]
    assert all(w.row(task_id)["attempt"] == 1 for task_id in ids(10))
    assert sum(len(event["dynatick"]["wakeUp"]["tasks"]) for event, _ in w.queue.take()) == 10  # type: ignore[index]


def test_no_task_with_a_rate_limit_is_woken() -> None:
    w = world(rules=rules(limited_actions=frozenset({"log"})))
    w.insert_due("t", 150)
    w.inserted("t")
    w.next_tick()
    assert w.queue.take() == []
    w.clock.to(after_noon(150))
    w.message(json.dumps(wake_up(("t", 150), bucket=3).to_event()))
    assert w.ran == []
    w.clock.to(after_noon(180))
    w.tick()
    w.assert_each_ran_once("t")


# -- by the scheduler ------------------------------------------------------------------------------------------------


def test_an_insert_into_a_planned_bucket_is_woken_by_the_scheduler(w: Second) -> None:
    for task_id, seconds in (("soon", 90), ("later", 600)):
        w.insert_due(task_id, seconds)
        w.inserted(task_id)
    assert [parse_event(event, NOON) for event, _ in w.queue.take()] == [wake_up(("soon", 90), bucket=2)]


@pytest.mark.parametrize("row", [{}, {"dueAt": "2021-12-31T03:00:00Z"}])
def test_a_task_without_a_time_or_due_long_before_its_insert_begins_at_once(w: Second, row: Row) -> None:
    w.rigged.put({"taskId": "t", **row})
    w.inserted("t")
    ((event, at),) = w.queue.take()
    assert at <= w.clock()
    assert not w.message(json.dumps(event)).stale_wake_up
    assert w.began == [("t", w.clock())]


RETIMED: Mapping[str, Callable[[TaskClient, RiggedStore], object]] = {
    "run_now": lambda client, store: (client.cancel("t"), client.run_now("t")),
    "reschedule": lambda client, store: client.reschedule("t", due_at=after_noon(30)),
    "by hand": lambda client, store: store.put({**of(store.peek("t")), "dueAt": "2026-12-31T12:00:45Z"}),
}


@pytest.mark.parametrize("how", RETIMED)
def test_another_time_is_woken_by_the_scheduler(w: Second, how: str) -> None:
    w.insert_due("t", 600)
    old = w.row("t")
    RETIMED[how](TaskClient(w.store, clock=w.clock), w.rigged)
    w.scheduled([(w.row("t"), old)])
    assert w.sent_for() == [parse_instant(w.row("t")["dueAt"], "dueAt")]


def test_what_was_released_and_is_rescheduled_is_woken_by_the_scheduler(w: Second) -> None:
    w.insert_due("t", 600)
    w.rigged.put({**w.row("t"), "status": "running", "lease": "x", "leaseUntil": RELEASED})
    old = w.row("t")
    TaskClient(w.store, clock=w.clock).reschedule("t", due_at=after_noon(30))
    w.scheduled([(w.row("t"), old)])
    assert w.sent_for() == [after_noon(30)]


def test_what_is_restored_in_a_planned_bucket_is_woken_by_the_scheduler(w: Second) -> None:
    client = TaskClient(w.store, clock=w.clock)
    w.insert_due("t", 90)
    client.cancel("t")
    old = w.row("t")
    client.restore("t")
    w.scheduled([(w.row("t"), old)])
    assert w.sent_for() == [after_noon(90)]


def test_no_wake_up_makes_another_for_ever(w: Second) -> None:
    """The stream shows each retry, move and normalised row; it may show a batch again for an hour."""
    waiting = scheduled_row("t", bucket_at(1), dueAt="2026-12-31T12:00:45Z")
    running = {**waiting, "status": "running", "lease": "x", "leaseUntil": "2026-12-31T12:02:00Z", "attempt": 1}
    retried = {**waiting, "attempt": 1, "nextAttemptAt": "2026-12-31T12:00:50Z"}
    released = {**running, "attempt": 0, "leaseUntil": RELEASED}
    unscheduled = {"taskId": "t", "dueAt": "2026-12-31T12:00:45Z"}
    for old, new in [
        (running, retried), (running, waiting), (unscheduled, waiting), (running, released), (released, running),
        (released, {**released, "taskDateTime": str(bucket_at(2)), "movedTo": str(bucket_at(2))}),
        (waiting, {**waiting, "taskDateTime": str(bucket_at(2)), "movedTo": str(bucket_at(2))}),
        (waiting, {**waiting, "payload": {"a": "b"}}), (waiting, running), (waiting, None),
    ]:  # fmt: skip
        if new is not None:
            w.rigged.put(new)
        w.scheduled([(new, old)])
    assert w.queue.take() == []


def test_a_record_that_failed_and_those_after_it_send_no_wake_up_yet(w: Second) -> None:
    for n in range(4):
        w.insert_due(f"t{n}", 90 + 2 * n)
    w.rigged.put({"taskId": "bad", "dueAt": "2026-12-31T12:00:45Z"})
    w.rigged.throttled = lambda change: change.task_id == "bad"
    rows = [w.row(task_id) for task_id in ("t0", "t1", "bad", "t2", "t3")]
    assigned = w.scheduled([(row, None) for row in rows])
    assert [key for key, _ in assigned.failed] == ["2"]
    assert w.sent_for() == [after_noon(90), after_noon(92)]
    w.rigged.clear_faults()
    w.scheduled([(row, None) for row in rows[2:]])
    assert sorted(at for _, at in w.queue.take()) == [after_noon(45), after_noon(94), after_noon(96)]
