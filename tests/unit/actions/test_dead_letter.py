"""The dead-letter queue. Failure mode 5: each entry's own result counts."""

import json
import logging
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from tests.unit.actions.support import SDK_ERRORS, Sqs

from dynatick.actions.dead_letter import MAX_BATCH_BYTES, MAX_BODY_BYTES, NoDeadLetters, QueueDeadLetters, message_of
from dynatick.engine.ports import DeadLetter

ROW = {
    "taskId": "t-1", "taskDateTime": "2026-12-31#12:00", "dueAt": "2026-12-31T11:59:30Z", "action": "webhook",
    "payload": {"n": Decimal("1.5"), "b": Binary(b"\x00"), "s": {"y", "x"}}, "run": Decimal(2), "attempt": Decimal(4),
    "attempts": [{"run": Decimal(2), "attempt": Decimal(1), "error": "no"}], "scheduleId": "daily", "lease": "secret",
    "status": "running",
}  # fmt: skip
OMITTED = "it is too large for a message, or the queue refused it"


def a_letter(task_id="t-1", **values):
    known = {"attempt": 4, "error": "gone", "failed_at": datetime(2026, 12, 31, 12, 1, tzinfo=UTC)}
    row = {**ROW, "taskId": task_id, **values.pop("row", {})}
    return DeadLetter(row=row, **{**known, **values})


def test_the_message_has_what_the_row_has():
    assert json.loads(message_of(a_letter())) == {
        "version": 1, "taskId": "t-1", "run": 2, "attempt": 4, "action": "webhook", "dueAt": "2026-12-31T11:59:30Z",
        "taskDateTime": "2026-12-31#12:00", "scheduleId": "daily", "error": "gone", "failedAt": "2026-12-31T12:01:00Z",
        "attempts": [{"run": 2, "attempt": 1, "error": "no"}], "payload": {"n": 1.5, "b": "AA==", "s": ["x", "y"]},
    }  # fmt: skip
    bare = DeadLetter(row={"taskId": "t"}, attempt=1, error="x", failed_at=datetime(2026, 12, 31, tzinfo=UTC))
    assert json.loads(message_of(bare)) == {
        "version": 1, "taskId": "t", "attempt": 1, "error": "x", "failedAt": "2026-12-31T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        ({"payload": {"x": "a" * 300_000}}, {"payload"}),
        ({"payload": {"x": "é" * 50_000}}, {"payload"}),  # six characters each in ASCII
        ({"payload": {"x": object()}}, {"payload"}),
        ({"attempts": [{"error": "a" * 300_000}]}, {"payload", "attempts"}),
        ({"attempts": "a" * 150_000, "payload": {"x": "a" * 150_000}}, {"payload"}),
    ],
)
def test_a_large_payload_is_replaced_by_a_note(row, missing):
    body = message_of(a_letter(row=row))
    fields = json.loads(body)
    assert (fields["taskId"], fields["run"], fields["payloadOmitted"]) == ("t-1", 2, OMITTED)
    assert {"payload", "attempts"} - set(fields) == missing
    assert len(body) <= MAX_BODY_BYTES


def test_a_malformed_row_makes_a_message():
    malformed = dict.fromkeys(ROW, "�" * 400000) | {"run": Decimal("NaN"), "dueAt": {"x": 1}}
    body = message_of(a_letter("\x00" * 1024, row=malformed, error="é" * 400_000))
    assert body.isascii()
    assert len(body) <= MAX_BODY_BYTES
    assert json.loads(body)["run"] == "NaN"


def send(letters, judge=lambda body: "ok"):
    """The client that the letters were sent with, and for each letter whether it was sent."""
    queue = Sqs(judge)
    return queue, QueueDeadLetters(queue, "https://sqs.example/1/own").send(letters)


def test_sends_in_tens_and_reports_in_order():
    queue, sent = send([a_letter(f"t-{n}") for n in range(23)])
    assert sent == [True] * 23
    assert [len(call) for call in queue.calls] == [10, 10, 3]
    assert [body["taskId"] for body in queue.taken] == [f"t-{n}" for n in range(23)]
    assert queue.calls[0][0]["MessageAttributes"] == {"action": {"DataType": "String", "StringValue": "webhook"}}


def test_a_call_is_never_larger_than_sqs_accepts():
    sizes = [100_000, 100_000, 100_000, 240_000, 10, 20_000, 260_000, 5]
    queue, sent = send([a_letter(f"t-{n}", row={"payload": {"x": "a" * size}}) for n, size in enumerate(sizes)])
    assert all(sent)
    for call in queue.calls:
        assert sum(len(entry["MessageBody"]) + 100 for entry in call) <= MAX_BATCH_BYTES
    assert len(queue.calls) == 3


@pytest.mark.parametrize("action", ["", "größe", "a\x00b", None, {"a": 1}])
def test_an_action_that_no_attribute_accepts_is_in_the_body_only(action):
    queue, _ = send([a_letter(row={"action": action})])
    assert "MessageAttributes" not in queue.calls[0][0]


def test_a_refused_message_is_sent_once_more_and_one_at_fault_without_its_payload(caplog):
    seen = set()

    def judge(body):
        task_id, first = body["taskId"], body["taskId"] not in seen
        seen.add(task_id)
        if task_id == "t-5":
            return "fault" if "payload" in body else "ok"
        again = first and task_id in {"t-3", "t-11"}
        return {"t-1": "busy", "t-2": "lost"}.get(task_id, "busy" if again else "ok")

    queue, sent = send([a_letter(f"t-{n}") for n in range(12)], judge)
    assert [n for n, is_sent in enumerate(sent) if not is_sent] == [1, 2]
    assert [len(call) for call in queue.calls] == [10, 2, 5]
    (bare,) = [body for body in queue.taken if "payload" not in body]
    assert (bare["taskId"], bare["run"], bare["payloadOmitted"]) == ("t-5", 2, OMITTED)
    refused = [(record.action, record.task_id) for record in caplog.records]
    assert refused == [("dead_letter_refused", "t-1"), ("dead_letter_refused", "t-2")]


def unsent(error, caplog):
    """The results of twelve letters, the third of which meets an error, and the actions and counts of the logs."""

    def judge(body):
        if body["taskId"] == "t-2":
            raise error
        return "ok"

    queue, sent = send([a_letter(f"t-{n}") for n in range(12)], judge)
    logged = [(record.action, getattr(record, "count", None)) for record in caplog.records]
    return sent, [len(call) for call in queue.calls], logged


def test_a_call_that_the_queue_refuses_fails_alone_and_is_made_once_more(caplog):
    sent, calls, logged = unsent(SDK_ERRORS[0], caplog)
    assert sent == [False] * 10 + [True] * 2
    assert calls == [10, 2, 10]
    assert logged == [("dead_letters_unsent", 10)] * 2 + [("dead_letter_refused", None)] * 10


def test_after_a_call_without_an_answer_nothing_more_is_sent(caplog):
    sent, calls, logged = unsent(SDK_ERRORS[1], caplog)
    assert sent == [False] * 12
    assert calls == [10]
    assert logged == [("dead_letters_unsent", 12)]


def test_without_a_queue_nothing_is_lost_and_one_warning_is_logged(caplog):
    caplog.set_level(logging.WARNING)
    letters = NoDeadLetters()
    assert letters.send([]) == []
    assert caplog.records == []
    assert letters.send([a_letter(), a_letter()]) == [True, True]
    assert letters.send([a_letter()]) == [True]
    assert [record.action for record in caplog.records] == ["no_dead_letter_queue"]
