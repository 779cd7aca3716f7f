"""The doctor: reads the whole table, finds what no tick repairs, and repairs it on request.

It is the scan of the daily reconcile (``dynatick.engine.reconcile``), run by a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated

from dynatick.client.key_queues import KeyedRows
from dynatick.client.payload_check import PayloadCheck, PayloadChecker
from dynatick.client.settings_cache import BEFORE_FIRST_TICK, defaults_of
from dynatick.client.ticks import MissedTicks, TickView, ticks
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import minute_of
from dynatick.domain.pause import ActionPause, Pause
from dynatick.domain.task import Row
from dynatick.domain.view import Json, View
from dynatick.engine.placement import Placer
from dynatick.engine.ports import Clock, Store
from dynatick.engine.reconcile import Finding, Kind, Reconciled, reconcile
from dynatick.engine.rules import Rules
from dynatick.engine.settings import InstallationSettings
from dynatick.errors import StoreError

MAX_FINDINGS = 1000

_LEFT = "the daily reconcile repairs it, which can send to the dead-letter queue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis(View):
    """The doctor's findings."""

    pages: Annotated[int, Json(hidden=True)]  # of the table, 1 MB each
    scanned: Annotated[int, "Tasks and schedules that have not ended."]
    found: int
    repaired: int
    kinds: Annotated[Mapping[str, int], "How many of each kind were found."] = field(default_factory=dict)
    retired: Annotated[
        Mapping[int, int], Json(name="retiredShards"), "Tasks in shards that get no new ones; ticks serve them."
    ] = field(default_factory=dict)
    unlimited: Annotated[
        Mapping[str, int],
        Json(name="unlimitedKeys", optional=True),
        "Tasks with a limit key whose class KeyLimits doesn't have, by class: they run without a limit.",
    ] = field(default_factory=dict)
    missed_ticks: int = 0  # in the last hour, over all shards; tasks that were due run later
    woken_late: int = 0  # tasks that ticks of the last hour began although a wake-up should have begun them
    pause: Annotated[Pause | None, Json(name=attr.PAUSED, null=True)] = None  # then no finding is about ticks
    paused_actions: Annotated[tuple[ActionPause, ...], Json(optional=True), "Nothing of these is run."] = ()
    payloads: Annotated[PayloadCheck | None, "Left out: no type of a handler is known."] = None
    findings: tuple[Finding, ...] = ()  # the first 1,000

    @property
    def is_healthy(self) -> Annotated[bool, Json(name="healthy")]:
        """Whether there are no findings, or all were repaired, and no task will fail for its payload."""
        return self.found == self.repaired and not (self.payloads is not None and self.payloads.failing)


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
    known = settings or BEFORE_FIRST_TICK
    findings: list[Finding] = []
    checker = PayloadChecker(known.payload_schemas, store, known.default_action)
    keyed = KeyedRows(known.key_limits, clock(), known.paused_actions)

    def rows_read(rows: Sequence[Row]) -> None:
        checker.add(rows)
        keyed.add(rows)

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
        rows_read=rows_read,
    )
    stuck = () if known.pause else tuple(keyed.stuck(store))
    for finding in stuck:
        take(replace(finding, left="it needs a person") if repair else finding)
    return Diagnosis(
        pages=reconciled.pages,
        scanned=reconciled.scanned,
        found=reconciled.found + len(stuck),
        repaired=reconciled.repaired,
        kinds={**reconciled.kinds, **({Kind.LIMITS_STUCK: len(stuck)} if stuck else {})},
        findings=tuple(findings),
        retired=dict(sorted(reconciled.retired.items())),
        unlimited=dict(sorted(keyed.unlimited.items())),
        missed_ticks=missed,
        woken_late=woken_late,
        pause=known.pause,
        paused_actions=known.pauses_of_actions,
        payloads=checker.found(reads=reconciled.pages, complete=True) if checker.schemas else None,
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
    return Rules(grid=settings.grid, defaults=defaults_of(settings))


def _cannot_send(row: Row, error: str) -> bool:
    """A client cannot send dead letters, so it marks no row failed."""
    raise StoreError(_LEFT)
