"""The order of a soak: insert and disturb, then settle, then judge.

The shared clock runs faster than the machine's: minutes between ticks and leases pass in seconds, and the functions,
which know no other clock, behave as they would in those minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.sandbox.history import Historian, History
from tests.sandbox.journal import INSERT, REPLACE, YES, Tail, parse
from tests.sandbox.verdict import Verdict, judge
from tests.soak.plan import LIFE, SKEW, Plan
from tests.soak.rig import rigged
from tests.soak.storm import Storm

from dynatick_stack.venv import Say

POLL_SECONDS = 0.5
LINE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What came of a soak."""

    plan: Plan
    history: History
    verdict: Verdict
    buckets: int  # ticks' worth of the shared clock that have passed
    settled_in: float  # seconds of the machine's clock


def soak(say: Say, plan: Plan, folder: Path) -> Soaked:
    """Raises what goes wrong with the soak itself; what goes wrong with Dynatick is in the verdict."""
    with rigged(plan, folder, say) as rig:
        storm, historian, tail = Storm(rig), Historian(), Tail(rig.folder / "journal")
        first, shown_at = rig.clock(), 0.0

        def show(phase: str) -> int:
            """A line now and then. Returns how many attempts there were so far."""
            nonlocal shown_at
            storm.check()
            historian.take(map(parse, tail.new()))
            if time.monotonic() >= shown_at + LINE_SECONDS:
                shown_at = time.monotonic()
                say(f"{shown_at - began:5.0f} s  {phase}: {progress(historian.history)}")
            return historian.history.begun

        try:
            storm.begin()
            began = time.monotonic()
            end = began + plan.minutes * 60
            while time.monotonic() < end:
                show("inserting, disturbing")
                time.sleep(min(POLL_SECONDS, max(end - time.monotonic(), 0)))
            stopped = time.monotonic()
            storm.stop_inserting()
            storm.settle(lambda: show("settling"))
        finally:
            storm.end()
        historian.take(map(parse, tail.new()))
        verdict = judge(rig.evidence(historian.history, life=LIFE, skew=SKEW))
        return Soaked(
            plan=plan,
            history=historian.history,
            verdict=verdict,
            buckets=int((rig.clock() - first).total_seconds() // 60),
            settled_in=time.monotonic() - stopped,
        )


def progress(history: History) -> str:
    inserted = sum(history.answers[what, YES] for what in (INSERT, REPLACE))
    return (
        f"{inserted} inserted, {history.done} executed, {sum(history.ticks.values())} ticks, "
        f"{sum(history.deaths.values())} processes died, {sum(history.faults.values())} faults"
    )
