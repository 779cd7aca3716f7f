"""The functions' settings, from environment variables that the template sets. Nothing else reads the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from dynatick.actions.allow_list import ActionSettings
from dynatick.actions.secret import SecretReference
from dynatick.domain.buckets import Grid
from dynatick.domain.ends import OutcomeEvents
from dynatick.domain.limit_keys import KeyLimits, parse_limits
from dynatick.engine.rules import MAX_TICK_MINUTES, Precision
from dynatick.errors import ConfigurationError, InvalidInput, shown

RESERVED = ("AWS_", "DYNATICK_", "LAMBDA_", "POWERTOOLS_")  # variables of Lambda, of the template, and of Powertools


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of every function; each uses those that it needs."""

    table: str
    grid: Grid
    retention_days: int
    default_action: str
    key_limits: KeyLimits
    dead_letter_queue_url: str | None
    precision: Precision
    handlers_module: str | None
    handlers_environment: Mapping[str, str] = field(default_factory=dict)  # environment variables for the handlers
    handlers_secrets: Mapping[str, SecretReference] = field(default_factory=dict)  # secrets for the handlers, by name
    task_threads: int
    max_workers: int  # of a shard
    processor_timeout: timedelta | None  # of one invocation of the processor; None in other functions
    action_settings: ActionSettings
    assignment_policy: str | None
    outcome_events: OutcomeEvents
    outcome_bus: str | None  # name or ARN
    lost_events_queue_url: str | None  # for events that the bus does not take
    api_wait_seconds: int  # how long a request to the HTTP API may wait for the end of a task
    function_name: str | None  # of the running function, set by Lambda
    batched: bool  # False for an engine whose PartiQL has no conditional updates

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Reads the settings. Raises ConfigurationError, which names the variable."""
        try:
            grid = Grid(
                tick_minutes=_number(environ, "DYNATICK_TICK_MINUTES", 1),
                shard_count=_number(environ, "DYNATICK_SHARD_COUNT", 1),
            )
        except InvalidInput as error:
            raise ConfigurationError("DYNATICK_TICK_MINUTES, DYNATICK_SHARD_COUNT", str(error)) from error
        return cls(
            table=table_name(environ),
            grid=grid,
            retention_days=_number(environ, "DYNATICK_RETENTION_DAYS", 30, 1, 3650),
            default_action=environ.get("DYNATICK_DEFAULT_ACTION") or "log",
            key_limits=parse_limits(_names(environ, "DYNATICK_KEY_LIMITS"), "DYNATICK_KEY_LIMITS"),
            dead_letter_queue_url=environ.get("DYNATICK_DEAD_LETTER_QUEUE_URL") or None,
            precision=_precision(environ.get("DYNATICK_PRECISION") or "tick", grid),
            handlers_module=environ.get("DYNATICK_HANDLERS_MODULE") or None,
            handlers_environment=_variables(environ, "DYNATICK_HANDLERS_ENVIRONMENT"),
            handlers_secrets=_references(environ, "DYNATICK_HANDLERS_SECRETS"),
            task_threads=_number(environ, "DYNATICK_TASK_THREADS", 16, 1, 256),
            max_workers=_number(environ, "DYNATICK_MAX_WORKERS", 0, 0, 100),
            processor_timeout=timedelta(seconds=_number(environ, "DYNATICK_PROCESSOR_TIMEOUT_SECONDS", 0, 0, 900))
            or None,
            action_settings=ActionSettings(
                rate_limits=_names(environ, "DYNATICK_ACTION_RATE_LIMITS"),
                actions=_names(environ, "DYNATICK_ALLOWED_ACTIONS"),
                webhook_hosts=_names(environ, "DYNATICK_ALLOWED_WEBHOOK_HOSTS"),
                private_hosts=_names(environ, "DYNATICK_WEBHOOK_PRIVATE_HOSTS"),
                secrets=_names(environ, "DYNATICK_ALLOWED_SECRETS"),
                targets=_names(environ, "DYNATICK_ALLOWED_TARGET_ARNS"),
                own_targets=_names(environ, "DYNATICK_OWN_TARGETS")
                + _names(environ, "AWS_LAMBDA_FUNCTION_NAME"),  # its own name can't stand in a function's environment,
                wake_up_queue_url=environ.get("DYNATICK_WAKE_UP_QUEUE_URL") or None,
            ),
            assignment_policy=environ.get("DYNATICK_ASSIGNMENT_POLICY") or None,
            outcome_events=_outcome_events(environ.get("DYNATICK_OUTCOME_EVENTS") or "off"),
            outcome_bus=environ.get("DYNATICK_OUTCOME_EVENTS_BUS") or None,
            lost_events_queue_url=environ.get("DYNATICK_LOST_EVENTS_QUEUE_URL") or None,
            function_name=environ.get("AWS_LAMBDA_FUNCTION_NAME"),
            api_wait_seconds=_number(environ, "DYNATICK_API_WAIT_SECONDS", 10, 0, 10),
            batched=environ.get("DYNATICK_BATCHED", "1") != "0",
        )


def table_name(environ: Mapping[str, str]) -> str:
    """The one setting without which nothing can be said of the others. Raises ConfigurationError."""
    return _text(environ, "DYNATICK_TABLE")


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise ConfigurationError(name, "it is not set; the template sets it for its functions")
    return value


def _number(environ: Mapping[str, str], name: str, default: int, low: int = 0, high: int = 99_999) -> int:
    text = environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not low <= int(text) <= high:
        raise ConfigurationError(name, f"expected a whole number from {low} to {high}, found {shown(text)}")
    return int(text)


def _precision(text: str, grid: Grid) -> Precision:
    try:
        precision = Precision(text)
    except ValueError:
        raise ConfigurationError("DYNATICK_PRECISION", f"expected tick or second, found {shown(text)}") from None
    if precision is Precision.SECOND and grid.tick_minutes > MAX_TICK_MINUTES:
        expected = f"second needs DYNATICK_TICK_MINUTES of {MAX_TICK_MINUTES} or less, found {grid.tick_minutes}"
        raise ConfigurationError("DYNATICK_PRECISION", expected)
    return precision


def _outcome_events(text: str) -> OutcomeEvents:
    try:
        return OutcomeEvents(text)
    except ValueError:
        expected = f"expected off, failed or all, found {shown(text)}"
        raise ConfigurationError("DYNATICK_OUTCOME_EVENTS", expected) from None


def _variables(environ: Mapping[str, str], name: str) -> Mapping[str, str]:
    """Environment variables, from a JSON object. The errors have no values."""
    text = environ.get(name) or "{}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(name, f"expected a JSON object: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ConfigurationError(name, "expected a JSON object whose values are texts")
    for variable in found:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable) or variable.startswith(RESERVED):
            reserved = ", ".join(RESERVED)
            expected = f"expected names of letters, digits and _ that don't begin with {reserved}"
            raise ConfigurationError(name, f"{expected}; found {shown(variable)}")
    return found


def _references(environ: Mapping[str, str], name: str) -> Mapping[str, SecretReference]:
    found = {}
    for secret, text in _variables(environ, name).items():
        try:
            found[secret] = SecretReference.parse(text)
        except ValueError as error:
            raise ConfigurationError(name, f"{secret} is no reference; {error}") from None
    return found


def _names(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())
