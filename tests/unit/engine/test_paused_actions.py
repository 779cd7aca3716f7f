"""One action is paused: ten seconds later none of its tasks begins, all others run, and none is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from tests.builders import NOON, scheduled_row
from tests.unit.engine.support import (
    NOON_MINUTE,
    PacedClock,
    World,
    bucket_at,
    ids,
    is_claim,
    is_move,
    reports,
    world,
)
from tests.unit.engine.test_packs import pack_of, put_pack
from tests.unit.engine.test_pause_watch import handle, is_released, report_of, wait_until
from tests.unit.engine.test_turns import rules_of

from dynatick import TaskClient
from dynatick.actions.rate_limit import RateLimitedAction, RateLimits
from dynatick.actions.registry import Registry
from dynatick.domain.buckets import Bucket, Grid, instant_of
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import format_instant
from dynatick.domain.pause import LONGEST_WAIT, ActionPause
from dynatick.domain.row import Due
from dynatick.domain.task import Task
from dynatick.engine.counts import PassReport
from dynatick.engine.invocation import PAUSE_CHECK, PauseWatch
from dynatick.engine.orders import Order, PassOrder, RecoveryOrder, WakeUp, WorkOrder
from dynatick.engine.ports import ActionContext, Page
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.settings import (
    MAX_PAUSED_ACTIONS,
    MAX_PAUSES_KEPT,
    SETTINGS_ID,
    pause,
    pause_action,
    publish_settings,
    read_pauses,
    read_settings,
    resume_action,
)
from dynatick.errors import ConfigurationError, InvalidInput
from dynatick.store.memory import MemoryStore
from dynatick.testing.queues import WakeUps

MAIL = "send-mail"
MAILS, OTHERS = ids(20, "mail"), ids(20, "other")
AT = bucket_at(1)
SOON_KNOWN = PAUSE_CHECK.total_seconds() + 0.1


def pause_now(w: World, action: str = MAIL) -> ActionPause:
    return pause_action(w.store, action, now=w.clock(), by="ada", reason="the mail server is down")


def resume_now(w: World, action: str = MAIL) -> ActionPause:
    ended = resume_action(w.store, action, now=w.clock())
    assert ended is not None
    return ended


def until_known(w: World, watch: PauseWatch, action: str = MAIL, *, paused: bool = True) -> None:
    """Time goes on, and the invocation learns whether an action is paused."""
    w.clock.forward(seconds=SOON_KNOWN)
    watch.is_paused()  # begins to read
    wait_until(lambda: (action in watch.actions) == paused)


def with_tasks(w: World) -> World:
    w.insert(*MAILS, action=MAIL)
    w.insert(*OTHERS)
    return w


def claims_of(w: World, *task_ids: str) -> list[ConditionalUpdate]:
    return [change for change in w.rigged.writes if is_claim(change) and change.task_id in task_ids]


def until(w: World, instant: datetime) -> list[PassReport]:
    """Ticks until an instant, and the reports of their passes."""
    found: list[PassReport] = []
    while w.clock() < instant:
        found += reports(w.next_tick())
    return found


def ticks_until_moved(w: World, task_id: str) -> None:
    for _ in range(12):
        w.next_tick()
        if "movedTo" in w.row(task_id):
            return
    raise AssertionError(f"after 12 ticks {task_id} has not been moved")


# -- what is due -------------------------------------------------------------------------------------------------------


def test_what_is_due_is_not_claimed_and_all_others_run(w: World) -> None:
    with_tasks(w)
    pause_now(w)
    report = w.first_pass()
    assert sorted(w.ran) == OTHERS
    assert (report.due, report.claimed, report.released, report.resume, w.started) == (20, 20, 0, None, [])
    assert claims_of(w, *MAILS) == []
    assert {(row["attempt"], row["status"]) for row in map(w.row, MAILS)} == {(0, "scheduled")}


def test_it_is_moved_so_that_its_bucket_is_closed_and_no_pass_reads_it_until_then(w: World) -> None:
    pause_now(w)
    w.ticks(20)
    w.insert(*MAILS, at=bucket_at(21), action=MAIL)
    ticks_until_moved(w, MAILS[0])
    rows = [w.row(task_id) for task_id in MAILS]
    (moved_to,) = {str(row["taskDateTime"]) for row in rows}
    at = w.clock() - NOON
    assert at <= timedelta(minutes=27), "at the final poll of its bucket"
    wait = instant_of(Bucket.parse(moved_to).minute) - w.clock()
    assert at / 4 <= wait < at / 4 + timedelta(minutes=1), "a quarter of the time since the pause began"
    assert {(row["dueAt"], row["movedTo"], row["attempt"]) for row in rows} == {("2026-12-31T12:21:00Z", moved_to, 0)}
    w.next_tick()
    assert w.cursor().drained_through >= NOON_MINUTE + 21
    w.rigged.forget()
    w.next_tick()
    assert not {*w.rigged.reads} & {*MAILS}
    assert not [change for change in w.rigged.writes if change.task_id in MAILS]


def test_after_the_pause_all_begin_within_what_it_says_and_as_late_as_they_are(w: World) -> None:
    with_tasks(w)
    pause_now(w)
    w.ticks(40)
    assert sorted(w.ran) == OTHERS
    ended = resume_now(w)
    assert ended.until is not None
    by = ended.begin_by(ended.until, w.rules.grid)
    assert by - ended.until <= timedelta(minutes=12), "a quarter of forty minutes, ten seconds, and a tick"
    late = [report.lateness.max or 0 for report in until(w, by)]
    assert max(late) >= 40 * 60_000
    w.assert_each_ran_once(*MAILS, *OTHERS)
    w.until_drained()


def test_a_move_into_a_bucket_that_was_closed_meanwhile_goes_on_to_an_open_one(w: World) -> None:
    """The process was frozen before it wrote it (7). No later tick is needed to see it."""
    w.insert("mail", action=MAIL)
    pause_now(w)

    with w.rigged.meanwhile(is_move, lambda: w.is_frozen(minutes=10)):
        ticks_until_moved(w, "mail")
    moved = next(change for change in w.rigged.writes if is_move(change))
    assert Bucket.parse(moved.set["taskDateTime"]).minute <= w.cursor().closed_through
    assert Bucket.parse(w.row("mail")["taskDateTime"]).minute > w.cursor().closed_through
    resume_now(w)
    w.ticks(17)
    w.assert_each_ran_once("mail")


def test_a_task_without_a_status_is_made_ready_once_and_waits(w: World) -> None:
    """The index says no instant of it, so it is claimed, which normalises it, and released."""
    pause_now(w)
    assert isinstance(w.store, MemoryStore)
    w.store.put({"taskId": "raw", "taskDateTime": str(AT), "action": MAIL})
    report = w.first_pass()
    assert (w.ran, w.row("raw")["attempt"], is_released(w, "raw")) == ([], 0, True)
    assert (report.released, report.resume, w.started) == (1, None, [])
    claims = len(claims_of(w, "raw"))
    w.until_drained()
    assert (w.ran, len(claims_of(w, "raw"))) == ([], claims)
    resume_now(w)
    w.ticks(6)
    w.assert_each_ran_once("raw")


def test_an_index_that_is_behind_lets_a_pass_claim_it_once(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    w.insert("mail", action=MAIL)
    w.insert("other")
    pause_now(w)
    query = w.rigged.query_bucket

    def behind(bucket: Bucket, **options: object) -> Page:
        page = query(bucket, **options)
        return Page([replace(entry, action="another") for entry in page.entries], page.after)

    monkeypatch.setattr(w.rigged, "query_bucket", behind)
    w.first_pass()
    assert (w.ran, len(claims_of(w, "mail"))) == (["other"], 1)
    w.next_tick()
    assert (w.ran, w.row("mail")["attempt"]) == (["other"], 0)


def test_run_now_waits_too(w: World) -> None:
    pause_now(w)
    w.insert("mail", at=bucket_at(30), action=MAIL)
    TaskClient(w.store, clock=w.clock).run_now("mail")
    w.ticks(3)
    assert w.ran == []
    resume_now(w)
    w.ticks(6)
    assert w.ran == ["mail"]


def test_a_retry_waits_and_counts_no_attempt_meanwhile(w: World) -> None:
    def fails_once(task: Task, context: ActionContext) -> None:
        if context.attempt == 1:
            raise ValueError("no answer")

    w.insert("mail", action=MAIL)
    w.behave(fails_once, "mail")
    w.next_tick()
    pause_now(w)
    w.ticks(20)
    assert w.actions.ran == [("mail", 1, 1)]
    resume_now(w)
    w.ticks(8)
    assert w.actions.ran == [("mail", 1, 1), ("mail", 1, 2)]


def test_the_occurrences_of_a_schedule_wait(w: World) -> None:
    w.put(taskId="often", scheduleExpression="rate(2 minutes)", action=MAIL, overlap="allow")
    pause_now(w)
    w.ticks(9)
    assert w.ran == []
    resume_now(w)
    w.ticks(6)
    assert len(w.ran) == len({*w.ran}) >= 6
    assert {attempt for _, _, attempt in w.actions.ran} == {1}


def test_a_task_whose_process_died_is_not_attempted_again_and_does_not_hold_its_bucket_back(w: World) -> None:
    w.insert("mail", "last", action=MAIL)
    w.claim("mail", until=NOON + timedelta(seconds=70))
    w.store.put({**w.row("last"), "retryPolicy": {"maximumRetryAttempts": 0}})  # type: ignore[attr-defined]
    w.claim("last", until=NOON + timedelta(seconds=70))
    pause_now(w)
    w.until_drained(10)
    assert (w.ran, w.dead_letters.letters) == ([], [])
    resume_now(w)
    w.ticks(8)
    assert w.actions.ran == [("mail", 1, 2)]
    assert w.outcome("last") == "failed"
    w.until_drained()


def test_a_completion_that_does_not_come_in_time_is_no_new_attempt_meanwhile(w: World) -> None:
    w.insert("mail", action=MAIL)
    until_then = format_instant(NOON + timedelta(minutes=3))
    row = {**w.row("mail"), "status": "waiting", "attempt": 1, "lease": "t", "leaseUntil": until_then}
    w.store.put({**row, "completeBy": until_then, "taskDateTime": str(bucket_at(3))})  # type: ignore[attr-defined]
    pause_now(w)
    w.ticks(9)
    assert w.ran == []
    w.until_drained()
    resume_now(w)
    w.ticks(8)
    assert w.actions.ran == [("mail", 1, 2)]


# -- what was claimed --------------------------------------------------------------------------------------------------

ORDERS = [
    PassOrder(tick=NOON_MINUTE + 1),
    RecoveryOrder(bucket=AT, task_ids=tuple(sorted([*MAILS, *OTHERS]))),
    WorkOrder(bucket=AT, after=None, through="z", until=NOON + timedelta(minutes=9)),
    WakeUp(bucket=AT, due=tuple(Due(AT.instant, task_id) for task_id in sorted([*MAILS, *OTHERS]))),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_what_is_claimed_and_not_begun_is_released_while_others_go_on(order: Order, watches: list[PauseWatch]) -> None:
    clock = PacedClock()
    w = with_tasks(world(clock=clock, rules=Rules(threads=1)))
    if isinstance(order, RecoveryOrder):
        w.claim(*MAILS, *OTHERS, until=NOON + timedelta(seconds=10))
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    began: list[str] = []

    def pauses(task: Task, context: ActionContext) -> None:
        began.append(task.task_id)
        if len(began) > 1:
            return
        pause_now(w)
        until_known(w, watches[-1])
        if not isinstance(order, WakeUp):  # it claims no more than there are threads for
            wait_until(lambda: any(is_released(w, task_id) for task_id in MAILS if task_id not in began))

    w.behave(pauses, *MAILS, *OTHERS)
    report = report_of(w.handle(order.to_event()))
    mails = [task_id for task_id in w.ran if task_id in MAILS]
    assert len(mails) <= 1, "that in which the pause began"
    assert sorted({*w.ran} - {*mails}) == OTHERS
    assert (report.paused, report.continued, w.started) == (False, False, [])
    rows = [w.row(task_id) for task_id in MAILS if task_id not in mails]
    assert {row["attempt"] for row in rows} == {int(isinstance(order, RecoveryOrder))}
    assert w.dead_letters.letters == []
    resume_now(w)
    w.ticks(8)
    assert sorted(w.ran) == sorted([*MAILS, *OTHERS])


def test_in_one_thread_too_nothing_of_it_begins_ten_seconds_later() -> None:
    w = with_tasks(world(rules=Rules(in_one_thread=True)))
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    began: dict[str, datetime] = {}
    paused_at: list[datetime] = []

    def takes_a_second(task: Task, context: ActionContext) -> None:
        began[task.task_id] = w.clock()
        if len(began) == 2:
            pause_now(w)
            paused_at.append(w.clock())
        w.clock.forward(seconds=1)

    w.behave(takes_a_second, *MAILS, *OTHERS)
    w.handle(ORDERS[0].to_event())
    of_mails = [at for task_id, at in began.items() if task_id in MAILS]
    assert all(at < paused_at[0] + timedelta(seconds=10) for at in of_mails)
    assert len(of_mails) < len(MAILS)
    assert {*OTHERS} <= began.keys()


def test_what_waits_for_a_rate_limit_is_released_at_once() -> None:
    w = world(rules=Rules(threads=4, limited_actions=frozenset({MAIL})))
    w.insert(*MAILS, action=MAIL)
    w.insert("other")
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    processor, run = handle(w, ORDERS[0])
    running = w.actions
    actions, limits = Registry(), RateLimits([f"{MAIL}=1/m"], clock=w.clock, horizon=3600.0)
    actions.add(MAIL, RateLimitedAction(MAIL, running, limits))
    actions.add("log", running)
    object.__setattr__(processor, "actions", actions)

    def pauses(task: Task, context: ActionContext) -> None:
        wait_until(lambda: processor.executions[-1].task_pool.rate_limited >= len(MAILS) - 1)
        pause_now(w)
        w.clock.forward(seconds=SOON_KNOWN)
        wait_until(lambda: sum(is_released(w, task_id) for task_id in MAILS) >= len(MAILS) - 1)

    w.behave(pauses, "other")
    report = report_of(run())
    assert (report.completed, report.released, report.resume) == (2, len(MAILS) - 1, None)


def test_a_process_that_kept_the_settings_learns_of_it_within_seconds(w: World) -> None:
    with_tasks(w)
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    wake_up = WakeUp(bucket=AT, due=tuple(Due(AT.instant, task_id) for task_id in (MAILS[0], OTHERS[0])))
    processor = w.processor
    processor.handle(WorkOrder(bucket=AT, after="y", through="z", until=NOON).to_event(), hard_end=w.clock() + w.life)
    pause_now(w)
    w.clock.forward(seconds=SOON_KNOWN)
    processor.handle(wake_up.to_event(), hard_end=w.clock() + w.life)
    assert w.ran == OTHERS[:1]


def test_what_is_resumed_while_a_pass_works_begins_in_that_pass(w: World, watches: list[PauseWatch]) -> None:
    with_tasks(w)
    pause_now(w)
    resumed = threading.Event()

    def resumes(task: Task, context: ActionContext) -> None:
        resume_now(w)
        resumed.set()
        until_known(w, watches[-1], paused=False)

    def polls(bucket: Bucket) -> None:
        if resumed.is_set():
            wait_until(lambda: MAIL not in watches[-1].actions)

    w.behave(resumes, OTHERS[-1])
    w.rigged.before_poll = polls
    w.first_pass()
    assert sorted(w.ran) == sorted([*MAILS, *OTHERS])


# -- packs and keys ----------------------------------------------------------------------------------------------------


def test_a_pack_waits_as_a_whole(w: World) -> None:
    pack_id = put_pack(w, [{"n": n} for n in range(7)], action=MAIL)
    pause_now(w)
    w.until_drained()
    assert (w.ran, claims_of(w, pack_id)) == ([], [])
    resume_now(w)
    w.ticks(6)
    assert sorted(w.ran) == [f"news/00000000{n}" for n in range(7)]
    assert w.outcome(pack_id) == "completed"


@pytest.mark.parametrize("in_one_thread", [False, True])
def test_members_that_have_not_begun_are_released_with_what_has_completed(
    in_one_thread: bool, watches: list[PauseWatch]
) -> None:
    w = world(rules=Rules(threads=1, in_one_thread=in_one_thread))
    pack_id = put_pack(w, [{"n": n} for n in range(7)], action=MAIL)

    def pauses(task: Task, context: ActionContext) -> None:
        pause_now(w)
        until_known(w, watches[-1])

    w.behave(pauses, "news/000000002")
    w.rigged.forget()
    w.next_tick()
    assert w.ran[:3] == [f"news/00000000{n}" for n in range(3)]
    assert len(w.ran) <= 4
    assert pack_of(w, pack_id).done == (1 << len(w.ran)) - 1
    assert is_released(w, pack_id)
    w.until_drained()
    assert len(w.ran) <= 4
    resume_now(w)
    w.ticks(6)
    assert sorted(w.ran) == [f"news/00000000{n}" for n in range(7)]
    assert {attempt for *_, attempt in w.actions.ran} == {1}


def test_a_member_that_takes_long_holds_up_nothing_else(watches: list[PauseWatch]) -> None:
    """Its pack has members that will not begin here: they need no room, and no payloads that could begin instead."""
    w = world(rules=Rules(threads=3))
    for action in "abc":
        put_pack(w, [{}] * 30, batch_id=action, action=action, taskDateTime=str(AT))
    w.insert("other", at=bucket_at(2))

    def takes_long(task: Task, context: ActionContext) -> None:
        wait_until(lambda: {"c/000000029", "other"} <= {*w.ran})

    def pauses(task: Task, context: ActionContext) -> None:
        pause_now(w, task.action)
        until_known(w, watches[-1], task.action)

    def waits(task: Task, context: ActionContext) -> None:
        wait_until(lambda: task.action in watches[-1].actions)

    w.behave(waits, *(f"{action}/{n:09}" for action in "ab" for n in range(30)))
    w.behave(takes_long, "a/000000000", "b/000000000")
    w.behave(pauses, "a/000000001", "b/000000001")
    report = w.first_pass(2)
    assert report.retried == 0, "they did not wait in vain"
    begun = Counter(task_id[0] for task_id in w.ran)
    assert begun["a"] < 30 and begun["b"] < 30, "those of which a member took long had others that did not begin"
    assert begun["c"] == 30


def test_tasks_with_a_limit_key_let_others_of_the_key_take_their_turn(watches: list[PauseWatch]) -> None:
    w = world(rules=rules_of("host=1", threads=1))
    w.insert(*MAILS, action=MAIL, limitKey="host:a")
    w.insert(*OTHERS, limitKey="host:a")
    w.clock.to(NOON + timedelta(minutes=1, milliseconds=200))
    began: list[str] = []

    def pauses(task: Task, context: ActionContext) -> None:
        began.append(task.task_id)
        if len(began) == 1:
            pause_now(w)
            until_known(w, watches[-1])

    w.behave(pauses, *MAILS, *OTHERS)
    w.tick()
    w.until_drained()
    assert len([task_id for task_id in w.ran if task_id in MAILS]) <= 2, "until the pass knew"
    assert {*OTHERS} <= {*w.ran}
    resume_now(w)
    w.ticks(8)
    assert sorted(w.ran) == sorted([*MAILS, *OTHERS])
    w.until_drained()


def test_a_key_that_only_paused_tasks_have_keeps_its_bucket_no_longer_than_the_others() -> None:
    w = world(rules=rules_of("host=1"))
    pack_id = put_pack(w, [{"n": n} for n in range(3)], action=MAIL, limitKey="host:a")
    w.insert(*MAILS, action=MAIL, limitKey="host:a")
    pause_now(w)
    w.until_drained()
    assert (w.ran, claims_of(w, pack_id, *MAILS)) == ([], [])
    resume_now(w)
    w.ticks(8)
    assert len(w.ran) == len(MAILS) + 3


# -- to the second -----------------------------------------------------------------------------------------------------


def test_no_wake_up_is_planned_for_it() -> None:
    queue = WakeUps()
    w = world(rules=Rules(precision=Precision.SECOND), wake_ups=queue)
    at = format_instant(instant_of(NOON_MINUTE + 3) - timedelta(seconds=20))
    assert isinstance(w.store, MemoryStore)
    w.store.put(scheduled_row("mail", bucket_at(3), action=MAIL, dueAt=at))
    w.store.put(scheduled_row("other", bucket_at(3), dueAt=at))
    pause_now(w)
    w.next_tick()
    sent = str(queue.take_first())
    assert ("other" in sent, "mail" in sent, queue.first_at) == (True, False, None)


# -- the settings row --------------------------------------------------------------------------------------------------


def test_a_second_pause_of_an_action_is_the_first_one(w: World) -> None:
    first = pause_now(w)
    w.clock.forward(minutes=5)
    assert pause_now(w) == first
    assert first == ActionPause(action=MAIL, since=NOON, by="ada", reason="the mail server is down")
    pause_now(w, "webhook")
    settings = read_settings(w.store)
    assert settings is not None
    assert (settings.paused_actions[MAIL], {*settings.paused_actions}) == (first, {MAIL, "webhook"})
    assert read_pauses(w.store) == (None, settings.paused_actions)


def test_resuming_an_action_leaves_the_others_and_everything_paused(w: World) -> None:
    pause(w.store, now=w.clock(), by=None, reason=None)
    pause_now(w)
    other = pause_now(w, "webhook")
    w.clock.forward(minutes=5)
    ended = resume_now(w)
    assert (ended.action, ended.since, ended.until) == (MAIL, NOON, NOON + timedelta(minutes=5))
    assert resume_action(w.store, MAIL, now=w.clock()) is None
    settings = read_settings(w.store)
    assert settings is not None and settings.pause is not None
    assert (settings.paused_actions, settings.action_pauses) == ({"webhook": other}, (ended,))
    resume_now(w, "webhook")
    assert "pausedActions" not in w.row(SETTINGS_ID)


def test_the_last_pauses_are_kept_and_no_more_than_a_hundred_actions_are_paused(w: World) -> None:
    for n in range(MAX_PAUSED_ACTIONS):
        pause_now(w, f"action-{n}")
    with pytest.raises(InvalidInput, match="100 actions are paused, which is the maximum"):
        pause_now(w)
    for n in range(MAX_PAUSES_KEPT + 1):
        resume_now(w, f"action-{n}")
    settings = read_settings(w.store)
    assert settings is not None
    assert [one.action for one in settings.action_pauses] == [f"action-{n}" for n in range(1, MAX_PAUSES_KEPT + 1)]


@pytest.mark.parametrize("change", [pause_now, resume_now])
def test_a_write_without_an_answer_is_known_by_its_effect(w: World, change: Callable[[World], ActionPause]) -> None:
    pause_now(w, "webhook")
    if change is resume_now:
        pause_now(w)
    w.clock.forward(minutes=1)
    w.rigged.unanswered = lambda update: update.task_id == SETTINGS_ID
    found = change(w)
    assert (found.since if change is pause_now else found.until) == w.clock()


def test_two_who_pause_at_once_both_do(w: World) -> None:
    with w.rigged.meanwhile(
        lambda update: update.task_id == SETTINGS_ID,
        lambda: MemoryStore.write(
            w.store,  # type: ignore[arg-type]
            ConditionalUpdate(task_id=SETTINGS_ID, set={"pausedActions": {"webhook": {}}}),
        ),
    ):
        pause_now(w)
    assert {*read_pauses(w.store)[1]} == {MAIL, "webhook"}


def test_before_the_first_tick_there_is_nothing_to_pause() -> None:
    with pytest.raises(ConfigurationError, match="no tick has come yet"):
        pause_now(World())


def test_a_deployment_leaves_the_pauses(w: World) -> None:
    pause_now(w)
    publish_settings(w.store, Grid(tick_minutes=5), now=w.clock())
    assert {*read_pauses(w.store)[1]} == {MAIL}


@pytest.mark.parametrize("written", [{MAIL: True}, {MAIL: {"since": "yesterday"}}, {MAIL: {}}])
def test_what_was_written_by_hand_pauses_too(w: World, written: Mapping[str, object]) -> None:
    with_tasks(w)
    w.store.put({**w.row(SETTINGS_ID), "pausedActions": written})  # type: ignore[attr-defined]
    w.next_tick()
    assert sorted(w.ran) == OTHERS
    w.until_drained()
    assert {row["attempt"] for row in map(w.row, MAILS)} == {0}


# -- how long it is left alone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "tick_minutes", "expected"),
    [
        (timedelta(seconds=3), 1, timedelta(minutes=1)),
        (timedelta(seconds=-3), 1, timedelta(minutes=1)),  # by the clock of another host
        (timedelta(minutes=20), 1, timedelta(minutes=5)),
        (timedelta(hours=1), 1, LONGEST_WAIT),
        (timedelta(days=9), 1, LONGEST_WAIT),
        (None, 1, LONGEST_WAIT),
        (timedelta(minutes=2), 60, timedelta(hours=1)),
    ],
)
def test_it_is_left_alone_for_a_quarter_of_the_pause(
    since: timedelta | None, tick_minutes: int, expected: timedelta
) -> None:
    one = ActionPause(action=MAIL, since=None if since is None else NOON - since)
    assert one.wait(NOON, Grid(tick_minutes=tick_minutes)) == expected


@pytest.mark.parametrize("minutes", [1, 7, 40, 90])
def test_no_move_that_a_pass_makes_goes_beyond_what_the_end_of_the_pause_says(minutes: int) -> None:
    grid, one = Grid(), ActionPause(action=MAIL, since=NOON)
    ended = NOON + timedelta(minutes=minutes, seconds=29)
    by = one.begin_by(ended, grid)
    moments: Sequence[datetime] = [ended + timedelta(seconds=second) for second in range(-3600, 11, 7)]
    assert all(instant_of(grid.tick_at_or_after(at + one.wait(at, grid))) <= by for at in moments if at >= NOON)
    assert by <= ended + max(timedelta(minutes=1), min(timedelta(minutes=minutes + 1) / 4, LONGEST_WAIT)) + timedelta(
        seconds=75
    )


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_where_nothing_is_paused_nothing_more_is_read_or_written(w: World) -> None:
    with_tasks(w)
    w.rigged.forget()
    w.first_pass()
    assert w.rigged.reads.count(SETTINGS_ID) == 1
    assert not [change for change in w.rigged.writes if change.task_id == SETTINGS_ID]
    assert "pausedActions" not in w.row(SETTINGS_ID)
