"""Entries that share a call: each gets its own result, and none waits for ever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ParamValidationError

from dynatick.actions.aws import FailedEntry
from dynatick.actions.batch import Batcher, by_id
from dynatick.errors import ActionError, PermanentError, RetryableError


class Target:
    """Accepts all entries but ``refused``, and records its calls."""

    def __init__(self, refused: dict[int, str] | None = None, seconds: float = 0.0) -> None:
        self.refused = refused or {}
        self.seconds = seconds
        self.calls: list[list[int]] = []

    def send(self, entries: Sequence[Any]) -> list[object]:
        self.calls.append(list(entries))
        time.sleep(self.seconds)  # wait: calls overlap, as with a real target; nothing depends on how long
        return [FailedEntry(self.refused[one]) if one in self.refused else f"sent {one}" for one in entries]


def put_all(batches: Batcher, send: Any, numbers: Sequence[int], *, threads: int, size: int = 1) -> dict[int, object]:
    """The result or the error of each entry."""

    def put(number: int) -> object:
        try:
            return batches.put("target", number, size, send)
        except ActionError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(numbers, pool.map(put, numbers, timeout=30), strict=True))


@pytest.mark.parametrize("threads", [1, 2, 9, 10, 11, 64])
def test_each_entry_gets_its_own_result_however_many_threads_there_are(threads: int) -> None:
    target = Target(seconds=0.001)
    numbers = range(40 if threads == 1 else 500)
    outcomes = put_all(Batcher(), target.send, numbers, threads=threads)
    assert outcomes == {number: f"sent {number}" for number in numbers}
    assert sorted(number for call in target.calls for number in call) == list(numbers), "each is sent once"
    assert max(map(len, target.calls)) <= min(threads, 10)
    if threads >= 10:
        assert len(target.calls) < len(numbers) / 2, "they share calls"


def test_a_refused_entry_fails_alone() -> None:
    target = Target({n: "InternalError" if n % 2 else "InvalidParameter" for n in range(0, 100, 7)})
    outcomes = put_all(Batcher(), target.send, range(100), threads=20)
    for number, outcome in outcomes.items():
        if number % 7:
            assert outcome == f"sent {number}"
        else:
            kind, code = (RetryableError, "InternalError") if number % 2 else (PermanentError, "InvalidParameter")
            assert isinstance(outcome, kind), outcome
            assert str(outcome) == f"the target refused it ({code})"
    assert sum(map(len, target.calls)) == 100


def test_an_entry_that_fails_the_whole_call_fails_alone() -> None:
    calls: list[int] = []

    def send(entries: Sequence[int]) -> list[object]:
        calls.append(len(entries))
        if 13 in entries:
            raise ClientError({"Error": {"Code": "InvalidParameterValue", "Message": "13 hunter2"}}, "Send")
        return [f"sent {one}" for one in entries]

    outcomes = put_all(Batcher(wait=0.2), send, range(10, 20), threads=10)
    error = outcomes.pop(13)
    assert isinstance(error, PermanentError)
    assert str(error) == "the target refused it (InvalidParameterValue)"
    assert outcomes == {number: f"sent {number}" for number in range(10, 20) if number != 13}
    assert calls == [10] + [1] * 10


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (ClientError({"Error": {"Code": "Throttling", "Message": "x"}}, "Send"), RetryableError, "refused it (Thrott"),
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "x"}}, "Send"), RetryableError, "(AccessDenied)"),
        (ClientError({}, "Send"), RetryableError, "refused it (Unknown)"),
        (ConnectTimeoutError(endpoint_url="https://hunter2"), RetryableError, "not answer (ConnectTimeoutError)"),
        (ParamValidationError(report="hunter2"), PermanentError, "ParamValidationError"),
        (ValueError("hunter2"), RetryableError, "it could not be sent (ValueError)"),
    ],
)
def test_a_failed_call_fails_each_entry(raised: Exception, kind: type[ActionError], text: str) -> None:
    def send(entries: Sequence[int]) -> list[object]:
        raise raised

    outcomes = put_all(Batcher(), send, range(30), threads=10)
    for error in outcomes.values():
        assert isinstance(error, kind)
        assert text in str(error)
        assert "hunter2" not in str(error)
    assert len(set(map(id, outcomes.values()))) == 30, "an error of its own each: several threads raise them"


def test_a_leader_that_raises_fails_the_others() -> None:
    class Killed(BaseException):
        pass

    def send(entries: Sequence[int]) -> list[object]:
        raise Killed

    def put(number: int) -> BaseException:
        with pytest.raises((Killed, RetryableError)) as caught:
            batches.put("target", number, 1, send)
        return caught.value

    batches = Batcher(wait=0.2)
    with ThreadPoolExecutor(4) as pool:
        kinds = sorted(type(one).__name__ for one in pool.map(put, range(4), timeout=30))
    assert kinds == ["Killed", "RetryableError", "RetryableError", "RetryableError"]


def test_a_batch_is_no_larger_than_a_call_may_be() -> None:
    target = Target(seconds=0.001)
    outcomes = put_all(Batcher(max_bytes=100), target.send, range(60), threads=20, size=30)
    assert all(outcome == f"sent {number}" for number, outcome in outcomes.items())
    assert max(map(len, target.calls)) <= 3


def test_targets_do_not_share_calls() -> None:
    batches, targets = Batcher(), {"a": Target(), "b": Target()}
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: batches.put("ab"[n % 2], n, 1, targets["ab"[n % 2]].send), range(200)))
    sent = {name: sorted(n for call in target.calls for n in call) for name, target in targets.items()}
    assert sent == {"a": list(range(0, 200, 2)), "b": list(range(1, 200, 2))}


def test_an_entry_without_an_answer_counts_as_not_sent() -> None:
    answer = {
        "Successful": [{"Id": "2", "MessageId": "m"}],
        "Failed": [{"Id": "0", "Code": "InternalError", "SenderFault": False}],
    }
    assert by_id(answer, 3) == [FailedEntry("InternalError"), FailedEntry("NoAnswer"), {"messageId": "m"}]
