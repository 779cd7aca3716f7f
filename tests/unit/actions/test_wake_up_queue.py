"""The queue of wake-ups: batches, delays of whole seconds, and a queue that is down."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.builders import NOON
from tests.unit.actions.support import SDK_ERRORS, Sqs

from dynatick.actions.wake_up_queue import QueueWakeUps


def queue(sqs: Sqs) -> QueueWakeUps:
    return QueueWakeUps(sqs, "https://sqs.example/1/own", clock=lambda: NOON, lead=timedelta(seconds=1))


def test_a_wake_up_is_received_a_lead_before_its_instant_rounded_down() -> None:
    sqs, seconds = Sqs(), (30, 30.999, 31, 1.5, 0, -100, 901, 5000)
    assert queue(sqs).send([({"n": n}, NOON + timedelta(seconds=s)) for n, s in enumerate(seconds)]) == 0
    assert [entry["DelaySeconds"] for call in sqs.calls for entry in call] == [29, 29, 30, 0, 0, 0, 900, 900]


def test_ten_wake_ups_share_a_call_if_they_fit() -> None:
    sqs = Sqs()
    assert queue(sqs).send([({"n": n}, NOON) for n in range(23)]) == 0
    assert [len(call) for call in sqs.calls] == [10, 10, 3]
    assert sqs.taken == [{"n": n} for n in range(23)]
    assert [entry["Id"] for entry in sqs.calls[0]] == [str(n) for n in range(10)]
    queue(sqs).send([({"ids": "x" * 100_000}, NOON)] * 5)
    assert [len(call) for call in sqs.calls[3:]] == [2, 2, 1]
    assert queue(sqs).send([]) == 0
    assert len(sqs.calls) == 6


@pytest.mark.parametrize(("error", "unsent", "calls"), [(SDK_ERRORS[0], [10, 1], 2), (SDK_ERRORS[1], [13], 1)])
def test_a_queue_that_refuses_is_not_asked_twice_and_after_silence_not_at_all(
    error: Exception, unsent: list[int], calls: int, caplog: pytest.LogCaptureFixture
) -> None:
    def judge(body: dict[str, int]) -> str:
        if body["n"] == 0:
            raise error
        return "busy" if body["n"] == 12 else "ok"  # a message that is refused is counted

    sqs = Sqs(judge)
    assert queue(sqs).send([({"n": n}, NOON) for n in range(13)]) == sum(unsent)
    assert len(sqs.calls) == calls
    logged = [(record.__dict__["action"], record.__dict__["count"]) for record in caplog.records]
    assert logged == [("wake_ups_unsent", number) for number in unsent]
