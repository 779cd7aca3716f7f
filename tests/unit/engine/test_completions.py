"""Tasks that their handlers hand over: completed, failed or prolonged by their token, or attempted again in time."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.engine.test_packs import pack_of, put_pack

from dynatick import CompleteLater, CompletionRefused, InvalidInput, TaskClient, TransitionRefused
from dynatick.actions.payload import parsed
from dynatick.actions.step_functions import StepFunctionsPayload
from dynatick.client.completions import HANDING_OVER
from dynatick.domain.batches import BATCH_ACTION, Batch
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.completion import CompletionToken, completion_token
from dynatick.domain.packs import member_lease
from dynatick.domain.task import Row
from dynatick.testing import VirtualInstallation

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "complete-later.md"
HOURS = timedelta(hours=8)
HEARTBEAT = timedelta(minutes=10)


class World(InProcess):
    """An installation whose task ``a`` is handed over by its handler, and a client of it."""

    @property
    def client(self) -> TaskClient:
        return TaskClient(self.store, clock=self.clock)

    def hand_over(self, task_id: str = "a", within: timedelta = HOURS, heartbeat: timedelta | None = None) -> str:
        """Runs it; its token."""
        self.actions.behaviour[task_id] = lambda *_: CompleteLater(within, heartbeat)
        self.store.put(scheduled_row(task_id, Bucket(minute_of(self.clock())), retryPolicy=ONCE))
        self.tick()
        assert self.row(task_id)["status"] == "waiting"
        return self.token(task_id)

    def token(self, task_id: str = "a") -> str:
        return completion_token(str(self.row(task_id)["lease"]), task_id)

    def pass_by(self, length: timedelta) -> None:
        """Time goes on, with a tick at the end, and one after it."""
        self.clock.to(self.clock() + length)
        self.next_tick()
        self.next_tick()


ONCE = {"maximumRetryAttempts": 1, "minBackoffSeconds": 60}


@pytest.fixture
def world() -> World:
    return World()


def waiting_attributes(row: Row) -> set[str]:
    return row.keys() & {"completeBy", "heartbeatSeconds", "returnsTo"}


def test_it_waits_in_the_bucket_of_its_deadline_and_returns_completed(world: World) -> None:
    bucket, at = str(Bucket(minute_of(world.clock()))), world.clock()
    token = world.hand_over(heartbeat=HEARTBEAT)
    row = world.row("a")
    assert row["completeBy"] == f"{at + HOURS:%Y-%m-%dT%H:%M:%SZ}"
    assert row["leaseUntil"] == f"{at + HEARTBEAT:%Y-%m-%dT%H:%M:%SZ}"
    assert (row["returnsTo"], row["attempt"], row["heartbeatSeconds"]) == (bucket, 1, 600)
    assert Bucket.parse(row["taskDateTime"]).instant >= at + HEARTBEAT
    assert "outcome" not in row

    world.pass_by(timedelta(minutes=5))
    done = world.client.complete(token, {"frames": 86_400})
    assert (done.status, done.result, done.bucket) == ("completed", {"frames": 86_400}, bucket)
    assert waiting_attributes(world.row("a")) == set()
    world.pass_by(HEARTBEAT)
    assert world.actions.times("a") == 1


def test_the_same_completion_again_changes_nothing(world: World) -> None:
    token = world.hand_over()
    world.client.complete(token, 1)
    row = world.row("a")
    assert world.client.complete(token, 2).result == 1
    assert world.row("a") == row


def test_what_does_not_come_is_attempted_again_and_then_fails_with_a_letter(world: World) -> None:
    first = world.hand_over()
    by = world.row("a")["completeBy"]
    world.pass_by(HOURS)
    row = world.row("a")
    assert (row["status"], row["attempt"], world.actions.times("a")) == ("waiting", 2, 2)
    assert row["attempts"][0]["error"] == f"no completion came by {by}"  # type: ignore[index]
    with pytest.raises(CompletionRefused, match="its attempt is over"):
        world.client.complete(first)

    by, bucket = row["completeBy"], row["returnsTo"]
    world.pass_by(HOURS)
    row = world.row("a")
    (letter,) = world.dead_letters.letters
    assert letter.error == row["error"] == f"no completion came by {by}, at the last of 2 attempts"
    assert (row["outcome"], row["taskDateTime"], waiting_attributes(row)) == ("failed", bucket, set())


def test_what_does_not_come_within_the_greatest_age_is_not_attempted_again(world: World) -> None:
    world.hand_over(within=timedelta(hours=25))
    by = world.row("a")["completeBy"]
    world.pass_by(timedelta(hours=25))
    (letter,) = world.dead_letters.letters
    late = f"no completion came by {by}, and 86400 s (maximumEventAgeInSeconds) after the first attempt are over"
    assert (letter.error, world.row("a")["error"], world.actions.times("a")) == (late, late, 1)


def test_without_a_heartbeat_the_attempt_has_failed(world: World) -> None:
    token = world.hand_over(heartbeat=HEARTBEAT)
    for _ in range(3):
        world.pass_by(HEARTBEAT - timedelta(minutes=2))
        world.client.heartbeat(token)
    assert world.row("a")["attempt"] == 1
    until = world.row("a")["leaseUntil"]
    world.pass_by(HEARTBEAT)
    row = world.row("a")
    assert (row["attempt"], row["attempts"][0]["error"]) == (2, f"no heartbeat came by {until}")  # type: ignore[index]


def test_heartbeats_do_not_make_it_longer_than_its_whole_time(world: World) -> None:
    token = world.hand_over(within=timedelta(minutes=20), heartbeat=HEARTBEAT)
    by = world.row("a")["completeBy"]
    for _ in range(2):
        world.pass_by(HEARTBEAT - timedelta(minutes=2))
        world.client.heartbeat(token)
    assert world.row("a")["leaseUntil"] == by
    world.pass_by(HEARTBEAT)
    assert world.row("a")["attempts"][0]["error"] == f"no completion came by {by}"  # type: ignore[index]


def test_one_that_asks_for_no_heartbeat_stays_as_it_is(world: World) -> None:
    token = world.hand_over()
    row = world.row("a")
    assert world.client.heartbeat(token).status == "waiting"
    assert world.row("a") == row


def test_failed_by_its_token_it_is_retried_by_its_policy(world: World) -> None:
    token = world.hand_over()
    failed = world.client.fail(token, "no such file", retry=True)
    assert (failed.status, failed.attempt) == ("scheduled", 1)
    assert waiting_attributes(world.row("a")) == set()
    row = world.row("a")
    assert world.client.fail(token, "no such file", retry=True).status == "scheduled"
    assert world.row("a") == row
    world.pass_by(timedelta(minutes=2))
    row = world.row("a")
    assert (row["attempt"], row["attempts"][0]["error"]) == (2, "no such file")  # type: ignore[index]

    world.client.fail(world.token(), "still none", retry=True)
    world.pass_by(timedelta())
    assert (world.outcome("a"), world.dead_letters.letters[0].error) == ("failed", "still none")


def test_failed_for_good_it_ends_with_the_next_tick_that_sends_its_letter(world: World) -> None:
    bucket = str(Bucket(minute_of(world.clock())))
    token = world.hand_over()
    assert world.client.fail(token, "no such file").status == "waiting"
    for change in (world.client.complete, world.client.heartbeat):
        with pytest.raises(CompletionRefused, match=r"the task 'a' has failed \(no such file\)"):
            change(token)
    world.pass_by(timedelta())
    row = world.row("a")
    assert (row["outcome"], row["error"], row["taskDateTime"]) == ("failed", "no such file", bucket)
    assert world.dead_letters.letters[0].error == "no such file"
    assert world.actions.times("a") == 1, "it was not attempted again"
    assert world.client.fail(token, "no such file").status == "failed", "the same again"


def test_a_cancelled_one_says_so_to_the_next_heartbeat(world: World) -> None:
    bucket = str(Bucket(minute_of(world.clock())))
    token = world.hand_over(heartbeat=HEARTBEAT)
    assert world.client.cancel("a").bucket == bucket
    assert waiting_attributes(world.row("a")) == set()
    for change in (world.client.heartbeat, world.client.complete):
        with pytest.raises(CompletionRefused, match="the task 'a' is cancelled since 2026-12-31T"):
            change(token)
    world.pass_by(HEARTBEAT)
    assert (world.outcome("a"), world.actions.times("a")) == ("cancelled", 1)


def test_one_that_failed_and_was_cancelled_and_restored_begins_without_its_error(world: World) -> None:
    world.client.fail(world.hand_over(), "the farm burned down", retry=False)
    world.client.cancel("a")
    world.client.restore("a")
    world.ticks(3)
    assert (world.row("a")["status"], "error" in world.row("a")) == ("waiting", False)
    assert world.client.complete(world.token(), {"frames": 1}).status == "completed"


def test_one_that_was_cancelled_at_its_last_attempt_is_not_restored_for_another(world: World) -> None:
    world.hand_over()
    world.pass_by(HOURS)
    assert world.row("a")["attempt"] == 2
    world.client.cancel("a")
    row = world.row("a")
    with pytest.raises(
        TransitionRefused, match="cannot restore task 'a': it is cancelled; its attempts are used up; run it now"
    ):
        world.client.restore("a")
    assert world.row("a") == row
    assert world.client.run_now("a").run == 2


def test_a_failure_that_had_no_effect_is_not_answered_as_done(world: World) -> None:
    token = world.hand_over()
    world.client.fail(token, "busy", retry=True)
    with pytest.raises(CompletionRefused, match="the task 'a' is scheduled"):
        world.client.fail(token, "no such codec")
    with pytest.raises(CompletionRefused, match="the task 'a' is scheduled"):
        world.client.fail(token, "no such codec", retry=True)
    token = world.hand_over("b")
    world.client.cancel("b")
    world.client.restore("b")
    row = world.row("b")
    for again in (False, True):
        with pytest.raises(CompletionRefused, match="the task 'b' is scheduled"):
            world.client.fail(token, "busy", retry=again)
    assert world.row("b") == row


def test_while_its_handler_runs_a_completion_is_taken_and_its_return_is_not(world: World) -> None:
    def runs(task: Any, context: Any) -> CompleteLater:
        world.client.complete(completion_token(task.lease, task.task_id), "early")
        return CompleteLater(HOURS)

    world.actions.behaviour["a"] = runs
    world.store.put(scheduled_row("a", Bucket(minute_of(world.clock()))))
    world.tick()
    assert (world.outcome("a"), world.row("a")["result"]) == ("completed", "early")
    assert waiting_attributes(world.row("a")) == set()


def test_a_failure_waits_for_the_handler_to_return(world: World) -> None:
    token = world.hand_over()
    row = world.row("a")
    running = {name: value for name, value in row.items() if name not in waiting_attributes(row)}
    world.store.put({**running, "status": "running"})
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        world.clock.to(world.clock() + timedelta(seconds=seconds))

    completions = replace(world.client._completions, pause=pause)
    with pytest.raises(CompletionRefused, match="has not returned yet"):
        completions.fail(token, "no", retry=False)
    assert sum(waited) == HANDING_OVER.total_seconds()
    completions = replace(completions, pause=lambda seconds: world.store.put(row))
    assert completions.fail(token, "no", retry=False)["error"] == "no"


def test_a_member_of_a_batch_gets_a_row_of_its_own(world: World) -> None:
    world.actions.behaviour["news/000000001"] = lambda *_: CompleteLater(HOURS)
    pack_id = put_pack(world, [{"n": n} for n in range(3)])
    world.tick()
    row = world.row("news/000000001")
    assert (row["status"], row["attempt"], row["batchId"], row["payload"]) == ("waiting", 1, "news", {"n": 1})
    pack = pack_of(world, pack_id)
    assert (pack.done, pack.extracted, world.outcome(pack_id)) == (0b101, 0b010, "completed")
    assert world.client.complete(world.token("news/000000001"), 5).status == "completed"


def test_a_member_that_runs_is_waited_for_and_a_forged_token_of_it_is_not(world: World) -> None:
    said: list[str] = []
    completions = replace(world.client._completions, pause=lambda seconds: said.append("waits"))

    def runs(task: Any, context: Any) -> CompleteLater:
        with pytest.raises(CompletionRefused, match="no task waits with it"):
            completions.complete(completion_token("forged", task.task_id), 1)
        assert said == []
        once = replace(completions, waits=lambda timeout: iter((0.5,)))
        with pytest.raises(CompletionRefused, match="'news/000000001' has not returned yet"):
            once.complete(completion_token(task.lease, task.task_id), 1)
        assert once.heartbeat(completion_token(task.lease, task.task_id))["status"] == "running"
        return CompleteLater(HOURS)

    world.actions.behaviour["news/000000001"] = runs
    batch = Batch(action="log", due_at=world.clock(), members=3).to_payload()
    world.store.put(scheduled_row("news", Bucket(minute_of(world.clock()) + 60), action=BATCH_ACTION, payload=batch))
    put_pack(world, [{}] * 3)
    world.tick()
    assert (world.row("news/000000001")["status"], said) == ("waiting", ["waits"])


@pytest.mark.parametrize(("done", "excluded", "state"), [(0b111, 0, "completed"), (0b101, 0b010, "cancelled")])
def test_a_member_that_has_ended_without_a_row_is_not_waited_for(
    world: World, done: int, excluded: int, state: str
) -> None:
    batch = Batch(action="log", due_at=world.clock(), members=3).to_payload()
    world.store.put(scheduled_row("news", Bucket(minute_of(world.clock()) + 60), action=BATCH_ACTION, payload=batch))
    pack_id = put_pack(world, [{}] * 3)
    world.tick()
    pack = replace(pack_of(world, pack_id), done=done, excluded=excluded)
    world.store.put({**world.row(pack_id), "pack": pack.to_attribute()})
    completions = replace(world.client._completions, pause=lambda seconds: pytest.fail("it waits"))
    token = completion_token(member_lease(world.row(pack_id)["lease"], 1), "news/000000001")
    if state == "completed":
        assert completions.complete(token, 1)["status"] == state, "as of any task, the same again"
    with pytest.raises(CompletionRefused, match=f"the task 'news/000000001' is {state}"):
        completions.heartbeat(token)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(completion_token("token-0", "a"), id="another claim's"),
        pytest.param(completion_token(None, "a"), id="made without one"),
        pytest.param(completion_token("token-0", "b"), id="of no task here"),
        pytest.param(completion_token("token-0", "news/000000001"), id="of no member here"),
    ],
)
def test_a_forged_token_is_refused_and_says_nothing_of_the_task(world: World, forged: str) -> None:
    world.tokens = iter([f"lease-{n}" for n in range(9)])  # type: ignore[assignment]
    world.hand_over()
    row = world.row("a")
    for change in (world.client.complete, world.client.heartbeat, lambda token: world.client.fail(token, "no")):
        with pytest.raises(CompletionRefused) as refused:
            change(forged)
        assert str(refused.value) == "token: no task waits with it: its attempt is over, or it is of another table"
    assert world.row("a") == row


@pytest.mark.parametrize("change", ["complete", "fail", "heartbeat"])
@pytest.mark.parametrize("row", [{}, {"status": "failed", "outcome": "failed", "error": "payload: none"}], ids=repr)
def test_a_task_that_was_never_claimed_has_no_token(world: World, row: Row, change: str) -> None:
    bucket = Bucket(minute_of(world.clock()) + 60)
    world.store.put({**scheduled_row("a", bucket, payload={"iban": "DE02"}), **row})
    before = world.row("a")
    with pytest.raises(CompletionRefused, match=r"^token: no task waits with it"):
        getattr(world.client, change)(completion_token(None, "a"), *([] if change == "heartbeat" else ["x"]))
    assert world.row("a") == before


def test_a_member_whose_pack_was_never_claimed_has_no_token(world: World) -> None:
    completions = replace(world.client._completions, waits=lambda timeout: iter((0.5,)), pause=pytest.fail)
    batch = Batch(action="log", due_at=world.clock(), members=1).to_payload()
    world.store.put(scheduled_row("news", Bucket(minute_of(world.clock()) + 60), action=BATCH_ACTION, payload=batch))
    put_pack(world, [{}])
    forged = completion_token(member_lease(None, 0), "news/000000000")
    with pytest.raises(CompletionRefused, match=r"^token: no task waits with it"):
        completions.complete(forged, 1)


@pytest.mark.parametrize("token", ["", "a", "é" * 40, "a" * 23, "=" * 40, "a" * 5000, None, 5, b"abc"])
def test_what_is_no_token_is_refused_without_its_text(world: World, token: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^token: 'a text that is none' is not accepted"):
        world.client.complete(token)


def test_a_token_names_any_task_and_no_other_claim() -> None:
    for task_id in ("a", "é" * 512, "x" * 1024, "a.b/c#d\n"):
        token = CompletionToken.parse(completion_token("lease", task_id))
        assert token.task_id == task_id
        assert token.is_of({"lease": "lease"})
        assert not token.is_of({"lease": "lease2"})
    assert not CompletionToken.parse(completion_token(None, "a")).is_of({})
    assert not CompletionToken.parse(completion_token("7", "a")).is_of({"lease": 7})


@pytest.mark.parametrize(
    ("within", "heartbeat", "named"),
    [
        (timedelta(days=366), None, "within"),
        (timedelta(), None, "within"),
        (timedelta(hours=-1), None, "within"),
        (3600, None, "within"),
        (HOURS, HOURS * 2, "heartbeat"),
        (HOURS, timedelta(), "heartbeat"),
        (HOURS, 5, "heartbeat"),
    ],
)
def test_a_time_that_is_none_is_refused(within: Any, heartbeat: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{named}: .*expected a timedelta from a second to "):
        CompleteLater(within, heartbeat)


@pytest.mark.parametrize("error", ["", " ", None, 5])
def test_a_failure_says_why(world: World, error: Any) -> None:
    token = world.hand_over()
    with pytest.raises(InvalidInput, match=r"^error: .*expected a text that says why"):
        world.client.fail(token, error)


def test_it_can_be_neither_deleted_nor_moved_nor_run_meanwhile(world: World) -> None:
    world.hand_over()
    row = world.row("a")
    with pytest.raises(TransitionRefused, match="cannot delete task 'a': it is waiting; cancel it first"):
        world.client.delete("a")
    with pytest.raises(TransitionRefused, match="it is waiting"):
        world.client.reschedule("a", delay_seconds=5)
    with pytest.raises(TransitionRefused, match="it is waiting"):
        world.client.run_now("a")
    assert world.row("a") == row


def test_the_examples_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    ecs = SimpleNamespace(run_task=lambda **given: started.append(given))
    microvms, asked = boto3.client("lambda-microvms", region_name="eu-west-1"), list[dict[str, Any]]()

    def answer(params: dict[str, Any], **_: object) -> object:  # the SDK has checked the names and types
        asked.append(json.loads(params["body"]))
        return SimpleNamespace(status_code=200), {}

    microvms.meta.events.register("before-call.lambda-microvms.RunMicrovm", answer)
    monkeypatch.setattr(boto3, "client", {"ecs": ecs, "lambda-microvms": microvms}.__getitem__)
    text = PAGE.read_text(encoding="utf-8")
    page = ModuleType("handlers")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    exec(compile("\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)), str(PAGE), "exec"), page.__dict__)
    with VirtualInstallation(page) as installation:
        page.test_a_video_is_transcoded(installation)
        (container,) = started[0]["overrides"]["containerOverrides"]
        token = next(one["value"] for one in container["environment"] if one["name"] == "DYNATICK_COMPLETION_TOKEN")
        asked_with = started[0]["clientToken"]
        assert len(asked_with) <= 64, "ECS takes no more"
        assert asked_with not in token
        assert page.approved(installation.client, token, "ada") == "Thank you.", "the same again"
        installation.client.run_now("a")
        assert page.approved(installation.client, token, "ada").startswith("It is too late: no task waits with it")
        page.simulate.schedule(page.Model("m"), task_id="m")
        installation.run_due()
        payload = json.loads(asked[0]["runHookPayload"])
        installation.client.fail(payload["completionToken"], "it was evicted", retry=True)
        installation.advance(minutes=5)
        again = json.loads(asked[1]["runHookPayload"])
        assert asked[0]["clientToken"] != asked[1]["clientToken"], "each attempt starts its own"
        assert all(len(one["clientToken"]) <= 128 and len(one["runHookPayload"]) <= 4096 for one in asked)
        assert installation.client.complete(again["completionToken"], 7).status == "completed"
    (payload,) = re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S)
    assert parsed(StepFunctionsPayload, json.loads(payload)).complete_within_seconds == 86_400


def test_a_virtual_installation_waits_for_the_completion() -> None:
    with VirtualInstallation(None, start=datetime(2026, 12, 31, 12, tzinfo=UTC)) as installation:
        installation.answer("log", lambda payload: CompleteLater(HOURS))
        installation.client.insert("a", retry_policy={"maximumRetryAttempts": 0})
        installation.run_due()
        (waiting,) = installation.waiting
        assert waiting.due_at - installation.now == pytest.approx(HOURS, abs=timedelta(minutes=1))
        assert installation.executed[0].outcome == "waiting"
        installation.advance(hours=9)
        assert installation.task("a").status == "failed"
        assert "no completion came by" in installation.dead_letters[0]["error"]
