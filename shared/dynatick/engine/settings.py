"""The settings row: the functions publish their settings there, and clients read them.

``shardsEver`` only grows: every tick drains every shard that was ever in use (protocol 14). ``paused`` is written by
clients alone: while it is there, no tick runs anything. So is ``pausedActions``: what has such an action waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid
from dynatick.domain.conditional_update import Absent, ConditionalUpdate, Is, as_read
from dynatick.domain.instants import (
    EPOCH,
    format_instant,
    optional_instant,
    optional_text,
    parse_instant,
    up_to_millisecond,
)
from dynatick.domain.limit_keys import KeyLimits, parse_limits
from dynatick.domain.normalise import Defaults
from dynatick.domain.pause import ActionPause, Pause
from dynatick.domain.task import SYSTEM_PREFIX, Row, check_count, own_row
from dynatick.engine.conditional_write import change_row
from dynatick.engine.cursor import create_cursor
from dynatick.engine.ports import Store
from dynatick.engine.rules import Precision
from dynatick.errors import ConfigurationError, InvalidInput

# -- installation settings ---------------------------------------------------------------------------------------------

SETTINGS_ID = f"{SYSTEM_PREFIX}settings"
SCHEMA_VERSION = 1
"""The version of all rows of the table. It goes up only when rows change so that a client of another version would
write or understand them wrongly; a further attribute is no such change. A settings row without one is of version 1."""

SCHEMA_FORM = 1
"""The format of the payload schemas. A reader that finds another number doesn't use them."""


MAX_PROBLEM_CHARACTERS = 1000
MAX_PAUSES_KEPT = 20
MAX_PAUSED_ACTIONS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationSettings:
    """The published settings."""

    grid: Grid
    shards_ever: int
    shard_count_since: datetime | None = None  # None: it has never changed
    tick_minutes_since: datetime | None = None  # the same; ticks were due at others before
    key_limits: KeyLimits | None = None  # None: not known yet
    actions: tuple[str, ...] = ()  # of the processor; empty: not known yet
    default_action: str | None = None  # of a task that names none; None: not known yet
    retention_days: int | None = None  # how long an ended task stays; None: not known yet
    max_timeout_seconds: int | None = None  # the longest one of a task; None: not known yet
    precision: Precision | None = None  # None: not known
    payload_schemas: Mapping[str, str] = field(default_factory=dict)  # JSON Schema as text, by action: handlers' types
    schema_version: int = SCHEMA_VERSION  # of the rows of the table
    processor_problem: str | None = None  # why the processor can't start
    pause: Pause | None = None  # not published: clients write it, and the next
    pauses: tuple[Pause, ...] = ()  # the last ones that have ended
    paused_actions: Mapping[str, ActionPause] = field(default_factory=dict)  # by action
    action_pauses: tuple[ActionPause, ...] = ()  # the last ones that have ended
    # When what is published last changed, by a deployment; one of code alone changes nothing of it.
    updated_at: datetime | None = field(default=None, compare=False)

    @property
    def pauses_of_actions(self) -> tuple[ActionPause, ...]:
        """Those in force, by the names of the actions."""
        return tuple(self.paused_actions[action] for action in sorted(self.paused_actions))

    @property
    def resumed_at(self) -> datetime:
        """When the latest pause of everything has ended; long ago: there was none."""
        return max((one.until for one in self.pauses if one.until is not None), default=EPOCH)

    def to_row(self) -> dict[str, object]:
        """Returns the attributes of the settings row."""
        limits, precision = self.key_limits, self.precision
        values: dict[str, object] = {
            attr.TICK_MINUTES: self.grid.tick_minutes,
            attr.SHARD_COUNT: self.grid.shard_count,
            attr.SHARDS_EVER: self.shards_ever,
            attr.ACTIONS: list(self.actions),
            attr.SCHEMA_VERSION: self.schema_version,
            attr.SHARD_COUNT_SINCE: optional_text(self.shard_count_since),
            attr.TICK_MINUTES_SINCE: optional_text(self.tick_minutes_since),
            attr.KEY_LIMITS: None if limits is None else {name: limit.text for name, limit in limits.items()},
            attr.DEFAULT_ACTION: self.default_action,
            attr.RETENTION_DAYS: self.retention_days,
            attr.MAX_TIMEOUT_SECONDS: self.max_timeout_seconds,
            attr.PRECISION: None if precision is None else str(precision),
            attr.PAYLOAD_SCHEMAS: dict(self.payload_schemas) or None,
            attr.PAYLOAD_SCHEMA_FORM: SCHEMA_FORM if self.payload_schemas else None,
            attr.PROCESSOR_PROBLEM: self.processor_problem,
        }
        return {name: value for name, value in values.items() if value is not None}


def read_settings(store: Store) -> InstallationSettings | None:
    """The published settings; None before the first tick.

    Raises ConfigurationError if the rows are of another version, and InvalidInput if the row is malformed.
    """
    row = store.get(SETTINGS_ID)
    if row is None:
        return None
    version = _version_of(row)
    if version < SCHEMA_VERSION:
        raise _other_version(
            version, "deploy this Dynatick, or use the older one that the installation was deployed from"
        )
    return _from_row(row)


def publish_settings(
    store: Store,
    grid: Grid | None,
    *,
    now: datetime,
    actions: Sequence[str] | None = None,
    defaults: Defaults | None = None,
    max_timeout_seconds: int | None = None,
    precision: Precision | None = None,
    payload_schemas: Mapping[str, str] | None = None,
    processor_problem: str | None = None,
) -> InstallationSettings:
    """Publishes the deployed settings, and returns what is published then. Writes only if something differs: first the
    cursors of new shards, then the settings, by which clients learn of the shards.

    None for ``grid``, ``actions``, ``defaults``, ``max_timeout_seconds``, ``precision``, ``payload_schemas`` or
    ``processor_problem``: what is published stays; an empty ``processor_problem``: there is none any more. Raises the
    version of the rows to that of this code; raises ConfigurationError, and writes nothing, if they have a higher one:
    another process was deployed from newer code.
    """

    def publish(row: Row | None) -> tuple[InstallationSettings, ConditionalUpdate | None]:
        known = None if row is None else _from_row(row)
        was = known or InstallationSettings(grid=grid or Grid(), shards_ever=0)
        configured = grid or was.grid
        wanted = replace(
            was,
            grid=configured,
            shards_ever=max(configured.shard_count, was.shards_ever),
            shard_count_since=was.shard_count_since if was.grid.shard_count == configured.shard_count else now,
            tick_minutes_since=was.tick_minutes_since if was.grid.tick_minutes == configured.tick_minutes else now,
            key_limits=defaults.key_limits if defaults else was.key_limits,
            actions=was.actions if actions is None else tuple(actions),
            default_action=defaults.action if defaults else was.default_action,
            retention_days=defaults.retention_days if defaults else was.retention_days,
            max_timeout_seconds=max_timeout_seconds or was.max_timeout_seconds,
            precision=precision or was.precision,
            payload_schemas=was.payload_schemas if payload_schemas is None else payload_schemas,
            schema_version=SCHEMA_VERSION,
            processor_problem=was.processor_problem
            if processor_problem is None
            else processor_problem[:MAX_PROBLEM_CHARACTERS] or None,
        )
        if wanted == known:
            return wanted, None
        # First: one that a tick created later would lie beyond what clients have inserted into the shard by then (14).
        for shard in range(was.shards_ever, wanted.shards_ever):
            create_cursor(store, shard, now)
        there, values = row or {}, _row(wanted, now)
        return wanted, ConditionalUpdate(
            task_id=SETTINGS_ID,
            set=values,
            remove=tuple(name for name in attr.PUBLISHED if name in there and name not in values),
            conditions=as_read(there, *attr.PUBLISHED),
        )

    return change_row(store, SETTINGS_ID, "publish the settings", publish)


def read_pauses(store: Store) -> tuple[Pause | None, Mapping[str, ActionPause]]:
    """The pause of everything and those of actions in force a moment ago: a read that need not be consistent costs
    half. Raises StoreError."""
    row = store.get_many([SETTINGS_ID], consistent=False, only=(attr.PAUSED, attr.PAUSED_ACTIONS)).get(SETTINGS_ID)
    return (None, {}) if row is None else (_pause_of(row), _paused_actions_of(row))


def pause(store: Store, *, now: datetime, by: str | None, reason: str | None) -> Pause:
    """Pauses the installation, and returns the pause in force: an earlier one, if it is paused already.

    Raises ConfigurationError before the first tick, and StoreError.
    """

    def begin(row: Row | None) -> tuple[Pause, ConditionalUpdate | None]:
        if (earlier := _pause_of(_published(row))) is not None:
            return earlier, None
        wanted = Pause(since=up_to_millisecond(now), by=by, reason=reason)
        return wanted, ConditionalUpdate(
            task_id=SETTINGS_ID,
            set={attr.PAUSED: wanted.to_row()},
            conditions=(Is(attr.STATUS, "settings"), Absent(attr.PAUSED)),
        )

    return change_row(store, SETTINGS_ID, "pause", begin)


def resume(store: Store, *, now: datetime) -> Pause | None:
    """Ends the pause, and returns it; None: there was none. Raises ConfigurationError before the first tick, and
    StoreError."""

    def end(row: Row | None) -> tuple[Pause | None, ConditionalUpdate | None]:
        there = _published(row)
        if (paused := _pause_of(there)) is None:
            return None, None
        ended = replace(paused, until=up_to_millisecond(now))
        pauses = [one.to_row() for one in (*_pauses_of(there), ended)][-MAX_PAUSES_KEPT:]
        return ended, ConditionalUpdate(
            task_id=SETTINGS_ID,
            set={attr.PAUSES: pauses},
            remove=(attr.PAUSED,),
            conditions=as_read(there, attr.PAUSED, attr.PAUSES),
            mark=(Is(attr.PAUSES, pauses),),  # another pause may have begun since
        )

    return change_row(store, SETTINGS_ID, "resume", end)


def pause_action(store: Store, action: str, *, now: datetime, by: str | None, reason: str | None) -> ActionPause:
    """Pauses an action, and returns its pause in force: an earlier one, if it is paused already.

    Raises InvalidInput if too many are, ConfigurationError before the first tick, and StoreError.
    """

    def begin(row: Row | None) -> tuple[ActionPause, ConditionalUpdate | None]:
        there = _published(row)
        paused = _paused_actions_of(there)
        if (earlier := paused.get(action)) is not None:
            return earlier, None
        if len(paused) >= MAX_PAUSED_ACTIONS:
            problem = f"{len(paused)} actions are paused, which is the maximum; resume others, or pause everything"
            raise InvalidInput(attr.ACTION, action, problem)
        wanted = ActionPause(action=action, since=up_to_millisecond(now), by=by, reason=reason)
        return wanted, ConditionalUpdate(
            task_id=SETTINGS_ID,
            set={attr.PAUSED_ACTIONS: _as_map([*paused.values(), wanted])},
            conditions=(Is(attr.STATUS, "settings"), *as_read(there, attr.PAUSED_ACTIONS)),
        )

    return change_row(store, SETTINGS_ID, f"pause {action}", begin)


def resume_action(store: Store, action: str, *, now: datetime) -> ActionPause | None:
    """Ends the pause of an action, and returns it; None: there was none. Raises ConfigurationError before the first
    tick, and StoreError."""

    def end(row: Row | None) -> tuple[ActionPause | None, ConditionalUpdate | None]:
        there = _published(row)
        left = dict(_paused_actions_of(there))
        if (paused := left.pop(action, None)) is None:
            return None, None
        ended = replace(paused, until=up_to_millisecond(now))
        pauses = [one.to_row() for one in (*_action_pauses_of(there), ended)][-MAX_PAUSES_KEPT:]
        return ended, ConditionalUpdate(
            task_id=SETTINGS_ID,
            set={attr.ACTION_PAUSES: pauses} | ({attr.PAUSED_ACTIONS: _as_map(left.values())} if left else {}),
            remove=() if left else (attr.PAUSED_ACTIONS,),
            conditions=as_read(there, attr.PAUSED_ACTIONS, attr.ACTION_PAUSES),
            mark=(Is(attr.ACTION_PAUSES, pauses),),  # another pause may have begun since
        )

    return change_row(store, SETTINGS_ID, f"resume {action}", end)


def _as_map(pauses: Iterable[ActionPause]) -> dict[str, object]:
    return {one.action: Pause(since=one.since, by=one.by, reason=one.reason).to_row() for one in pauses}


def _paused_actions_of(row: Row) -> Mapping[str, ActionPause]:
    """Any value pauses an action that is named, also a malformed one."""
    paused = row.get(attr.PAUSED_ACTIONS)
    if not isinstance(paused, Mapping):
        return {}
    known = {str(action): _understood(one if isinstance(one, Mapping) else {}) for action, one in paused.items()}
    return {action: _of_action(action, replace(one, until=None)) for action, one in known.items()}


def _action_pauses_of(row: Row) -> tuple[ActionPause, ...]:
    pauses = row.get(attr.ACTION_PAUSES)
    known = [one for one in pauses if isinstance(one, Mapping)] if isinstance(pauses, list) else []
    of_actions = [_of_action(str(one.get(attr.ACTION)), _understood(one)) for one in known]
    return tuple(one for one in of_actions if one.until is not None)


def _of_action(action: str, one: Pause) -> ActionPause:
    return ActionPause(action=action, since=one.since, until=one.until, by=one.by, reason=one.reason)


def _published(row: Row | None) -> Row:
    if row is None:
        raise ConfigurationError("settings", "no tick has come yet; the first one writes the settings")
    _from_row(row)  # refuses rows of another version
    return row


def _pause_of(row: Row) -> Pause | None:
    """Any value pauses, also a malformed one: nothing may run that a person wanted to stop."""
    paused = row.get(attr.PAUSED)
    return None if paused is None else _understood(paused if isinstance(paused, Mapping) else {})


def _pauses_of(row: Row) -> tuple[Pause, ...]:
    pauses = row.get(attr.PAUSES)
    known = [_understood(one) for one in pauses if isinstance(one, Mapping)] if isinstance(pauses, list) else []
    return tuple(one for one in known if one.until is not None)


def _key_limits(value: object) -> KeyLimits | None:
    """None: they are not known, or those of another version."""
    if not isinstance(value, Mapping):
        return None
    try:
        return parse_limits(f"{name}={text}" for name, text in value.items())
    except ConfigurationError:
        return None


def _understood(values: Mapping[str, object]) -> Pause:
    by, reason = (None if (value := values.get(name)) is None else str(value) for name in (attr.BY, attr.REASON))
    since, until = (_known_instant(values.get(name)) for name in (attr.SINCE, attr.UNTIL))
    return Pause(since=since, until=until, by=by, reason=reason)


def _known_instant(value: object) -> datetime | None:
    """None for what is malformed: nothing depends on it."""
    try:
        return parse_instant(value, "instant")
    except InvalidInput:
        return None


def _row(wanted: InstallationSettings, now: datetime) -> dict[str, object]:
    return {**own_row("settings"), **wanted.to_row(), attr.UPDATED_AT: format_instant(now)}


def _version_of(row: Row) -> int:
    version = row.get(attr.SCHEMA_VERSION)
    return 1 if version is None else check_count(version, attr.SCHEMA_VERSION)


def _other_version(version: int, remedy: str) -> ConfigurationError:
    problem = (
        f"the installation has rows of version {version}, and this Dynatick is for version {SCHEMA_VERSION}; {remedy}"
    )
    return ConfigurationError(attr.SCHEMA_VERSION, problem)


def _from_row(row: Row) -> InstallationSettings:
    """Reads a row of this version or a lower one. Raises ConfigurationError for a higher one."""
    version = _version_of(row)
    if version > SCHEMA_VERSION:
        raise _other_version(version, "use the newer Dynatick that the installation was deployed from")
    actions, default_action, days = (row.get(name) for name in (attr.ACTIONS, attr.DEFAULT_ACTION, attr.RETENTION_DAYS))
    longest = row.get(attr.MAX_TIMEOUT_SECONDS)
    precision, problem = row.get(attr.PRECISION), row.get(attr.PROCESSOR_PROBLEM)
    schemas = row.get(attr.PAYLOAD_SCHEMAS) if row.get(attr.PAYLOAD_SCHEMA_FORM) == SCHEMA_FORM else None
    known_schemas = schemas.items() if isinstance(schemas, Mapping) else ()
    return InstallationSettings(
        grid=Grid(
            tick_minutes=check_count(row.get(attr.TICK_MINUTES), attr.TICK_MINUTES),
            shard_count=check_count(row.get(attr.SHARD_COUNT), attr.SHARD_COUNT),
        ),
        shards_ever=check_count(row.get(attr.SHARDS_EVER), attr.SHARDS_EVER),
        shard_count_since=optional_instant(row.get(attr.SHARD_COUNT_SINCE), attr.SHARD_COUNT_SINCE),
        tick_minutes_since=_known_instant(row.get(attr.TICK_MINUTES_SINCE)),
        key_limits=_key_limits(row.get(attr.KEY_LIMITS)),
        actions=tuple(str(name) for name in actions) if isinstance(actions, list) else (),
        default_action=None if default_action is None else str(default_action),
        retention_days=None if days is None else check_count(days, attr.RETENTION_DAYS),
        max_timeout_seconds=None if longest is None else check_count(longest, attr.MAX_TIMEOUT_SECONDS),
        precision=next((one for one in Precision if one.value == precision), None),
        payload_schemas={str(name): str(text) for name, text in known_schemas},
        schema_version=version,
        processor_problem=None if problem is None else str(problem),
        pause=_pause_of(row),
        pauses=_pauses_of(row),
        paused_actions=_paused_actions_of(row),
        action_pauses=_action_pauses_of(row),
        updated_at=_known_instant(row.get(attr.UPDATED_AT)),
    )
