"""Export: the import of an exported file gives the same tasks, in either format."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import example, given
from hypothesis import strategies as st
from tests.builders import InProcess
from tests.unit.bulk.support import records

from dynatick import TaskClient
from dynatick.bulk.export import export_lines
from dynatick.bulk.record import FileFormat
from dynatick.bulk.task_definition import DEFINITION, STATE, definition
from dynatick.domain.attributes import OWN_ATTRIBUTES

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(10**37), 10**37) | st.decimals(
    min_value=-1000, max_value=1000, places=6, allow_nan=False, allow_infinity=False
).map(Decimal.normalize)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts.filter(bool), inner, max_size=3),
    max_leaves=6,
)
rows_of_users = st.fixed_dictionaries(
    {"taskId": texts.filter(lambda t: bool(t) and not t.startswith("_dynatick#")), "status": st.just("scheduled")},
    optional={
        "dueAt": st.just("2026-12-31T12:30:00Z"),
        "action": st.sampled_from(["log", "mail"]),
        "payload": st.dictionaries(texts, values, max_size=3),
        "retryPolicy": st.fixed_dictionaries({"maximumRetryAttempts": st.integers(0, 9)}),
        "timeoutSeconds": st.integers(1, 900),
        "limitKey": st.sampled_from(["customer:4711", "host:größe ß"]),
        "tenant": texts.filter(bool),
        'odd, "name"\r\n': values.filter(lambda value: value is not None),
    },
)


@pytest.mark.parametrize("form", [FileFormat.NDJSON, FileFormat.CSV])
@given(st.lists(rows_of_users, max_size=4))
@example([{"taskId": "t", "status": "scheduled", "*": "star", "tenant": "blue"}])  # the name of a column
def test_an_export_is_imported_unchanged(form: FileFormat, rows: list[dict[str, object]]) -> None:
    found = records("".join(export_lines(rows, form)), form)
    assert [(record.row, record.error) for record in found] == [(definition(row), None) for row in rows]


@pytest.mark.parametrize("form", [FileFormat.NDJSON, FileFormat.CSV])
@pytest.mark.parametrize(
    "text", ["\u044f" * 195_000, '"' * 390_000, "\x01" * 390_000], ids=["letters", "quotes", "controls"]
)
def test_a_row_of_400_kb_is_imported_however_it_is_escaped(form: FileFormat, text: str) -> None:
    row = {"taskId": "t", "action": "log", "payload": {"text": text}}
    (record,) = records("".join(export_lines([row], form)), form)
    assert (record.row, record.error) == (row, None)
    assert len(record.text) <= 400 * 1024, "as much as a report of a refused line has"


def test_a_payload_of_a_batch_is_no_longer_than_an_item() -> None:
    """Five hundred of them are in memory."""
    (record,) = records(json.dumps({"x": "x" * 400 * 1024}), of_payloads=True)
    assert str(record.error).endswith("expected a line of at most 409600 bytes")


def test_an_export_with_state_has_the_state_attributes() -> None:
    world = InProcess()
    world.tick()
    client = TaskClient(world.store, clock=world.clock)
    world.actions.behaviour["failed"] = lambda task, context: 1 / 0
    for name in ("completed", "failed"):
        client.insert(name, delay_seconds=1, retry_policy={"maximumRetryAttempts": 0})
    world.ticks(3)
    client.insert("waiting", due_at="2026-12-31T13:07:30+01:00", attributes={"tenant": "t1", "tags": ["a", 1]})
    client.insert("called-off", task_date_time="2026-12-31#12:30")
    client.cancel("called-off")
    client.schedules.insert("each-hour", "rate(1 hour)")  # an export of tasks has no schedules
    rows = list(client.export(start="2026-12-31T00:00:00Z", end="2027-01-01T00:00:00Z"))
    by_id = {row["taskId"]: row for row in map(json.loads, export_lines(rows, FileFormat.NDJSON, with_state=True))}
    assert set(by_id) == {"completed", "failed", "waiting", "called-off"}
    assert by_id["failed"]["status"] == "failed" and "division by zero" in by_id["failed"]["error"]
    assert by_id["completed"]["attempt"] == 1
    assert by_id["completed"]["expiresAt"].startswith("2027-01-30T12:0"), "as all other times"
    heading, *_ = export_lines(rows, FileFormat.CSV, with_state=True)
    assert {name.removesuffix(":json") for name in heading.strip().split(",")} == {*OWN_ATTRIBUTES, "*"}


def test_a_definition_has_the_time_that_normalising_uses_and_every_attribute_that_is_no_state() -> None:
    """Binaries are text in a file, and sets are lists."""
    row = {"taskId": "a", "payload": {"b": Binary(b"\x00\xff"), "s": {"y", "x"}, "n": {Decimal(2), Decimal(1)}}}
    (line,) = export_lines([row], FileFormat.NDJSON)
    assert json.loads(line)["payload"] == {"b": "AP8=", "s": ["x", "y"], "n": [1, 2]}
    given_ = {"taskId": "a", "taskDateTime": "2026-12-31T12:00:00Z", "dueAt": "2027-01-01T00:00:00Z", "delaySeconds": 5}
    assert definition(given_) == {"taskId": "a", "taskDateTime": "2026-12-31T12:00:00Z"}
    assert definition({"taskId": "a", "delaySeconds": 5}) == {"taskId": "a", "delaySeconds": 5}
    placed = {"taskId": "a", "taskDateTime": "2026-12-31#12:00"}
    assert definition({**placed, "status": "scheduled"}) == placed
    assert {*DEFINITION, *STATE} == OWN_ATTRIBUTES
