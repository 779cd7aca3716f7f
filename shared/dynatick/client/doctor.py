"""The doctor: reads the whole table, finds what no tick repairs, and repairs it on request.

It is the scan of the daily reconcile (``dynatick.engine.reconcile``), run by a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.client.ticks import MissedTicks, TickView, ticks
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid, minute_of
from dynatick.domain.normalise import Defaults
from dynatick.domain.pause import Pause
from dynatick.domain.task import Row
from dynatick.engine.diagnosis import Finding
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Clock, Store
from dynatick.engine.reconcile import Reconciled, reconcile
from dynatick.engine.rules import Rules
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import StoreError

MAX_FINDINGS = 1000

_LEFT = "the daily reconcile repairs it, which can send to the dead-letter queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The doctor's findings."""

    pages: int  # of the table, 1 MB each
    scanned: int  # tasks and schedules that have not ended
    found: int
    repaired: int
    kinds: Mapping[str, int] = field(default_factory=dict)  # how many of each kind were found
    findings: tuple[Finding, ...] = ()  # the first 1,000
    retired: Mapping[int, int] = field(default_factory=dict)  # tasks in shards that get no new ones; ticks serve them
    missed_ticks: int = 0  # in the last hour, over all shards; tasks that were due run later
    woken_late: int = 0  # tasks that ticks of the last hour began although a wake-up should have begun them
    pause: Pause | None = None  # then no finding says that ticks do nothing

    @property
    def is_healthy(self) -> bool:
        """Whether there are no findings, or all were repaired."""
        return self.found == self.repaired

    def to_row(self) -> Mapping[str, object]:
        """Returns what the command line prints."""
        return {
            "healthy": self.is_healthy,
            "scanned": self.scanned,
            "found": self.found,
            "repaired": self.repaired,
            "kinds": dict(self.kinds),
            "retiredShards": {str(shard): number for shard, number in sorted(self.retired.items())},
            "missedTicks": self.missed_ticks,
            attr.WOKEN_LATE: self.woken_late,
            attr.PAUSED: None if self.pause is None else self.pause.to_row(),
        }


def finding_row(finding: Finding) -> Mapping[str, object]:
    """A finding as the command line prints it."""
    row: dict[str, object] = {
        "kind": str(finding.kind),
        attr.TASK_ID: finding.task_id,
        "why": finding.why,
        "remedy": finding.remedy,
        "repaired": finding.repaired,
    }
    return row if finding.left is None else {**row, "left": finding.left}


def examine(
    store: Store,
    settings: InstallationSettings | None,
    *,
    clock: Clock,
    repair: bool,
    report: Callable[[Finding], None] | None = None,
    page_read: Callable[[Reconciled], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Diagnosis:
    """Reads the whole table. Raises StoreError if it does not answer."""
    missed, woken_late = _last_hour(store, settings, clock())
    known = settings or InstallationSettings(grid=Grid(), shards_ever=1)
    findings: list[Finding] = []

    def take(finding: Finding) -> None:
        if len(findings) < MAX_FINDINGS:
            findings.append(finding)
        if report is not None:
            report(finding)

    reconciled = reconcile(
        Placer(store, _rules(known), known, clock, _cannot_send),
        clock=clock,
        repair=repair,
        pause=pause,
        report_finding=take,
        page_read=page_read or (lambda report: None),
    )
    return Diagnosis(
        pages=reconciled.pages,
        scanned=reconciled.scanned,
        found=reconciled.found,
        repaired=reconciled.repaired,
        kinds=dict(reconciled.kinds),
        findings=tuple(findings),
        retired=dict(reconciled.retired),
        missed_ticks=missed,
        woken_late=woken_late,
        pause=known.pause,
    )


def _last_hour(store: Store, settings: InstallationSettings | None, now: datetime) -> tuple[int, int]:
    """How many ticks are missing, and how many tasks no wake-up began."""
    entries = ticks(store, settings, range(minute_of(now) - 59, minute_of(now) + 1), now=now)
    return (
        sum(one.ticks for one in entries if isinstance(one, MissedTicks)),
        sum(one.woken_late for one in entries if isinstance(one, TickView)),
    )


def _rules(settings: InstallationSettings) -> Rules:
    """The functions' rules, as far as the settings row has them. A task without a time goes to the next tick, as in the
    reconcile."""
    usual = Defaults()
    defaults = Defaults(
        action=settings.default_action or usual.action,
        retention_days=usual.retention_days if settings.retention_days is None else settings.retention_days,
    )
    return Rules(grid=settings.grid, defaults=defaults)


def _cannot_send(row: Row, error: str) -> bool:
    """A client cannot send dead letters, so it marks no row failed."""
    raise StoreError(_LEFT)
