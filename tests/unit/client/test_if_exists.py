"""An insert of an id that a task has already: refused, or the task is kept, replaced or postponed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.builders import key_of, scheduled_row
from tests.unit.client.support import be_first, client_of, each_state, started, world_of
from tests.unit.engine.support import World, bucket_at

from dynatick import InvalidInput, TaskClient, TaskExists, TransitionRefused, task, use_client
from dynatick.domain.conditional_update import ConditionalUpdate
from dynatick.domain.instants import parse_instant
from dynatick.errors import StoreError

HOUR = timedelta(hours=1)
FIRST: dict[str, Any] = {
    "due_at": "2026-12-31T13:00:00Z",
    "action": "log",
    "payload": {"n": 1},
    "retry_policy": {"maximumRetryAttempts": 2},
    "timeout_seconds": 30,
    "subject": "customer:4711",
    "limit_key": "customer:4711",
    "attributes": {"mine": 1},
}
OTHER: dict[str, Any] = {
    "due_at": "2026-12-31T14:00:00Z",
    "payload": {"n": 0.1},
    "action": "log",
    "subject": "customer:4711",
    "limit_key": "customer:4711",
    "attributes": {"yours": 2},
}


@pytest.fixture
def present(world: World, client: TaskClient) -> World:
    client.insert("a", **FIRST)
    return world


@pytest.mark.parametrize("mode", ["refuse", "keep", "replace", "postpone"])
def test_without_such_a_task_it_is_created_as_ever(world: World, client: TaskClient, mode: str) -> None:
    made = client.insert("a", **FIRST, if_exists=mode)
    assert made.effect == "created"
    plain = client.insert("b", **FIRST)
    assert {**made.row, "taskId": "b"} == plain.row == world.row("b")
    assert world.row("a") == {**world.row("b"), "taskId": "a"}


def test_refused_and_kept(present: World, client: TaskClient) -> None:
    before = present.row("a")
    with pytest.raises(TaskExists):
        client.insert("a", **OTHER)
    kept = client.insert("a", **OTHER, if_exists="keep")
    assert (kept.effect, kept.payload, present.row("a")) == ("kept", {"n": 1}, before)


def test_replaced_it_is_the_task_given_with_its_old_identity(present: World, client: TaskClient) -> None:
    before = present.row("a")
    changed = client.insert("a", **OTHER, if_exists="replace")
    assert (changed.effect, changed.payload, changed.attributes) == ("replaced", {"n": 0.1}, {"yours": 2})
    after = present.row("a")
    fresh = client_of(present).insert("b", **OTHER)
    assert {**fresh.row, "taskId": "a", "createdAt": before["createdAt"]} == {
        name: value for name, value in changed.row.items() if name != "replacedAt"
    }
    assert after["replacedAt"] == before["createdAt"], "the clock stands still"
    assert key_of(after) == key_of(before)
    again = client.insert("a", **OTHER, if_exists="replace")
    assert (again.effect, present.row("a")) == ("kept", after)


def test_one_that_waits_for_its_retry_begins_another_run(client: TaskClient) -> None:
    world = each_state()
    before = world.row("waits-for-its-retry")
    client_of(world).insert("waits-for-its-retry", due_at="2026-12-31T12:05:00Z", payload={"n": 2}, if_exists="replace")
    after = world.row("waits-for-its-retry")
    assert (before["attempt"], before["run"], after["attempt"], after["run"]) == (1, 1, 0, 2)
    assert "nextAttemptAt" not in after
    assert after["attempts"] == before["attempts"], "what happened stays"
    world.actions.behaviour.clear()
    while world.clock().minute < 6:
        world.next_tick()
    ended = world.row("waits-for-its-retry")
    assert (ended["status"], ended["attempt"], ended["run"]) == ("completed", 1, 2)


def test_postponed_to_a_later_time_and_no_further_than_until(present: World, client: TaskClient) -> None:
    def postpone(due_at: str, until: timedelta | None = None) -> tuple[str | None, object, object]:
        view = client.insert("a", due_at=due_at, payload={"n": 2}, if_exists="postpone", until=until)
        assert view.payload == {"n": 1}
        row = present.row("a")
        return view.effect, row["dueAt"], row["taskDateTime"]

    assert postpone("2026-12-31T12:30:00Z")[0] == "kept", "it is never moved forward"
    assert "firstDueAt" not in present.row("a")
    moved = postpone("2026-12-31T13:10:30Z")
    assert moved == ("postponed", "2026-12-31T13:10:30Z", "2026-12-31#13:11")
    assert present.row("a")["firstDueAt"] == "2026-12-31T13:00:00Z"
    assert postpone("2026-12-31T13:50:00Z", HOUR)[:2] == ("postponed", "2026-12-31T13:50:00Z")
    assert postpone("2026-12-31T14:20:00Z", HOUR) == ("postponed", "2026-12-31T14:00:00Z", "2026-12-31#14:00")
    assert postpone("2026-12-31T14:30:00Z", HOUR)[0] == "kept", "it has waited long enough"
    view = client.get("a")
    assert (str(view.first_due_at), view.attributes) == ("2026-12-31 13:00:00+00:00", {"mine": 1})
    assert postpone("2026-12-31T14:30:00Z")[:2] == ("postponed", "2026-12-31T14:30:00Z")


def test_postponed_to_before_the_bucket_in_which_it_waits(world: World, client: TaskClient) -> None:
    """It was inserted when ticks came every hour."""
    world.store.create(scheduled_row("a", bucket_at(60), dueAt="2026-12-31T12:10:00Z"))
    view = client.insert("a", due_at="2026-12-31T12:50:00Z", if_exists="postpone")
    row = world.row("a")
    assert (view.effect, row["dueAt"], row["taskDateTime"]) == ("postponed", "2026-12-31T12:50:00Z", "2026-12-31#12:50")
    assert client.insert("a", due_at="2026-12-31T12:40:00Z", if_exists="postpone").effect == "kept"


def test_a_row_that_the_scheduler_has_not_seen_yet(world: World, client: TaskClient) -> None:
    for task_id in ("a", "b"):
        world.store.put({"taskId": task_id, "taskDateTime": "2026-12-31#13:00", "payload": {"n": 1}})
    client.insert("a", **{**OTHER, "subject": None, "limit_key": None}, if_exists="replace")
    client.insert("b", due_at="2026-12-31T14:00:00Z", if_exists="postpone")
    for task_id, payload in (("a", {"n": OTHER["payload"]["n"]}), ("b", {"n": 1})):
        row = client.get(task_id)
        assert (row.status, row.bucket, row.payload) == ("scheduled", "2026-12-31#14:00", payload)


@pytest.mark.parametrize("mode", ["replace", "postpone"])
def test_one_that_runs_is_left_alone(mode: str) -> None:
    world = each_state()
    before = world.row("running")
    with pytest.raises(TransitionRefused, match=f"cannot {mode} task 'running': it is running; possible") as refused:
        client_of(world).insert("running", delay_seconds=7200, if_exists=mode)
    assert (refused.value.status, world.row("running")) == ("running", before)


@pytest.mark.parametrize("mode", ["replace", "postpone"])
@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_one_that_has_ended_begins_another_run_as_the_one_given(mode: str, state: str) -> None:
    world = each_state()
    client = client_of(world)
    before = world.row(state)
    given: dict[str, Any] = {"payload": {"n": 7}, "attributes": {"mine": 2}}
    view = client.insert(state, delay_seconds=7200, if_exists=mode, **given)
    assert (view.effect, view.status, view.run, view.payload, view.attributes) == (
        "restarted", "scheduled", 2, {"n": 7}, {"mine": 2},
    )  # fmt: skip
    row = world.row(state)
    assert (row["createdAt"], row["attempt"]) == (before["createdAt"], 0)
    assert not {"outcome", "error", "finishedAt", "expiresAt", "leaseUntil"} & row.keys()
    moved = client.insert(state, delay_seconds=7500, if_exists=mode, **given)
    assert moved.effect == {"replace": "replaced", "postpone": "postponed"}[mode]
    world.actions.behaviour.clear()
    world.next_tick(126)
    ended = client.get(state)
    assert (ended.status, ended.run) == ("completed", 2)
    repeated = client.insert(state, due_at=ended.due_at, if_exists=mode, **given)
    assert (repeated.effect, repeated.status) == ("kept", "completed")
    with pytest.raises(InvalidInput, match="subject: 'another' is not accepted; expected none, as the task has"):
        client.insert(state, delay_seconds=60, if_exists=mode, subject="another")


def test_another_run_in_the_shard_of_its_limit_key_is_due_at_the_time_given() -> None:
    client = client_of(world_of(shard_count=8), check_actions=False)
    for task_id in ("a", "b", "c"):  # whose own shards are others
        client.insert(task_id, **FIRST)
        client.cancel(task_id)
        view = client.insert(task_id, **OTHER, if_exists="replace")
        assert (view.effect, view.due_at) == ("restarted", parse_instant(OTHER["due_at"], "due_at"))


@pytest.mark.parametrize("mode", ["keep", "replace", "postpone"])
def test_the_ids_of_others_are_refused(world: World, client: TaskClient, mode: str) -> None:
    client.schedules.insert("schedule", "rate(1 hour)", action="log")
    client.batches.insert([{"n": 1}], batch_id="news", action="log", due_at="2026-12-31T13:00:00Z")
    for task_id, what in {
        "schedule": "a schedule",
        "news": "a batch",
        "news/000000000-000000000": "the pack of a batch",
        "news/000000000": "a member of the batch 'news'",
    }.items():
        expected = rf"taskId: '{task_id}' is not accepted; {what} has it: expected an id of a task of its own"
        with pytest.raises(InvalidInput, match=expected):
            client.insert(task_id, delay_seconds=60, if_exists=mode)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"if_exists": "overwrite"}, "if_exists: 'overwrite' is not accepted; expected refuse, keep, replace or post"),
        ({"if_exists": None}, "if_exists: None is not accepted"),
        ({"if_exists": "replace", "until": HOUR}, "until: '1:00:00' is not accepted; leave it out: it belongs to"),
        ({"until": HOUR}, "until: '1:00:00' is not accepted; leave it out"),
        ({"if_exists": "postpone", "until": timedelta()}, "until: '0:00:00' .* expected a timedelta of more than zero"),
        ({"if_exists": "postpone", "until": timedelta(days=367)}, "until: .* 366 days at most"),
        ({"if_exists": "postpone", "until": 60}, "until: '60' is not accepted; expected a timedelta"),
        ({"if_exists": "postpone", "due_at": None}, "dueAt: None is not accepted; expected a time, one of task"),
        ({"if_exists": "replace", "due_at": None}, "dueAt: None .* if_exists='replace' needs one"),
        ({"if_exists": "postpone", "due_at": "soon"}, "dueAt: 'soon' is not accepted"),
        ({"if_exists": "replace", "action": "webhook"}, "action: 'webhook' is not accepted; expected 'log', as"),
        ({"if_exists": "replace", "subject": "x"}, "subject: 'x' is not accepted; expected 'customer:4711', as"),
        ({"if_exists": "replace", "limit_key": "x:1"}, "limitKey: 'x:1' is not accepted; expected 'customer:4711', as"),
        ({"if_exists": "replace", "subject": None}, "subject: None is not accepted; expected 'customer:4711'"),
    ],
)  # fmt: skip
def test_bad_input_changes_nothing(present: World, arguments: dict[str, Any], expected: str) -> None:
    client, before = client_of(present, check_actions=False), present.row("a")
    if arguments.get("action") == "webhook":
        arguments = {**arguments, "payload": {"url": "https://example.com/"}}
    with pytest.raises(InvalidInput, match=expected):
        client.insert("a", **{**FIRST, **arguments})
    assert present.row("a") == before


# -- others are faster, and answers are lost ---------------------------------------------------------------------------

MODES: dict[str, Callable[[TaskClient], Any]] = {
    "replace": lambda client: client.insert("a", **OTHER, if_exists="replace"),
    "postpone": lambda client: client.insert("a", due_at=OTHER["due_at"], if_exists="postpone", until=HOUR),
}


@pytest.mark.parametrize("mode", MODES)
def test_the_claim_was_first(present: World, client: TaskClient, mode: str) -> None:
    with be_first(present, lambda: started(present, "a")), pytest.raises(TransitionRefused, match="it is running"):
        MODES[mode](client)
    row = present.row("a")
    assert (row["status"], row["payload"], row["dueAt"]) == ("running", {"n": 1}, FIRST["due_at"])


@pytest.mark.parametrize("mode", MODES)
def test_it_was_deleted_and_inserted_just_now(present: World, client: TaskClient, mode: str) -> None:
    def insert_anew() -> None:
        client.delete("a")
        present.clock.forward(seconds=1)
        client.insert("a", **{**FIRST, "payload": {"n": 3}})

    with be_first(present, insert_anew):
        view = MODES[mode](client)
    row = present.row("a")
    assert row["dueAt"] == OTHER["due_at"]
    assert row["createdAt"] == "2026-12-31T12:00:01Z"
    assert view.payload == ({"n": 3} if mode == "postpone" else OTHER["payload"])


@pytest.mark.parametrize("mode", MODES)
def test_it_was_deleted_just_now(present: World, client: TaskClient, mode: str) -> None:
    with be_first(present, lambda: client.delete("a")):
        assert MODES[mode](client).effect == "created"
    assert present.row("a")["dueAt"] == OTHER["due_at"]


@pytest.mark.parametrize("mode", MODES)
def test_it_was_inserted_just_now(world: World, client: TaskClient, mode: str) -> None:
    with be_first(world, lambda: client.insert("a", **FIRST)):
        assert MODES[mode](client).effect == f"{mode.removesuffix('e')}ed"
    assert world.row("a")["dueAt"] == OTHER["due_at"]


def test_another_postponed_it_further_just_now(present: World, client: TaskClient) -> None:
    def further() -> None:
        client.insert("a", due_at="2026-12-31T15:00:00Z", if_exists="postpone")

    with be_first(present, further):
        view = client.insert("a", due_at="2026-12-31T14:00:00Z", if_exists="postpone")
    assert (view.effect, present.row("a")["dueAt"]) == ("kept", "2026-12-31T15:00:00Z")


def test_another_postponed_it_less_far_just_now_and_the_first_time_stays(present: World, client: TaskClient) -> None:
    with be_first(present, lambda: client.insert("a", due_at="2026-12-31T13:30:00Z", if_exists="postpone")):
        client.insert("a", due_at="2026-12-31T14:20:00Z", if_exists="postpone", until=HOUR)
    row = present.row("a")
    assert (row["dueAt"], row["firstDueAt"]) == ("2026-12-31T14:00:00Z", "2026-12-31T13:00:00Z")


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_that_was_lost_is_recognised_though_the_task_was_claimed_since(
    present: World, client: TaskClient, mode: str
) -> None:
    def claim_since(change: ConditionalUpdate) -> bool:
        present.rigged.before_read = lambda task_id: claim_once()
        return "lease" not in change.set

    def claim_once() -> None:
        present.rigged.before_read = None
        started(present, "a")

    client.get("a")
    present.rigged.unanswered = claim_since
    view = MODES[mode](client)
    assert view.effect == f"{mode.removesuffix('e')}ed"
    assert (view.status, view.row["dueAt"]) == ("running", OTHER["due_at"])


@pytest.mark.parametrize("mode", MODES)
def test_without_an_answer_it_is_unknown(present: World, client: TaskClient, mode: str) -> None:
    present.rigged.throttled = lambda change: True
    with pytest.raises(StoreError):
        MODES[mode](client)


# -- what it costs, and the other interfaces ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["refuse", "keep", "replace", "postpone"])
def test_one_read_and_one_write(world: World, client: TaskClient, mode: str) -> None:
    client.settings()
    for due_at, writes in ((FIRST["due_at"], 1), (OTHER["due_at"], 0 if mode == "keep" else 1)):
        if mode == "refuse" and due_at == OTHER["due_at"]:
            continue
        world.rigged.forget()
        client.insert("a", **{**FIRST, "due_at": due_at}, if_exists=mode)
        assert world.rigged.reads == ([] if mode == "refuse" else ["a"])
        assert len([one for one in world.rigged.writes if one.task_id == "a"]) == writes - (due_at == FIRST["due_at"])


@task("log")
def send_digest(payload: dict[str, object]) -> None: ...


def test_a_task_function(world: World, client: TaskClient) -> None:
    with use_client(client):
        minutes = [
            send_digest.schedule(
                {"n": n}, delay=timedelta(minutes=10 + n), task_id="digest-7", if_exists="postpone", until=HOUR
            )
            for n in range(2)
        ]
        assert [one.effect for one in minutes] == ["created", "postponed"]
        at = "2026-12-31T15:00:00Z"
        assert [send_digest.schedule({"n": 1}, due_at=at, if_exists="keep").effect for _ in range(2)] == [
            "created",
            "kept",
        ]
        for mode, when in (("replace", {"due_at": at}), ("postpone", {"due_at": at}), ("keep", {"delay": HOUR})):
            with pytest.raises(InvalidInput, match=f"task_id: None .* if_exists='{mode}' is about a task that has it"):
                send_digest.schedule({"n": 1}, if_exists=mode, **when)  # type: ignore[arg-type]


def test_explain_says_so(present: World, client: TaskClient) -> None:
    MODES["postpone"](client)
    events = {event.what: str(event.at) for event in client.operations.explain("a").events}
    assert events["due at first, before it was postponed"] == "2026-12-31 13:00:00+00:00"
    MODES["replace"](client)
    client.insert("a", **{**OTHER, "payload": {"n": 7}}, if_exists="replace")
    events = {event.what: str(event.at) for event in client.operations.explain("a").events}
    assert "replaced by another insert" in events
    assert "due at first, before it was postponed" not in events
