"""The scheduler function's work: a batch of the table's stream, whose rows get their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dynatick.domain.task import Row
from dynatick.engine.assign import Arrival, Assigned, assign
from dynatick.engine.installation_settings import InstallationSettings, publish_settings
from dynatick.engine.placement import Placer, rejections_to
from dynatick.engine.ports import Clock, DeadLetters, Store, WakeUps
from dynatick.engine.rules import Rules
from dynatick.engine.until_refused import LettersUntilRefused
from dynatick.engine.wake_up import send_wake_ups, wake_ups_of

_SETTINGS_FRESH_FOR = timedelta(minutes=1)


@dataclass(kw_only=True, slots=True)
class Scheduler:
    """Everything that an invocation needs but its event. ``decode`` makes a row of an image of the stream."""

    store: Store
    dead_letters: DeadLetters
    rules: Rules
    clock: Clock
    decode: Callable[[Any], Row]
    wake_ups: WakeUps | None = None  # with Precision.SECOND
    _settings: InstallationSettings | None = field(default=None, init=False)
    _published_at: datetime = field(init=False)

    def handle(self, event: Mapping[str, Any]) -> Assigned:
        """Places the rows of a stream event. ``Assigned.failed`` has the records that Lambda is to send again."""
        arrivals = [self._arrival(record) for record in event["Records"]]
        send_letter = rejections_to(LettersUntilRefused(self.dead_letters), self.clock)
        placer = Placer(self.store, self.rules, self._publish_settings(), self.clock, send_letter)
        assigned = assign(arrivals, placer)
        if self.wake_ups is not None:
            send_wake_ups(self.wake_ups, wake_ups_of(assigned.wake_ups, threads=self.rules.threads))
        return assigned

    def _publish_settings(self) -> InstallationSettings:
        now = self.clock()
        if self._settings is None or now - self._published_at > _SETTINGS_FRESH_FOR:
            self._settings = publish_settings(self.store, self.rules.grid, now=now, defaults=self.rules.defaults)
            self._published_at = now
        return self._settings

    def _arrival(self, record: Mapping[str, Any]) -> Arrival:
        change = record["dynamodb"]
        new, old = change.get("NewImage"), change.get("OldImage")
        return Arrival(
            key=str(change.get("SequenceNumber", record.get("eventID", ""))),
            new=None if new is None else self.decode(new),
            old=None if old is None else self.decode(old),
        )
