"""The order of a soak: insert and disturb, then settle, then judge.

The shared clock runs faster than the machine's: minutes between ticks and leases pass in seconds, and the functions,
which know no other clock, behave as they would in those minutes.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proof.replay import Event, Refused, Replay
from proof.windows import Report
from proof.windows import judge as judge_windows
from tests.sandbox.history import History
from tests.sandbox.journal import CANCEL, INSERT, OK, REPLACE, Tail, parse
from tests.sandbox.verdict import Verdict
from tests.sandbox.worker import FENCED
from tests.sandbox.world import SECOND, World
from tests.soak.account import account
from tests.soak.batches import end_unsealed
from tests.soak.chaos import Chaos
from tests.soak.plan import SKEW, TIMEOUT, Plan
from tests.soak.tasks import KEY_LIMITS, insert_schedules

from dynatick.domain.buckets import Bucket, minute_of
from dynatick_stack import emulator
from dynatick_stack.venv import Say

POLL_SECONDS = 0.5
LINE_SECONDS = 10.0
NOTED_LATE = 2 * SKEW  # seconds: two clocks may differ by twice the skew, and a thread waits for its turn to note it
LATE_BEGIN = 600.0  # seconds of the shared clock after its tick within which a task must begin
SETTLING_TICKS = 12  # after that many without an attempt, what is still open waits for ever


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """The result of a soak."""

    plan: Plan
    history: History
    verdict: Verdict
    windows: Report
    trace: Replay
    refusal: str | None  # of the trace
    buckets: int  # ticks' worth of the shared clock that have passed
    settled_in: float  # seconds of the machine's clock

    @property
    def problems(self) -> list[str]:
        return [*self.verdict.problems, *self.windows.problems, *([self.refusal] if self.refusal else [])]


@contextmanager
def new_world(plan: Plan, folder: Path, say: Say) -> Iterator[World]:
    """Makes a world on an emulator of its own. What it has started is gone at its end."""
    shared, state = folder / "shared", folder / "local"
    shared.mkdir(parents=True)
    settings = SECOND | {
        "DYNATICK_TASK_THREADS": "4",
        "DYNATICK_PRECISION": plan.precisions[0],
        "DYNATICK_SHARD_COUNT": str(plan.shards),
        "DYNATICK_KEY_LIMITS": KEY_LIMITS,
        FENCED: "1",
    }
    endpoint = emulator.start(0, state_dir=state, say=say).endpoint
    try:
        with World(
            endpoint, shared, start=datetime.now(UTC), speed=plan.speed, is_traced=plan.is_traced, **settings
        ) as world:
            yield world
    finally:
        emulator.stop(state_dir=state)


def soak(say: Say, plan: Plan, folder: Path) -> Soaked:
    """Raises what goes wrong with the soak itself; what goes wrong with Dynatick is in the verdict."""
    with new_world(plan, folder, say) as world:
        chaos, history, lines = Chaos(world, plan), History(), Tail(world.journal.path)
        start, began, shown_at = world.clock(), time.monotonic(), 0.0

        def show(phase: str) -> int:
            """A line now and then. Returns how many attempts there were so far."""
            nonlocal shown_at
            chaos.check()
            history.take(map(parse, lines.new()))
            if time.monotonic() >= shown_at + LINE_SECONDS:
                shown_at = time.monotonic()
                say(f"{shown_at - began:5.0f} s  {phase}: {progress(history)}")
            return history.begun

        try:
            outcome = world.tick()  # which makes the settings and the cursors known
            assert outcome.what == "returned", outcome
            insert_schedules(world, plan)
            chaos.begin()
            end = time.monotonic() + plan.minutes * 60
            while time.monotonic() < end:
                show("inserting, disturbing")
                time.sleep(POLL_SECONDS)
            stopped, read = time.monotonic(), world.folder.now()
            chaos.stop()
            settle(world, chaos, lambda: show("settling"))
        finally:
            chaos.close()
        history.take(map(parse, lines.new()))
        events = [*account(history, skew=SKEW, late=LATE_BEGIN, read=read)]
        (folder / "shared" / "windows.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        replayed = Replay()
        return Soaked(
            plan=plan,
            history=history,
            verdict=world.judge(history=history, timeout=TIMEOUT, skew=SKEW, noted_late=NOTED_LATE),
            windows=judge_windows(events),
            trace=replayed,
            refusal=judge_trace(replayed, world.trace()) if plan.is_traced else None,
            buckets=int((world.clock() - start).total_seconds() // 60),
            settled_in=time.monotonic() - stopped,
        )


def judge_trace(replayed: Replay, trace: Iterator[Event]) -> str | None:
    """By the rules alone. Why a trace is refused, and where it is kept then."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", prefix="soak-trace-", delete=False) as file:
        try:
            for event in trace:
                file.write(json.dumps(event) + "\n")
                replayed.feed(event)
        except Refused as refused:
            file.writelines(json.dumps(event) + "\n" for event in trace)
            return f"the trace is refused, {refused}: {file.name}"
    Path(file.name).unlink()
    return None


def settle(world: World, chaos: Chaos, attempts: Callable[[], int]) -> None:
    """Ticks without faults until every task has ended and every bucket is drained, or nothing runs any more.

    A batch whose loader was killed is sealed, or cancelled, if some of its members are not in.
    What was started and did not run yet is dropped, as if it were lost. One process works at a time, with more threads.
    The clock is put forward to the next tick, or to the first bucket with an open row: a failure whose dead letter was
    refused lies up to an hour ahead. At the last tick the clock stops: however long the verdict takes on this machine,
    no tick is missed meanwhile. ``attempts``: how many there were so far.
    """
    end_unsealed(world.client, "", lambda: True, lambda batch_id: world.note(CANCEL, batch_id))
    world.started()
    world.deploy(DYNATICK_TASK_THREADS="32")
    world.deliver(chaos.records)
    ticks, before = 0, -1
    while ticks < SETTLING_TICKS and not world.is_settled():
        if (now := attempts()) != before:
            ticks, before = 0, now
        rows = (row for row in world.rows().values() if "outcome" not in row)
        buckets = (Bucket.canonical(row.get("taskDateTime")) for row in rows)
        first = min((bucket.minute if bucket else 0 for bucket in buckets), default=0)
        world.next_tick(max(first - minute_of(world.clock()), 1), timeout=TIMEOUT)
        ticks += 1
    world.clock.stop()
    world.next_tick(timeout=TIMEOUT)


def progress(history: History) -> str:
    inserted = sum(history.responses[operation, OK] for operation in (INSERT, REPLACE))
    return (
        f"{inserted} inserted, {history.done} executed, {sum(history.ticks.values())} ticks, "
        f"{sum(history.deaths.values())} processes died, {sum(history.faults.values())} faults"
    )
