"""Clients cancel, reschedule, replace, delete and insert again, before and while their tasks run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from functools import partial
from threading import Event

import pytest
from tests.builders import key_of
from tests.faults.conftest import NewWorld
from tests.sandbox.journal import Began
from tests.sandbox.process import TIMEOUT_SECONDS
from tests.sandbox.seam import Fault, Seam
from tests.sandbox.world import AFTER_LEASE, TIMEOUT, World

from dynatick import TaskExists, TransitionRefused
from dynatick.client import Exists, Inserted
from dynatick.domain.buckets import Bucket

# -- fault 10: cancel and reschedule race with execution. Exactly one of the two wins, and the loser is refused. -------

# Two claims are under way at the most: when the third begins, one has been answered.
SLOW = [Fault(at="claim", do="freeze before", skip=2), Fault(at="claim", do="wait", amount=0.03, times=None)]


def race(world: World, ids: Sequence[str], change: Callable[[str], object]) -> set[str]:
    """A tick executes these tasks while two threads change them, from both ends. Which they have changed.

    Both get some, however slow one of them is: the changes begin when the tick has claimed some, and it goes on when
    the first of them has succeeded.
    """
    one_succeeded = Event()

    def change_each(part: Sequence[str]) -> set[str]:
        changed: set[str] = set()
        for task_id in part:
            try:
                change(task_id)
                changed.add(task_id)
                one_succeeded.set()
            except TransitionRefused as refused:
                assert refused.status in ("running", "completed"), refused
        return changed

    sandbox = world.frozen_tick(*SLOW)
    half = len(ids) // 2
    with ThreadPoolExecutor(2) as pool:
        both = pool.map(change_each, (ids[:half], ids[: half - 1 : -1]))
        one_succeeded.wait(TIMEOUT_SECONDS)
        sandbox.thaw()
        first, second = both
    assert world.end(sandbox).what == "returned"
    return first | second


@pytest.mark.parametrize("change", ["cancel", "reschedule"])
def test_fault_10_a_change_races_with_execution(new_world: NewWorld, change: str) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = world.insert_soon(240, payload={"seconds": 0.005})
    later = world.bucket(4)
    cancels = change == "cancel"
    changed = race(world, ids, world.cancel if cancels else partial(world.reschedule, task_date_time=later))
    assert 0 < len(changed) < len(ids), "none raced with another"
    world.assert_survived(repeated=0, cancelled=len(changed) if cancels else 0)
    executed = {execution.task_id: execution.instant for execution in world.journal.done()}
    assert executed.keys() == set(ids) - (changed if cancels else set())
    assert len(world.journal.done()) == len(executed)
    assert cancels or {task_id for task_id, at in executed.items() if at >= later.instant} == changed


# -- fault 39: an insert replaces or postpones a task, and meets a claim, a cancel, another, or its own lost answer. ---


@pytest.mark.parametrize("if_exists", ["replace", "postpone"])
def test_fault_39_an_insert_races_with_execution(new_world: NewWorld, if_exists: str) -> None:
    world = new_world(DYNATICK_TASK_THREADS="4")
    ids = world.insert_soon(240, payload={"seconds": 0.005})
    later = world.bucket(4)
    effects: dict[str, str | None] = {}

    def again(task_id: str) -> None:
        given = {"task_date_time": later, "payload": {"seconds": 0.004}}
        effects[task_id] = world.insert_again(task_id, if_exists, **given)

    changed = race(world, ids, again)
    assert changed == effects.keys() and changed, "none raced with another"
    restarted = {task_id for task_id, effect in effects.items() if effect == "restarted"}
    rows = world.rows()
    assert {task_id for task_id in ids if rows[task_id]["payload"] == {"seconds": Decimal("0.004")}} == (
        changed if if_exists == "replace" else restarted
    )
    world.assert_survived(repeated=0)
    executed = {execution.task_id: execution.instant for execution in world.journal.done()}
    assert {task_id for task_id, at in executed.items() if at >= later.instant} == changed
    assert len(world.journal.done()) == len(ids) + len(restarted)
    assert executed.keys() == set(ids)


def test_fault_39_inserts_race_with_each_other_and_with_cancellations(world: World) -> None:
    """Each task is cancelled at last, or runs at the latest of its times, and at none before. One that was cancelled
    and is inserted again waits again."""
    ids = world.insert_soon(60)
    first, latest = world.bucket(3), world.bucket(5)

    def postpone(part: Sequence[str], time: Bucket) -> Counter[str | None]:
        effects: Counter[str | None] = Counter()
        for task_id in part:
            effects[world.insert_again(task_id, "postpone", task_date_time=time)] += 1
        return effects

    def cancel(part: Sequence[str]) -> Counter[str | None]:
        for task_id in part:
            world.cancel(task_id)
        return Counter()

    with ThreadPoolExecutor(3) as pool:
        both = [pool.submit(postpone, ids, first), pool.submit(postpone, ids[::-1], latest)]
        pool.submit(cancel, ids[:20]).result()
        less, more = (one.result() for one in both)
    assert more["kept"] == 0, "a later time is never ignored"
    assert less["kept"] <= more["postponed"] + more["restarted"]
    for task_id in ids[:20]:
        with suppress(TransitionRefused):  # it is cancelled
            world.cancel(task_id)
    world.assert_survived(repeated=0, cancelled=20)
    executed = {execution.task_id: execution.instant for execution in world.journal.done()}
    assert executed.keys() == set(ids[20:])
    assert all(at >= latest.instant for at in executed.values())


@pytest.mark.parametrize("if_exists", ["replace", "postpone"])
def test_fault_39_its_answer_is_lost(world: World, if_exists: str) -> None:
    """The SDK sends it again. It is answered as it took effect, also if the task runs by then."""
    world.insert_soon(["t"])
    seam = Seam()
    with seam.installed():
        seam.arm([Fault(at="other", do="lose response")])
        effect = world.insert_again("t", if_exists, task_date_time=world.bucket(3), payload={"seconds": 0.001})
    assert (effect, seam.hits) == (f"{if_exists.removesuffix('e')}ed", {"lose response @ other": 1})
    world.assert_survived(repeated=0)


# -- fault 13: two tasks with the same id, or nearly the same. A second insert is refused, a plain put replaces what
# waits (what it does to a task in flight is fault 26). ----------------------------------------------------------------

LONG = "i" * 1000
ALIKE = [
    "a", "A", "a ", " a", "a#", "a#1", "a#1#1", "a.1", "a/1", "a-1", "a_1", "a\t", "a\u200b",
    "caf\u00e9", "cafe\u0301",  # the same to the eye
    *(LONG[:size] + tail for size in (62, 63, 126, 127, 253, 254, 998) for tail in ("1", "2")),
    "0", "00", "0.0", "1e3", "1000", "null", "None", "\U0001f600", "\U0001f601",
]  # fmt: skip


def test_fault_13_the_second_insert_is_refused(world: World) -> None:
    """Several clients insert it at once, and one inserts it twice in a call."""

    def insert(number: int) -> int | None:
        try:
            world.insert(f"t{number % 20:02d}", delay_seconds=30, payload={"number": number})
        except TaskExists as error:
            assert f"t{number % 20:02d}" in str(error)
            return None
        return number % 20

    with ThreadPoolExecutor(4) as pool:
        accepted = Counter(pool.map(insert, range(80)))
    assert accepted == {None: 60, **dict.fromkeys(range(20), 1)}
    before = world.rows()
    with pytest.raises(TaskExists):
        world.client.insert("t00", delay_seconds=90)
    many = [{"taskId": f"t{n % 30:02d}", "delaySeconds": 30} for n in range(60)]
    results = list(world.client.insert_lazily(many))
    assert [type(result) for result in results] == [Inserted if 20 <= n < 30 else Exists for n in range(60)]
    after = world.rows()
    assert {task_id: after[task_id] for task_id in before} == before
    world.note_inserts(many[20:30])
    world.next_tick()
    world.assert_survived(executed=30)


def test_fault_13_ids_that_are_nearly_the_same(world: World) -> None:
    world.insert_soon(ALIKE)
    world.next_tick()
    world.assert_survived()
    executed = world.journal.done()
    assert Counter(execution.task_id for execution in executed) == dict.fromkeys(ALIKE, 1)
    assert len({execution.key for execution in executed}) == len(ALIKE)


def test_fault_13_a_plain_put_replaces_what_waits(world: World) -> None:
    """Whatever time the old one had. It never runs; the new one runs once, with another key."""
    ids = [f"t{number:02d}" for number in range(20)]
    for number, task_id in enumerate(ids):
        world.insert(task_id, delay_seconds=[30, 90, 3600][number % 3], payload={"permanent": True})
    world.deliver_stream()
    replaced = {key_of(row) for row in world.rows().values()}
    for task_id in ids:
        world.put(taskId=task_id, delaySeconds=100)
    world.deliver_stream()
    world.next_tick()
    world.assert_survived(replaced=20)
    keys = sorted(execution.key for execution in world.journal.of(Began))
    assert keys == sorted(map(key_of, world.rows().values()))
    assert replaced.isdisjoint(keys)


# -- fault 18: deleted by hand while it waits, is claimed, runs, or is about to be recorded. It stays deleted. ---------

DELETED = [f"deleted-{n}" for n in range(10)]
KEPT = [f"kept-{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("at", "payload", "executed"),
    [
        ("claim", {}, False),  # it was polled, and waits
        ("record", {}, True),  # it has run, and its outcome is on the way
        ("record", {"failures": 1}, False),  # so is its retry
        ("record", {"permanent": True}, False),  # or its failure
        ("dead letters", {"permanent": True}, False),  # of which no dead letter is sent yet
        ("release shard", {"failures": 1}, False),  # it waits for its retry
    ],
)
def test_fault_18_deleted_at_a_step_of_its_pass(
    world: World, at: str, payload: dict[str, object], executed: bool
) -> None:
    world.insert_soon([*DELETED, *KEPT], payload=payload, retryPolicy={"minBackoffSeconds": 0})
    sandbox = world.frozen_tick(Fault(at=at, do="freeze before"))
    world.delete(*DELETED)
    world.thaw(sandbox)
    assert set(world.rows()) == set(KEPT)
    world.assert_survived(deleted=0 if executed else 10, failed=10 if payload.get("permanent") else 0)
    assert set(world.rows()) == set(KEPT)


def test_fault_18_deleted_before_the_scheduler_has_seen_it(world: World) -> None:
    """Between its record and its write, too."""
    for number, task_id in enumerate((*DELETED, *KEPT)):
        # What must lose more than one attribute is written singly, not in a batch.
        world.put(taskId=task_id, **({"lease": 1, "startedAt": 2} if number % 2 else {}))
    sandbox = world.sandbox("scheduler")
    sandbox.begin({"Records": world.stream.new()}, timeout=TIMEOUT, faults=[Fault(at="other", do="freeze before")])
    assert world.end(sandbox).what == "frozen"
    world.delete(*DELETED)
    assert world.thaw(sandbox).value == {"batchItemFailures": []}
    assert set(world.rows()) == set(KEPT)
    world.next_tick()
    world.assert_survived(deleted=10)
    assert set(world.rows()) == set(KEPT)


# -- fault 26: replaced, deleted, or deleted and inserted again while it is in flight, in one pass and across passes.
# The others are untouched, no process dies, and the new task is executed once, with an idempotency key of its own. ----

REPLACED = [f"replaced-{n}" for n in range(4)]
GONE = [f"deleted-{n}" for n in range(4)]
AGAIN = [f"again-{n}" for n in range(4)]
OTHERS = [f"other-{n:02d}" for n in range(13)]
ALL = [*REPLACED, *GONE, *AGAIN, *OTHERS]  # one claim
NEW = [*REPLACED, *AGAIN]


def change_in_flight(world: World, **row: object) -> None:
    """Changes the row by plain writes while the task is in flight."""
    world.delete(*GONE, *AGAIN)
    for task_id in NEW:
        world.put(taskId=task_id, **row)


def assert_both_were_executed(world: World) -> None:
    keys: defaultdict[str, list[str]] = defaultdict(list)
    for execution in world.journal.done():
        keys[execution.task_id].append(execution.key)
    for task_id in NEW:
        first, second = keys[task_id]
        assert first != second, f"two tasks {task_id} have the idempotency key {first}"
        assert world.row(task_id)["outcome"] == "completed"
    assert {len(keys[task_id]) for task_id in (*GONE, *OTHERS)} == {1}
    assert set(world.rows()) == world.inserted - set(GONE)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_fault_26_changed_while_the_first_pass_has_it_in_flight(world: World, dies: bool) -> None:
    """The next tick meets the new task before the old one is recorded."""
    world.insert_for_next_tick(ALL)
    first = world.frozen_tick(Fault(at="record", do="freeze before"))
    begun = world.executed()  # how many, depends on the threads
    assert begun & set(AGAIN)
    change_in_flight(world)
    world.deliver_stream()
    world.next_tick()
    (world.kill if dies else world.thaw)(first)
    world.clock.forward(seconds=AFTER_LEASE)
    old = (begun if dies else set(ALL)) - set(OTHERS)
    not_executed = set(ALL) - set(OTHERS) - old
    world.assert_survived(
        executed=len(OTHERS) + len(old) + len(NEW),
        deleted=len(not_executed - set(REPLACED)),
        replaced=len(not_executed & set(REPLACED)),
    )
    if dies:  # what it had executed and not recorded is executed again, and that is another fault's test
        assert {row["outcome"] for row in world.rows().values()} == {"completed"}
    else:
        assert_both_were_executed(world)


@pytest.mark.parametrize("streamed", [False, True], ids=["the stream is late", "the stream is quick"])
def test_fault_26_the_same_pass_meets_the_new_task(new_world: NewWorld, streamed: bool) -> None:
    """The pass polls its bucket later, before its claim of the old one is answered."""
    world = new_world(DYNATICK_TASK_THREADS="32")
    last = world.bucket(10)
    world.insert_for_next_tick(ALL, payload={"seconds": 1.0})
    world.insert_soon(["last"], taskDateTime=last)
    world.deliver_stream()
    world.to_next_minute(10)
    sandbox = world.sandbox()
    # The first claim is made while later polls wait, and then nothing goes on until the rows are changed.
    faults = [Fault(at="poll", do="wait", amount=1.5, skip=6, times=6), Fault(at="claim", do="freeze after")]
    sandbox.begin(world.event(), timeout=TIMEOUT, faults=faults)
    assert world.end(sandbox).what == "frozen"
    assert {row["status"] for task_id, row in world.rows().items() if task_id in ALL} == {"running"}
    change_in_flight(world, taskDateTime=str(last), action="journal")
    if streamed:
        world.deliver_stream()
    world.thaw(sandbox)
    world.run_started()
    world.clock.forward(seconds=AFTER_LEASE)
    world.assert_survived(executed=len(ALL) + len(NEW) + 1)
    assert_both_were_executed(world)
