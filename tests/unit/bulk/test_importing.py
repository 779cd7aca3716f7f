"""The import of lines: results in order, continuation, and derived ids."""

from __future__ import annotations

import io
import json

import pytest
from tests.builders import InProcess

from dynatick import TaskClient
from dynatick.bulk.derived_id import with_id
from dynatick.bulk.file_format import FileFormat
from dynatick.bulk.file_reader import read
from dynatick.bulk.importing import Import, LineError
from dynatick.client.insertion import InsertCounts
from dynatick.engine.ports import StoreFailure
from dynatick.store.memory import MemoryStore

TASK = '{"taskId": "t%d", "dueAt": "2026-12-31T12:30:00Z"}\n'


class Moody(MemoryStore):
    """Accepts no task while ``away``, and never those in ``too_large``."""

    away = False
    too_large: frozenset[str] = frozenset()

    def create_many(self, rows: object) -> list[bool | StoreFailure]:
        assert isinstance(rows, list)
        if self.away:
            return [StoreFailure("throttled")] * len(rows)
        return [
            StoreFailure("too large", too_large=True) if row["taskId"] in self.too_large else self.create(row)
            for row in rows
        ]


@pytest.fixture
def store() -> Moody:
    return Moody()


@pytest.fixture
def world(store: Moody) -> InProcess:
    world = InProcess(store=store)
    world.tick()
    return world


def client(world: InProcess) -> TaskClient:
    return TaskClient(world.store, clock=world.clock)


def run(world: InProcess, text: str, run: Import | None = None, **options: object) -> tuple[Import, list[LineError]]:
    errors: list[LineError] = []
    if run is None:
        run = Import(insert_rows=client(world).insert_lazily, report=errors.append, **options)  # type: ignore[arg-type]
    data = text.encode()
    for _ in run.run(
        read(lambda at: io.BytesIO(data[at:]).read, FileFormat.NDJSON, offset=run.offset, number=run.line)
    ):
        pass
    return run, errors


def test_errors_come_in_the_order_of_the_lines(world: InProcess) -> None:
    text = "".join("no json\n" if n % 3 else '{"taskId": "t%d", "x": "%s"}\n' % (n % 200, "") for n in range(600))  # noqa: UP031
    done, errors = run(world, text)
    assert done.complete and not done.gave_up
    assert done.tally == InsertCounts(inserted=200, exists=0, refused=400)
    assert [error.line for error in errors] == [n + 1 for n in range(600) if n % 3]
    assert (done.offset, done.line) == (len(text), 601)


def test_an_error_has_line_field_message_and_text(world: InProcess) -> None:
    _, (error,) = run(world, '\n{"taskId": "größe", "dueAt": "tomorrow"}\n')
    assert json.loads(error.to_json()) == {
        "line": 2, "field": "dueAt", "message": str(error.message), "text": '{"taskId": "größe", "dueAt": "tomorrow"}',
    }  # fmt: skip
    assert "'tomorrow' is not accepted" in error.message and "\n" not in error.to_json()


def test_a_failed_line_keeps_the_offset_before_it(world: InProcess, store: Moody) -> None:
    text = "".join(TASK % n for n in range(1000))
    store.away = True
    done, errors = run(world, text)
    assert (done.gave_up, done.complete, done.line, done.offset) == (True, False, 1, 0)
    assert done.tally.unknown == 200 and errors[0].field == "table"
    store.away = False
    again, _ = run(world, text)
    assert again.complete and again.tally.inserted == 1000 and again.latest == "t999"


def test_a_task_that_is_too_large_for_the_table_is_refused_not_failed(world: InProcess, store: Moody) -> None:
    """As a failure it would be retried for ever."""
    store.too_large = frozenset({"t1"})
    done, (error,) = run(world, "".join(TASK % n for n in range(3)))
    assert done.tally == InsertCounts(inserted=2, refused=1) and done.complete
    assert (error.line, done.line) == (2, 4)


def test_ids_are_derived_from_attributes(world: InProcess) -> None:
    lines = [
        '{"action": "log", "payload": {"a": 1, "b": [1.5]}}\n',
        '{"payload":{"b":[1.5],"a":1},"action":"log"}\n',  # says the same
        '{"action": "log", "payload": {"a": 2, "b": [1.5]}}\n',
    ]
    done, _ = run(world, "".join(lines))
    assert done.tally == InsertCounts(inserted=2, exists=1)
    again, _ = run(world, "".join(reversed(lines)))  # in whatever order, under whatever name
    assert again.tally == InsertCounts(exists=3)
    other, _ = run(world, lines[0], id_prefix="night-2-")
    assert other.tally.inserted == 1 and str(other.latest).startswith("night-2-")


def test_a_derived_id_never_changes() -> None:
    """Otherwise a file that an earlier release has imported would be inserted twice."""
    row = with_id({"action": "mail", "payload": {"to": "ada@example.com", "n": 1}, "dueAt": "2026-12-31T12:00:00Z"})
    assert row["taskId"] == "import-1174000ecd6427be19e2e658455c8f58"


def test_a_row_with_a_misspelt_id_or_without_an_attribute_is_refused(world: InProcess) -> None:
    for name in ("taskid", "task_id", "TaskId", "task-id", "TASK ID"):
        done, (error,) = run(world, json.dumps({name: "a", "action": "log"}) + "\n")
        assert done.tally == InsertCounts(refused=1)
        assert error.field == name and error.message.endswith("expected the name taskId")
    done, (error,) = run(world, "{}\n")
    assert done.tally == InsertCounts(refused=1) and "at least one attribute" in error.message


def test_state_attributes_are_refused_or_dropped(world: InProcess) -> None:
    times = {"taskDateTime": "2026-12-31#12:30", "dueAt": "2026-12-31T12:29:00Z"}
    line = json.dumps({"taskId": "a", **times, "status": "failed", "error": "x", "tenant": "t1"}) + "\n"
    done, _ = run(world, line)
    assert done.tally == InsertCounts(refused=1)
    done, _ = run(world, line, drop_state=True)
    assert done.tally == InsertCounts(inserted=1)
    row = world.row("a")
    assert (row["status"], row["dueAt"], row["tenant"]) == ("scheduled", "2026-12-31T12:29:00Z", "t1")
    assert "error" not in row
