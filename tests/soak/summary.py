"""What is printed at the end of a soak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.sandbox.journal import CANCEL, DELETE, NO, REPLACE, RESCHEDULE, RUN, YES
from tests.sandbox.verdict import RESULTS
from tests.soak.run import Soaked


def lines(ended: Soaked) -> Iterator[str]:
    yield f"Soak of {ended.plan.minutes:g} minutes, seed {ended.plan.seed}"
    for name, number, parts in _lines(ended):
        yield f"  {name:<30} {number:>8,}  {parts}".rstrip()
    yield f"verdict: {'nothing lost, everything explained' if ended.verdict.is_good else 'RED'}"


def _lines(ended: Soaked) -> Iterator[tuple[str, int, str]]:
    verdict, history = ended.verdict, ended.history
    yield "inserted", sum(verdict.inserted.values()), _parts(verdict.inserted)
    for recorded_as in RESULTS:
        yield recorded_as, verdict.record_results[recorded_as], _NOTES.get(recorded_as, "")
    yield "executed more than once", sum(verdict.repeated.values()), _parts(verdict.repeated, "before its record")
    yield "taken over after a lease", verdict.reclaimed, ""
    yield "inserts without a clear answer", verdict.unclear, ""
    changes = {what: history.answers[what, YES] for what in (CANCEL, RESCHEDULE, RUN, REPLACE, DELETE)}
    refused = sum(number for (_, answer), number in history.answers.items() if answer == NO)
    yield "changes made", sum(changes.values()), f"{_parts(Counter(changes))}; {refused} were refused"
    yield "ticks and what they started", sum(history.ticks.values()), _parts(history.ticks)
    yield "disturbances of all", sum(history.disturbances.values()), _parts(history.disturbances)
    deaths: Counter[str] = Counter()
    for (role, why), number in history.deaths.items():
        deaths[f"{role} {why}"] += number
    yield "processes that died", sum(deaths.values()), _parts(deaths)
    yield "faults on the way to AWS", sum(history.faults.values()), _parts(history.faults)
    yield "minutes of the shared clock", ended.buckets, f"settled in {ended.settled_in:.0f} s"
    yield "problems", len(verdict.problems), ""


_NOTES = {"failed": "as they were made to, or with every attempt killed; each has its dead letter"}


def _parts(numbers: Counter[str], after: str = "") -> str:
    return ", ".join(f"{number:,} {name} {after}".rstrip() for name, number in numbers.most_common())
