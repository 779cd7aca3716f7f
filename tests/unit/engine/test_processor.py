"""One invocation of the processor: its event, the invocations that it starts, and the settings that it publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.domain.support import refusal
from tests.unit.engine.support import NOON_MINUTE, World, bucket_at, rules, world

from dynatick.domain.buckets import Grid
from dynatick.domain.row import Due
from dynatick.engine.orders import (
    Order,
    PassOnTime,
    PassOrder,
    ReconcileOrder,
    RecoveryOrder,
    Resume,
    ShardsOrder,
    WakeUp,
    WorkOrder,
    parse_event,
)
from dynatick.engine.settings import SETTINGS_ID, read_settings

EVENTS = [
    # as EventBridge sends it; the tick belongs to the minute of its time, whatever the second
    ({"time": "2026-12-31T12:00:00Z"}, PassOrder(tick=NOON_MINUTE)),
    ({"time": "2026-12-31T11:58:59Z", "source": "aws.events", "detail": {}}, PassOrder(tick=NOON_MINUTE - 2)),
    ({"time": "2026-12-31T12:00:59Z"}, PassOrder(tick=NOON_MINUTE)),
    # by hand
    ({"dynatick": {"tick": "2026-12-31#11:00", "shard": 3}}, PassOrder(tick=NOON_MINUTE - 60, shard=3)),
    ({"dynatick": {"tick": "2026-12-31#11:00", "shard": 0}}, PassOrder(tick=NOON_MINUTE - 60, shard=0)),
    # its own continuation
    ({"dynatick": {"tick": "2026-12-31#12:00", "shard": 1, "continuation": 4,
        "resume": {"bucket": "2026-12-31#11:30", "after": "task-7"},
        "swept": {"bucket": "2026-12-31#11:40", "after": "task-9"}}},
        PassOrder(tick=NOON_MINUTE, shard=1, continuation=4, resume=Resume(NOON_MINUTE - 30, "task-7"),
                  swept=Resume(NOON_MINUTE - 20, "task-9"))),
    ({"dynatick": {"tick": "2026-12-31#12:00", "shard": 1, "resume": {"bucket": "2026-12-31#11:30", "after": None}}},
        PassOrder(tick=NOON_MINUTE, shard=1, resume=Resume(NOON_MINUTE - 30))),
    # reconcile
    ({"dynatick": {"reconcile": True}}, ReconcileOrder(began_at=NOON + timedelta(seconds=1))),
    ({"dynatick": {"reconcile": True, "beganAt": "2026-12-31T03:37:00Z", "after": "ö☃"}},
        ReconcileOrder(began_at=NOON - timedelta(hours=8, minutes=23), after="ö☃")),
    # what a tick starts
    ({"dynatick": {"tick": "2026-12-31#12:00", "shards": [64, 255]}}, ShardsOrder(NOON_MINUTE, range(64, 256))),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:01#3", "taskIds": ["a", "b"]}, "continuation": 2}},
        RecoveryOrder(bucket=bucket_at(1, 3), task_ids=("a", "b"), continuation=2)),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:01", "taskIds": ["a"], "until": "2026-12-31T12:02:00Z",
        "then": [{"bucket": "2026-12-31#12:00", "taskIds": ["b"]}]}}},
        RecoveryOrder(bucket=bucket_at(1), task_ids=("a",), until=NOON + timedelta(minutes=2),
                      then=(RecoveryOrder(bucket=bucket_at(0), task_ids=("b",)),))),
    ({"dynatick": {"work": {"bucket": "2026-12-31#12:00", "through": "b", "until": "2026-12-31T12:09:00Z"}}},
        WorkOrder(bucket=bucket_at(0), after=None, through="b", until=NOON + timedelta(minutes=9))),
    # what the queue of wake-ups delivers
    (WakeUp(bucket=bucket_at(1, 3), due=(Due(NOON, "a"), Due(NOON, "ö\
", "nextAttemptAt"))).to_event(),
        WakeUp(bucket=bucket_at(1, 3), due=(Due(NOON, "a"), Due(NOON, "ö\
", "nextAttemptAt")))),
    (PassOnTime(tick=NOON_MINUTE + 1, shard=3).to_event(), PassOnTime(tick=NOON_MINUTE + 1, shard=3)),
]  # fmt: skip


@pytest.mark.parametrize(("event", "order"), EVENTS)
def test_what_an_event_asks_for_and_that_an_order_becomes_its_event_again(event: object, order: Order) -> None:
    now = NOON + timedelta(seconds=1)
    assert parse_event(event, now) == order
    if isinstance(order, PassOrder) and order.shard is None:
        order = PassOrder(tick=order.tick, shard=0)
    assert parse_event(json.loads(json.dumps(order.to_event())), now) == order


EXPECTED = 'expected a scheduled event with its "time", or {"dynatick": {"tick": "2026-12-31#12:00"}}'

REFUSED = [
    (None, "event", EXPECTED), ([], "event", EXPECTED), ("tick", "event", EXPECTED), ({}, "event.time", EXPECTED),
    ({"time": None}, "event.time", EXPECTED), ({"Records": []}, "event.Records.body", "expected {"),
    ({"time": "2026-12-31T12:00:00"}, "event.time", "its offset from UTC is missing"),
    ({"time": "noon"}, "event.time", "expected an instant"), ({"dynatick": "tick"}, "event.dynatick", EXPECTED),
    ({"dynatick": {}}, "event.dynatick.tick", "expected a bucket such as 2026-12-31#12:00"),
    ({"dynatick": {"tick": "2026-12-31T12:00:00Z"}}, "event.dynatick.tick", "expected a bucket such as"),
    ({"dynatick": {"reconcile": True, "beganAt": "yesterday"}}, "event.dynatick.beganAt", "expected an instant"),
    ({"dynatick": {"reconcile": True, "after": ""}}, "event.dynatick.after", "expected an id, or null"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "shard": -1}}, "event.dynatick.shard", "expected a whole number"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "shards": 3}}, "event.dynatick.shards", "expected the first and the"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "shards": [1, "2"]}}, "event.dynatick.shards", "expected a whole"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "shards": [3, 2]}}, "event.dynatick.shards", "expected two whole"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "continuation": 0.5}}, "event.dynatick.continuation", "expected a"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "resume": "x"}}, "event.dynatick.resume", "expected a map of bucket"),
    ({"dynatick": {"tick": "2026-12-31#11:00", "resume": {}}}, "event.dynatick.resume.bucket", "expected a bucket"),
    ({"dynatick": {"recover": "x"}}, "event.dynatick.recover", "expected a map of bucket and taskIds"),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:00", "taskIds": [7]}}}, "event.dynatick.recover.taskIds",
        "expected a list of ids"),
    ({"dynatick": {"recover": {"bucket": "noon", "taskIds": ["a"]}}}, "event.dynatick.recover.bucket", "expected a"),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:00", "taskIds": ["a"], "then": "x"}}},
        "event.dynatick.recover.then", "expected a list of maps"),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:00", "taskIds": ["a"], "then": [{"taskIds": ["a"]}]}}},
        "event.dynatick.recover.then.bucket", "expected a"),
    ({"dynatick": {"recover": {"bucket": "2026-12-31#12:00", "taskIds": ["a"], "until": "noon"}}},
        "event.dynatick.recover.until", "expected"),
    ({"dynatick": {"work": 7}}, "event.dynatick.work", "expected a map of bucket, after, through and until"),
    ({"dynatick": {"work": {"bucket": "soon"}}}, "event.dynatick.work.through", "expected an id"),
    ({"dynatick": {"work": {"bucket": "soon", "through": "b"}}}, "event.dynatick.work.bucket", "expected a bucket"),
    ({"dynatick": {"work": {"bucket": "2026-12-31#12:00", "through": "b", "after": 5}}}, "event.dynatick.work.after",
        "expected an id, or null"),
    ({"dynatick": {"work": {"bucket": "2026-12-31#12:00", "through": "b", "until": "now"}}},
        "event.dynatick.work.until", "expected an instant"),
    *(({"dynatick": {"wakeUp": inner}}, "event.dynatick.wakeUp", "expected") for inner in (
        None, 7, [], {"bucket": "noon"}, {"bucket": "2026-12-31#12:01"}, {"bucket": "2026-12-31#12:01", "tasks": []},
        {"bucket": "2026-12-31#12:01", "tasks": ["a"]}, {"bucket": "2026-12-31#12:01", "tasks": [["a", "soon", "due"]]},
        {"bucket": "2026-12-31#12:01", "tasks": [["a", "2026-12-31T12:00:30Z", "then"]]},
        {"bucket": "2026-12-31#12:01", "tasks": [[7, "2026-12-31T12:00:30Z", "due"]]}, {"tick": "noon"},
        {"tick": "2026-12-31#12:01", "shard": -1})),
]  # fmt: skip


@pytest.mark.parametrize(("event", "field", "expected"), REFUSED)
def test_what_no_event_is(event: object, field: str, expected: str) -> None:
    found, reason = refusal(parse_event, event, NOON)
    assert found == field or (field.endswith("wakeUp") and found.startswith(field))
    assert reason.startswith(expected)


AHEAD = "expected a tick that is not in the future: its tasks would run early"


@pytest.mark.parametrize(
    ("event", "from_second"),  # which the clocks of two hosts may differ by
    [({"time": "2026-12-31T12:01:00Z"}, 56), ({"dynatick": {"tick": "2026-12-31#12:01"}}, 56),
     (WorkOrder(bucket=bucket_at(1), after=None, through="t", until=NOON).to_event(), 56),
     ({"time": "2021-12-31T12:00:00Z"}, 0)],  # a late one does no harm
)  # fmt: skip
def test_a_tick_that_lies_ahead_is_refused(event: object, from_second: int) -> None:
    parse_event(event, NOON + timedelta(seconds=from_second))
    if from_second:
        assert refusal(parse_event, event, NOON + timedelta(seconds=from_second - 0.1))[1] == AHEAD


# -- ticks -----------------------------------------------------------------------------------------------------------


SCHEMAS = {"log": '{"type":"object"}'}


def published(w: World) -> Mapping[str, str]:
    found = read_settings(w.store)
    assert found is not None
    return found.payload_schemas


def test_the_payload_types_of_handlers_are_published_by_the_first_shard_after_the_tasks_of_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = world(rules=rules(grid=Grid(shard_count=3)))
    w.insert("t", at=bucket_at(1))
    ended: list[object] = []
    monkeypatch.setattr(w.actions, "payload_schemas", lambda: ended.append(w.outcome("t")) or SCHEMAS)
    done = w.handle({"dynatick": {"tick": "2026-12-31#12:00", "shard": 2}})
    assert (done.passed.shard if done.passed else None, w.started) == (2, []), "its own pass starts no others"
    assert published(w) == {}
    w.next_tick()
    assert ended == ["completed"], "making them takes time, for which no task waits"
    assert published(w) == SCHEMAS
    w.rigged.forget()
    w.ticks(3)
    assert [change for change in w.rigged.writes if change.task_id == SETTINGS_ID] == []


def test_a_tick_whose_payload_types_cannot_be_written_has_done_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    w = world()
    w.next_tick()
    w.insert("t", at=bucket_at(2))
    monkeypatch.setattr(w.actions, "payload_schemas", lambda: SCHEMAS)
    w.store.throttled = lambda change: change.task_id == SETTINGS_ID
    (done,) = w.next_tick()
    assert w.outcome("t") == "completed"
    assert str(done.schemas_not_published).startswith("cannot publish the settings")
    w.rigged.clear_faults()
    (done,) = w.next_tick()
    assert (done.schemas_not_published, published(w)) == (None, SCHEMAS)
