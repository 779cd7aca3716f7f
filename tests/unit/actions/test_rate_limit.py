"""Rate limits: when a task may start, and which tasks are deferred."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.actions.support import NOW, PAYLOADS, Clock, Server, a_task, run

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.rate_limit import RateLimits
from dynatick.errors import ConfigurationError, PermanentError, RateLimited, RetryableError


def wait(limits: RateLimits, task_id: str, *names: str) -> float | str:
    """Seconds until the task may start; "later" with the seconds of a deferred one."""
    try:
        limits.acquire(a_task(task_id=task_id, lease=f"{task_id}'s"), *(names or ("sns",)))
    except RateLimited as early:
        return f"later {early.seconds:.1f}" if early.defer else round(early.seconds, 3)
    return 0.0


def test_the_tokens_of_one_second_are_used_at_once_and_the_others_one_by_one(clock: Clock) -> None:
    limits = RateLimits(["sns=4/s"], clock=clock)
    assert [wait(limits, str(n)) for n in range(7)] == [0, 0, 0, 0, 0.25, 0.5, 0.75]
    clock.forward(0.25)
    assert wait(limits, "4") == 0
    assert wait(limits, "5") == 0.25, "it keeps its token"
    assert wait(limits, "new") == 0.75
    clock.forward(10)
    assert [wait(limits, f"n{n}") for n in range(5)] == [0, 0, 0, 0, 0.25], "unused tokens are not saved up"


def test_a_task_beyond_the_horizon_is_deferred_and_takes_no_token(clock: Clock) -> None:
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
        *((limit, f"'{limit}' is not a limit") for limit in ("sns", "sns=0/s", "sns=1/d", "sns=1.5/s")),
        ("sns:host=1/s", "names a host, which only webhooks have"),
        ("webhook:https://a=1/s", "is not a limit"),
        ("nothing=1/s", "there is no action 'nothing' here"),
        ("sns=2/s", "'sns' is there twice"),
    ],
)
def test_a_malformed_limit_is_refused(limit: str, message: str, clock: Clock) -> None:
    chosen = ActionSettings(rate_limits=("sns=1/s", limit), targets=("arn:aws:sns:*:*:*",))
    with pytest.raises(ConfigurationError, match=f"ActionRateLimits: .*{message}"):
        build_actions(handlers_module=None, clock=clock, settings=chosen)


def test_webhooks_are_limited_by_their_host_and_other_actions_by_their_name(server: Server, clock: Clock) -> None:
    chosen = ActionSettings(rate_limits=("webhook:127.0.0.1=1/m", "log=1/m"), private_hosts=("127.0.0.1", "localhost"))
    actions = build_actions(handlers_module=None, clock=clock, settings=chosen)
    assert run(actions, "webhook", {"url": server.url}) == {"status": 200}
    assert run(actions, "webhook", {"url": server.url.replace("127.0.0.1", "localhost")}) == {"status": 200}
    assert run(actions, "log") is None
    for action in ("webhook", "log"):
        with pytest.raises(RateLimited):
            run(actions, action, {"url": server.url}, task_id="other")
    assert len(server.requests) == 2


def test_a_refused_task_takes_no_token(clock: Clock) -> None:
    hosts, arn = ("127.0.0.1",), PAYLOADS["sqs"]["queueArn"]
    chosen = ActionSettings(
        rate_limits=("webhook=1/m", "sqs=1/m"), targets=(arn,), private_hosts=hosts, webhook_hosts=hosts
    )
    calls: list[str] = []

    def clients(service: str, **_: object) -> Any:
        calls.append(service)
        raise RetryableError("as if it were away")

    actions = build_actions(handlers_module=None, clock=clock, settings=chosen, clients=clients)
    other = PAYLOADS["sqs"] | {"queueArn": f"{arn}-of-another"}
    for action, payload in (("sqs", {}), ("sqs", other), ("webhook", {}), ("webhook", PAYLOADS["webhook"])):
        with pytest.raises(PermanentError):
            run(actions, action, payload)
    with pytest.raises(RetryableError, match="away"):
        run(actions, "sqs", PAYLOADS["sqs"], task_id="a")
    with pytest.raises(RateLimited):
        run(actions, "sqs", PAYLOADS["sqs"], task_id="b")
    assert calls == ["sqs"]
