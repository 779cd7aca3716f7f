"""The lines printed at the end of a soak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proof.windows import lines as windows_lines
from tests.sandbox.journal import CANCEL, DELETE, OK, REDRIVE, REFUSED, REPLACE, RESCHEDULE, RUN
from tests.sandbox.verdict import RESULTS
from tests.soak.run import Soaked


def lines(ended: Soaked) -> Iterator[str]:
    yield f"Soak of {ended.plan.minutes:g} minutes, seed {ended.plan.seed}"
    for name, number, parts in _lines(ended):
        yield f"  {name:<30} {number:>8,}  {parts}".rstrip()
    yield from (f"  windows: {line}" for line in windows_lines(ended.windows))
    if ended.plan.is_traced:
        judged = f"{ended.trace.events:,} events, {ended.trace.checks.total():,} checks"
        yield f"  trace: {'refused' if ended.refusal else 'accepted'}, {judged}"
    yield f"verdict: {'RED' if ended.problems else 'nothing lost, everything explained'}"


def _lines(ended: Soaked) -> Iterator[tuple[str, int, str]]:
    verdict, history = ended.verdict, ended.history
    yield "inserted", sum(verdict.inserted.values()), _parts(verdict.inserted)
    for result in RESULTS:
        yield result, verdict.results[result], _NOTES.get(result, "")
    yield "executed more than once", sum(verdict.repeated.values()), _parts(verdict.repeated, "before its record")
    yield "reclaimed after a lease", verdict.reclaimed, ""
    yield "attempts with a limit key", sum(verdict.limited.values()), _parts(verdict.limited)
    yield "inserts with an unknown outcome", verdict.unknown, ""
    changes = {what: history.responses[what, OK] for what in (CANCEL, RESCHEDULE, RUN, REDRIVE, REPLACE, DELETE)}
    refused = sum(number for (_, status), number in history.responses.items() if status == REFUSED)
    yield "changes made", sum(changes.values()), f"{_parts(Counter(changes))}; {refused} were refused"
    yield "ticks and what they started", sum(history.ticks.values()), _parts(history.ticks)
    yield "disturbances of all", sum(history.disturbances.values()), _parts(history.disturbances)
    deaths = Counter({f"{role} {why}": number for (role, why), number in history.deaths.items()})
    yield "processes that died", sum(deaths.values()), _parts(deaths)
    yield "faults on the way to AWS", sum(history.faults.values()), _parts(history.faults)
    yield "minutes of the shared clock", ended.buckets, f"settled in {ended.settled_in:.0f} s"
    yield "problems", len(ended.problems), ""


_NOTES = {"failed": "as they were made to, or with every attempt killed; each has its dead letter"}


def _parts(numbers: Counter[str], after: str = "") -> str:
    return ", ".join(f"{number:,} {name} {after}".rstrip() for name, number in numbers.most_common())
