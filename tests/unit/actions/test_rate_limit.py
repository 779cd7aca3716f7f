"""Rate limits: when a task may start, and which tasks are deferred."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.actions.support import NOW, a_context, a_server, a_task

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.rate_limit import RateLimits
from dynatick.errors import ConfigurationError, PermanentError, RateLimited, RetryableError

QUEUE = "arn:aws:sqs:eu-west-1:123456789012:orders"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self):  # type: ignore[no-untyped-def]
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def wait(limits: RateLimits, task_id: str, *names: str) -> float | str:
    """Seconds until the task may start; "later" with the seconds of a deferred one."""
    try:
        limits.acquire(a_task(task_id=task_id, lease=f"{task_id}'s"), *(names or ("sns",)))
    except RateLimited as early:
        return f"later {early.seconds:.1f}" if early.defer else round(early.seconds, 3)
    return 0.0


def test_the_tokens_of_one_second_are_used_at_once_and_the_others_one_by_one() -> None:
    clock = Clock()
    limits = RateLimits(["sns=4/s"], clock=clock)
    assert [wait(limits, str(n)) for n in range(7)] == [0, 0, 0, 0, 0.25, 0.5, 0.75]
    clock.forward(0.25)
    assert wait(limits, "4") == 0
    assert wait(limits, "5") == 0.25, "it keeps its token"
    assert wait(limits, "new") == 0.75
    clock.forward(10)
    assert [wait(limits, f"n{n}") for n in range(5)] == [0, 0, 0, 0, 0.25], "unused tokens are not saved up"


def test_a_task_beyond_the_horizon_is_deferred_and_takes_no_token() -> None:
    clock = Clock()
    limits = RateLimits(["sns=1/s"], clock=clock, horizon=3)
    found = [wait(limits, str(n)) for n in range(7)]
    assert found == [0, 1, 2, "later 4.0", "later 5.0", "later 6.0", "later 7.0"]
    clock.forward(3)
    assert [wait(limits, f"again {n}") for n in range(4)] == [0, 1, 2, "later 5.0"]


def test_limits_of_an_action_and_of_a_host_hold_both() -> None:
    limits = RateLimits(["webhook=10/s", "webhook:A.example=1/s"], clock=Clock())
    names = ("webhook", "webhook:a.example")
    assert [wait(limits, f"a{n}", *names) for n in range(3)] == [0, 1, 2]
    assert [wait(limits, f"b{n}", "webhook", "webhook:b.example") for n in range(8)] == [0] * 7 + [0.1]
    assert wait(limits, "other", "sqs") == 0


@given(st.lists(st.floats(0, 2), max_size=60), st.integers(1, 20))
def test_no_second_has_more_than_its_tokens_and_one_more_second_of_them(pauses: list[float], rate: int) -> None:
    """At most twice the rate in any second, and the rate in the long run."""
    clock = Clock()
    limits = RateLimits([f"sns={rate}/s"], clock=clock, horizon=1e9)
    starts = []
    for number, pause in enumerate(pauses):
        clock.forward(pause)
        found = wait(limits, str(number))
        assert isinstance(found, float | int)
        starts.append((clock.now - NOW).total_seconds() + found)
    assert starts == sorted(starts), "first come, first served"
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rate * (starts[last] - starts[first]) + rate + 1.01


def test_many_threads_share_one_limit() -> None:
    limits = RateLimits(["sns=10/s"], clock=Clock())
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda n: wait(limits, str(n)), range(200)))
    assert sorted(map(float, found)) == pytest.approx([0.0] * 10 + [n / 10 for n in range(1, 191)], abs=0.001)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("sns", "'sns' is not a limit"),
        ("sns=0/s", "is not a limit"),
        ("sns=1/d", "is not a limit"),
        ("sns=1.5/s", "is not a limit"),
        ("sns:host=1/s", "names a host, which only webhooks have"),
        ("webhook:https://a=1/s", "is not a limit"),
        ("nothing=1/s", "there is no action 'nothing' here"),
    ],
)
def test_a_malformed_limit_is_refused(limit: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"ActionRateLimits: .*{message}"):
        build_actions(
            handlers_module=None,
            clock=Clock(),
            settings=ActionSettings(rate_limits=(limit,), topics=("arn:aws:sns:*:*:*",)),
        )


def test_a_limit_given_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'sns' is there twice"):
        RateLimits(["sns=1/s", "sns=2/s"], clock=Clock())


def test_webhooks_are_limited_by_their_host() -> None:
    chosen = ActionSettings(rate_limits=("webhook:127.0.0.1=1/m", "log=1/m"), private_hosts=("127.0.0.1", "localhost"))
    actions = build_actions(handlers_module=None, clock=Clock(), settings=chosen)
    with a_server() as server:
        for task_id, url in (("a", server.url), ("b", server.url.replace("127.0.0.1", "localhost"))):
            task = a_task({"url": url}, action="webhook", task_id=task_id)
            assert actions.run(task, a_context(task)) == {"status": 200}
        for action, payload in (("webhook", {"url": server.url}), ("log", {})):
            task = a_task(payload, action=action, task_id="c")
            if action == "log":
                actions.run(task, a_context(task))
                task = a_task(payload, action=action, task_id="d")
            with pytest.raises(RateLimited):
                actions.run(task, a_context(task))
        assert len(server.requests) == 2


def test_a_refused_task_takes_no_token() -> None:
    """A refused task must not delay others."""
    chosen = ActionSettings(
        rate_limits=("webhook=1/m", "sqs=1/m"),
        queues=(QUEUE,),
        private_hosts=("127.0.0.1",),
        webhook_hosts=("127.0.0.1",),
    )
    calls: list[str] = []

    def clients(service: str, **_: object) -> Any:
        calls.append(service)
        raise RetryableError("as if it were away")

    actions = build_actions(handlers_module=None, clock=Clock(), settings=chosen, clients=clients)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("sqs", {}),
        ("sqs", {"queueArn": f"{QUEUE}-of-another", "message": "x"}),
        ("webhook", {}),
        ("webhook", {"url": "https://example.com"}),
    ]
    for number, (action, payload) in enumerate(refused):
        task = a_task(payload, action=action, task_id=str(number))
        with pytest.raises(PermanentError):
            actions.run(task, a_context(task))
    task = a_task({"queueArn": QUEUE, "message": "x"}, action="sqs", task_id="a")
    with pytest.raises(RetryableError, match="away"):
        actions.run(task, a_context(task))
    with pytest.raises(RateLimited):
        actions.run(second := a_task(task.payload, action="sqs", task_id="b"), a_context(second))
    assert calls == ["sqs"]
