"""Puts the parts together: from settings to what an entry point calls. Clients are made here, once a process.

What one function alone needs is imported where that function is built: the others start the sooner.
"""

from __future__ import annotations

import importlib
import json
import os
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from dynatick.actions.aws_client import create_client
from dynatick.actions.dead_letter import NoDeadLetters, QueueDeadLetters
from dynatick.actions.wake_up_queue import QueueWakeUps
from dynatick.domain.ends import OutcomeEvents
from dynatick.domain.normalise import Assign, Defaults, next_tick
from dynatick.engine.invocation import max_timeout_seconds
from dynatick.engine.ports import DeadLetters, ReportOverdue, WakeUps
from dynatick.engine.rules import Precision, Rules
from dynatick.engine.scheduler import EventBus, Scheduler
from dynatick.engine.settings import publish_settings
from dynatick.errors import ConfigurationError, DynatickError, NoAnswer, StoreError
from dynatick.settings import Settings, table_name
from dynatick.store.codec import decode
from dynatick.store.dynamodb import DynamoStore

if TYPE_CHECKING:
    from dynatick.actions.dead_letter_queue import DeadLetterQueue
    from dynatick.api import Api
    from dynatick.bulk.importer import Importer
    from dynatick.engine.processor import Processor


WAKE_UP_LEAD = timedelta(milliseconds=100)
"""How long before its instant a wake-up is to be received; the queue's whole seconds add half of one on average. It is
for the queue's own delay: the ticks keep a process warm, and every process that waits costs (docs/cost.md)."""


def utc_now() -> datetime:
    """The one clock of the functions."""
    return datetime.now(UTC)


def load_settings() -> Settings:
    return Settings.from_env(os.environ)


class LambdaInvoker:
    """Starts another invocation of a function by name."""

    def __init__(self, function_name: str) -> None:
        self._function_name = function_name
        self._client: Any = None
        self._lock = threading.Lock()  # several threads start invocations; the SDK makes its clients in one at a time

    @property
    def client(self) -> Any:
        """The SDK's client, made when it is needed first: few invocations need it."""
        with self._lock:
            if self._client is None:
                self._client = create_client("lambda", connect_seconds=1, read_seconds=3, tries=2)
            return self._client

    def invoke(self, event: Mapping[str, object]) -> None:
        try:
            self.client.invoke(
                FunctionName=self._function_name, InvocationType="Event", Payload=json.dumps(event).encode()
            )
        except ClientError as error:
            raise StoreError(f"cannot invoke {self._function_name}: {error}") from error
        except BotoCoreError as error:
            raise NoAnswer(f"cannot invoke {self._function_name}: {error}") from error


def build_processor(settings: Settings, report_overdue: ReportOverdue = lambda overdue: None) -> Processor:
    """The processor function, ready for events."""
    from dynatick.actions import build_actions
    from dynatick.actions.aws_client import ClientCache
    from dynatick.actions.handler_secrets import HandlerSecrets, use_secrets
    from dynatick.actions.secret import Secrets
    from dynatick.engine.processor import Processor
    from dynatick.engine.rates import RateRecords

    if settings.function_name is None:
        raise ConfigurationError("AWS_LAMBDA_FUNCTION_NAME", "it is not set; Lambda sets it")
    # Before their module is imported, which may use both.
    os.environ.update(settings.handlers_environment)
    clients = ClientCache()
    use_secrets(HandlerSecrets(settings.handlers_secrets, secrets=Secrets(None, clients=clients), clock=utc_now))
    process, numbers = uuid.uuid4().hex, count(1)
    store = DynamoStore(settings.table, batched=settings.batched)

    def new_token() -> str:
        return f"{process}.{next(numbers)}"

    return Processor(
        store=store,
        actions=build_actions(
            handlers_module=settings.handlers_module,
            settings=settings.action_settings,
            clients=clients,
            horizon=60.0 * settings.grid.tick_minutes,
            threads=settings.task_threads,
            clock=utc_now,
            max_timeout_seconds=_longest(settings),
            rate_records=RateRecords(store, new_token),
        ),
        dead_letters=_dead_letters(settings),
        invoker=LambdaInvoker(settings.function_name),
        rules=build_rules(settings),
        clock=utc_now,
        new_token=new_token,
        wake_ups=_wake_ups(settings),
        report_overdue=report_overdue,
    )


def publish_problem(error: ConfigurationError) -> str | None:
    """Writes into the settings row why the processor can't start; the next one that can removes it.

    Returns why that failed; None: it is written. Reads no setting but the table's name: any other may be the problem.
    """
    try:
        publish_settings(DynamoStore(table_name(os.environ)), None, now=utc_now(), processor_problem=str(error))
    except DynatickError as failure:
        return str(failure)
    return None


def build_api(settings: Settings) -> Api:
    """The api function, ready for requests."""
    from dynatick.api import Api
    from dynatick.client import TaskClient

    store = DynamoStore(settings.table, batched=settings.batched)
    client = TaskClient(store, clock=utc_now, dead_letter_queue=_dead_letter_queue(settings))
    return Api(client, max_wait_seconds=settings.api_wait_seconds)


def build_importer(settings: Settings) -> Importer:
    """The importer function, ready for events. Raises ConfigurationError."""
    from dynatick.bulk.importer import Importer
    from dynatick.bulk.s3 import S3Files
    from dynatick.client import TaskClient
    from dynatick.client.batches import load_lines

    if settings.function_name is None:
        raise ConfigurationError("AWS_LAMBDA_FUNCTION_NAME", "it is not set; Lambda sets it")
    client = TaskClient(DynamoStore(settings.table, batched=settings.batched), clock=utc_now)
    return Importer(
        files=S3Files(boto3.client("s3", config=Config(connect_timeout=3, read_timeout=30))),
        insert_rows=client.insert_rows,
        load_batch=partial(load_lines, client.batches),
        invoker=LambdaInvoker(settings.function_name),
        clock=utc_now,
    )


def build_scheduler(settings: Settings) -> Scheduler:
    """The scheduler function, ready for batches of the stream. Raises ConfigurationError."""
    return Scheduler(
        store=DynamoStore(settings.table, batched=settings.batched),
        dead_letters=_dead_letters(settings),
        rules=build_rules(settings),
        clock=utc_now,
        decode=decode,
        wake_ups=_wake_ups(settings),
        bus=_event_bus(settings),
        outcome_events=settings.outcome_events,
    )


def build_rules(settings: Settings) -> Rules:
    """The engine's rules from the settings. Raises ConfigurationError for a policy that cannot be loaded."""
    return Rules(
        grid=settings.grid,
        defaults=Defaults(
            action=settings.default_action,
            retention_days=settings.retention_days,
            key_limits=settings.key_limits,
            assign=load_policy(settings.assignment_policy),
        ),
        precision=settings.precision,
        limited_actions=frozenset(
            limit.partition("=")[0].partition(":")[0] for limit in settings.action_settings.rate_limits
        ),
        threads=settings.task_threads,
        max_workers=settings.max_workers,
        max_timeout_seconds=_longest(settings),
    )


def _longest(settings: Settings) -> int | None:
    return None if settings.processor_timeout is None else max_timeout_seconds(settings.processor_timeout)


def load_policy(name: str | None) -> Assign:
    """The user's assignment policy, ``module:function``; None: the next tick."""
    if name is None:
        return next_tick
    module, _, function = name.partition(":")
    try:
        policy: Assign = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            "DYNATICK_ASSIGNMENT_POLICY", f"cannot load {name!r} ({error}); expected module:function"
        ) from error
    if not callable(policy):
        raise ConfigurationError("DYNATICK_ASSIGNMENT_POLICY", f"{name!r} is not a function")
    return policy


def _wake_ups(settings: Settings) -> WakeUps | None:
    """None with Precision.TICK. A send that takes longer than a second isn't worth its wait: the tick comes anyway."""
    if settings.precision is not Precision.SECOND:
        return None
    if settings.action_settings.wake_up_queue_url is None:
        raise ConfigurationError(
            "DYNATICK_WAKE_UP_QUEUE_URL", "it is not set; with precision second, the template sets it"
        )
    client = create_client("sqs", connect_seconds=1, read_seconds=1, tries=1)
    return QueueWakeUps(client, settings.action_settings.wake_up_queue_url, clock=utc_now, lead=WAKE_UP_LEAD)


def _event_bus(settings: Settings) -> EventBus | None:
    """None: no end becomes an event. One short try: Lambda sends a record again whose event the bus did not take."""
    if settings.outcome_events is OutcomeEvents.OFF:
        return None
    from dynatick.actions.outcome_events import OutcomeEventBus

    if settings.outcome_bus is None or settings.lost_events_queue_url is None:
        raise ConfigurationError(
            "DYNATICK_OUTCOME_EVENTS_BUS, DYNATICK_LOST_EVENTS_QUEUE_URL",
            "they are not set; with outcome events, the template sets them",
        )
    return OutcomeEventBus(
        create_client("events", connect_seconds=1, read_seconds=2, tries=1),
        settings.outcome_bus,
        table=settings.table,
        sqs=create_client("sqs", connect_seconds=1, read_seconds=2, tries=1),
        queue_url=settings.lost_events_queue_url,
        clock=utc_now,
    )


def _dead_letter_queue(settings: Settings) -> DeadLetterQueue | None:
    """Returns the queue for readers. The SDK's client is made with the first request: few need it."""
    if settings.dead_letter_queue_url is None:
        return None
    from dynatick.actions.dead_letter import SqsDeadLetterQueue

    config = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
    return SqsDeadLetterQueue(lambda: boto3.client("sqs", config=config), settings.dead_letter_queue_url)


def _dead_letters(settings: Settings) -> DeadLetters:
    """One short try: what the queue does not take, a later tick sends."""
    if settings.dead_letter_queue_url is None:
        return NoDeadLetters()
    client = create_client("sqs", connect_seconds=1, read_seconds=2, tries=1)
    return QueueDeadLetters(client, settings.dead_letter_queue_url)
