"""A trace of the deployed stack: proof/replay.py accepts what its functions did, and refuses that if it is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from proof.replay import refusal_of, replay
from tests.deployed_trace import recorded, trace_of
from tests.e2e.support import ENDED, TICK_SECONDS, DeployedStack, deployed
from tests.trace import Event

from dynatick_stack.checkout import MODULE, with_handlers
from dynatick_stack.emulator import RECORDING

pytestmark = pytest.mark.long

HANDLERS = """\
from dynatick import HandlerContext, PermanentError, task


@task("flaky")
def flaky(payload: dict[str, int], context: HandlerContext) -> int:
    if context.attempt == 1 and payload["n"] % 4 == 1:
        raise OSError("at the first attempt")
    return payload["n"]


@task("rated")
def rated(payload: dict[str, object]) -> None:
    pass


@task("refuse")
def refuse(payload: dict[str, object]) -> None:
    raise PermanentError("never")
"""
SOON = {"minBackoffSeconds": 1, "maxBackoffSeconds": 2}
MEMBERS = 12
LIMITED = [f"limited-{n}" for n in range(4)]
RATED = [f"rated-{n}" for n in range(4)]
SINGLE = ["single", "retried", "failed", "cancelled", *LIMITED, *RATED]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Of tasks of several kinds, until all have ended."""
    folder = tmp_path_factory.mktemp("trace")
    root = with_handlers(folder / "checkout", HANDLERS)
    given = {
        "TickMinutes": 1, "Precision": "second", "HandlersModule": MODULE, "KeyLimits": "host=1", "ShardCount": 2,
        "ActionRateLimits": "rated=2/s",
    }  # fmt: skip
    recording = folder / "recording"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(RECORDING, str(recording))
        with deployed(folder / "local", root=root, **given) as world:
            run_all(world)
            return [*trace_of(recorded(recording)), {"e": "rest"}]


def run_all(world: DeployedStack) -> None:
    client = world.client
    world.stack.tick()
    client.schedules.insert("each-minute", "rate(1 minute)", action="log")
    payloads, delay = [{"n": n} for n in range(MEMBERS)], timedelta(seconds=1)
    client.batches.insert(payloads, batch_id="batch", action="flaky", retry_policy=SOON, delay=delay)
    client.insert("single", delay_seconds=2, action="log")
    client.insert("retried", delay_seconds=2, action="flaky", payload={"n": 1}, retry_policy=SOON)
    client.insert("failed", delay_seconds=2, action="refuse")
    client.insert("cancelled", delay_seconds=3600, action="log")
    client.cancel("cancelled")
    for task_id in LIMITED:
        client.insert(task_id, delay_seconds=2, action="log", limit_key="host:example.com")
    for task_id in RATED:
        client.insert(task_id, delay_seconds=2, action="rated")
    ended = world.run_to_end([*SINGLE, "batch"], within=2 * TICK_SECONDS)
    assert (ended["retried"]["attempt"], ended["failed"]["status"]) == (2, "failed")
    world.run_until(lambda: any(is_occurrence(row) for row in world.rows()), within=2 * TICK_SECONDS)
    client.schedules.delete("each-minute")
    world.run_until(lambda: all(row.get("outcome") in ENDED for row in world.rows()), within=2 * TICK_SECONDS)


def is_occurrence(row: Event) -> bool:
    return row.get("scheduleId") == "each-minute" and row.get("outcome") == "completed"


def test_it_is_accepted(trace: list[Event], record_property: Callable[[str, object], None]) -> None:
    replayed = replay(trace)
    record_property("figure", f"{replayed.events} events in {replayed.checks.total()} checks")
    assert replayed.rested
    began = Counter(run.task for run in replayed.executions.values())
    assert (began["single"], began["retried"], began["failed"], began["cancelled"]) == (1, 2, 1, 0)
    assert sum(began[task_id] for task_id in LIMITED) == len(LIMITED)
    assert sum(number for task_id, number in began.items() if task_id.startswith("batch/")) == MEMBERS + 3
    assert any("each-minute" in task_id for task_id in began)
    senders = {process.kind for process in replayed.processes.values()}
    assert {"processor", "scheduler", "client"} <= senders
    assert any(process.is_wake_up for process in replayed.processes.values())
    # Each was checked, by events that only a known process can have.
    assert all(
        replayed.checks[rule] for rule in ("1", "9", "11", "12", "16", "18", "19", "20", "23", "24", "rate", "end")
    )


@pytest.mark.parametrize(
    ("rule", "is_dropped"),
    [
        ("9", lambda event: event.get("id") == "single" and event.get("set", {}).get("status") == "running"),
        ("9", lambda event: event["e"] == "poll"),
        ("12", lambda event: event["e"] == "letters"),
        ("12", lambda event: event["e"] == "end"),
        ("end", lambda event: event["e"] == "write" and event["id"] == "single" and "outcome" in event["set"]),
    ],
    ids=["a claim", "polls", "dead letters", "ends of executions", "an outcome"],
)
def test_without_some_events_it_is_refused(trace: list[Event], rule: str, is_dropped: Callable[[Event], bool]) -> None:
    refused = refusal_of(event for event in trace if not is_dropped(event))
    assert refused is not None and refused.rule == rule, refused


def test_with_an_execution_in_another_invocation_it_is_refused(trace: list[Event]) -> None:
    n = next(n for n, event in enumerate(trace) if event["e"] == "begin")
    running = [event["by"] for event in trace[:n] if event["e"] == "process"]
    over = {event["by"] for event in trace[:n] if event["e"] in ("ended", "died")}
    other = next(by for by in running if by != trace[n]["by"] and by not in over)
    refused = refusal_of([*trace[:n], {**trace[n], "by": other}, *trace[n + 1 :]])
    assert refused is not None and refused.rule == "9", refused
