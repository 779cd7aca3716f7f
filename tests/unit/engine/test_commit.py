"""What a handler has written together with its outcome: both or neither."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.engine.support import World
from tests.unit.engine.test_packs import pack_of, put_pack
from tests.unit.engine.test_record import attempt, recorded

from dynatick import Commit, InvalidInput
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.conditional_update import ConditionalUpdate, Result
from dynatick.domain.task import Row
from dynatick.engine.counts import RecordResult
from dynatick.engine.ports import Cancelled
from dynatick.engine.record import Done
from dynatick.store.memory import MemoryStore
from dynatick.testing import VirtualInstallation

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "commit.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAID: dict[str, Any] = {
    "Update": {
        "TableName": "orders",
        "Key": {"id": "4711"},
        "UpdateExpression": "SET paid = :paid",
        "ConditionExpression": "attribute_not_exists(paid)",
        "ExpressionAttributeValues": {":paid": 1.5},
    }
}


def put_task(world: InProcess, task_id: str = "a", **more: object) -> None:
    world.store.put(scheduled_row(task_id, Bucket(minute_of(world.clock())), **more))


def committing(world: InProcess, task_id: str = "a", *items: Mapping[str, object], result: object = None) -> None:
    world.actions.behaviour[task_id] = lambda *_: Commit(items or [PAID], result=result)


class Cancelling(MemoryStore):
    """A table that cancels the first transactions for a reason of their own."""

    def __init__(self, *answers: Cancelled) -> None:
        super().__init__()
        self.answers = list(answers)

    def transact(
        self,
        change: ConditionalUpdate | None = None,
        row: Row | None = None,
        items: Sequence[Mapping[str, object]] = (),
        *,
        token: str | None = None,
    ) -> Result | Cancelled:
        return self.answers.pop(0) if self.answers else super().transact(change, row, items, token=token)


def test_effects_and_outcome_are_written_together() -> None:
    world = World()
    committing(world, result={"receipt": "r1"})
    put_task(world)
    world.tick()
    row = world.row("a")
    assert (row["outcome"], row["result"], row["lateMilliseconds"]) == ("completed", {"receipt": "r1"}, 0)
    assert world.store.committed == [PAID]
    (change,) = [change for change in world.rigged.writes if change.set.get("status") == "completed"]
    assert change.set["result"] == {"receipt": "r1"}, "it is written once, in the transaction"


def test_a_condition_of_ones_own_that_does_not_hold_is_the_attempts_failure() -> None:
    store = Cancelling(Cancelled("items[0], Update in orders: ConditionalCheckFailed"))
    world = InProcess(store=store)
    committing(world)
    put_task(world)
    world.tick()
    row = world.row("a")
    assert (row["status"], row["attempt"], store.committed) == ("scheduled", 1, [])
    assert "nothing of its Commit was written: items[0], Update in orders" in str(row["attempts"])
    world.ticks(5)
    assert (world.outcome("a"), world.row("a")["attempt"], store.committed) == ("completed", 2, [PAID])


def test_what_can_never_be_written_fails_at_once_with_a_letter() -> None:
    store = Cancelling(Cancelled("items[0], Update in orders: ValidationError", permanent=True))
    world = InProcess(store=store)
    committing(world)
    put_task(world)
    world.tick()
    (letter,) = world.dead_letters.letters
    assert (world.outcome("a"), letter.attempt, "ValidationError" in letter.error) == ("failed", 1, True)


@pytest.mark.parametrize("value", [object(), float("nan"), "\ud800"])
def test_a_value_that_no_table_can_hold_is_named(value: object) -> None:
    world = InProcess()
    committing(world, "a", {"Put": {"TableName": "orders", "Item": {"id": "1", "n": value}}})
    put_task(world)
    world.tick()
    assert (world.outcome("a"), world.row("a")["attempt"]) == ("failed", 1)
    assert "items[0].Put" in str(world.row("a")["error"])


def test_the_tasks_own_row_is_no_part_of_it() -> None:
    world = InProcess()
    committing(world, "a", PAID, {"Put": {"TableName": "memory", "Item": {"taskId": "a"}}})
    put_task(world)
    world.tick()
    assert world.outcome("a") == "failed"
    assert "items[1].Put.Item: 'a' is not accepted; leave out the task itself" in str(world.row("a")["error"])
    assert world.store.committed == []


def test_a_task_in_the_form_of_a_request_is_refused_with_the_form_that_is_right() -> None:
    world = InProcess()
    committing(world, "a", {"Put": {"TableName": "memory", "Item": {"taskId": {"S": "b"}, "action": {"S": "log"}}}})
    put_task(world)
    world.tick()
    error = str(world.row("a")["error"])
    assert "items[0].Put.Item.taskId: {'S': 'b'} is not accepted; expected text" in error
    assert 'form="resource"' in error


def test_a_task_that_is_inserted_with_it_is_there_or_nothing_is() -> None:
    world = InProcess()
    follow_up = {"Put": {"TableName": "memory", "Item": scheduled_row("b", Bucket(minute_of(world.clock()) + 1))}}
    committing(world, "a", PAID, follow_up)
    put_task(world)
    world.tick()
    world.ticks(2)
    assert (world.outcome("a"), world.outcome("b")) == ("completed", "completed")
    committing(world, "c", PAID, follow_up)
    put_task(world, "c", retryPolicy={"maximumRetryAttempts": 0})
    world.tick()
    assert (world.outcome("c"), world.actions.times("b")) == ("failed", 1)
    assert world.store.committed == [PAID, follow_up]


def test_nothing_is_written_for_a_claim_that_is_lost() -> None:
    world = InProcess()
    put_task(world)

    def lose(*_: object) -> object:
        world.store.put({**world.row("a"), "lease": "another's"})
        return Commit([PAID])

    world.actions.behaviour["a"] = lose
    world.tick()
    assert (world.row("a")["lease"], world.outcome("a"), world.store.committed) == ("another's", None, [])


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost_is_looked_up(takes_effect: bool) -> None:
    """It is sent once more, under the same token; else its lease expires, and a recovery attempts it again."""
    world = World()
    committing(world)
    put_task(world)

    def of_record(change: ConditionalUpdate) -> bool:
        return change.set.get("status") == "completed"

    if takes_effect:
        world.rigged.unanswered = of_record
    else:
        world.rigged.throttled = of_record
    world.tick()
    if not takes_effect:
        assert (world.outcome("a"), world.store.committed) == (None, [])
        assert len([change for change in world.rigged.writes if of_record(change)]) == 2
        world.rigged.clear_faults()
        world.clock.forward(minutes=4)
        world.ticks(6)
    assert (world.outcome("a"), world.store.committed) == ("completed", [PAID])
    assert world.actions.times("a") == (1 if takes_effect else 2)


def test_a_member_that_commits_has_a_row_of_its_own() -> None:
    world = InProcess()
    pack_id = put_pack(world, [{}] * 3)
    committing(world, "news/000000001", result="r")
    world.tick()
    row = world.row("news/000000001")
    assert (row["outcome"], row["result"], row["batchId"], world.store.committed) == ("completed", "r", "news", [PAID])
    pack = pack_of(world, pack_id)
    assert (world.outcome(pack_id), pack.done, pack.extracted) == ("completed", 0b101, 0b010)


def test_a_member_whose_id_another_task_has_commits_nothing() -> None:
    world = InProcess()
    put_pack(world, [{}] * 2)
    world.store.put(scheduled_row("news/000000001", Bucket(minute_of(world.clock()) + 600)))
    committing(world, "news/000000001")
    world.tick()
    assert world.store.committed == []
    (letter,) = world.dead_letters.letters
    assert "nothing of its Commit was written: another task has its id" in letter.error


def test_a_commit_of_nothing_completes() -> None:
    world = InProcess()
    world.actions.behaviour["a"] = lambda *_: Commit([], result=1)
    put_task(world)
    world.tick()
    assert (world.outcome("a"), world.row("a")["result"]) == ("completed", 1)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (PAID, "items: 'a dict' is not accepted; expected a list of entries"),
        ([PAID] * 100, "items: '100 entries' is not accepted; expected at most 99"),
        ([PAID, {}], r"items\[1\]: "),
        ([{"put": {"TableName": "orders", "Item": {}}}], r"items\[0\]: "),
        ([{"Put": {"Item": {}}}], r"items\[0\]\.Put\.TableName: "),
        ([{"Delete": {"TableName": "orders"}}], r"items\[0\]\.Delete\.Key: None is not accepted"),
    ],
)
def test_what_is_no_transaction_is_refused_where_it_is_made(items: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{message}"):
        Commit(items)


def test_an_expression_that_is_no_text_is_named() -> None:
    world = InProcess()
    committing(world, "a", {"Delete": {"TableName": "orders", "Key": {"id": "1"}, "ConditionExpression": 5}})
    put_task(world)
    world.tick()
    assert "items[0].Delete.ConditionExpression: 5 is not accepted" in str(world.row("a")["error"])


def test_the_example_of_the_page() -> None:
    page = ModuleType("handlers")
    sys.modules[page.__name__] = page
    try:
        exec(compile("\n".join(EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))), str(PAGE), "exec"), page.__dict__)
        with VirtualInstallation(page) as installation:
            page.test_an_order_is_settled(installation)
    finally:
        del sys.modules[page.__name__]


def test_it_is_recorded_with_others_in_one_batch() -> None:
    world = InProcess(life=timedelta(seconds=120))
    for n in range(30):
        put_task(world, f"t{n}")
    for n in range(0, 30, 3):
        committing(world, f"t{n}")
    world.tick()
    assert {world.outcome(f"t{n}") for n in range(30)} == {"completed"}
    assert world.store.committed == [PAID] * 10


def test_it_holds_up_no_other_record_of_its_batch() -> None:
    world = World()
    ended = [attempt(world, "t0", Done(items=[PAID])), attempt(world, "t1", Done()), attempt(world, "t2", Done())]
    assert recorded(world, ended) == [RecordResult.COMPLETED] * 3
    assert [change.task_id for change in world.rigged.writes] == ["t1", "t2", "t0"]
