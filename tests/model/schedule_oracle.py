"""The oracle of one schedule: which occurrences are due, how each ends, and what must hold of changes of its row.

A definition is in force from the moment at which it is written. Its writer has read the clock some time before;
so of occurrences in between nothing certain is known, and of those within what two clocks may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.model.expected_task import MARGIN, ExpectedTask, number
from tests.model.faulty_store import Actor
from tests.model.times import EXPRESSIONS, HORIZON, Times

from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.occurrences import Overdue
from dynatick.domain.task import Row

if TYPE_CHECKING:
    from tests.model.oracle import Oracle

Definition = tuple[object, ...]
_ALL, _LATEST, _NONE = "all", "latest", "none"
_ALLOW = "allow"
_CONTINUES = "continues"  # of a recorded entry: it goes on with one that was there


@dataclass(eq=False)
class Period:
    """A definition, and since and until when it was in force."""

    definition: Definition
    times: Times
    start: float
    end: float
    enabled: bool
    since: float  # from then on certainly
    since_perhaps: float
    requested_at: float  # when its writer began, by a clock that is right; infinite: by one that is off
    until: float = math.inf  # until then certainly
    until_perhaps: float = math.inf

    def occurrences(self, after: float, until: float, *, perhaps: bool) -> Sequence[float]:
        if not self.enabled:
            return []
        low, high = (self.since_perhaps, self.until_perhaps) if perhaps else (self.since, self.until)
        return self.times.named(self.start, self.end, max(after, low), min(until, high))


@dataclass(eq=False)
class ScheduleOracle:
    """The oracle of one schedule, until its row is deleted or replaced."""

    task: ExpectedTask
    oracle: Oracle
    periods: list[Period] = field(default_factory=list)
    made: dict[float, ExpectedTask] = field(default_factory=dict)  # by nominal instant
    by_ticks: list[float] = field(default_factory=list)  # of these, those that no client asked for
    missed: dict[float, float] = field(default_factory=dict)  # and when that was written down
    catch_up: set[str] = field(default_factory=set)  # policies that it has had
    overlap: set[str] = field(default_factory=set)
    window: float = 0.0  # s that a start may be put off by, at most
    edited_at: float | None = None  # when its definition was changed by hand, until that is noticed
    expected_within: float | None = None  # s within which an occurrence must complete
    reported: dict[float, str] = field(default_factory=dict)  # as overdue: the reasons, by nominal instant
    reported_missed: set[tuple[float, float]] = field(default_factory=set)  # the first and the last of each report
    settled: set[float] = field(default_factory=set)  # occurrences that are not awaited any more
    gone_at: float = math.inf
    ended: bool = False
    is_new_revision: bool = True  # whether its occurrences' ids are none that an earlier task has used

    def due(self, after: float, until: float, *, perhaps: bool = False) -> set[float]:
        """Returns the instants in (after, until] that must be made. ``perhaps``: with those that may be."""
        return {at for period in self.periods for at in period.occurrences(after, until, perhaps=perhaps)}

    def definition_of(self, row: Row) -> Definition:
        names = ("scheduleExpression", "scheduleExpressionTimezone", "startDate", "endDate", "scheduleState")
        return tuple(row.get(name) for name in names)

    def instant(self, row: Row | None, name: str) -> float | None:
        value = None if row is None else row.get(name)
        return None if value is None else self.oracle.seconds(parse_instant(value, name))

    def report(self, violation: str) -> None:
        self.oracle.report(f"{self.task.task_id}: {violation}")

    # -- its row -------------------------------------------------------------------------------------------------------

    def add_policies(self, row: Row) -> None:
        self.catch_up.add(str(row.get("catchUp", _LATEST)))
        self.overlap.add(str(row.get("overlap", "skip")))
        self.window = max(self.window, 60.0 * number(row.get("flexibleTimeWindow")))
        self.expected_within = number(row["expectedWithinSeconds"]) if "expectedWithinSeconds" in row else None

    def edit(self, now: float, old: Row, new: Row) -> None:
        """Observes an edit by hand."""
        self.add_policies(new)
        if self.periods and self.definition_of(new) == self.periods[-1].definition:
            self.edited_at = None
        elif self.definition_of(new) != self.definition_of(old):
            self.edited_at = now if self.edited_at is None else self.edited_at

    def observe(self, by: Actor, now: float, old: Row | None, new: Row) -> None:
        """A write of ours."""
        self.add_policies(new)
        if new.get("status") is None:  # the scheduler hasn't seen it yet
            return
        before, after = self.instant(old, "nextOccurrenceAt"), self.instant(new, "nextOccurrenceAt")
        if is_terminal(new):
            self._observe_end(now, new)
            if new.get("outcome") == "failed":
                return
        elif not self.periods or new.get("definedAt") != (old or {}).get("definedAt"):
            self._define(by, now, old, new)
        elif before is not None and after is not None and after < before:
            self.report(f"its next occurrence went back from {before:.0f} to {after:.0f}")
        if old is None:
            return
        self._observe_missed(by, now, old, new)
        if by.kind == "processor":
            self._observe_awaited(old, new)
        waiting, waits = self.instant(old, "bufferedOccurrenceAt"), self.instant(new, "bufferedOccurrenceAt")
        if waiting is not None and waits != waiting and not self.is_dealt_with(waiting):
            self.report(f"the occurrence of {waiting:.0f}, which waited, is lost")
        if before is not None and after != before:
            until = min(now + MARGIN, HORIZON) if after is None else after - 0.001
            if is_terminal(new):
                until = now + HORIZON
            for at in sorted(self.due(before - 0.001, until)):
                if not self.is_dealt_with(at) and at != waits:
                    self.report(f"the occurrence of {at:.0f} is lost: {by.kind} has moved it on to {after}")

    def _define(self, by: Actor, now: float, old: Row | None, new: Row) -> None:
        """A definition is in force from now on."""
        expression, _, _, _, state = self.definition_of(new)
        start, end = self.instant(new, "startDate"), self.instant(new, "endDate")
        begun = not self.periods
        if not begun:
            last = self.periods[-1]
            last.until = min(by.began if self.edited_at is None else self.edited_at, by.began) - MARGIN
            last.until_perhaps = now + MARGIN
        elif old is not None:
            self.is_new_revision = by.kind == "scheduler"
        times = EXPRESSIONS[str(expression)]
        self.periods.append(
            Period(
                self.definition_of(new), times, -math.inf if start is None else start, math.inf if end is None else end,
                state == "ENABLED", now + MARGIN, by.began - MARGIN, math.inf if by.skew else by.began,
            )
        )  # fmt: skip
        self.edited_at = None
        after = self.instant(new, "nextOccurrenceAt")
        if state != "ENABLED" or after is None or after <= now:
            return
        occurrences = times.named(self.periods[-1].start, self.periods[-1].end, now + MARGIN, now + HORIZON)
        if occurrences and after > occurrences[0]:
            self.report(f"its next occurrence is that of {after:.0f}, and {occurrences[0]:.0f} is due before")

    def _observe_end(self, now: float, new: Row) -> None:
        self.ended = True
        for period in self.periods:
            period.until_perhaps = min(period.until_perhaps, now + HORIZON)

    def _observe_missed(self, by: Actor, now: float, old: Row, new: Row) -> None:
        """Occurrences that were recorded as missed."""
        recorded = added(old.get("missed"), new.get("missed"))
        counted = 0
        for entry in recorded:
            first, last = (self.oracle.seconds(parse_instant(entry[name], name)) for name in ("from", "until"))
            reason, occurrences = str(entry["reason"]), number(entry["occurrences"])
            after = first if entry.get(_CONTINUES) else first - 0.001
            counted += occurrences if reason != "paused" else 0
            counts = reason not in ("paused", "overlap") or (reason == "overlap" and self.expected_within is not None)
            begins = {begin for begin, end in self.reported_missed if end == last}
            if counts and first not in begins and not (entry.get(_CONTINUES) and any(after < one for one in begins)):
                self.report(
                    f"the occurrences from {first:.0f} to {last:.0f} are missed ({reason}), and were not reported"
                )
            if reason == "paused":
                self._check_paused(first, last)
                continue
            perhaps = self.due(after, last, perhaps=True)
            there = {at for at in perhaps if self.is_there(at) and self.made[at].created_at < by.began}
            left_out = {at for at in perhaps if not self.is_there(at)}
            sure = {at for at in left_out if at in self.due(after, last)}
            if not len(sure) <= occurrences <= len(perhaps - there):
                self.report(
                    f"{occurrences} occurrences from {first:.0f} to {last:.0f} recorded as missed ({reason}), and "
                    f"{len(there)} of {len(perhaps)} were made"
                )
            for at in sorted(left_out):
                self._check_missed(by, now, at, reason)
                self.missed[at] = now
        delta = number(new.get("missedOccurrences")) - number(old.get("missedOccurrences"))
        if delta != counted:
            self.report(f"missedOccurrences is up by {delta}, and {counted} are recorded")

    def _check_paused(self, first: float, last: float) -> None:
        requested_at = next(
            (period.requested_at for period in reversed(self.periods[:-1]) if not period.enabled), math.inf
        )
        before = {
            at for at in self.by_ticks if first <= at <= last and self.made[at].created_at < requested_at < math.inf
        }
        if clash := before | self.due(first - 0.001, last):
            self.report(f"the occurrences of {sorted(clash)} are recorded as left out by a pause")

    def _check_missed(self, by: Actor, now: float, at: float, reason: str) -> None:
        if at in self.missed:
            self.report(f"the occurrence of {at:.0f} is missed again ({reason})")
        if reason in ("outage", "all-paused"):
            if reason == "all-paused" and not any(begin <= now and at <= end for begin, end in self.oracle.pauses):
                self.report(f"the occurrence of {at:.0f} is left out for a pause, and there was none")
            if self.catch_up == {_ALL}:
                self.report(f"the occurrence of {at:.0f} is left out, and all are to be made up")
            if self.catch_up == {_LATEST} and not self.due(at, now + MARGIN, perhaps=True):
                self.report(f"the occurrence of {at:.0f} is left out, and it is the latest")
            if at > now - 60 * self.oracle.shortest_interval + MARGIN:
                self.report(f"the occurrence of {at:.0f} is left out as late, {now - at:.0f} s after its time")
        elif reason == "overlap":
            if self.overlap == {_ALLOW}:
                self.report(f"the occurrence of {at:.0f} is left out for another, and they may overlap")
            if not any(task.ended_at > by.began for task in self.made.values()):
                self.report(f"the occurrence of {at:.0f} is left out for another, and there is none")
        else:
            self.report(f"the occurrence of {at:.0f} is left out: {reason}")

    def is_there(self, at: float) -> bool:
        """Returns whether it was made. One deleted by hand before the schedule moves on may count as not made."""
        return at in self.made and not self.made[at].gone

    def is_dealt_with(self, at: float) -> bool:
        return at in self.made or at in self.missed

    # -- what is overdue ---------------------------------------------------------------------------------------------

    def observe_overdue(self, one: Overdue, now: float) -> None:
        first, last = self.oracle.seconds(one.first), self.oracle.seconds(one.last)
        if one.reason.startswith("missed"):
            self.reported_missed.add((first, last))
            return
        self.reported[first] = one.reason
        task = self.made.get(first)
        if task is None or self.expected_within is None or one.reason.startswith("not awaited"):
            return  # it may be of another task of this id
        row = None if task.gone else self.oracle.read_row(task.task_id)
        if now < first + self.expected_within - MARGIN:
            self.report(f"the occurrence of {first:.0f} is reported ({one.reason}) {now - first:.0f} s after its time")
        finished = self.instant(row, "finishedAt")
        in_time = finished is not None and finished < first + self.expected_within - MARGIN
        if row is not None and row.get("outcome") == "completed" and in_time:
            self.report(f"the occurrence of {first:.0f} is reported ({one.reason}), and it completed in time")

    def _observe_awaited(self, old: Row, new: Row) -> None:
        """A pass has moved the schedule on: what it does not await any more has completed, was called off, or was
        reported before."""
        before, after = self._awaited(old), self._awaited(new)
        last = self.instant(new, "lastOccurrenceAt")
        decided = {at for at in self.by_ticks if last is not None and at <= last and self.expected_within is not None}
        for at in sorted(({*before} | decided) - {*after} - self.settled):
            self.settled.add(at)
            if at not in self.reported and not self._is_excused(at):
                self.report(f"the occurrence of {at:.0f} is not awaited any more, and was not reported")

    def _awaited(self, row: Row) -> Mapping[float, float]:
        """The instants by which occurrences must have completed."""
        entries = row.get("awaited")
        pairs = ((self.instant(one, "dueAt"), self.instant(one, "expectedBy")) for one in _maps(entries))
        return {at: by for at, by in pairs if at is not None and by is not None}

    def _is_excused(self, at: float) -> bool:
        """Returns whether it has completed in time, or a person has called it off or run it again."""
        task = self.made.get(at)
        row = None if task is None or task.gone else self.oracle.read_row(task.task_id)
        if row is None or row.get("outcome") == "cancelled" or number(row.get("run"), 1) > 1:
            return True
        finished = self.instant(row, "finishedAt")
        by = at + self.window + (self.expected_within or 0.0)
        return row.get("outcome") == "completed" and finished is not None and finished <= by

    def check_reported(self, last_tick: float, row: Row) -> None:
        """Whatever should have completed by then was looked at."""
        late = [at for at, by in self._awaited(row).items() if by <= last_tick]
        if late and not is_terminal(row):
            self.report(f"the occurrences of {', '.join(f'{at:.0f}' for at in late)} are awaited beyond their time")

    # -- its occurrences -----------------------------------------------------------------------------------------------

    def observe_occurrence(self, by: Actor, now: float, at: float, task: ExpectedTask, schedule: Row | None) -> None:
        """Observes that an occurrence is made. ``schedule``: the row as it is now."""
        earlier = self.made.get(at)
        if by.kind == "client":
            if earlier is None or earlier.gone:
                self.made[at] = task
            known = self.periods and self.edited_at is None and self.periods[-1].since < by.began
            if known and not any(
                at in period.times.named(period.start, period.end, at - 1, at) for period in self.periods
            ):
                self.report(f"an occurrence of {at:.0f} is made up, and there is none")
            return
        if by.kind != "processor":
            self.report(f"{by.kind} makes the occurrence of {at:.0f}")
        if at > now + MARGIN:
            self.report(f"the occurrence of {at:.0f} is made {at - now:.0f} s early")
        if at not in self.due(at - 1, at, perhaps=True):
            self.report(f"an occurrence of {at:.0f} is made, and none is due")
        if self.gone_at < by.began:
            self.report(f"the occurrence of {at:.0f} is made after the schedule's end")
        if earlier is not None and not earlier.gone:
            self.report(f"the occurrence of {at:.0f} is made twice")
        if at in self.missed and self.missed[at] < by.began:
            self.report(f"the occurrence of {at:.0f} is made, and was recorded as missed")
        self._check_lateness(by, at, schedule)
        if _ALLOW not in self.overlap:
            before = max((one for one in self.made if one < at), default=None)  # a client does not ask what runs
            if before in self.by_ticks and self.made[before].is_open_since(by.began):
                self.report(f"the occurrence of {at:.0f} is made, and that of {before:.0f} has not ended")
        self.made[at] = task
        self.by_ticks.append(at)

    def _check_lateness(self, by: Actor, at: float, schedule: Row | None) -> None:
        """Late occurrences are made as ``catchUp`` says. ``by`` has closed its buckets through some tick or later."""
        if _ALL in self.catch_up or at == self.instant(schedule, "bufferedOccurrenceAt") or not by.closed_at:
            return
        longest = self.oracle.longest_interval
        closed = min(by.closed_at.values()) - self.window
        if at > closed - 60 * 2 * longest:
            return
        if self.catch_up == {_NONE}:
            self.report(f"the occurrence of {at:.0f} is made {closed - at:.0f} s late, and none are to be made up")
        elif _NONE not in self.catch_up and (later := self.due(at, closed - 60 * longest)):
            self.report(f"the occurrence of {at:.0f} is made late, and {max(later):.0f} is due as well")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def check_complete(self, last_tick: float, row: Row) -> None:
        """Checks that all that was due by then has been dealt with."""
        if is_terminal(row):
            return
        waits = self.instant(row, "bufferedOccurrenceAt")
        due = self.due(-math.inf, last_tick - self.window)
        lost = [at for at in due if not self.is_dealt_with(at) and at != waits]
        if lost:
            self.report(f"the occurrences of {', '.join(f'{at:.0f}' for at in sorted(lost)[:5])} were never made")


def _maps(entries: object) -> Sequence[Row]:
    return list(entries) if isinstance(entries, (list, tuple)) else []


def added(old: object, new: object) -> Sequence[Mapping[str, object]]:
    """The entries at the end of a bounded list that were not there before. One that goes on with the last of those is
    returned from where that ended."""
    before = list(old) if isinstance(old, (list, tuple)) else []
    after = list(new) if isinstance(new, (list, tuple)) else []
    last = before[-1] if before else None
    for n, entry in enumerate(after):
        if last and entry != last and (entry["from"], entry["reason"]) == (last["from"], last["reason"]):
            more = number(entry["occurrences"]) - number(last["occurrences"])
            return [{**entry, "from": last["until"], "occurrences": more, _CONTINUES: True}, *after[n + 1 :]]
    for n in range(len(before) + 1):
        kept = before[n:]
        if after[: len(kept)] == kept:
            return after[len(kept) :]
    return after
