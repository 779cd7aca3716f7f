"""What the client knows of the settings in force: the settings row, as last read."""

from __future__ import annotations

from datetime import datetime, timedelta

from dynatick.actions.payload import check_payload
from dynatick.actions.payload_schema import check_schema
from dynatick.domain.timeout import check_timeout
from dynatick.engine.installation_settings import InstallationSettings, read_settings
from dynatick.engine.ports import Clock, Store
from dynatick.errors import InvalidInput, StoreError, shown

_MISSING_FOR = timedelta(seconds=1)  # there will be one with the first tick
_LISTED = 30


class SettingsCache:
    """The settings row, kept for a while. A stale one costs a write or a minute, never a task."""

    def __init__(self, store: Store, clock: Clock, ttl: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._ttl = ttl
        self._known: InstallationSettings | None = None
        self._read_at: datetime | None = None
        self._doubted_at: datetime | None = None

    def current(self) -> InstallationSettings | None:
        """What is in force; None as long as the table has no settings row, which the first tick writes."""
        kept_for = self._ttl if self._known is not None else min(self._ttl, _MISSING_FOR)
        if self._read_at is None or not timedelta() <= self._clock() - self._read_at < kept_for:
            return self.refresh()
        return self._known

    def refresh(self) -> InstallationSettings | None:
        """The same, read now."""
        try:
            self._known = read_settings(self._store)
        except InvalidInput as error:
            raise StoreError(f"the table's settings row cannot be understood: {error}") from error
        self._read_at = self._clock()
        return self._known

    def check_action(self, action: str) -> None:
        """Refuses an action that the processor does not know. Raises InvalidInput, which lists those that it does."""
        known = self.current()
        if known is None or not known.actions or action in known.actions:
            return
        known = self._doubted()
        if known is not None and known.actions and action not in known.actions:
            more = f" and {len(known.actions) - _LISTED} more" if len(known.actions) > _LISTED else ""
            names = ", ".join(shown(name)[1:-1] for name in known.actions[:_LISTED])
            raise InvalidInput("action", action, f"expected one of {names}{more}")

    def check_payload(self, action: str, payload: object, *, of_handlers: bool = True) -> None:
        """Refuses a payload that the action could not work with. Raises InvalidInput, without the value in it.

        ``of_handlers`` False: only those of the built-in actions are looked at.
        """
        check_payload(action, payload)
        if not of_handlers or (known := self.current()) is None:
            return
        schema = known.payload_schemas.get(action)
        try:
            if schema is not None:
                check_schema(schema, payload)
        except InvalidInput:
            known = self._doubted()  # the handler may be a newer one by now
            newer = None if known is None else known.payload_schemas.get(action)
            if newer == schema:
                raise
            if newer is not None:
                check_schema(newer, payload)

    def check_timeout(self, seconds: object) -> None:
        """Refuses a ``timeoutSeconds`` that no invocation of the processor can serve. Raises InvalidInput."""
        try:
            check_timeout(seconds, _longest(self.current()))
        except InvalidInput:
            check_timeout(seconds, _longest(self._doubted()))

    def _doubted(self) -> InstallationSettings | None:
        """What is in force, read again: something may be new. But many doubts in a row are not worth a read each."""
        now = self._clock()
        if self._doubted_at is not None and now - self._doubted_at < _MISSING_FOR:
            return self.current()
        self._doubted_at = now
        return self.refresh()

    def check_shard(self, shard: int) -> None:
        """Refuses a shard that no tick serves. Raises InvalidInput."""
        if shard == 0:
            return
        known = self.current()
        if known is not None and shard >= known.shards_ever:
            known = self.refresh()
        served = known.shards_ever if known is not None else 1
        if shard >= served:
            expected = f"a shard from 1 to {served - 1}, or none" if served > 1 else "a bucket without a shard"
            raise InvalidInput("taskDateTime", f"#{shard}", f"there is no such shard; expected {expected}")


def _longest(known: InstallationSettings | None) -> int | None:
    return None if known is None else known.max_timeout_seconds
