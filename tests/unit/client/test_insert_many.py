"""Many at a time: results in order, one bad task holds up no other, memory bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.builders import InProcess

from dynatick import MemoryStore, TaskClient
from dynatick.client import Exists, Inserted, InsertUnknown, NewTask, NoneInserted, Refused
from dynatick.client.insertion import BATCH, THREADS
from dynatick.domain.task import Row
from dynatick.engine.ports import StoreFailure
from dynatick.errors import ItemTooLarge, StoreError

WHEN = "2026-12-31T12:30:00Z"


def test_it_inserts_before_it_returns_and_counts(world: InProcess, client: TaskClient) -> None:
    client.insert("there", due_at=WHEN)
    many = [{"taskId": "a", "dueAt": WHEN}, {"taskId": "there", "dueAt": WHEN}, {"taskId": "bad", "due_at": WHEN}]
    counts = client.insert_many(iter(many))
    assert world.row("a")["status"] == "scheduled"
    assert (counts.inserted, counts.exists, counts.refused, counts.unknown) == (1, 1, 1, 0)
    assert not counts.all_in
    assert str(counts) == "1 inserted, 1 exists, 1 refused"
    (problem,) = counts.problems
    assert isinstance(problem, Refused)
    assert (problem.position, problem.task_id, problem.error.field) == (2, "bad", "due_at")
    again = client.insert_many([many[0]])
    assert (again.inserted, again.exists, again.all_in) == (0, 1, True), "to have it already is no error"


def test_to_have_none_of_them_in_is_an_error(client: TaskClient) -> None:
    with pytest.raises(
        NoneInserted, match=r"no task was inserted: 5,000 refused; position 0: due_at: .*dueAt"
    ) as refused:
        client.insert_many({"taskId": f"t{n}", "due_at": WHEN} for n in range(5000))
    assert refused.value.counts.refused == 5000
    assert len(refused.value.counts.problems) == 1000
    nothing = client.insert_many([])
    assert (nothing.all_in, str(nothing)) == (True, "no tasks")


def test_each_task_has_its_result_in_order(client: TaskClient) -> None:
    client.insert("there", due_at=WHEN)
    rest = [("there", WHEN), ("bad", "x"), ("raw", None), ("a", WHEN), ("bad", WHEN), ("raw", None)]
    tasks = [{"taskId": "a", "dueAt": WHEN}, NewTask(task_id="b", due_at=WHEN)]
    results = list(client.insert_lazily(tasks + [{"taskId": task_id, "dueAt": time} for task_id, time in rest]))
    bad = results.pop(3)
    assert isinstance(bad, Refused) and bad.task_id == "bad"
    assert results == [
        Inserted(0, "a"), Inserted(1, "b"), Exists(2, "there"),
        Inserted(4, "raw"), Exists(5, "a"), Inserted(6, "bad"), Exists(7, "raw"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", [0, 1, 24, 25, 26, 1000])
def test_any_number_of_them(world: InProcess, client: TaskClient, number: int) -> None:
    tasks = ({"taskId": f"t{n}", **({"dueAt": WHEN} if n % 3 else {})} for n in range(number))
    results = client.insert_lazily(tasks)
    assert world.store.get("t0") is None, "nothing before it is asked for"
    assert list(results) == [Inserted(n, f"t{n}") for n in range(number)]
    assert sum(1 for n in range(number) if world.store.get(f"t{n}")) == number


def test_no_more_is_read_than_what_is_under_way(client: TaskClient) -> None:
    read = 0

    def tasks() -> Iterator[dict[str, object]]:
        nonlocal read
        for read in range(1, 100_000):
            yield {"taskId": f"t{read}", "dueAt": WHEN}

    results = client.insert_lazily(tasks())
    for n in range(1000):
        assert next(results).position == n
        assert read - n <= BATCH * (2 * THREADS + 2)
    results.close()  # type: ignore[attr-defined]


def test_a_map_that_is_used_again_by_the_caller(client: TaskClient) -> None:
    def tasks() -> Iterator[dict[str, object]]:
        task: dict[str, object] = {"dueAt": WHEN, "payload": {}}
        for n in range(60):
            task["taskId"] = f"t{n}"
            task["payload"]["n"] = n  # type: ignore[index]
            yield task

    assert all(isinstance(result, Inserted) for result in client.insert_lazily(tasks()))
    assert [client.get(f"t{n}").payload for n in range(60)] == [{"n": n} for n in range(60)]


def test_an_error_of_the_callers_own_comes_through(client: TaskClient) -> None:
    def tasks() -> Iterator[dict[str, object]]:
        yield {"taskId": "a", "dueAt": WHEN}
        raise RuntimeError("the file broke off")

    with pytest.raises(RuntimeError, match="the file broke off"):
        list(client.insert_lazily(tasks()))


class Faulty(MemoryStore):
    """Fails for some ids, in each way that a store can."""

    def create(self, row: Row) -> bool:
        if row["taskId"] == "raw-away":
            raise StoreError("throttled")
        if row["taskId"] == "raw-large":
            raise ItemTooLarge("too large")
        return super().create(row)

    def create_many(self, rows: Sequence[Row]) -> Sequence[bool | StoreFailure]:
        if any(row["taskId"] == "break" for row in rows):
            raise StoreError("the table is away")
        failing = {"away": StoreFailure("throttled"), "large": StoreFailure("too large", too_large=True)}
        return [failing.get(str(row["taskId"])) or self.create(row) for row in rows]


def test_what_the_table_does_not_take_is_told() -> None:
    world = InProcess(store=Faulty())
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    ids = ["raw-away", "raw-large", "away", "large", "a", "raw"]
    tasks = [{"taskId": i} if i.startswith("raw") else {"taskId": i, "dueAt": WHEN} for i in ids]
    results = list(client.insert_lazily(tasks))
    reported = [(type(r).__name__, type(getattr(r, "error", None)).__name__) for r in results]
    assert reported == [
        ("InsertUnknown", "StoreError"), ("InsertUnknown", "ItemTooLarge"), ("InsertUnknown", "StoreError"),
        ("InsertUnknown", "ItemTooLarge"), ("Inserted", "NoneType"), ("Inserted", "NoneType"),
    ]  # fmt: skip
    broken = list(client.insert_lazily([{"taskId": "break", "dueAt": WHEN}, {"taskId": "b", "dueAt": WHEN}]))
    assert all(isinstance(result, InsertUnknown) for result in broken)
