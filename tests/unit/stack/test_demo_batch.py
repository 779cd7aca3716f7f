"""The demo's batch file: placeholders, and what is wrong with a file."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dynatick.domain.buckets import Grid
from dynatick_stack.demo.batch import BATCH, Door, expected, fill, last_tick, read
from dynatick_stack.errors import StackError

NOW = datetime(2026, 12, 31, 11, 58, 30, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "grid", "filled"),
    [
        ("{{tick+1}}", Grid(), "2026-12-31#11:59"),
        ("{{tick+2}}", Grid(), "2026-12-31#12:00"),
        ("{{tick+1}}", Grid(tick_minutes=5), "2026-12-31#12:00"),
        ("{{tick+3}}", Grid(tick_minutes=5), "2026-12-31#12:10"),
        ("{{iso+45}}", Grid(), "2026-12-31T11:59:15Z"),
        ("{{iso+45@+05:30}}", Grid(), "2026-12-31T17:29:15+05:30"),
        ("{{iso-30@-08:00}}", Grid(), "2026-12-31T03:58:00-08:00"),
        ("{{iso+45@Europe/Berlin}}", Grid(), "2026-12-31T12:59:15+01:00"),
        ("{{epoch+45}}.5", Grid(), "1798718355.5"),
        ("{{minute-300}}", Grid(), "2026-12-31#11:53"),
        ('"{{receiver}}/orders"', Grid(), '"http://127.0.0.1:9/orders"'),
    ],
)
def test_placeholders(text: str, grid: Grid, filled: str) -> None:
    assert fill(text, now=NOW, receiver="http://127.0.0.1:9", grid=grid) == filled


@pytest.mark.parametrize("text", ["{{tick}}", "{{later+1}}", "{{iso+45@Nowhere/At_all}}", "{{iso+4", "{{ tick+1 }}"])
def test_a_placeholder_that_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"placeholder|time zone"):
        fill(text, now=NOW)


def test_the_batch_that_ships_covers_what_people_insert() -> None:
    batch = read(BATCH, now=NOW, receiver="http://127.0.0.1:9")
    assert len(batch) >= 40
    assert {one.door for one in batch} == set(Door)
    ends = Counter(one.ends for one in batch)
    assert set(ends) == {"completed", "failed", "refused"}
    assert all(one.error for one in batch if one.ends != "completed")
    # Some retries end well and some end in the dead-letter queue, within three ticks.
    assert {one.ends for one in batch if (one.attempts or 0) > 1} == {"completed", "failed"}
    assert last_tick(batch) == 3
    assert len({one.name for one in batch}) == len(batch)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": "a", "item": {"taskId": {"S": "a"}}, "ends": "done", "by": 1}, "line 2: ends: 'done'"),
        ({"name": "a", "item": {"taskId": {"S": "a"}}, "ends": "completed"}, "line 2: by is missing"),
        ({"name": "a", "item": {}, "ends": "completed", "by": 1}, "line 2: taskId is missing"),
        ({"name": "a", "item": {"taskId": "a"}, "ends": "completed", "by": 1}, "'a' is no attribute value"),
        ({"name": "a", "item": {"taskId": {"S": "a"}}, "ends": "refused"}, "the table refuses nothing"),
        ({"name": "a", "item": {"taskId": {"S": "a"}}, "ends": "completed", "by": 1, "bye": 2}, "unknown bye"),
        ({"name": "a", "door": "post", "item": {"taskId": "a"}, "ends": "failed", "by": 1}, "'post'"),
        ({"name": "a", "item": {"taskId": {"S": "b"}}, "ends": "completed", "by": 1}, "twice: b"),
        ("not a map", "line 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, entry: object, reason: str) -> None:
    first = {"name": "b", "item": {"taskId": {"S": "b"}}, "ends": "completed", "by": 1}
    file = tmp_path / "batch.jsonl"
    file.write_text(f"{json.dumps(first)}\n{json.dumps(entry)}\n")
    with pytest.raises(StackError, match=reason):
        read(file, now=NOW)


def test_files_without_tasks_and_missing_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("// nothing\n\n")
    with pytest.raises(StackError, match="no task"):
        read(tmp_path / "empty.jsonl", now=NOW)
    with pytest.raises(StackError, match="can't be read"):
        read(tmp_path / "missing.jsonl", now=NOW)


def test_binaries_are_sent_as_bytes_and_the_rest_as_it_stands() -> None:
    item = {
        "taskId": {"S": "a"},
        "payload": {"M": {"b": {"B": "AAEC/w=="}, "bs": {"BS": ["AA=="]}, "l": {"L": [{"N": "1.50"}, {"B": "AQ=="}]}}},
    }
    one = expected({"name": "a", "item": item, "ends": "completed", "by": 1})
    assert one.item == {
        "taskId": {"S": "a"},
        "payload": {"M": {"b": {"B": b"\0\1\2\xff"}, "bs": {"BS": [b"\0"]}, "l": {"L": [{"N": "1.50"}, {"B": b"\1"}]}}},
    }
    assert (one.task_id, one.attempts, one.calls) == ("a", 1, 0)
