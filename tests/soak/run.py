"""The order of a soak: insert and disturb, then settle, then judge.

The shared clock runs faster than the machine's: minutes between ticks and leases pass in seconds, and the functions,
which know no other clock, behave as they would in those minutes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tests.soak.history import Historian, History
from tests.soak.journal import Tail, parse
from tests.soak.plan import LIFE, Plan
from tests.soak.rig import Rig
from tests.soak.storm import Storm
from tests.soak.verdict import Evidence, Verdict, judge
from tests.soak.view import Moment, view

LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What came of a soak."""

    plan: Plan
    history: History
    verdict: Verdict
    buckets: int  # ticks' worth of the shared clock that have passed
    settled_in: float  # seconds of the machine's clock


def soak(console: Console, plan: Plan, folder: Path) -> Soaked:
    """Raises what goes wrong with the soak itself; what goes wrong with Dynatick is in the verdict."""
    with Rig(plan, folder, say=lambda text: console.print(text, style="dim")) as rig:
        storm, historian, tail = Storm(rig), Historian(), Tail(rig.here.journal_path)
        first = rig.here.clock()
        try:
            storm.begin()
            began = time.monotonic()
            end = began + plan.minutes * 60
            with view(console, plan) as shown:

                def show(phase: str) -> int:
                    storm.check()
                    historian.take(map(parse, tail.new()))
                    seconds = min(time.monotonic() - began, plan.minutes * 60)
                    shown.show(Moment(history=historian.history, phase=phase, seconds=seconds))
                    return historian.history.begun

                while time.monotonic() < end:
                    show("inserting, disturbing")
                    time.sleep(min(LOOK_SECONDS, max(end - time.monotonic(), 0)))
                stopped = time.monotonic()
                storm.stop_inserting()
                storm.settle(lambda: show("settling"))
        finally:
            storm.end()
        historian.take(map(parse, tail.new()))
        verdict = judge(_evidence(rig, historian.history))
        return Soaked(
            plan=plan,
            history=historian.history,
            verdict=verdict,
            buckets=int((rig.here.clock() - first).total_seconds() // 60),
            settled_in=time.monotonic() - stopped,
        )


def _evidence(rig: Rig, history: History) -> Evidence:
    diagnosis = rig.tasks.doctor()
    return Evidence(
        history=history,
        rows=rig.rows(),
        drained={shard: cursor.drained_through for shard, cursor in enumerate(rig.cursors())},
        letters=rig.letters(),
        life=LIFE,
        findings=[f"{finding.task_id}: {finding.why}" for finding in diagnosis.findings],
    )
