"""Reads traces of Dynatick and accepts or refuses each by the rules of docs/protocol.md alone.

    python proof/replay.py FILE…        prints how many were accepted; exit code 1 if one was refused

It imports nothing of the product: it has its own small model of the table, which must give every conditional write the
answer that the trace tells, and says of each event which rule it breaks. docs/proof.md has the format.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Event = Mapping[str, Any]

OWN = "_dynatick#"
CURSOR, LIMITS, SETTINGS = "_dynatick#cursor#", "_dynatick#limits#", "_dynatick#settings"
RATE, RECONCILE = "_dynatick#rate#", "_dynatick#reconcile#"
ENDED = ("completed", "failed", "cancelled")
CLAIMED = ("running", "waiting")
ENGINE = ("processor", "scheduler")
KINDS = (*ENGINE, "client", "doctor", "hand", "expiry", "restore")
RELEASED = 0.0  # the end of a lease that was released: the epoch
ROUNDING = 0.01  # seconds: instants in rows have milliseconds
PAUSE_CHECK = 5.0  # seconds for which a process goes on without reading the pauses
LATE, EARLY = 1.0, 0.02  # seconds that a task with a rate limit may begin after its start, or before it
_BUCKET = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d)(?:#([1-9]\d*))?", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Refused(Exception):
    """A trace breaks a rule. ``rule``: its number; ``pause``, ``rate``, ``table`` and ``end`` for what holds beside the
    rules."""

    def __init__(self, rule: str, why: str) -> None:
        super().__init__(f"rule {rule}: {why}" if rule.isdigit() else f"{rule}: {why}")
        self.rule, self.why = rule, why
        self.line = 0

    def __str__(self) -> str:
        return f"line {self.line}: {super().__str__()}"


@dataclass
class Process:
    """A process, as far as its events tell."""

    number: object
    environment: object = None  # what it knows, the next invocation in this one knows, too
    kind: str = "unknown"
    until: float = math.inf  # its hard end
    skew: float = 0.0
    sent_for: Mapping[str, Any] = field(default_factory=dict)  # what its order says, if it has one
    named: set[str] = field(default_factory=set)  # every text in its order
    polls: dict[str, list[Page]] = field(default_factory=lambda: defaultdict(list))  # by bucket
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by bucket: ids
    claims: set[str] = field(default_factory=set)  # tokens
    leases: set[str] = field(default_factory=set)  # tokens of shard leases and limits leases
    began: float = math.inf
    shown: Sequence[Sequence[Any]] = ()  # by the records of the stream that it has: tasks and their buckets
    scanned: list[Scanned] = field(default_factory=list)  # of a reconcile
    drained: Mapping[int, int] = field(default_factory=dict)  # S by shard, when its scan began
    to_check: dict[str, str] = field(default_factory=dict)  # tasks that it put into buckets that were closed by then
    died: bool = False
    is_over: bool = False  # its invocation has returned, and nothing of it runs any more

    @property
    def is_wake_up(self) -> bool:
        return "wakeUp" in self.sent_for

    @property
    def is_reconcile(self) -> bool:
        return self.kind == "processor" and self.sent_for.get("reconcile") is True

    @property
    def touches_no_cursor(self) -> str | None:
        """What it is, of those that leave cursors alone."""
        return next((name for name in ("wakeUp", "recover", "work", "release") if name in self.sent_for), None)


@dataclass(frozen=True)
class Page:
    at: float
    after: str  # "" for the first
    through: str | None  # None: to the last


@dataclass(frozen=True)
class Scanned:
    """A page of the whole table."""

    at: float
    after: str | None  # None for the first
    through: str | None  # None: to the last
    ids: Sequence[str]  # of the rows that had not ended


@dataclass
class Execution:
    task: str
    token: str
    process: Process
    began: float
    key: str | None
    result: str | None = None

    def runs_at(self, now: float) -> bool:
        return self.result is None and not self.process.died and now < self.process.until


@dataclass
class Rate:
    """What is known of the starts of a rate limit, by the clocks of those who use them."""

    interval: float  # seconds from one start to the next
    writer: object = None  # the environment that has reserved starts last
    reserved: dict[object, list[list[float]]] = field(default_factory=lambda: defaultdict(list))  # from and until when
    used: Counter[object] = field(default_factory=Counter)  # how many tasks each environment has begun
    began: list[float] = field(default_factory=list)  # in order
    peaks: list[float] = field(default_factory=list)  # of each and those before: the latest for its number

    def begin(self, at: float) -> float:
        """Adds a task that begins. Returns by how many seconds there are then too many in some window: each window has
        an interval for every task but its first."""
        n = bisect_right(self.began, at)
        self.began.insert(n, at)
        del self.peaks[n:]
        excess = 0.0
        for m in range(n, len(self.began)):
            behind = self.began[m] - m * self.interval
            self.peaks.append(max([behind, *self.peaks[-1:]]))
            excess = max(excess, self.peaks[-1] - behind)
        return excess

    def has_reserved(self, environment: object, at: float, late: float) -> bool:
        """Whether one more task may begin by a start that its process has reserved. ``late``: by how many seconds it
        may have begun before."""
        windows = self.reserved[environment]
        come = sum(
            max(0, math.floor((min(at + EARLY, until - self.interval) + ROUNDING - since) / self.interval) + 1)
            for since, until in windows
            if since - EARLY - ROUNDING <= at
        )
        is_there = any(
            since - EARLY - ROUNDING <= at <= until - self.interval + LATE + late + ROUNDING for since, until in windows
        )
        return is_there and self.used[environment] < come


@dataclass
class Shard:
    """What the cursor of a shard has said so far."""

    closings: list[tuple[int, float]] = field(default_factory=list)  # C, and when; both grow
    written: float = -math.inf  # when an occurrence was last written into one of its buckets
    written_in: dict[int, dict[object, float]] = field(default_factory=lambda: defaultdict(dict))  # by which process

    def closed_at(self, minute: int) -> float:
        n = bisect_left(self.closings, (minute, -math.inf))
        return self.closings[n][1] if n < len(self.closings) else math.inf


class Replay:
    """One trace. ``feed`` takes its events in order and raises Refused."""

    def __init__(self) -> None:
        self.header: Event = {"lag": 120.0, "skew": 4.0, "attempts": 4, "executions": False, "limits": [], "rates": [],
                              "stream": False, "late": 0.0}  # fmt: skip
        self.rows: dict[str, Row] = {}
        self.processes: dict[object, Process] = {}
        self.shards: dict[int, Shard] = defaultdict(Shard)
        self.open: dict[tuple[int, int], set[str]] = defaultdict(set)  # by minute and shard: tasks that have not ended
        self.entered: dict[str, float] = {}  # when an open task came into its bucket
        self.stray: set[str] = set()  # tasks that only the stream or the reconcile need find
        self.executions: dict[tuple[str, str], Execution] = {}  # by token and task
        self.running: dict[str, list[Execution]] = defaultdict(list)  # by task
        self.of_key: dict[str, list[Execution]] = defaultdict(list)
        self.claimed: dict[str, tuple[str, bool]] = {}  # by token: the task, and whether its process had died
        self.replaced: set[str] = set()  # tokens of claims whose rows were deleted or put anew by hand
        self.as_claimed: dict[str, Row] = {}  # their rows, which may be edited or put anew by hand since
        self.rates: dict[str, Rate] = {}  # by the names of their limits
        self.paused: dict[object, float] = {}  # since when, by action
        self.letters: set[str] = set()
        self.planned: dict[str, Process] = {}  # by wake-up: who has planned it
        self.to_show: dict[str, float] = {}  # tasks of which the stream has to show a change, and when that was
        self.changed: dict[str, float] = {}  # when each task was changed last
        self.limits_records: set[str] = set()
        self.used: dict[str, int] = {}  # limits leases by which tasks have begun: how many shards they know
        self.read_through: dict[object, str] = {}  # by process of a reconcile: through which id all is judged, it says
        self.tasks: set[str] = set()
        self.checks: Counter[str] = Counter()  # how often each rule was checked
        self.events = 0
        self.now = -math.inf  # of the last event
        self.rested = False

    @property
    def skew(self) -> float:
        return float(self.header["skew"])

    # -- events --------------------------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        self.events += 1
        try:
            at = float(event.get("at", self.now))
            self.require("table", at >= self.now, f"an event {self.now - at:.3f} s before the one above")
            if at > self.now:
                self._check_shown()
            self.now = at
            {
                "trace": self._trace, "process": self._process, "ended": self._ended, "died": self._died,
                "write": self._write, "create": self._create, "put": self._put, "delete": self._delete,
                "poll": self._poll, "begin": self._begin, "end": self._end, "letters": self._take_letters,
                "shown late": self._shown_late, "sent": self._sent, "restore": self._restore, "rest": self._rest,
                "record": self._record, "scan": self._scan,
            }[event["e"]](event)  # fmt: skip
        except Refused as refused:
            refused.line = self.events
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            unreadable = Refused("table", f"an event that can't be understood: {error!r}")
            unreadable.line = self.events
            raise unreadable from error

    def require(self, rule: str, holds: bool, why: str) -> None:
        self.checks[rule] += 1
        if not holds:
            raise Refused(rule, why)

    def _trace(self, event: Event) -> None:
        self.header = {**self.header, **event}
        self.limits = dict(map(_limit, self.header["limits"]))
        self.rates = {name: Rate(interval) for name, (_, interval) in map(_limit, self.header["rates"])}

    def _by(self, event: Event) -> Process:
        """The process of an event. Of one that has died, a call may still arrive; of one that is over, a page that it
        no longer waits for."""
        number = event["by"]
        self.require("table", number in self.processes, f"process {number} has not begun")
        by = self.processes[number]
        self.require("table", event["e"] in ("died", "poll") or not by.is_over, f"process {number} is over")
        return by

    def _process(self, event: Event) -> None:
        self.require("table", event["by"] not in self.processes, f"process {event['by']} begins twice")
        self.require("table", event["kind"] in KINDS, f"process {event['by']} is a {event['kind']}")
        order = event.get("order")
        inner = _inner(order)
        self.processes[event["by"]] = Process(
            event["by"], environment=event.get("in", ("", event["by"])), kind=event["kind"],
            until=event.get("until", math.inf), skew=event.get("skew", 0.0),
            sent_for=inner if isinstance(inner, Mapping) else {}, named=set(_texts(inner)), began=float(event["at"]),
            shown=order.get("stream", ()) if isinstance(order, Mapping) else (),
        )  # fmt: skip

    def _died(self, event: Event) -> None:
        self._by(event).died = True

    def _ended(self, event: Event) -> None:
        """An invocation has returned or raised."""
        by = self._by(event)
        by.is_over = not event["left"]
        left = [one for one in self.executions.values() if one.process is by and one.result is None and not by.died]
        self.require(
            "11", not left, f"its invocation is over, and its process still runs {left[0].task if left else 0}"
        )
        if not event["raised"] and not event["left"]:
            for task_id, bucket in by.to_check.items():
                present = self.rows.get(task_id, {})
                is_there = present.get("taskDateTime") == bucket and is_open(present)
                self.require("7", not is_there, f"{task_id}: put into {bucket}, which is closed, and not placed again")
            for task_id, bucket in by.shown:
                self._check_placed(task_id, bucket, by)
        if by.is_reconcile and not event["raised"] and not event["left"]:
            self._check_reconciled(by, event.get("unrepaired"))

    # -- rule 8: the stream --------------------------------------------------------------------------------------------

    def _record(self, event: Event) -> None:
        """The stream has a record of the last change of a task, which it will show to the scheduler."""
        self.require("table", self.changed.get(event["id"]) == self.now, f"{event['id']}: a record of no change")
        self.to_show.pop(event["id"], None)

    def _check_shown(self) -> None:
        """At each later instant: the stream has a record of what was changed before."""
        left = next(iter(self.to_show), None)
        self.require("8", left is None, f"{left}: changed, and the stream does not show it")

    def _note_change(self, task_id: str, at: float, old: Row | None, new: Row | None) -> None:
        if old == new:
            return
        self.changed[task_id] = at
        self.to_show.pop(task_id, None)  # the record is of what it has become
        if self.header["stream"] and new is not None and (old is None or state_of(new) in ("scheduled", "unscheduled")):
            self.to_show[task_id] = at

    # -- rule 15: the reconcile ----------------------------------------------------------------------------------------

    def _scan(self, event: Event) -> None:
        """A page of the whole table. A reconcile goes on where its last page ended, or where its order says."""
        by = self._by(event)
        if not by.is_reconcile:
            return
        if by.scanned and event["after"] == by.scanned[-1].after:
            del by.scanned[-1]  # its answer was lost
        after = by.scanned[-1].through if by.scanned else by.sent_for.get("after")
        if not by.drained:
            by.drained = {
                shard: _minute(self.rows.get(f"{CURSOR}{shard}", {}), "drainedThrough") for shard in self.shards
            }
        self.require("15", event["after"] == after, f"it reads on after {event['after']}, and has read through {after}")
        by.scanned.append(Scanned(float(event["at"]), event["after"], event["through"], event["ids"]))

    def _check_reconciled(self, by: Process, unrepaired: int | None) -> None:
        """An invocation of the reconcile has returned. ``unrepaired``: how many rows it says that it has left; None if
        that is not known."""
        if not by.scanned:
            chain = self.rows.get(f"{RECONCILE}{by.sent_for.get('beganAt')}", {})
            others = chain.get("readThrough") not in (None, by.sent_for.get("after"))
            self.require("15", others, "a reconcile has read nothing, and no other has its order carried out")
            return
        through = by.scanned[-1].through
        if by.number in self.read_through:
            through = self.read_through[by.number]
        elif through is not None:
            return  # it has not come through in time, or another was first: what it has read is read again
        left: list[str] = []
        for page in by.scanned:
            for task_id in page.ids:
                if self.changed.get(task_id, -math.inf) < page.at and self._is_behind(task_id, by):
                    left.append(task_id)
                if task_id == through:
                    break
            if through in (page.through, *page.ids):
                break
        else:
            self.require("15", through is None, f"it has read through {through}, which it has not seen")
        if unrepaired is not None:
            self.require("15", len(left) <= unrepaired, f"{left[:3]}: open where no tick polls, and not placed")

    def _is_behind(self, task_id: str, by: Process) -> bool:
        """Whether a task lies in a bucket that was drained before this process began to read."""
        row = self.rows.get(task_id, {})
        place = _place(row)
        is_task = not task_id.startswith(OWN) and row.get("status") in ("scheduled", "running")
        return is_task and place is not None and place[0] <= by.drained.get(place[1], -1)

    def _check_placed(self, task_id: str, bucket: object, by: Process) -> None:
        """A scheduler that has seen a task leaves it in no bucket that was closed by then. Of one that was moved since,
        there is another record."""
        row = self.rows.get(task_id)
        place = _place(row)
        if row is None or place is None or row["taskDateTime"] != bucket:
            return
        if row.get("status") == "recurring" or self.entered[task_id] >= by.began:
            return
        waits_for_turn = state_of(row) == "scheduled" and {"limitKey", "movedTo"} <= row.keys()
        if row.get("scheduleId") is not None and (state_of(row) == "running" or waits_for_turn):
            return  # the pass that has written it there goes on with it
        is_closed = self.shards[place[1]].closed_at(place[0]) < by.began
        self.require("5", not is_closed, f"{task_id}: left in {row['taskDateTime']}, which is closed")

    def _sent(self, event: Event) -> None:
        """Wake-ups go to their queue. What is due, only the planning of a pass sends."""
        by = self._by(event)
        for order in event["orders"]:
            inner = order["dynatick"].get("wakeUp", {})
            is_planned = any("due" in one for one in inner.get("tasks", ()))
            if is_planned and by.kind == "processor" and not by.is_wake_up:
                first = self.planned.setdefault(json.dumps(order, sort_keys=True), by)
                self.require("19", first is by, f"{inner.get('bucket')}: its wake-ups are planned twice")

    def _take_letters(self, event: Event) -> None:
        self.letters |= {*event["ids"]}

    def _shown_late(self, event: Event) -> None:
        self.stray.add(event["id"])

    def _restore(self, event: Event) -> None:
        """All processes end, and rows are put back to what they were."""
        self.stray |= {task_id for tasks in self.open.values() for task_id in tasks}
        for process in self.processes.values():
            process.died = True
        self.planned.clear()

    # -- the table -----------------------------------------------------------------------------------------------------

    def _write(self, event: Event) -> None:
        row = self.rows.get(event["id"])
        holds = row is not None and all(_holds(row, one) for one in event["if"])
        self.require("table", event["ok"] == holds, f"{event['id']}: a write {_taken(event['ok'])} whose conditions "
                     f"{'hold' if holds else 'do not hold'}")  # fmt: skip
        if not event["ok"] or row is None:
            return
        new = {**row}
        for name, value in event["set"].items():
            new[name] = row.get(name, 0) + value["plus"] if isinstance(value, Mapping) and "plus" in value else value
        for name in event.get("remove", ()):
            new.pop(name, None)
        self._effect(event, row, new)

    def _create(self, event: Event) -> None:
        self.require("table", event["row"]["taskId"] == event["id"], f"{event['id']}: its row has another id")
        self.require("table", event["ok"] == (event["id"] not in self.rows), f"{event['id']}: {_taken(event['ok'])}, "
                     f"and {'there is' if event['id'] in self.rows else 'there is no'} such row")  # fmt: skip
        by = self._by(event)
        if self._is_occurrence_of_a_pass(event, by):
            by.seen[str(event["row"].get("taskDateTime"))].add(event["id"])  # it knows that this lies there
        if event["ok"]:
            self._effect(event, None, dict(event["row"]))

    def _put(self, event: Event) -> None:
        self.require("table", event["row"]["taskId"] == event["id"], f"{event['id']}: its row has another id")
        self._effect(event, self.rows.get(event["id"]), dict(event["row"]))

    def _delete(self, event: Event) -> None:
        row = self.rows.get(event["id"])
        holds = all(_holds(row or {}, one) for one in event.get("if", ()))
        self.require("table", event["ok"] == holds or row is None, f"{event['id']}: deleted against a condition")
        if event["ok"] and row is not None:
            by = self._by(event)
            self.require("end", by.kind not in ENGINE, f"{event['id']}: a {by.kind} deleted it")
            self._effect(event, row, None)

    def _effect(self, event: Event, old: Row | None, new: Row | None) -> None:
        task_id, by, at = event["id"], self._by(event), float(event["at"])
        is_restored = by.kind == "restore"
        if new is not None and not is_restored:
            if task_id.startswith(CURSOR):
                self._check_cursor(event, by, at, old or {}, new)
            elif task_id.startswith(LIMITS):
                self._check_limits_record(event, by, at, old or {}, new)
            elif task_id.startswith(RATE):
                self._check_rate_record(event, by, old or {}, new)
            elif task_id == SETTINGS:
                self._check_settings(old or {}, new)
            elif not task_id.startswith(OWN) and by.kind != "hand":
                self._check_task(event, by, at, old, new)
        self._apply(event, by, at, old, new)

    def _apply(self, event: Event, by: Process, at: float, old: Row | None, new: Row | None) -> None:
        """The rows after an effect, and where each open task lies."""
        task_id = event["id"]
        if new is None:
            self.rows.pop(task_id, None)
        else:
            self.rows[task_id] = new
        if task_id == SETTINGS:
            paused = (new or {}).get("pausedActions")
            self.paused = {one: self.paused.get(one, at) for one in (paused if isinstance(paused, Mapping) else ())}
        if task_id.startswith(CURSOR):
            shard, closed = int(task_id.removeprefix(CURSOR)), parse_bucket((new or {}).get("closedThrough"))
            if closed is not None:
                closings = self.shards[shard].closings
                if by.kind == "restore":
                    closings.clear()
                if not closings or closings[-1][0] < closed[0]:
                    # The index of what is restored is made of its rows, so it shows all that was written before.
                    closings.append((closed[0], -math.inf if by.kind == "restore" else at))
        if task_id.startswith(LIMITS):
            self.limits_records.add(task_id)
        if task_id.startswith(RECONCILE) and new is not None and by.kind == "processor":
            self.read_through[by.number] = str(new.get("readThrough"))
        if task_id.startswith(OWN):
            return
        self._note_change(task_id, at, old, new)
        self.tasks.add(task_id)
        if new is None or event["e"] == "put":
            self.running.pop(task_id, None)  # from now on it is another task that has this id
            self.replaced.add(str((old or {}).get("lease")))
        before, after = _place(old), _place(new)
        if before is not None:
            self.open[before].discard(task_id)
        if after is None:
            return
        self.open[after].add(task_id)
        if by.kind in ("hand", "restore", "expiry"):
            self.stray.add(task_id)
        if before == after:
            return
        self.entered[task_id] = at
        minute, shard = after
        is_closed = self.shards[shard].closed_at(minute) <= at
        if not is_closed and by.kind not in ("hand", "restore"):
            self.stray.discard(task_id)
        if is_closed and self._is_occurrence_of_a_pass(event, by):
            self.shards[shard].written_in[minute][by.number] = at
        elif is_closed and new is not None and new.get("status") != "recurring":
            by.to_check[task_id] = new["taskDateTime"]

    @staticmethod
    def _is_occurrence_of_a_pass(event: Event, by: Process) -> bool:
        return event["e"] == "create" and by.kind in ENGINE and event["row"].get("scheduleId") is not None

    def _poll(self, event: Event) -> None:
        by, bucket = self._by(event), event["bucket"]
        by.seen[bucket] |= {task_id for task_id, _ in event["entries"]}
        by.polls[bucket].append(Page(float(event["at"]), event["after"] or "", event["through"]))

    # -- rules 1 to 4, 14, 16, 17, 19: cursors -------------------------------------------------------------------------

    def _check_cursor(self, event: Event, by: Process, at: float, old: Row, new: Row) -> None:
        shard = int(event["id"].removeprefix(CURSOR))
        if by.kind == "hand":
            return
        if not old:
            is_leased = new.get("lease") is not None and _instant(new.get("leaseUntil")) > at - self.skew
            self.require("14", not is_leased, f"cursor {shard}: created with a lease of {new.get('lease')}")
            return
        is_versioned = any(one[:2] == ["version", "is"] for one in event["if"])
        self.require("16", is_versioned, f"cursor {shard}: written without the condition that its version is as read")
        c, c_before, s, s_before = (
            _minute(row, name) for name in ("closedThrough", "drainedThrough") for row in (new, old)
        )
        self.require("1", c >= c_before, f"cursor {shard}: C went back from {old['closedThrough']}")
        self.require("16", s >= s_before, f"cursor {shard}: S went back from {old['drainedThrough']}")
        self.require("1", c <= (at + self.skew) // 60, f"cursor {shard}: {new['closedThrough']} is closed too early")
        self.require("2", s <= c, f"cursor {shard}: S is {new['drainedThrough']}, which is not closed")
        self.require("17", by.touches_no_cursor is None, f"cursor {shard}: a {by.touches_no_cursor} has written it")
        lease, until = old.get("lease"), _instant(old.get("leaseUntil"))
        is_held = lease is not None and lease not in by.leases and at <= until - self.skew
        if new.get("lease") is not None and new["lease"] != lease:
            self.require("1", not is_held, f"cursor {shard}: its lease is acquired, and another process has it")
            by.leases.add(new["lease"])
        if s > s_before:
            self.require("17", not is_held, f"cursor {shard}: S is moved by a process that has not the shard lease")
            self.require("4", s <= _minute(old, "checkpoint"), f"cursor {shard}: S passes the checkpoint")
            self._check_drained(by, at, shard, s_before, s)
        if _minute(new, "checkpoint") != _minute(old, "checkpoint"):
            closed_at = self.shards[shard].closed_at(_minute(new, "checkpoint"))
            says = _instant(new["checkpointAt"])
            self.require("4", says >= closed_at - self.skew / 2 - ROUNDING, f"cursor {shard}: its checkpoint "
                         f"{new['checkpoint']} was closed after checkpointAt, {new['checkpointAt']}")  # fmt: skip
        planned, before = (_minute(row, "plannedThrough") for row in (new, old))
        self.require("19", planned >= before, f"cursor {shard}: plannedThrough went back")

    def _check_drained(self, by: Process, at: float, shard: int, before: int, through: int) -> None:
        """S passes the buckets after ``before``, up to ``through``."""
        known = self.shards[shard]
        for minute in range(before + 1, through + 1):
            name = bucket_name(minute, shard)
            # Of its own occurrences a process knows without the index whether they have ended, and below none is open.
            others = (at for number, at in known.written_in.get(minute, {}).items() if number != by.number)
            settled = max(known.closed_at(minute), *others, -math.inf)
            since = settled + self.header["lag"] - ROUNDING
            pages = by.polls.get(name, [])
            self.require("2", _covers(pages, -math.inf), f"S passes {name}, which this process has not polled whole")
            self.require("3", _covers(pages, since), f"S passes {name}, of which no whole poll began L after it was "
                         f"closed")  # fmt: skip
            for task_id in self.open.get((minute, shard), ()):
                row = self.rows[task_id]
                is_late = self.entered[task_id] > known.closed_at(minute) and row.get("scheduleId") is None
                is_excused = task_id in self.stray or is_late
                self.require("3", is_excused, f"S passes {name}, in which {task_id} is open")
            by.polls.pop(name, None)

    def _check_settings(self, old: Row, new: Row) -> None:
        shards = new.get("shardsEver", 1)
        self.require("14", shards >= old.get("shardsEver", 0), "the number of shards that were ever in use went back")
        missing = [shard for shard in range(shards) if f"{CURSOR}{shard}" not in self.rows]
        self.require("14", not missing, f"the settings name {shards} shards, and there is no cursor of {missing}")

    # -- rules 5 to 7, 9 to 13, 18, 20 to 22: tasks --------------------------------------------------------------------

    def _check_task(self, event: Event, by: Process, at: float, old: Row | None, new: Row) -> None:
        task_id = event["id"]
        if old is None:
            if self._is_occurrence_of_a_pass(event, by) and new.get("lease") is not None:
                self._check_occurrence(task_id, by, at, new)
                self._note_claim(event, by, new, reclaimed=False)
            return
        before, after = state_of(old), state_of(new)
        if not is_open(old) and by.kind in ENGINE:
            raise Refused("end", f"{task_id}: it has ended as {old['outcome']}, and a {by.kind} changed it")
        if before == "recurring" or after == "recurring":
            return
        is_known = new.get("outcome") in (None, *ENDED)
        self.require("end", is_known or by.kind not in ENGINE, f"{task_id}: ended as {new.get('outcome')}")
        conditions = {one[0] for one in event["if"]}
        if by.kind in ENGINE and after == "running" and new.get("lease") != old.get("lease"):
            self._check_claim(event, by, at, old, new, conditions)
            return
        if before in CLAIMED and by.kind in ENGINE:
            self._check_record(event, by, at, old, new, conditions)
        elif by.kind == "client":
            self._check_client(event, old, new, conditions)
        if "movedTo" in event["set"] and before == "running":
            kept = old.get("lease") == new.get("lease")
            self.require("6", kept, f"{task_id}: it was moved, and its task lease did not stay")
        if after == "failed" and is_open(old) and by.kind in ENGINE:
            self.require("12", task_id in self.letters, f"{task_id}: failed, and no dead letter was sent before")
        if "pack" in new and by.kind in ENGINE:
            self._check_pack(task_id, old, new)

    def _check_occurrence(self, task_id: str, by: Process, at: float, new: Row) -> None:
        place = _place(new)
        if place is None or self.shards[place[1]].closed_at(place[0]) > at:
            return
        cursor = self.rows.get(f"{CURSOR}{place[1]}", {})
        until = _instant(cursor.get("openUntil"))
        says_so = until >= min(by.until, at) - self.skew
        self.require("3", says_so, f"{task_id}: written into {new['taskDateTime']}, which is closed, and openUntil "
                     f"does not say so")  # fmt: skip

    def _check_claim(self, event: Event, by: Process, at: float, old: Row, new: Row, conditions: set[str]) -> None:
        task_id, bucket, before = event["id"], old.get("taskDateTime"), state_of(old)
        self.require("9", {"taskDateTime", "status", "outcome"} <= conditions,
                     f"{task_id}: claimed without a condition on {{bucket, status, outcome}}")  # fmt: skip
        self.require("9", is_open(old), f"{task_id}: claimed, and it has ended")
        is_named = task_id in by.named or task_id in by.seen.get(str(bucket), ())
        self.require("9", is_named, f"{task_id}: claimed in {bucket}, which this process did not poll")
        place = parse_bucket(bucket)
        self.require("9", place is not None, f"{task_id}: claimed, and {bucket} is no bucket")
        if by.is_wake_up or (place is not None and place[0] * 60 > at + self.skew):  # also a pass before the tick
            of = "nextAttemptAt" if "nextAttemptAt" in old else "dueAt"
            instants = [one[2] for one in event["if"] if one[:2] == [of, "is"]]
            has_come = any(_instant(one) <= at + by.skew + ROUNDING for one in instants)
            self.require("18", has_come, f"{task_id}: claimed before its tick, without the condition that its instant "
                         f"is one that has come")  # fmt: skip
            self.require("18", before == "scheduled", f"{task_id}: claimed before its tick, and it is {before}")
        was_released = before == "running" and _instant(old.get("leaseUntil")) == RELEASED
        has_expired = before in CLAIMED and not was_released
        if has_expired:
            over = _instant(old.get("leaseUntil")) <= at + self.skew
            self.require("10", over, f"{task_id}: reclaimed before its lease expired, at {old.get('leaseUntil')}")
            runs = [one for one in self.running[task_id] if one.runs_at(at) and one.token == old.get("lease")]
            self.require("11", not runs, f"{task_id}: reclaimed while it is executed")
        counted = old.get("attempt")
        if isinstance(counted, int) and not isinstance(counted, bool):
            self.require("10", new.get("attempt") == counted + 1, f"{task_id}: claimed, and attempt {counted} became "
                         f"{new.get('attempt')}")  # fmt: skip
        until = _instant(new.get("leaseUntil"))
        self.require(
            "11",
            until <= by.until + abs(by.skew) + self.skew,
            f"{task_id}: its lease ends after the hard end of its process",
        )
        self._note_claim(event, by, new, reclaimed=has_expired and before == "running")
        if (key := self._key(new)) is not None:
            self._check_claim_with_key(task_id, key, by, at, old)

    def _note_claim(self, event: Event, by: Process, new: Row, *, reclaimed: bool) -> None:
        token = new["lease"]
        self.require("12", token not in self.claimed, f"{event['id']}: the token {token} was used before")
        self.claimed[token] = event["id"], reclaimed
        self.as_claimed[token] = new
        by.claims.add(token)

    def _check_record(self, event: Event, by: Process, at: float, old: Row, new: Row, conditions: set[str]) -> None:
        """A change of a task that is claimed, other than a claim."""
        task_id, token, changed = event["id"], old.get("lease"), {*event["set"], *event.get("remove", ())}
        if not changed & {"status", "outcome", "lease", "leaseUntil", "attempt", "pack"}:
            return  # a move
        self.require("12", "lease" in conditions, f"{task_id}: {_change(old, new)} without a condition on the token")
        if token not in by.claims:
            is_over = _instant(old.get("leaseUntil")) <= at + self.skew
            is_named = str(token) in by.named or by.kind == "scheduler"
            self.require("12", is_over or is_named or self._is_of_nobody(token), f"{task_id}: {_change(old, new)} by a "
                         f"process that has not claimed it, and its lease is not over")  # fmt: skip
        noted = self.header["executions"]  # of no action, of all, or of these
        is_noted = noted if isinstance(noted, bool) else new.get("action") in noted
        if new.get("outcome") == "completed" and is_noted and "pack" not in new:
            run = self.executions.get((str(token), task_id))
            if run is not None or not str(new.get("action", "")).startswith("dynatick."):
                result = None if run is None else run.result
                self.require("12", result == "ok", f"{task_id}: completed, and its action {result or 'did not end'}")

    def _is_of_nobody(self, token: object) -> bool:
        """Whether no process has claimed with it: it was written by hand."""
        return token not in self.claimed

    def _check_client(self, event: Event, old: Row, new: Row, conditions: set[str]) -> None:
        task_id, before, after = event["id"], state_of(old), state_of(new)
        changed = {*event["set"], *event.get("remove", ())}
        was_released = before == "running" and _instant(old.get("leaseUntil")) == RELEASED
        if was_released:  # it waits, as one that is scheduled
            is_unclaimed = {"status", "lease", "leaseUntil"} <= conditions
            self.require("13", is_unclaimed, f"{task_id}: {after} without the condition that nobody has claimed it")
        elif before == "running" and changed & {"status", "taskDateTime", "dueAt", "outcome", "lease"}:
            by_token = "lease" in conditions and after in ("completed", "scheduled", "running", "waiting", "failed")
            is_known = not self._is_of_nobody(old.get("lease"))
            self.require("13", by_token or not is_known, f"{task_id}: a client made it {after} while it runs")
        if before == "waiting" and after not in ("cancelled", "waiting"):
            self.require("13", "lease" in conditions, f"{task_id}: {after} without the token of its claim")
        if not is_open(old) and is_open(new):
            self.require(
                "13", "status" in conditions, f"{task_id}: begins anew without the condition that it has ended"
            )
            is_next = "restoredAt" in changed or new.get("run", 1) > old.get("run", 0)
            self.require("13", is_next, f"{task_id}: run {old.get('run')} begins again")
        if "pack" in changed and "pack" in old:
            rests = before != "running" or was_released
            self.require("22", rests, f"{task_id}: a client changed a member while its pack runs")
            self.require("22", {"pack", "status"} <= conditions, f"{task_id}: a member was changed without the "
                         f"condition that its pack is as it was read")  # fmt: skip

    def _check_pack(self, task_id: str, old: Row, new: Row) -> None:
        pack, before = new["pack"], old.get("pack")
        if not isinstance(pack, Mapping) or not isinstance(before, Mapping):
            return
        for kind in ("done", "excluded", "extracted"):
            gone = _bits(before, kind) & ~_bits(pack, kind)
            self.require("20", not gone, f"{task_id}: members are {kind} no more")
        for n in _numbers(_bits(pack, "extracted") & ~_bits(before, "extracted")):
            member = f"{pack['batchId']}/{pack['first'] + n:09d}"
            has_row = member in self.rows or member in self.letters
            self.require("20", has_row, f"{member}: its pack says that it is extracted, and it has no row")
        if new.get("outcome") == "completed":
            settled = _bits(pack, "done") | _bits(pack, "excluded") | _bits(pack, "extracted")
            left = [n for n in range(pack["members"]) if not settled >> n & 1]
            self.require("20", not left, f"{task_id}: it ends, and members {left} have neither completed nor a row")

    # -- rules 23 and 24: limit keys -----------------------------------------------------------------------------------

    def _key(self, row: Row) -> str | None:
        key = row.get("limitKey")
        return key if isinstance(key, str) and key.partition(":")[0] in self.limits else None

    def _check_limits_record(self, event: Event, by: Process, at: float, old: Row, new: Row) -> None:
        lease, before = new.get("lease"), old.get("lease")
        if lease is not None and lease != before:
            until = _instant(old.get("leaseUntil"))
            is_over = before is None or before in by.leases or until <= at + self.skew
            self.require("23", is_over, f"{event['id']}: acquired while another process has it")
            by.leases.add(lease)
        elif by.kind in ENGINE and before is not None:
            self.require("23", before in by.leases, f"{event['id']}: written by a process that does not have it")

    def _check_claim_with_key(self, task_id: str, key: str, by: Process, at: float, old: Row) -> None:
        place = parse_bucket(old.get("taskDateTime"))
        shard = 0 if place is None else place[1]
        record = self.rows.get(f"{LIMITS}{shard}", {})
        by.to_check.pop(task_id, None)
        # One that learns only now of its key, for the index showed another row, has the lease when it begins it.
        if not by.is_wake_up and by.touches_no_cursor is None and record.get("lease") in by.leases:
            number = record.get("shardCount", 1)
            self.require("24", shard_of(key, number) == shard, f"{task_id}: claimed in shard {shard}, and {key} has "
                         f"another one of {number}")  # fmt: skip

    # -- executions ----------------------------------------------------------------------------------------------------

    def _begin(self, event: Event) -> None:
        by, task_id, token, at = self._by(event), event["id"], event["token"], float(event["at"])
        claim = token if token in self.claimed else token.rpartition("/")[0]  # of a member: its pack's, and its number
        of, reclaimed = self.claimed.get(claim, ("", False))
        self.require("9", claim in by.claims, f"{task_id}: executed by a process that has not claimed it")
        self.require("9", (token, task_id) not in self.executions, f"{task_id}: executed twice with one claim")
        row = self.rows.get(of)
        if row is not None and of not in self.stray and claim not in self.replaced:
            has_it = row.get("lease") == claim and state_of(row) == "running"
            self.require("9", has_it, f"{task_id}: executed while it is {state_of(row)}, by another's claim")
        others = [one for one in self.running[task_id] if one.runs_at(at)]
        self.require("11", not others, f"{task_id}: executed while it is executed")
        self.require("11", not by.died, f"{task_id}: begun by a process that has died")
        self.require("11", at < by.until + ROUNDING, f"{task_id}: begun after the hard end of its process")
        as_claimed = self.as_claimed.get(claim, {})
        is_paused = by.began > self.paused.get(str(as_claimed.get("action")), math.inf) + PAUSE_CHECK + ROUNDING
        self.require("pause", not is_paused, f"{task_id}: begun by a process that began after its action was paused")
        if of != task_id:
            self.require("21", not reclaimed, f"{task_id}: executed in a pack whose lease had expired")
        maximum = self._max_attempts(as_claimed)
        self.require("10", event["attempt"] <= maximum, f"{task_id}: attempt {event['attempt']}, at most {maximum}")
        mine = [one for one in self.executions.values() if one.process is by and one.runs_at(at)]
        alone = [one for one in mine if one.token in self.claimed and self._is_last(one.token)]
        if reclaimed and self._is_last(claim):
            self.require("10", not mine, f"{task_id}: its last attempt, beside others in its process")
        self.require("10", not alone, f"{task_id}: begun beside the last attempt of {alone[0].task if alone else 0}")
        key = self._key(as_claimed)
        run = Execution(task_id, token, by, at, key)
        if key is not None:
            self._check_limit(run, key, at)
            self._check_others(run, key, at)
        if (rate := self.rates.get(str(as_claimed.get("action")))) is not None:
            self._check_rate(run, rate, at + by.skew)
        self.executions[token, task_id] = run
        self.running[task_id].append(run)

    def _is_last(self, token: str) -> bool:
        task_id, reclaimed = self.claimed[token]
        row = self.rows.get(task_id, {})
        return reclaimed and row.get("lease") == token and row.get("attempt", 0) >= self._max_attempts(row)

    def _max_attempts(self, row: Row) -> int:
        policy = row.get("retryPolicy")
        given = policy.get("maximumRetryAttempts") if isinstance(policy, Mapping) else None
        return int(self.header["attempts"] if given is None else given + 1)

    def _check_others(self, run: Execution, key: str, at: float) -> None:
        """Nobody who knows another number of shards has begun tasks with limit keys by a lease that still stands."""
        records = [self.rows.get(task_id, {}) for task_id in self.limits_records]
        own = {row["lease"]: int(row["shardCount"]) for row in records if row.get("lease") in run.process.leases}
        self.require("23", bool(own), f"{run.task}: begun with {key}, without a limits lease")
        self.used |= own
        others = [
            f"{row['leaseUntil']} knows {self.used[row['lease']]}"
            for row in records
            if self.used.get(str(row.get("lease"))) not in (None, *own.values())
            and at < _instant(row.get("leaseUntil")) - self.skew
        ]
        self.require("24", not others, f"{run.task}: begun with {key}, by one of {[*own.values()]} shards, and a "
                     f"process that may run such tasks until {others}")  # fmt: skip

    def _check_limit(self, run: Execution, key: str, at: float) -> None:
        at_once, interval = self.limits[key.partition(":")[0]]
        running = [one.task for one in self.of_key[key] if one.runs_at(at)]
        if at_once is not None:
            self.require("23", len(running) < at_once, f"{run.task}: begun with {key}, and {running} run")
        if interval and self.of_key[key]:
            last = max(one.began for one in self.of_key[key])
            self.require("23", at >= last + interval - self.skew, f"{run.task}: begun {at - last:.1f} s after the last "
                         f"of {key}")  # fmt: skip
        self.of_key[key].append(run)

    # -- rate limits ---------------------------------------------------------------------------------------------------

    def _check_rate_record(self, event: Event, by: Process, old: Row, new: Row) -> None:
        rate = self.rates.get(event["id"].removeprefix(RATE))
        if rate is None or by.kind == "hand":
            return
        if old:
            is_versioned = {"version", "reservedUntil"} <= {one[0] for one in event["if"]}
            self.require("rate", is_versioned, f"{event['id']}: written without the condition that it is as read")
        since, until = (_instant(row.get("reservedUntil")) for row in (old, new))
        reserved = rate.reserved[by.environment]
        if rate.writer == by.environment and reserved:
            reserved[-1][1] = until  # it may have given back what it has not used
        else:
            self.require("rate", until > since, f"{event['id']}: gives back what another process has reserved")
            reserved.append([max(since, by.began + by.skew), until])
        rate.writer = by.environment

    def _check_rate(self, run: Execution, rate: Rate, at: float) -> None:
        """``at``: by the clock of its process, which hosts agree on."""
        late, environment = float(self.header["late"]), run.process.environment
        has_start = rate.has_reserved(environment, at, late)
        self.require("rate", has_start, f"{run.task}: begun at no start that its process has reserved")
        rate.used[environment] += 1
        excess = rate.begin(at)
        self.require("rate", excess <= LATE + late + EARLY + ROUNDING, f"{run.task}: begun {excess:.3f} s before its "
                     f"rate allows one more in some window")  # fmt: skip

    def _end(self, event: Event) -> None:
        run = self.executions.get((event["token"], event["id"]))
        if run is None:
            raise Refused("table", f"{event['id']}: an execution ends that did not begin")
        self.require("table", run.process is self._by(event), f"{run.task}: executed by another process")
        self.require("11", float(event["at"]) <= run.process.until + ROUNDING, f"{run.task}: executed beyond its lease")
        run.result = event["result"]
        if run in self.running[run.task]:
            self.running[run.task].remove(run)

    # -- the end of a trace --------------------------------------------------------------------------------------------

    def _rest(self, event: Event) -> None:
        """Nothing runs any more, and nothing is on its way: every task must have ended."""
        self.rested = True
        for task_id, row in self.rows.items():
            if task_id.startswith(OWN) or state_of(row) == "recurring":
                continue
            self.require(
                "end", not is_open(row), f"{task_id}: lost: it is {state_of(row)} in {row.get('taskDateTime')}"
            )


# -- rows --------------------------------------------------------------------------------------------------------------


def is_open(row: Row) -> bool:
    """Whether a task has not ended: the outcome decides."""
    return row.get("outcome") is None


def state_of(row: Row) -> str:
    status = row.get("status")
    return "unscheduled" if status is None else str(status)


def parse_bucket(name: object) -> tuple[int, int] | None:
    """The minute since 1970, and the shard; None for what is no name of a bucket."""
    match = _BUCKET.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return None
    try:
        instant = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(instant.timestamp()) // 60, int(match[3] or 0)


def bucket_name(minute: int, shard: int) -> str:
    name = f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%d#%H:%M}"
    return f"{name}#{shard}" if shard else name


def _place(row: Row | None) -> tuple[int, int] | None:
    """Where an open task lies."""
    return parse_bucket(row.get("taskDateTime")) if row is not None and is_open(row) else None


def _minute(row: Row, name: str) -> int:
    place = parse_bucket(row.get(name))
    return -1 if place is None else place[0]


def _instant(text: object) -> float:
    """Seconds since 1970; long ago for what is no instant."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text is not None else -math.inf
    except ValueError:
        return -math.inf


def _holds(row: Row, condition: Sequence[Any]) -> bool:
    name, kind, *value = condition
    if kind == "absent":
        return name not in row
    if kind == "is":
        return name in row and row[name] == value[0] and isinstance(row[name], bool) is isinstance(value[0], bool)
    present = row.get(name)
    return isinstance(present, int | float) and not isinstance(present, bool) and present >= value[0]


def _covers(pages: Iterable[Page], since: float) -> bool:
    """Whether pages that began at an instant or later make up the whole bucket."""
    known = ""
    for page in sorted((one for one in pages if one.at >= since), key=lambda one: one.after):
        if page.after > known:
            return False
        if page.through is None:
            return True
        known = max(known, page.through)
    return False


def _bits(pack: Mapping[str, Any], kind: str) -> int:
    return int.from_bytes(bytes.fromhex(pack.get(kind, "")), "little")


def _numbers(bits: int) -> Iterator[int]:
    return (n for n in range(bits.bit_length()) if bits >> n & 1)


def _inner(order: object) -> object:
    """What the event of an invocation orders, be it by a queue; None for what orders nothing that can be read."""
    records = order.get("Records") if isinstance(order, Mapping) else None
    if isinstance(records, list):
        first = records[0] if records else None
        order = json.loads(first["body"]) if isinstance(first, Mapping) and "body" in first else None
    return order.get("dynatick") if isinstance(order, Mapping) else None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _limit(text: str) -> tuple[str, tuple[int | None, float]]:
    """``host=4:10/s`` as its class, how many at once, and the seconds from one start to the next."""
    name, _, given = text.partition("=")
    at_once, number, unit = re.fullmatch(r"(\d+(?![\d/]))?:?(?:(\d+)/([smh]))?", given).groups()  # type: ignore[union-attr]
    return name, (int(at_once) if at_once else None, _UNITS[unit] / int(number) if number else 0.0)


def shard_of(key: str, shards: int) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % shards


def _taken(ok: bool) -> str:
    return "took effect" if ok else "was refused"


def _change(old: Row, new: Row) -> str:
    return f"{state_of(old)} became {state_of(new)}"


# -- files -------------------------------------------------------------------------------------------------------------


def replay(events: Iterable[Event]) -> Replay:
    """Raises Refused."""
    replayed = Replay()
    for event in events:
        replayed.feed(event)
    return replayed


def refusal_of(events: Iterable[Event]) -> Refused | None:
    """Why a trace is refused; None: it is accepted."""
    try:
        replay(events)
    except Refused as refused:
        return refused
    return None


def traces_in(path: Path) -> Iterator[list[Event]]:
    """The traces of a file, each from its header on."""
    trace: list[Event] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["e"] == "trace" and trace:
                yield trace
                trace = []
            trace.append(event)
    if trace:
        yield trace


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON lines; a file may have many traces")
    accepted, refused, tasks, events = 0, 0, 0, 0
    for path in parser.parse_args(arguments).files:
        for n, trace in enumerate(traces_in(path), 1):
            try:
                replayed = replay(trace)
            except Refused as error:
                refused += 1
                print(f"{path}, trace {n}, {error}")  # noqa: T201 - what it prints is what it is for
            else:
                accepted, tasks = accepted + 1, tasks + len(replayed.tasks)
            events += len(trace)
    print(f"{accepted} accepted, with the histories of {tasks} tasks; {refused} refused; {events} events")  # noqa: T201
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
