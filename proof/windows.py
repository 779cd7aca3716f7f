"""Judges when tasks and schedules ran: each run that was due must have begun in its window, once, and no other may.

    python proof/windows.py FILE…       prints what each account comes to; exit code 1 if something is wrong

As in Jepsen's test of Chronos, what had to run (a *target*) and what ran (a *run*) are kept apart, and each run is
matched with exactly one target in whose window it began. It imports nothing of the product. docs/proof.md has the
format of an account.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, TypeVar

Event = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """A run that is due. It may begin from ``earliest`` to ``latest``. ``needed``: whether it must."""

    of: str
    at: float
    earliest: float
    latest: float
    needed: bool = True


@dataclass(slots=True)
class Run:
    """The executions that have one idempotency key. ``at``: when the first of them began. ``done``: of each that came
    to its end, what kept its outcome from being recorded, if something did."""

    of: str
    key: str
    at: float
    done: list[str | None] = field(default_factory=list)


@dataclass
class Report:
    """``after_tick``: seconds from the tick that had to begin a run until it began, and ``after_due`` from its time."""

    targets: int = 0
    needed: int = 0
    runs: int = 0
    after_tick: list[float] = field(default_factory=list)
    after_due: list[float] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)  # runs that were executed again, by the reason
    missing: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)  # without a reason

    @property
    def problems(self) -> list[str]:
        return [*self.missing, *self.late, *self.early, *self.extra, *self.twice]


class Ticks:
    """When a run that is due has to have begun. A tick counts if no outage touches the time that it has."""

    def __init__(self, ticks: Iterable[float], outages: Iterable[tuple[float, float]], late: float) -> None:
        self._ticks, self._late = sorted(ticks), late
        self._outages: list[tuple[float, float]] = []  # none touches another
        for begin, end in sorted(outages):
            if self._outages and begin <= self._outages[-1][1]:
                begin, last = self._outages.pop()
                end = max(end, last)
            self._outages.append((begin, end))

    def of(self, since: float) -> float:
        """The first tick from then on that counts; infinite if there is none."""
        while True:
            n = bisect_left(self._ticks, since)
            if n == len(self._ticks):
                return math.inf
            tick = self._ticks[n]
            m = bisect_left(self._outages, (tick + self._late, -math.inf)) - 1
            if m < 0 or self._outages[m][1] <= tick:
                return tick
            since = self._outages[m][1]


def judge(events: Iterable[Event]) -> Report:
    """Raises ValueError for an event that it does not know, and for an account without its first line."""
    of_kind: dict[str, list[Event]] = {kind: [] for kind in ("windows", "tick", "outage", "due", "execution")}
    for event in events:
        if event["e"] not in of_kind:
            raise ValueError(f"an event of an unknown kind: {event['e']!r}, and it must be one of {', '.join(of_kind)}")
        of_kind[event["e"]].append(event)
    if len(of_kind["windows"]) != 1:
        raise ValueError(f"{len(of_kind['windows'])} events of the kind windows, and there must be one")
    (head,) = of_kind["windows"]
    outages = [(one["at"], one["until"]) for one in of_kind["outage"]]
    ticks = Ticks((one["at"] for one in of_kind["tick"]), outages, head["late"])
    targets, runs, report = defaultdict[str, list[Target]](list), defaultdict[str, list[Run]](list), Report()
    for event in of_kind["due"]:
        targets[event["of"]].append(_target(event, head, ticks))
    for run in _runs(of_kind["execution"]):
        runs[run.of].append(run)
    for name in sorted({*targets, *runs}):
        _judge_one(name, targets.get(name, []), runs.get(name, []), head, report)
    return report


def _target(event: Event, head: Event, ticks: Ticks) -> Target:
    """``since``: from when on the table has had it. What had not to begin before the end of the account need not have
    begun, and may begin at any time."""
    latest = ticks.of(max(event["at"], event.get("since", -math.inf))) + head["late"] + head["skew"]
    needed = not event.get("may", False) and latest <= head["read"]
    return Target(event["of"], event["at"], event["at"] - head["skew"], latest if needed else math.inf, needed)


def _runs(executions: Iterable[Event]) -> Iterator[Run]:
    runs: dict[str, Run] = {}
    for one in executions:
        run = runs.setdefault(one["key"], Run(one["of"], one["key"], one["at"]))
        run.at = min(run.at, one["at"])
        run.done += [one.get("cut")] if one["done"] else []
    yield from runs.values()


def _judge_one(name: str, targets: Sequence[Target], runs: Sequence[Run], head: Event, report: Report) -> None:
    """The targets and runs of one task, or of one schedule."""
    allowed = head["late"] + head["skew"]
    needed = [one for one in targets if one.needed]
    report.targets += len(targets)
    report.needed += len(needed)
    report.runs += len(runs)
    for run in runs:
        _judge_executions(run, report)
    pairs = match(targets, runs)
    for target, run in pairs:
        report.after_due.append(max(run.at - target.at, 0.0))
        if target.latest < math.inf:
            report.after_tick.append(max(run.at - (target.latest - allowed), 0.0))
    of_needed = match(needed, runs)  # where both succeed, one matching does both
    unmet = _without(needed, (target for target, _ in of_needed))
    left = _without(runs, (run for _, run in pairs))
    for target in sorted(unmet, key=lambda one: one.at):
        if (after := next((one for one in left if one.at > target.latest), None)) is not None:
            left.remove(after)
            late_by = after.at - target.latest
            report.late.append(f"{name}: due at {target.at:.3f}, began {late_by:.3f} s after its window")
        else:
            report.missing.append(f"{name}: due at {target.at:.3f}, and did not begin until {target.latest:.3f}")
    for unmatched in left:
        following = min((one.earliest for one in targets if one.earliest > unmatched.at), default=None)
        if following is not None and not any(one.earliest <= unmatched.at <= one.latest for one in targets):
            report.early.append(
                f"{name}: {unmatched.key} began at {unmatched.at:.3f}, {following - unmatched.at:.3f} s before its time"
            )
        else:
            report.extra.append(f"{name}: {unmatched.key} began at {unmatched.at:.3f}, and no further run was due")


def _judge_executions(run: Run, report: Report) -> None:
    """What was executed again must have had a reason: the outcome before was not recorded."""
    again = run.done[:-1]
    if any(reason is None for reason in again):
        report.twice.append(f"{run.of}: {run.key} was executed {len(run.done)} times, for no reason")
    elif again:
        report.repeated[" and ".join(sorted({str(reason) for reason in again}))] += 1


def match(targets: Sequence[Target], runs: Sequence[Run]) -> list[tuple[Target, Run]]:
    """As many pairs as possible, each of a target and of a run that began within its window.

    Each run, in the order of their times, takes the target that ends first of those that are open then: no other choice
    leaves more to the later ones.
    """
    coming = sorted(targets, key=lambda one: one.earliest)
    open_: list[tuple[float, int, Target]] = []
    pairs, n = list[tuple[Target, Run]](), 0
    for run in sorted(runs, key=lambda one: one.at):
        while n < len(coming) and coming[n].earliest <= run.at:
            heappush(open_, (coming[n].latest, n, coming[n]))
            n += 1
        while open_ and open_[0][0] < run.at:
            heappop(open_)
        if open_:
            pairs.append((heappop(open_)[2], run))
    return pairs


def _without(those: Sequence[T], these: Iterable[T]) -> list[T]:
    taken = {id(one) for one in these}
    return [one for one in those if id(one) not in taken]


def lines(report: Report) -> Iterator[str]:
    """What an account comes to, in a few lines."""
    yield f"{report.targets:,} runs were due, of which {report.needed:,} had to begin; {report.runs:,} began"
    if report.after_due:
        yield f"after their time: {_spread(report.after_due)}"
    if report.after_tick:
        yield f"after the tick that had to begin them: {_spread(report.after_tick)}"
    again = ", ".join(f"{number:,} {reason}" for reason, number in report.repeated.most_common())
    yield f"executed more than once: {report.repeated.total():,}{f', before their record {again}' if again else ''}"
    counts = {name: len(getattr(report, name)) for name in ("missing", "late", "early", "extra", "twice")}
    yield ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _spread(seconds: Sequence[float]) -> str:
    """The middle, the slowest hundredth, and the slowest, in seconds."""
    ordered = sorted(seconds)
    named = (("p50", ordered[len(ordered) // 2]), ("p99", ordered[len(ordered) * 99 // 100]), ("most", ordered[-1]))
    return ", ".join(f"{name} {value:,.1f} s" for name, value in named)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="accounts, one event to a line of JSON")
    wrong = 0
    for file in parser.parse_args(arguments).files:
        report = judge(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
        print(f"{file}:", *lines(report), *report.problems, sep="\n  ")  # noqa: T201 - what it prints is what it is for
        wrong += bool(report.problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
