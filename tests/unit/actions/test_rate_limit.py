"""Rate limits: when a task may start, and which tasks are deferred."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count, cycle
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.limits import Stay, broken
from tests.unit.actions.support import NOW, PAYLOADS, Clock, Server, a_task, run

from dynatick.actions import build_actions
from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.rate_limit import AHEAD, EARLY, LATE, RateLimits
from dynatick.domain.conditional_update import ConditionalUpdate, Result, Unknown
from dynatick.domain.limit_keys import parse_limits
from dynatick.domain.packs import member_lease
from dynatick.domain.task import Row
from dynatick.engine.rates import RateRecords, rate_record_id
from dynatick.errors import ConfigurationError, PermanentError, RateLimited, RetryableError, StoreError
from dynatick.store.memory import MemoryStore


def wait(limits: RateLimits, task_id: str, *names: str, lease: str | None = None) -> float | str:
    """Seconds until the task may start; "later" with the seconds of a deferred one."""
    try:
        limits.acquire(a_task(task_id=task_id, lease=lease or f"{task_id}'s"), *(names or ("sns",)))
    except RateLimited as early:
        return f"later {early.seconds:.1f}" if early.defer else round(early.seconds, 3)
    return 0.0


def test_starts_are_an_interval_apart_and_none_is_saved_up(clock: Clock) -> None:
    limits = RateLimits(["sns=4/s"], clock=clock)
    assert [wait(limits, str(n)) for n in range(7)] == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5]
    clock.forward(0.25)
    assert [wait(limits, "1"), wait(limits, "2")] == [0, 0.25], "each keeps its start"
    assert wait(limits, "new") == 1.5
    clock.forward(10)
    assert [wait(limits, f"n{n}") for n in range(3)] == [0, 0.25, 0.5]


def test_a_start_that_is_not_used_for_a_second_is_lost_and_the_next_task_begins_at_once(clock: Clock) -> None:
    limits = RateLimits(["sns=15/m"], clock=clock)
    assert [wait(limits, "a"), wait(limits, "b")] == [0, 4]
    clock.forward(5)
    assert wait(limits, "b") == 0, "it is a second late"
    assert wait(limits, "c") == 3
    clock.forward(4.5)
    assert wait(limits, "c") == 0, "it is lost, and no other process has reserved one since"
    assert wait(limits, "d") == 4


def test_a_lost_start_is_not_given_back_once_another_process_has_reserved_the_next(clock: Clock) -> None:
    store = MemoryStore()
    one, other = (RateLimits(["sns=15/m"], clock=clock, records=records(store)) for _ in range(2))
    assert [wait(one, "a"), wait(one, "b")] == [0, 4]
    clock.forward(5.5)
    assert wait(other, "c") == 2.5
    assert wait(one, "b") == 1.52, "until it can be reserved"
    clock.forward(2.6)
    assert [wait(other, "c"), wait(one, "b")] == [0, 3.9]


def test_a_process_that_has_lost_its_start_does_not_give_back_that_of_another(clock: Clock) -> None:
    store = MemoryStore()
    one, other = (RateLimits(["sns=15/m"], clock=clock, records=records(store)) for _ in range(2))
    assert [wait(one, "a"), wait(one, "b")] == [0, 4]
    clock.forward(4)
    assert wait(other, "c") == 4
    assert wait(one, "d") == 3.02, "until it can be reserved, and b, whose pass is over, never comes"
    clock.forward(3.02)
    assert wait(one, "d") == 4.98
    clock.forward(0.98)
    assert wait(other, "c") == 0


def test_a_task_beyond_the_horizon_is_deferred_and_takes_no_start(clock: Clock) -> None:
    limits = RateLimits(["sns=1/s"], clock=clock, horizon=3)
    found = [wait(limits, str(n)) for n in range(7)]
    assert found == [0, 1, 2, "later 4.0", "later 5.0", "later 6.0", "later 7.0"]
    clock.forward(3)
    assert [wait(limits, f"again {n}") for n in range(4)] == [0, 1, 2, "later 5.0"]


def test_a_pack_goes_on_behind_its_own_members_and_not_behind_what_was_deferred(clock: Clock) -> None:
    limits = RateLimits(["sns=1/s"], clock=clock, horizon=3)

    def member(pack: str, n: int) -> float | str:
        return wait(limits, f"{pack}/{n}", lease=member_lease(pack, n))

    assert [member("a", n) for n in range(5)] == [0, 1, 2, "later 3.0", "later 3.0"]
    assert [member("b", n) for n in range(2)] == ["later 4.0", "later 5.0"]
    assert member("a", 5) == "later 3.0"
    clock.forward(3)
    assert [member("b", n) for n in range(2, 6)] == [0, 1, 2, "later 3.0"]
    assert member("a", 6) == "later 4.0"


def test_limits_of_an_action_and_of_a_host_hold_both(clock: Clock) -> None:
    limits = RateLimits(["webhook=10/s", "webhook:A.example=1/s"], clock=clock)
    names = ("webhook", "webhook:a.example")
    assert [wait(limits, f"a{n}", *names) for n in range(3)] == [0, 0.1, 0.2]
    assert [wait(limits, f"b{n}", "webhook", "webhook:b.example") for n in range(4)] == [0.3, 0.4, 0.5, 0.6]
    clock.forward(0.2)
    assert [wait(limits, f"a{n}", *names) for n in (1, 2)] == [0.8, 1.8], "first the action's, then the host's"
    clock.forward(0.8)
    assert wait(limits, "a1", *names) == 0
    assert wait(limits, "other", "sqs") == 0


def test_starts_are_reserved_a_few_seconds_ahead(clock: Clock) -> None:
    """So a process that ends with many tasks that wait leaves the rate to others."""
    store = MemoryStore()
    one, other = (RateLimits(["sns=10/s"], clock=clock, records=records(store)) for _ in range(2))
    for n in range(300):
        wait(one, str(n))
    first = wait(other, "other")
    assert isinstance(first, float)
    assert first < (AHEAD + timedelta(seconds=2)).total_seconds()


# -- many processes ----------------------------------------------------------------------------------------------------


def records(store: MemoryStore) -> RateRecords:
    numbers = count()
    return RateRecords(store, lambda: f"{id(numbers)}.{next(numbers)}")


Arrival = tuple[float, int]  # seconds after the one before, and the process


def starts_of(
    clock: Clock, processes: Sequence[RateLimits], arrivals: Iterable[Arrival], delays: Sequence[float], *names: str
) -> list[Stay]:
    """When tasks begin that come to processes at these times. Each that waits comes again later than it was told, by
    one of the delays after the other."""
    events: list[tuple[datetime, int, int, str]] = []
    at, order, late = clock.now, count(), cycle(delays)
    for pause, process in arrivals:
        at += timedelta(seconds=pause)
        heapq.heappush(events, (at, next(order), process % len(processes), f"t{len(events)}"))
    stays = []
    while events:
        clock.now, _, process, task_id = heapq.heappop(events)
        try:
            processes[process].acquire(a_task(task_id=task_id, lease=f"{task_id}'s"), *names)
        except RateLimited as early:
            assert not early.defer
            again = clock.now + timedelta(seconds=early.seconds + next(late), microseconds=1)
            heapq.heappush(events, (again, next(order), process, task_id))
        else:
            begin = (clock.now - NOW).total_seconds()
            stays.append(Stay(task_id=task_id, key=f"{names[-1]}:any", begin=begin, end=begin))
    return stays


SLACK = (LATE + EARLY).total_seconds() + 0.001


@given(
    st.lists(st.tuples(st.sampled_from((0.0, 0.0, 0.01, 0.3, 2.0)), st.integers(0, 3)), max_size=80),
    st.lists(st.sampled_from((0.0, 0.02, 0.4, 0.9, 3.0)), max_size=5),
    st.sampled_from(("20/s", "3/s", "600/m", "15/m", "6/m")),
)
def test_no_window_has_more_than_the_rate_however_many_processes_there_are(
    arrivals: list[Arrival], delays: list[float], rate: str
) -> None:
    clock, store = Clock(), MemoryStore()
    processes = [RateLimits([f"sns={rate}"], clock=clock, horizon=1e6, records=records(store)) for _ in range(4)]
    stays = starts_of(clock, processes, arrivals, [0.0, *delays], "sns")
    assert len(stays) == len(arrivals)
    assert not list(broken(stays, parse_limits([f"sns={rate}"]), skew=SLACK))


def test_no_window_has_more_than_the_rate_when_one_process_has_many_tasks_and_another_one_now_and_then() -> None:
    clock, store = Clock(), MemoryStore()
    processes = [RateLimits(["sns=10/s"], clock=clock, records=records(store)) for _ in range(2)]
    stays = starts_of(clock, processes, [*[(0.0, 0)] * 300, *[(0.7, 1)] * 40], (0.0, 0.002, 0.005), "sns")
    assert not list(broken(stays, parse_limits(["sns=10/s"]), skew=SLACK))


def test_no_window_has_more_for_a_host_than_its_rate_beside_that_of_its_action() -> None:
    clock, store, limits = Clock(), MemoryStore(), ["webhook=20/s", "webhook:a=5/s"]
    processes = [RateLimits(limits, clock=clock, horizon=1e6, records=records(store)) for _ in range(3)]
    arrivals = [(0.0, n % 3) for n in range(200)]
    stays = starts_of(clock, processes, arrivals, (0.0, 0.3), "webhook", "webhook:a")
    of_host = [replace(stay, key="host:a") for stay in stays]
    assert len(of_host) == 200
    assert not list(broken(of_host, parse_limits(["host=5/s"]), skew=SLACK))


@pytest.mark.parametrize(("rate", "number"), [("6/m", 10), ("12/m", 40), ("1/s", 40), ("10/s", 300)])
@pytest.mark.parametrize("delays", [(0.0,), (0.0, 0.002, 0.005)])
def test_a_process_with_many_tasks_leaves_every_other_start_to_one_with_few(
    rate: str, number: int, delays: Sequence[float]
) -> None:
    clock, store, few = Clock(), MemoryStore(), number // 10
    many, other = (RateLimits([f"sns={rate}"], clock=clock, horizon=1e6, records=records(store)) for _ in range(2))
    arrivals = [*[(0.0, 0)] * number, (0.1, 1), *[(0.0, 1)] * (few - 1)]
    stays = starts_of(clock, [many, other], arrivals, delays, "sns")
    places = [place for place, stay in enumerate(stays) if int(stay.task_id[1:]) >= number]
    ahead = AHEAD / parse_limits([f"sns={rate}"])["sns"].interval  # that were reserved before they came
    assert len(places) == few
    assert places[-1] <= ahead + 2 * few + max(10, few)


@pytest.mark.parametrize(("rate", "seconds"), [("50/s", 20), ("1/s", 60), ("6/m", 600)])
def test_processes_that_have_enough_tasks_use_all_of_the_rate_by_few_writes(rate: str, seconds: int) -> None:
    clock, store = Clock(), CountingStore()
    limit = parse_limits([f"sns={rate}"])["sns"]
    number = int(timedelta(seconds=seconds) / limit.interval)
    processes = [RateLimits([f"sns={rate}"], clock=clock, horizon=1e6, records=records(store)) for _ in range(4)]
    stays = starts_of(clock, processes, [(0.0, n) for n in range(number)], (0.0, 0.005), "sns")
    assert stays[-1].begin < 1.1 * seconds
    assert store.writes <= min(number, 2 * seconds) + 20


class CountingStore(MemoryStore):
    writes = 0

    def write(self, change: ConditionalUpdate) -> Result:
        self.writes += 1
        return super().write(change)


def test_the_answer_to_a_reservation_is_lost_and_it_counts_once(clock: Clock) -> None:
    class Forgetful(MemoryStore):
        lost = 0

        def write(self, change: ConditionalUpdate) -> Result:
            super().write(change)
            self.lost += 1
            return Unknown("no answer")

    store = Forgetful()
    limits = RateLimits(["sns=1/s"], clock=clock, records=records(store))
    assert [wait(limits, str(n)) for n in range(4)] == [0, 1, 2, 3]
    assert store.lost


@pytest.mark.parametrize("is_there", [False, True])
def test_of_two_processes_that_reserve_at_once_the_second_one_decides_again(clock: Clock, is_there: bool) -> None:
    store = MemoryStore()
    one, other = (RateLimits(["sns=12/m"], clock=clock, records=records(store)) for _ in range(2))
    if is_there:
        assert wait(one, "before") == 0
        clock.forward(10)
    get = store.get

    def is_read_by_both(task_id: str) -> Row | None:
        row = get(task_id)
        with patch.object(store, "get", get):
            if not limited:
                limited.append(wait(other, "b"))
        return row

    limited: list[float | str] = []
    with patch.object(store, "get", is_read_by_both):
        assert wait(one, "a") == 5
    assert limited == [0]


def test_tasks_wait_while_the_table_does_not_answer(clock: Clock) -> None:
    store = MemoryStore()
    limits = RateLimits(["sns=1/s"], clock=clock, records=records(store))
    with patch.object(store, "get", side_effect=StoreError("away")):
        assert wait(limits, "a") == 1
    assert wait(limits, "a") == 0


def test_a_start_that_was_reserved_too_slowly_is_not_used(clock: Clock) -> None:
    store = MemoryStore()
    limits, get = RateLimits(["sns=1/s"], clock=clock, records=records(store)), store.get

    def slow(task_id: str) -> Row | None:
        clock.forward(3)
        return get(task_id)

    with patch.object(store, "get", slow):
        assert wait(limits, "a") == 1
    clock.forward(1)
    assert wait(limits, "a") == 0


@pytest.mark.parametrize("broken_row", [{"reservedUntil": "soon", "version": "a"}, {"version": True}, {}])
def test_a_record_that_was_changed_by_hand_counts_as_not_there(broken_row: dict[str, object], clock: Clock) -> None:
    store = MemoryStore()
    store.put({"taskId": rate_record_id("sns"), **broken_row})
    limits = RateLimits(["sns=1/s"], clock=clock, records=records(store))
    assert [wait(limits, str(n)) for n in range(3)] == [0, 1, 2]
    row = store.get(rate_record_id("sns"))
    assert row is not None
    assert row["reservedUntil"] == "2026-12-31T12:00:10Z"


def test_many_threads_share_one_limit() -> None:
    limits = RateLimits(["sns=30/s"], clock=Clock(), records=records(MemoryStore()))

    def until_given(number: int) -> float:
        while (found := wait(limits, str(number))) == 0.05:  # another thread reserves; no start is so far away
            pass
        assert isinstance(found, float)
        return found

    with ThreadPoolExecutor(16) as threads:
        found = sorted(threads.map(until_given, range(100)))
    assert found == pytest.approx([n / 30 for n in range(100)], abs=0.03)


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


@pytest.mark.parametrize("limit", ["webhook:localhost=1/m", "webhook:LocalHost.=1/m"])
def test_a_host_has_one_limit_however_it_is_written(server: Server, clock: Clock, limit: str) -> None:
    chosen = ActionSettings(rate_limits=(limit,), private_hosts=("localhost",))
    actions = build_actions(handlers_module=None, clock=clock, settings=chosen)
    assert run(actions, "webhook", {"url": f"http://localhost:{server.port}/"}) == {"status": 200}
    for host in ("localhost", "LOCALHOST", "localhost."):
        with pytest.raises(RateLimited):
            run(actions, "webhook", {"url": f"http://{host}:{server.port}/"}, task_id=host)
    assert len(server.requests) == 1


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
