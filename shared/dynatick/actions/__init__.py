"""What a task can do: the built-in kinds, one file each, and the handlers that users write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.actions.aws import MakeClient, Service
    from dynatick.actions.limits import Limits
    from dynatick.actions.registry import Action, PayloadSchema, Registry, Timeout
    from dynatick.actions.targets import Allowed, Reach
    from dynatick.domain.task import Task
    from dynatick.engine.ports import Clock


def build_actions(
    *,
    handlers_module: str | None,
    clock: Clock,
    reach: Reach | None = None,
    clients: MakeClient | None = None,
    threads: int = 32,
    horizon: float = 60.0,
    max_timeout_seconds: int | None = None,
) -> Registry:
    """All actions of a processor: the built-in kinds, and the handlers of the module, if one is named.

    ``reach``: what tasks may do and reach; a kind that may reach nothing is left out. ``clients``: where boto3 clients
    come from. ``threads``: how many tasks run at a time. ``horizon``: seconds from one tick to the next.
    ``max_timeout_seconds``: the longest that an attempt can take here; None: not known.
    Raises ConfigurationError for a setting, or a module, that cannot be used, and for a handler that has a built-in's
    name, or takes too long.
    """
    # Imported here, for this package is also on the way to single modules of it.
    from dynatick.actions.addresses import Hosts
    from dynatick.actions.clients import Clients
    from dynatick.actions.handlers import load_handlers
    from dynatick.actions.limits import Limited, Limits
    from dynatick.actions.log import Log
    from dynatick.actions.payloads import BUILT_IN
    from dynatick.actions.registry import Later, Registry
    from dynatick.actions.secrets import Secrets
    from dynatick.actions.targets import Allowed, Reach
    from dynatick.errors import ConfigurationError, shown

    may = reach or Reach()
    made = clients or Clients()
    hosts = Hosts(private=may.private_hosts, allowed=may.webhook_hosts)
    limits = Limits(may.rate_limits, clock=clock, horizon=horizon)
    secrets = Secrets(may.secrets, clients=made)

    def webhook() -> Action:
        from dynatick.actions.webhook import Webhook

        return Webhook(clock=clock, hosts=hosts, secrets=secrets, limits=limits, connections_per_host=threads)

    def webhook_seconds(task: Task) -> int:
        from dynatick.actions.webhook_payload import reserved_seconds

        seconds = reserved_seconds(task.payload)  # in a shorter invocation it makes do with what there is
        return seconds if max_timeout_seconds is None else min(seconds, max_timeout_seconds)

    registry = Registry()

    def add(name: str, action: Action, timeout: Timeout | None = None, schema: PayloadSchema | None = None) -> None:
        registry.add(name, Limited(name, action, limits) if name in limits.actions() else action, timeout, schema)

    add("log", Log())
    registry.add("webhook", Later(webhook), webhook_seconds)  # it keeps to its limits itself: they may name a host
    for name, (aws_name, parameter, arns, home) in {
        "sns": ("sns", "AllowedTopicArns", may.topics, "sns:Sns"),
        "sqs": ("sqs", "AllowedQueueArns", may.queues, "sqs:Sqs"),
        "eventbridge": ("events", "AllowedEventBusArns", may.event_buses, "eventbridge:EventBridge"),
        "lambda": ("lambda", "AllowedFunctionArns", may.functions, "aws_lambda:LambdaFunction"),
        "stepfunctions": (
            "stepfunctions",
            "AllowedStateMachineArns",
            may.state_machines,
            "step_functions:StepFunctions",
        ),
    }.items():
        if arns:
            service = partial(_service, name, aws_name, Allowed(parameter, arns), made, clock, limits)
            registry.add(name, Later(partial(_on_aws, home, service)))  # these too, to take no turn in vain
    for found in load_handlers(handlers_module, max_timeout_seconds) if handlers_module is not None else ():
        if found.name in BUILT_IN and found.name not in registry.names():
            raise ConfigurationError("action", f"{shown(found.name)} is a built-in's name; give the handler another")
        add(found.name, found, found.reserved_seconds, found.payload_schema)
    if may.actions:
        registry.keep(may.actions)
    if unknown := sorted(limits.actions() - set(registry.names())):
        raise ConfigurationError("ActionRateLimits", f"there is no action {shown(unknown[0])} here")
    return registry


def _service(action: str, name: str, allowed: Allowed, clients: MakeClient, clock: Clock, limits: Limits) -> Service:
    from dynatick.actions.aws import Service

    return Service(name=name, allowed=allowed, clients=clients, clock=clock, action=action, limits=limits)


def _on_aws(home: str, service: Callable[[], Service]) -> Action:
    module, _, name = home.partition(":")
    kind: Callable[[Service], Action] = getattr(import_module(f"dynatick.actions.{module}"), name)
    return kind(service())
