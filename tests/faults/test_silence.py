"""Services that accept each call and never answer: the dead-letter queue, the queue of wake-ups, Lambda's own API, the
table, secrets.

Refusing is quick; silence is what holds up others. Everything here is in memory: a call to a silent service blocks
until its test ends, and what is asserted in between has happened while it did. A silent start of workers has
tests/unit/engine/test_workers.py, a silent bucket tests/unit/bulk/test_importer.py.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import pytest
from botocore.exceptions import ReadTimeoutError
from tests.builders import NOON, FakeClock, scheduled_row
from tests.silent import LONG, Silent, beside, silence
from tests.unit.engine.support import (
    Dies,
    Recorded,
    World,
    bucket_at,
    ids,
    is_claim,
    is_cursor,
    is_record,
    raises,
    rules,
    world,
)

from dynatick.actions.handler_secrets import HandlerSecrets
from dynatick.actions.payload_field import SsmSecret
from dynatick.actions.secret import SecretReference, Secrets
from dynatick.actions.testing import MemoryDeadLetters
from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.polling import CLAIM_DELAY
from dynatick.engine.ports import ActionContext, DeadLetter
from dynatick.engine.rules import SHARD_LEASE, SKEW_MARGIN, Precision
from dynatick.errors import PermanentError, RetryableError
from dynatick.store.memory import MemoryStore

Report = Callable[[str, object], None]


class DeadLetterQueue(Silent):
    def send(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        self.block()
        return [False] * len(letters)


class WakeUpQueue(Silent):
    def send(self, wake_ups: Sequence[tuple[Mapping[str, object], datetime]]) -> int:
        self.block()
        return len(wake_ups)


@pytest.fixture
def silent() -> Iterator[DeadLetterQueue]:
    with silence(DeadLetterQueue()) as queue:
        yield queue


@pytest.fixture
def wake_up_queue() -> Iterator[WakeUpQueue]:
    with silence(WakeUpQueue()) as queue:
        yield queue


def survived(w: World, task_ids: Sequence[str], report: Report, *, repeated: int = 0) -> None:
    """Asserts that each has ended, and reports the figures to the table. ``repeated``: were executed once more."""
    outcomes = Counter(w.outcome(task_id) for task_id in task_ids)
    assert outcomes.keys() <= {"completed", "failed"}, outcomes
    report("fault", {"inserted": len(task_ids), "executed": outcomes["completed"], "repeated": repeated, "lost": 0,
                     "waiting": 0, "failed": outcomes["failed"]})  # fmt: skip


def fails_once(task: Task, context: ActionContext) -> None:
    if context.attempt == 1:
        raise RetryableError("not yet")


def the_rest_ends(w: World) -> None:
    """The queue takes letters again, and deferred failures are tried for as long as they wait."""
    w.dead_letters = MemoryDeadLetters()
    for minutes in (1, 5, 10, 30, 60):
        w.next_tick(minutes)
    w.ticks(3)


def test_fault_25_the_dead_letter_queue_is_silent(silent: DeadLetterQueue, record_property: Report) -> None:
    """The failing tasks come first, and malformed rows before them all."""
    w = world(dead_letters=silent)
    malformed, failing, good = ids(30, "a"), ids(60, "b"), ids(300, "c")
    for task_id in malformed:
        w.rigged.put({"taskId": task_id, "taskDateTime": str(bucket_at(1)), "action": 7})
    w.insert(*failing, *good)
    w.behave(raises(PermanentError("no")), *failing)
    recorded = Recorded(w)
    with beside(w.next_tick):
        assert recorded.reaches(len(good))
        assert silent.was_called()
        assert silent.answered == 0
        w.clock.forward(seconds=11)  # then what has no answer counts as refused: the pass ends
    assert silent.answered == 0
    assert [w.row(task_id).get("deferrals") for task_id in failing] == [1] * len(failing)
    assert silent.calls <= 4, "the others were not even tried"
    assert {w.outcome(task_id) for task_id in malformed + failing} == {None}
    the_rest_ends(w)
    assert {str(letter.row["taskId"]) for letter in w.dead_letters.letters} == {*malformed, *failing}
    assert max(Counter(w.ran).values()) == 1
    survived(w, malformed + failing + good, record_property)


def test_fault_25_later_buckets_do_not_wait_for_it_either(silent: DeadLetterQueue, record_property: Report) -> None:
    w = world(dead_letters=silent)
    malformed = ids(60, "a")
    for task_id in malformed:
        w.rigged.put({"taskId": task_id, "taskDateTime": str(bucket_at(1)), "action": 7})
    good = ids(15, "b")
    for n, task_id in enumerate(good):
        w.insert(task_id, at=bucket_at(1 + n % 3))
    recorded = Recorded(w)
    for _ in range(3):
        with beside(w.next_tick):
            assert recorded.reaches(5)
            w.clock.forward(seconds=11)
    assert silent.answered == 0
    the_rest_ends(w)
    survived(w, malformed + good, record_property)


def test_fault_28_the_queue_of_wake_ups_is_silent(wake_up_queue: WakeUpQueue, record_property: Report) -> None:
    """What is due is claimed, executed and recorded while the wake-ups of the next ticks and of retries wait."""
    w = world(rules=rules(precision=Precision.SECOND), wake_ups=wake_up_queue)
    due, failing, later = ids(60, "a"), ids(10, "b"), ids(500, "c")
    w.insert(*due)
    w.insert(*failing, retryPolicy={"minBackoffSeconds": 1})
    for n, task_id in enumerate(later):
        at = bucket_at(1).instant + timedelta(milliseconds=200 * (n + 1))
        w.rigged.put(scheduled_row(task_id, bucket_at(2 + n // 300), dueAt=format_instant(at)))
    w.behave(fails_once, *failing)
    recorded = Recorded(w)
    with beside(w.next_tick):
        assert recorded.reaches(len(due))
        assert wake_up_queue.was_called()
        assert wake_up_queue.answered == 0
        w.clock.forward(seconds=13)  # nothing waits longer for it
    assert wake_up_queue.answered == 0
    assert wake_up_queue.calls <= 2, "one for each thread"
    wake_up_queue.end()
    w.ticks(4)  # they run what no wake-up runs
    assert {w.outcome(task_id) for task_id in due + later + failing} == {"completed"}
    survived(w, due + later + failing, record_property)


def test_fault_30_lambda_answers_no_call_that_starts_an_invocation(record_property: Report) -> None:
    """Neither for other shards nor for recoveries: the own shard's work goes on, and then that of the others."""
    grid, calls = Grid(shard_count=3), Silent()
    w = world(rules=rules(grid=grid))
    w.refused = lambda order: calls.block()
    of_shards: list[list[str]] = [[], [], []]
    for task_id in ids(90):
        of_shards[grid.shard_of(task_id)].append(task_id)
    for shard, task_ids in enumerate(of_shards):
        w.insert(*task_ids, at=bucket_at(1, shard))
    expired = of_shards[0][:5]
    w.claim(*expired, until=NOON)
    w.clock.to(NOON + timedelta(minutes=1))
    recorded = Recorded(w)
    with silence(calls), beside(w.tick):
        assert recorded.reaches(len(of_shards[0]) - len(expired))
        assert calls.was_called()
        assert calls.answered == 0
        assert calls.calls <= 2, "one for the other shards, and one for the recovery"
        calls.end()  # with an error
    assert max(Counter(w.ran).values()) == 1
    survived(w, [task_id for task_ids in of_shards for task_id in task_ids], record_property)


# -- the table -------------------------------------------------------------------------------------------------------


class SilentTable(Silent):
    """A table that does not answer one call of a process, which is killed before it ends."""

    def __init__(self) -> None:
        super().__init__()
        self._first = threading.Lock()

    def is_called(self, wanted: bool = True) -> bool:
        """For the faults of a store: blocks the first call that is wanted, and ends its thread."""
        if not wanted or not self._first.acquire(blocking=False):
            return False
        self.block()
        raise Dies


class SilentBatch(SilentTable):
    """The first batch of a kind of writes has no answer; ``took_effect``: it was carried out."""

    def __init__(self, w: World, kind: Callable[[ConditionalUpdate], bool], *, took_effect: bool) -> None:
        super().__init__()
        self.task_ids: list[str] = []
        self._w, self._kind, self._took_effect = w, kind, took_effect
        self._is_silent = threading.Lock()
        w.rigged.batch_fails = self._fails

    def _fails(self, changes: Sequence[ConditionalUpdate]) -> bool:
        if not self._kind(changes[0]) or not self._is_silent.acquire(blocking=False):
            return False
        self.task_ids = [change.task_id for change in changes]
        if self._took_effect:
            for change in changes:
                MemoryStore.write(self._w.rigged, change)
        return self.is_called()


def dies(run: Callable[[], object]) -> None:
    with pytest.raises(Dies):
        run()


OVER = (SHARD_LEASE + SKEW_MARGIN).total_seconds() + 1  # a shard lease has expired, for every process


def to_its_end(w: World) -> None:
    """The time of an invocation is over, and with it all leases of its tasks."""
    w.clock.to(w.clock() + w.life)


@pytest.mark.parametrize("took_effect", [False, True])
@pytest.mark.parametrize("kind", [is_claim, is_record])
def test_fault_19_claims_or_records_have_no_answer(
    kind: Callable[[ConditionalUpdate], bool], took_effect: bool, record_property: Report
) -> None:
    """The others are executed and recorded. Another process executes what was not claimed, after their leases what was;
    and again, with the same key, what was not recorded."""
    w = world()
    w.insert(*ids(200))
    recorded = Recorded(w)
    with silence(SilentBatch(w, kind, took_effect=took_effect)) as table:
        with beside(w.first_pass):
            assert table.was_called()
            assert recorded.reaches(200 - len(table.task_ids))
            to_its_end(w)
        assert table.answered == 0
        if kind is is_claim:
            status = "running" if took_effect else "scheduled"
            assert {w.row(task_id)["status"] for task_id in table.task_ids} == {status}
        w.run_started()
        w.ticks(4)
        assert table.answered == 0
    again = table.task_ids if kind is is_record and not took_effect else []
    assert Counter(w.ran) == dict.fromkeys(ids(200), 1) | dict.fromkeys(again, 2)
    assert len({*w.actions.keys}) == 200
    survived(w, ids(200), record_property, repeated=len(again))


def test_fault_19_a_query_has_no_answer(record_property: Report) -> None:
    """What was polled before is executed and recorded; a continuation polls the rest."""
    w = world()
    table = SilentTable()
    w.rigged.before_poll = lambda bucket: table.is_called(bucket == bucket_at(2)) and None
    for n, task_id in enumerate(ids(90)):
        w.insert(task_id, at=bucket_at(1 + n // 30))
    recorded = Recorded(w)
    with silence(table):
        with beside(lambda: w.first_pass(3)):
            assert table.was_called()
            assert recorded.reaches(25)  # a full batch; the others wait for some of the next page to share theirs
            w.clock.forward(seconds=CLAIM_DELAY.total_seconds())
            assert recorded.reaches(5)
            to_its_end(w)
        assert table.answered == 0
        assert {*w.ran} == {*ids(30)}
        assert len(w.run_started()) == 1
        assert table.answered == 0
    assert Counter(w.ran) == dict.fromkeys(ids(90), 1)
    survived(w, ids(90), record_property)


@pytest.mark.parametrize("took_effect", [False, True])
def test_fault_19_the_shard_lease_has_no_answer_when_it_is_acquired(took_effect: bool, record_property: Report) -> None:
    """Another process acquires it at the next tick, or once it has expired."""
    w = world()
    w.insert(*ids(50))
    table = SilentTable()
    setattr(w.rigged, "unanswered" if took_effect else "throttled", lambda change: table.is_called(is_cursor(change)))
    with beside(lambda: dies(w.first_pass)), silence(table):
        assert table.was_called()
        w.tick()
        assert len(w.ran) == (0 if took_effect else 50)
        w.clock.forward(seconds=OVER)
        w.tick()
        assert table.answered == 0
        assert Counter(w.ran) == dict.fromkeys(ids(50), 1)
    survived(w, ids(50), record_property)


def test_fault_19_the_shard_lease_has_no_answer_when_it_is_renewed(record_property: Report) -> None:
    """Handlers that have begun, and what was claimed with them, go on; another process executes the rest."""
    w = world(rules=rules(threads=2))
    w.insert(*ids(300))
    table, ended = SilentTable(), threading.Semaphore(0)
    is_first, is_silent = threading.Lock(), threading.Event()

    def runs(task: Task, context: ActionContext) -> None:
        if is_first.acquire(blocking=False):
            w.rigged.throttled = lambda change: table.is_called(is_cursor(change))
            w.clock.forward(seconds=SHARD_LEASE.total_seconds() / 3)
        else:
            assert is_silent.wait(LONG)
        ended.release()

    w.behave(runs, *ids(300))
    with beside(lambda: dies(w.first_pass)), silence(table):
        assert table.was_called()
        is_silent.set()
        assert all(ended.acquire(timeout=LONG) for _ in range(25)), "what was claimed together"
        w.clock.forward(seconds=OVER)
        w.tick()
        assert table.answered == 0
        claimed_by_the_first = {task_id for task_id in ids(300) if w.outcome(task_id) is None}
        assert 24 <= len(claimed_by_the_first) <= 100
        to_its_end(w)
        w.ticks(4)
        assert table.answered == 0
    times = Counter(w.ran)
    assert times.keys() == {*ids(300)}
    assert {task_id for task_id in times if times[task_id] > 1} <= claimed_by_the_first
    assert max(times.values()) == 2
    assert len({*w.actions.keys}) == 300
    survived(w, ids(300), record_property, repeated=sum(1 for number in times.values() if number > 1))


# -- secrets ---------------------------------------------------------------------------------------------------------


class SilentParameters(Silent):
    """SSM: it times out until it answers."""

    is_silent = True

    def get_parameter(self, **request: object) -> Mapping[str, object]:
        if self.is_silent:
            self.block()
            raise ReadTimeoutError(endpoint_url="https://ssm.us-east-1.amazonaws.com/")
        return {"Parameter": {"Value": "hunter2"}}


def of_a_task(secrets: Secrets) -> str:
    return secrets.value(SsmSecret(ssm="/token"), "payload.url")


def of_a_handler(secrets: Secrets) -> str:
    reference = SecretReference.parse("ssm:/token")
    return HandlerSecrets({"TOKEN": reference}, secrets=secrets, clock=FakeClock()).value("TOKEN")


@pytest.mark.parametrize("value", [of_a_task, of_a_handler])
def test_fault_14_secrets_are_silent(value: Callable[[Secrets], str], record_property: Report) -> None:
    """Each task that names one, or whose handler asks for one, waits in its own thread, and is retried."""
    w = world(rules=rules(threads=4))
    needing, good = ids(3, "a"), ids(100, "b")
    w.insert(*needing, *good)
    with silence(SilentParameters()) as parameters:
        secrets = Secrets(["arn:aws:ssm:us-east-1:123456789012:parameter/*"], clients=lambda service: parameters)
        w.behave(lambda task, context: value(secrets), *needing)
        recorded = Recorded(w)
        with beside(w.first_pass):
            assert recorded.reaches(len(good))
            assert all(parameters.was_called() for _ in needing)
            assert parameters.answered == 0
            parameters.end()
    assert [w.row(task_id)["status"] for task_id in needing] == ["scheduled"] * len(needing)
    assert parameters.calls == len(needing)
    parameters.is_silent = False
    w.ticks(3)
    assert Counter(w.ran) == dict.fromkeys(needing, 2) | dict.fromkeys(good, 1)
    survived(w, needing + good, record_property)
