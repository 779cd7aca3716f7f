"""The current settings, as the client last read them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Unpack

from dynatick.actions.payload import check_payload
from dynatick.actions.payload_schema import check_schema
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Bucket, Grid
from dynatick.domain.limit_keys import check_limit_key
from dynatick.domain.normalise import Defaults
from dynatick.domain.selection import Selected, Selection
from dynatick.domain.task import Row, check_timeout
from dynatick.engine.ports import Clock, Store
from dynatick.engine.settings import InstallationSettings, read_settings
from dynatick.errors import InvalidInput, InvalidInputs, StoreError, shown

BEFORE_FIRST_TICK: Final = InstallationSettings(grid=Grid(), shards_ever=1)
"""What is assumed as long as no settings are known."""

_MISSING_TTL = timedelta(seconds=1)  # of a missing row, which the first tick writes
_MAX_LISTED = 30  # actions in an error


class SettingsCache:
    """Caches the settings row. A stale one may cost a write or a minute's delay, never a task.

    ``check_actions`` False: only what needs no knowledge of the processor's handlers and limits is checked.
    """

    def __init__(self, store: Store, clock: Clock, ttl: timedelta, *, check_actions: bool) -> None:
        self._store = store
        self._clock = clock
        self._ttl = ttl
        self._check_actions = check_actions
        self._known: InstallationSettings | None = None
        self._read_at: datetime | None = None
        self._reread_at: datetime | None = None

    def current(self) -> InstallationSettings | None:
        """The current settings; None before the first tick, which writes them.

        Every operation that writes calls this first. Raises ConfigurationError if the table's rows are of another
        version than this client's.
        """
        kept_for = self._ttl if self._known is not None else min(self._ttl, _MISSING_TTL)
        if self._read_at is None or not timedelta() <= self._clock() - self._read_at < kept_for:
            return self.refresh()
        return self._known

    def refresh(self) -> InstallationSettings | None:
        """The current settings, read now."""
        try:
            self._known = read_settings(self._store)
        except InvalidInput as error:
            raise StoreError(f"the table's settings row cannot be understood: {error}") from error
        self._read_at = self._clock()
        return self._known

    def select(
        self, bucket: str | Bucket | None = None, *, reads_settings: bool = True, **selected: Unpack[Selected]
    ) -> Selection:
        """The tasks of a bucket, a range or a subject, over the shards of the settings, read now or known. Raises
        InvalidInput."""
        settings = (self.refresh() if reads_settings else self.current()) or BEFORE_FIRST_TICK
        return Selection.of(bucket, now=self._clock(), shards_ever=settings.shards_ever, grid=settings.grid, **selected)

    def grid(self) -> Grid:
        """The current grid; before the first tick, every minute."""
        return (self.current() or BEFORE_FIRST_TICK).grid

    def defaults(self) -> Defaults:
        """The current defaults; before the first tick, those of an installation without parameters."""
        return defaults_of(self.current() or BEFORE_FIRST_TICK)

    def check_limits(self, row: Row, wrong: InvalidInputs) -> None:
        """Adds to ``wrong`` what is refused of the timeout and the limit key that a row has."""
        if (seconds := row.get(attr.TIMEOUT_SECONDS)) is not None:
            with wrong:
                self.check_timeout(seconds)
        if (key := row.get(attr.LIMIT_KEY)) is not None:
            with wrong:
                self.check_limit_key(key)

    def check_action(self, action: str) -> None:
        """Raises InvalidInput for an action that the processor does not know, with the known ones."""
        if self._check_actions:
            self.check_known(action)

    def check_known(self, action: str) -> None:
        """The same, whether actions are to be checked or not."""
        known = self.current()
        if known is None or not known.actions or action in known.actions:
            return
        known = self._reread()
        if known is not None and known.actions and action not in known.actions:
            more = f" and {len(known.actions) - _MAX_LISTED} more" if len(known.actions) > _MAX_LISTED else ""
            names = ", ".join(shown(name)[1:-1] for name in known.actions[:_MAX_LISTED])
            raise InvalidInput(attr.ACTION, action, f"expected one of {names}{more}")

    def check_payload(self, action: str, payload: object) -> None:
        """Raises InvalidInput, without the payload's values, for a payload that the action refuses."""
        check_payload(action, payload)
        if not self._check_actions or (known := self.current()) is None:
            return
        schema = known.payload_schemas.get(action)
        try:
            if schema is not None:
                check_schema(schema, payload)
        except InvalidInput:
            known = self._reread()  # the handler may be newer than the cache
            newer = None if known is None else known.payload_schemas.get(action)
            if newer == schema:
                raise
            if newer is not None:
                check_schema(newer, payload)

    def check_timeout(self, seconds: object) -> None:
        """Raises InvalidInput for a ``timeoutSeconds`` that no invocation of the processor can serve."""
        if not self._check_actions:
            check_timeout(seconds)
            return
        try:
            check_timeout(seconds, (self.current() or BEFORE_FIRST_TICK).max_timeout_seconds)
        except InvalidInput:
            check_timeout(seconds, (self._reread() or BEFORE_FIRST_TICK).max_timeout_seconds)

    def check_limit_key(self, key: object) -> None:
        """Raises InvalidInput for a limit key of a class that is not in ``KeyLimits``, with those that are."""
        if not self._check_actions:
            return
        try:
            check_limit_key(key, (self.current() or BEFORE_FIRST_TICK).key_limits)
        except InvalidInput:
            check_limit_key(key, (self._reread() or BEFORE_FIRST_TICK).key_limits)

    def _reread(self) -> InstallationSettings | None:
        """The settings, read again since they may have changed; once a second at most."""
        now = self._clock()
        if self._reread_at is not None and now - self._reread_at < _MISSING_TTL:
            return self.current()
        self._reread_at = now
        return self.refresh()

    def check_shard(self, shard: int) -> None:
        """Raises InvalidInput for a shard that no tick serves."""
        if shard == 0:
            return
        known = self.current()
        if known is not None and shard >= known.shards_ever:
            known = self.refresh()
        served = (known or BEFORE_FIRST_TICK).shards_ever
        if shard >= served:
            expected = f"a shard from 1 to {served - 1}, or none" if served > 1 else "a bucket without a shard"
            raise InvalidInput(attr.TASK_DATE_TIME, f"#{shard}", f"there is no such shard; expected {expected}")


def defaults_of(settings: InstallationSettings) -> Defaults:
    """The defaults of an installation; what its settings do not say is as without parameters."""
    usual = Defaults()
    return Defaults(
        action=usual.action if settings.default_action is None else settings.default_action,
        retention_days=usual.retention_days if settings.retention_days is None else settings.retention_days,
    )
