"""The doctor: reads the whole table, says what no tick would put right by itself, and repairs it if it is told to.

It is the scan of the daily reconcile (``dynatick.engine.reconcile``), from outside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dynatick.client.ticks import MissedTicks, ticks
from dynatick.domain.buckets import Grid, minute_of
from dynatick.domain.normalise import Defaults
from dynatick.domain.task import Row
from dynatick.engine.diagnosis import Finding
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Clock, Store
from dynatick.engine.reconcile import Reconciled, reconcile
from dynatick.engine.rules import Rules
from dynatick.errors import StoreError

MAX_FINDINGS = 1000

_LEFT = "it is left to the daily reconcile, which reaches the dead-letter queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """What the doctor found."""

    pages: int  # of the table, 1 MB each
    scanned: int  # tasks and schedules that have not ended
    found: int
    repaired: int
    kinds: Mapping[str, int] = field(default_factory=dict)  # how many of each kind were found
    findings: tuple[Finding, ...] = ()  # the first 1,000
    retired: Mapping[int, int] = field(default_factory=dict)  # tasks in shards that get no new ones; ticks serve them
    missed_ticks: int = 0  # in the last hour, over all shards; what was due then runs later

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong, or nothing any more."""
        return self.found == self.repaired

    def to_row(self) -> Mapping[str, object]:
        """As the command line prints it."""
        return {
            "healthy": self.is_healthy,
            "scanned": self.scanned,
            "found": self.found,
            "repaired": self.repaired,
            "kinds": dict(self.kinds),
            "retiredShards": {str(shard): number for shard, number in sorted(self.retired.items())},
            "missedTicks": self.missed_ticks,
        }


def finding_row(finding: Finding) -> Mapping[str, object]:
    """A finding as the command line prints it."""
    row: dict[str, object] = {
        "kind": str(finding.kind),
        "taskId": finding.task_id,
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
    tell: Callable[[Finding], None] | None = None,
    page_read: Callable[[Reconciled], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Diagnosis:
    """Reads the table to its end. Raises StoreError if it does not answer."""
    missed = _missed_ticks(store, settings, clock())
    known = settings or InstallationSettings(grid=Grid(), shards_ever=1)
    findings: list[Finding] = []

    def take(finding: Finding) -> None:
        if len(findings) < MAX_FINDINGS:
            findings.append(finding)
        if tell is not None:
            tell(finding)

    report = reconcile(
        Placer(store, _rules(known), known, clock, _cannot_tell),
        clock=clock,
        repair=repair,
        pause=pause,
        report_finding=take,
        page_read=page_read or (lambda report: None),
    )
    return Diagnosis(
        pages=report.pages,
        scanned=report.scanned,
        found=report.found,
        repaired=report.repaired,
        kinds=dict(report.kinds),
        findings=tuple(findings),
        retired=dict(report.retired),
        missed_ticks=missed,
    )


def _missed_ticks(store: Store, settings: InstallationSettings | None, now: datetime) -> int:
    last_hour = range(minute_of(now) - 59, minute_of(now) + 1)
    return sum(one.ticks for one in ticks(store, settings, last_hour, now=now) if isinstance(one, MissedTicks))


def _rules(settings: InstallationSettings) -> Rules:
    """As the functions have them, as far as the table tells. A task without a time goes to the next tick, as the
    reconcile puts it."""
    usual = Defaults()
    defaults = Defaults(
        action=settings.default_action or usual.action,
        retention_days=usual.retention_days if settings.retention_days is None else settings.retention_days,
    )
    return Rules(grid=settings.grid, defaults=defaults)


def _cannot_tell(row: Row, error: str) -> bool:
    """No failure goes unheard, so a row that would end as failed is left to who can tell of it."""
    raise StoreError(_LEFT)
