"""What is known of one schedule: which runs are due, the end of each, and what must hold of changes of its row.

A definition is in force from the moment at which it is written. Its writer has read the clock some time before;
so of runs in between nothing certain is known, and of those within what two clocks may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.model.lives import MARGIN, Life, number
from tests.model.seam import Actor
from tests.model.times import EXPRESSIONS, HORIZON, Times

from dynatick.domain.instants import parse_instant
from dynatick.domain.lifecycle import is_terminal
from dynatick.domain.overdue import Overdue
from dynatick.domain.task import Row

if TYPE_CHECKING:
    from tests.model.book import Book

Said = tuple[object, ...]
_ALL, _LATEST, _NONE = "all", "latest", "none"
_ALLOW = "allow"


@dataclass(eq=False)
class Era:
    """A definition, and since and until when it was in force."""

    says: Said
    times: Times
    start: float
    end: float
    enabled: bool
    since: float  # from then on certainly
    since_perhaps: float
    asked_at: float  # when its writer began, by a clock that is right; infinite: by one that is off
    until: float = math.inf  # until then certainly
    until_perhaps: float = math.inf

    def runs(self, after: float, until: float, *, perhaps: bool) -> Sequence[float]:
        if not self.enabled:
            return []
        low, high = (self.since_perhaps, self.until_perhaps) if perhaps else (self.since, self.until)
        return self.times.named(self.start, self.end, max(after, low), min(until, high))


@dataclass(eq=False)
class Diary:
    """Of one schedule: one life of its row."""

    life: Life
    book: Book
    eras: list[Era] = field(default_factory=list)
    made: dict[float, Life] = field(default_factory=dict)  # by nominal instant
    by_ticks: list[float] = field(default_factory=list)  # of these, those that no client asked for
    missed: dict[float, float] = field(default_factory=dict)  # and when that was written down
    catch_up: set[str] = field(default_factory=set)  # policies that it has had
    overlap: set[str] = field(default_factory=set)
    window: float = 0.0  # s that a start may be put off by, at most
    edited_at: float | None = None  # when its definition was changed by hand, until that is noticed
    expected: float | None = None  # s within which an occurrence must complete
    reported: dict[float, str] = field(default_factory=dict)  # as overdue: the reasons, by nominal instant
    reported_missed: set[tuple[float, float]] = field(default_factory=set)  # the first and the last of each report
    settled: set[float] = field(default_factory=set)  # runs that are not awaited any more
    gone_at: float = math.inf
    ended: bool = False
    is_new_revision: bool = True  # whether its occurrences' ids are none that an earlier life has used

    def due(self, after: float, until: float, *, perhaps: bool = False) -> set[float]:
        """The runs in (after, until] that are to be made; ``perhaps``: those too of which nothing certain is known."""
        return {run for era in self.eras for run in era.runs(after, until, perhaps=perhaps)}

    def says(self, row: Row) -> Said:
        names = ("scheduleExpression", "scheduleExpressionTimezone", "startDate", "endDate", "scheduleState")
        return tuple(row.get(name) for name in names)

    def instant(self, row: Row | None, name: str) -> float | None:
        value = None if row is None else row.get(name)
        return None if value is None else self.book.seconds(parse_instant(value, name))

    def wrong(self, problem: str) -> None:
        self.book.say(f"{self.life.task_id}: {problem}")

    # -- its row -------------------------------------------------------------------------------------------------------

    def policies(self, row: Row) -> None:
        self.catch_up.add(str(row.get("catchUp", _LATEST)))
        self.overlap.add(str(row.get("overlap", "skip")))
        self.window = max(self.window, 60.0 * number(row.get("flexibleTimeWindow")))
        self.expected = number(row["expectedWithinSeconds"]) if "expectedWithinSeconds" in row else None

    def edit(self, now: float, old: Row, new: Row) -> None:
        """By hand."""
        self.policies(new)
        if self.eras and self.says(new) == self.eras[-1].says:
            self.edited_at = None
        elif self.says(new) != self.says(old):
            self.edited_at = now if self.edited_at is None else self.edited_at

    def hear(self, by: Actor, now: float, old: Row | None, new: Row) -> None:
        """A write of ours."""
        self.policies(new)
        if new.get("status") is None:  # the scheduler has still to look at it
            return
        before, after = self.instant(old, "nextOccurrenceAt"), self.instant(new, "nextOccurrenceAt")
        if is_terminal(new):
            self._hear_end(now, new)
            if new.get("outcome") == "failed":
                return
        elif not self.eras or new.get("definedAt") != (old or {}).get("definedAt"):
            self._define(by, now, old, new)
        elif before is not None and after is not None and after < before:
            self.wrong(f"its next run went back from {before:.0f} to {after:.0f}")
        if old is None:
            return
        self._hear_missed(by, now, old, new)
        if by.kind == "processor":
            self._hear_awaited(old, new)
        waiting, waits = self.instant(old, "bufferedOccurrenceAt"), self.instant(new, "bufferedOccurrenceAt")
        if waiting is not None and waits != waiting and not self.is_dealt_with(waiting):
            self.wrong(f"the run of {waiting:.0f}, which waited, is lost")
        if before is not None and after != before:
            until = min(now + MARGIN, HORIZON) if after is None else after - 0.001
            if is_terminal(new):
                until = now + HORIZON
            for run in sorted(self.due(before - 0.001, until)):
                if not self.is_dealt_with(run) and run != waits:
                    self.wrong(f"the run of {run:.0f} is lost: {by.kind} has moved it on to {after}")

    def _define(self, by: Actor, now: float, old: Row | None, new: Row) -> None:
        """A definition is in force from now on."""
        expression, _, _, _, state = self.says(new)
        start, end = self.instant(new, "startDate"), self.instant(new, "endDate")
        begun = not self.eras
        if not begun:
            last = self.eras[-1]
            last.until = min(by.began if self.edited_at is None else self.edited_at, by.began) - MARGIN
            last.until_perhaps = now + MARGIN
        elif old is not None:
            self.is_new_revision = by.kind == "scheduler"
        times = EXPRESSIONS[str(expression)]
        self.eras.append(
            Era(
                self.says(new), times, -math.inf if start is None else start, math.inf if end is None else end,
                state == "ENABLED", now + MARGIN, by.began - MARGIN, math.inf if by.skew else by.began,
            )
        )  # fmt: skip
        self.edited_at = None
        after = self.instant(new, "nextOccurrenceAt")
        if state != "ENABLED" or after is None or after <= now:
            return
        runs = times.named(self.eras[-1].start, self.eras[-1].end, now + MARGIN, now + HORIZON)
        if runs and after > runs[0]:
            self.wrong(f"its next run is that of {after:.0f}, and {runs[0]:.0f} is due before")

    def _hear_end(self, now: float, new: Row) -> None:
        self.ended = True
        for era in self.eras:
            era.until_perhaps = min(era.until_perhaps, now + HORIZON)

    def _hear_missed(self, by: Actor, now: float, old: Row, new: Row) -> None:
        """Runs that were noted as not made."""
        noted = added(old.get("missed"), new.get("missed"))
        counted = 0
        for entry in noted:
            first, last = (self.book.seconds(parse_instant(entry[name], name)) for name in ("from", "until"))
            reason, runs = str(entry["reason"]), number(entry["occurrences"])
            counted += runs if reason != "paused" else 0
            counts = reason not in ("paused", "overlap") or (reason == "overlap" and self.expected is not None)
            if counts and (first, last) not in self.reported_missed:
                self.wrong(f"the runs from {first:.0f} to {last:.0f} are missed ({reason}), and nobody reported them")
            if reason == "paused":
                self._check_paused(first, last)
                continue
            perhaps = self.due(first - 0.001, last, perhaps=True)
            there = {run for run in perhaps if self.is_there(run) and self.made[run].born_at < by.began}
            left_out = {run for run in perhaps if not self.is_there(run)}
            sure = {run for run in left_out if run in self.due(first - 0.001, last)}
            if not len(sure) <= runs <= len(perhaps - there):
                self.wrong(
                    f"{runs} runs from {first:.0f} to {last:.0f} said to be missed ({reason}), and {len(there)} of"
                    f" {len(perhaps)} were made"
                )
            for run in sorted(left_out):
                self._check_missed(by, now, run, reason)
                self.missed[run] = now
        delta = number(new.get("missedOccurrences")) - number(old.get("missedOccurrences"))
        if delta != counted:
            self.wrong(f"missedOccurrences is up by {delta}, and {counted} are noted")

    def _check_paused(self, first: float, last: float) -> None:
        asked = next((era.asked_at for era in reversed(self.eras[:-1]) if not era.enabled), math.inf)
        before = {run for run in self.by_ticks if first <= run <= last and self.made[run].born_at < asked < math.inf}
        if clash := before | self.due(first - 0.001, last):
            self.wrong(f"the runs of {sorted(clash)} are said to be left out by a pause")

    def _check_missed(self, by: Actor, now: float, run: float, reason: str) -> None:
        if run in self.missed:
            self.wrong(f"the run of {run:.0f} is missed again ({reason})")
        if reason == "outage":
            if self.catch_up == {_ALL}:
                self.wrong(f"the run of {run:.0f} is left out, and all are to be made up")
            if self.catch_up == {_LATEST} and not self.due(run, now + MARGIN, perhaps=True):
                self.wrong(f"the run of {run:.0f} is left out, and it is the latest")
            if run > now - 60 * self.book.shortest_interval + MARGIN:
                self.wrong(f"the run of {run:.0f} is left out as late, {now - run:.0f} s after its time")
        elif reason == "overlap":
            if self.overlap == {_ALLOW}:
                self.wrong(f"the run of {run:.0f} is left out for another, and they may overlap")
            if not any(life.ended_at > by.began for life in self.made.values()):
                self.wrong(f"the run of {run:.0f} is left out for another, and there is none")
        else:
            self.wrong(f"the run of {run:.0f} is left out: {reason}")

    def is_there(self, run: float) -> bool:
        """Whether it was made. One that is deleted by hand before the schedule moves on may count as not made."""
        return run in self.made and not self.made[run].gone

    def is_dealt_with(self, run: float) -> bool:
        return run in self.made or run in self.missed

    # -- what is overdue ---------------------------------------------------------------------------------------------

    def hear_overdue(self, one: Overdue, now: float) -> None:
        first, last = self.book.seconds(one.first), self.book.seconds(one.last)
        if one.reason.startswith("missed"):
            self.reported_missed.add((first, last))
            return
        self.reported[first] = one.reason
        life = self.made.get(first)
        if life is None or self.expected is None or one.reason.startswith("not awaited"):
            return  # it may be of another life of this id
        row = None if life.gone else self.book.look_up(life.task_id)
        if now < first + self.expected - MARGIN:
            self.wrong(
                f"the run of {first:.0f} is said to be overdue ({one.reason}) {now - first:.0f} s after its time"
            )
        finished = self.instant(row, "finishedAt")
        in_time = finished is not None and finished < first + self.expected - MARGIN
        if row is not None and row.get("outcome") == "completed" and in_time:
            self.wrong(f"the run of {first:.0f} is said to be overdue ({one.reason}), and it completed in time")

    def _hear_awaited(self, old: Row, new: Row) -> None:
        """A pass has moved the schedule on: what it does not await any more has completed, was called off, or was
        reported before."""
        before, after = self._awaited(old), self._awaited(new)
        last = self.instant(new, "lastOccurrenceAt")
        decided = {run for run in self.by_ticks if last is not None and run <= last and self.expected is not None}
        for run in sorted(({*before} | decided) - {*after} - self.settled):
            self.settled.add(run)
            if run not in self.reported and not self._is_excused(run):
                self.wrong(f"the run of {run:.0f} is not awaited any more, and nobody reported it")

    def _awaited(self, row: Row) -> Mapping[float, float]:
        """The instants by which runs must have completed."""
        entries = row.get("awaited")
        pairs = ((self.instant(one, "dueAt"), self.instant(one, "expectedBy")) for one in _maps(entries))
        return {run: by for run, by in pairs if run is not None and by is not None}

    def _is_excused(self, run: float) -> bool:
        """Whether it has completed in time, or a person has called it off or run it again."""
        life = self.made.get(run)
        row = None if life is None or life.gone else self.book.look_up(life.task_id)
        if row is None or row.get("outcome") == "cancelled" or number(row.get("run"), 1) > 1:
            return True
        finished = self.instant(row, "finishedAt")
        by = run + self.window + (self.expected or 0.0)
        return row.get("outcome") == "completed" and finished is not None and finished <= by

    def check_reported(self, last_tick: float, row: Row) -> None:
        """Whatever should have completed by then was looked at."""
        late = [run for run, by in self._awaited(row).items() if by <= last_tick]
        if late and not is_terminal(row):
            self.wrong(f"the runs of {', '.join(f'{run:.0f}' for run in late)} are awaited beyond their time")

    # -- its occurrences -----------------------------------------------------------------------------------------------

    def hear_occurrence(self, by: Actor, now: float, run: float, life: Life, schedule: Row | None) -> None:
        """One is made; ``schedule``: the row as it is now."""
        earlier = self.made.get(run)
        if by.kind == "client":
            if earlier is None or earlier.gone:
                self.made[run] = life
            known = self.eras and self.edited_at is None and self.eras[-1].since < by.began
            if known and not any(run in era.times.named(era.start, era.end, run - 1, run) for era in self.eras):
                self.wrong(f"a run of {run:.0f} is made up, and there is none")
            return
        if by.kind != "processor":
            self.wrong(f"{by.kind} makes the run of {run:.0f}")
        if run > now + MARGIN:
            self.wrong(f"the run of {run:.0f} is made {run - now:.0f} s early")
        if run not in self.due(run - 1, run, perhaps=True):
            self.wrong(f"a run of {run:.0f} is made, and none is due")
        if self.gone_at < by.began:
            self.wrong(f"the run of {run:.0f} is made after the schedule's end")
        if earlier is not None and not earlier.gone:
            self.wrong(f"the run of {run:.0f} is made twice")
        if run in self.missed and self.missed[run] < by.began:
            self.wrong(f"the run of {run:.0f} is made, and was noted as missed")
        self._check_lateness(by, run, schedule)
        if _ALLOW not in self.overlap:
            before = max((one for one in self.made if one < run), default=None)  # a client does not ask what runs
            if before in self.by_ticks and self.made[before].is_open_since(by.began):
                self.wrong(f"the run of {run:.0f} is made, and that of {before:.0f} has not ended")
        self.made[run] = life
        self.by_ticks.append(run)

    def _check_lateness(self, by: Actor, run: float, schedule: Row | None) -> None:
        """Late runs are made as ``catchUp`` says. ``by`` has closed its buckets through some tick or a later one."""
        if _ALL in self.catch_up or run == self.instant(schedule, "bufferedOccurrenceAt") or not by.closed_at:
            return
        longest = self.book.longest_interval
        closed = min(by.closed_at.values()) - self.window
        if run > closed - 60 * 2 * longest:
            return
        if self.catch_up == {_NONE}:
            self.wrong(f"the run of {run:.0f} is made {closed - run:.0f} s late, and none are to be made up")
        elif _NONE not in self.catch_up and (later := self.due(run, closed - 60 * longest)):
            self.wrong(f"the run of {run:.0f} is made late, and {max(later):.0f} is due as well")

    # -- at the end ----------------------------------------------------------------------------------------------------

    def check_complete(self, last_tick: float, row: Row) -> None:
        """All that was due by then has been dealt with."""
        if is_terminal(row):
            return
        waits = self.instant(row, "bufferedOccurrenceAt")
        due = self.due(-math.inf, last_tick - self.window)
        lost = [run for run in due if not self.is_dealt_with(run) and run != waits]
        if lost:
            self.wrong(f"the runs of {', '.join(f'{run:.0f}' for run in sorted(lost)[:5])} were never made")


def _maps(entries: object) -> Sequence[Row]:
    return list(entries) if isinstance(entries, (list, tuple)) else []


def added(old: object, new: object) -> Sequence[Mapping[str, object]]:
    """The entries at the end of a bounded list that were not there before."""
    before = list(old) if isinstance(old, (list, tuple)) else []
    after = list(new) if isinstance(new, (list, tuple)) else []
    for n in range(len(before) + 1):
        kept = before[n:]
        if after[: len(kept)] == kept:
            return after[len(kept) :]
    return after
