"""The settings and the health of an installation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dynatick.actions.payload import BUILT_IN
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import TICK_GRACE, Grid, instant_of, minute_of
from dynatick.domain.instants import format_instant
from dynatick.domain.pause import Pause
from dynatick.engine.cursor import Cursor
from dynatick.engine.diagnosis import Finding, judge_installation
from dynatick.engine.idle_record import read_cursors
from dynatick.engine.installation_settings import InstallationSettings
from dynatick.engine.ports import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """Whether tasks run when they are due, by the cursors. ``findings``: those of the doctor."""

    last_tick: datetime | None  # of the shard whose tick is the oldest; None: no tick has come yet
    age_seconds: float | None
    missing_ticks: int  # since then, without those of the last two minutes
    findings: tuple[Finding, ...]
    pause: Pause | None = None  # then nothing runs, and no finding says that ticks don't

    @property
    def is_healthy(self) -> bool:
        """Whether ticks come and drain their buckets, or someone wanted them not to."""
        return not self.findings

    def to_row(self) -> Mapping[str, object]:
        return {
            "healthy": self.is_healthy,
            attr.LAST_TICK: None if self.last_tick is None else format_instant(self.last_tick),
            "lastTickAgeSeconds": None if self.age_seconds is None else round(self.age_seconds, 1),
            "missingTicks": self.missing_ticks,
            attr.PAUSED: None if self.pause is None else self.pause.to_row(),
            "findings": [
                {"kind": str(finding.kind), "why": finding.why, "remedy": finding.remedy} for finding in self.findings
            ],
        }


def health_of(store: Store, settings: InstallationSettings | None, now: datetime) -> Health:
    """Reads the cursors, 100 shards in a request. Raises StoreError."""
    known = settings or InstallationSettings(grid=Grid(), shards_ever=1)
    cursors = read_cursors(store, range(known.shards_ever), consistent=False)
    served = [one.served_through for one in cursors.values() if isinstance(one, Cursor) and one.last_tick is not None]
    last = min(served, default=None)
    every = known.grid.tick_minutes
    missing = 0 if last is None else max(0, minute_of(now - TICK_GRACE) // every - last // every)
    return Health(
        last_tick=None if last is None else instant_of(last),
        age_seconds=None if last is None else max(0.0, (now - instant_of(last)).total_seconds()),
        missing_ticks=0 if known.pause else missing,
        findings=tuple(judge_installation(cursors, known, now)),
        pause=known.pause,
    )


def settings_row(settings: InstallationSettings) -> Mapping[str, object]:
    """The current settings under the table's names, with the handlers, each with the JSON Schema of its payload (None:
    any map, or unknown)."""
    row = {name: value for name, value in settings.to_row().items() if not name.startswith("payloadSchema")}
    schemas = {name: _read(text) for name, text in settings.payload_schemas.items()}
    if settings.pause is not None:
        row[attr.PAUSED] = settings.pause.to_row()
    return {**row, "handlers": {name: schemas.get(name) for name in settings.actions if name not in BUILT_IN}}


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:  # not written by Dynatick
        return None
