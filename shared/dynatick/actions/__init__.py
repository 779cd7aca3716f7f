"""The actions of tasks: the built-in ones, a module each, and the handlers that users write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.actions.allow_list import ActionSettings
    from dynatick.actions.aws import Service
    from dynatick.actions.aws_client import ClientCache
    from dynatick.actions.registry import Action, PayloadSchema, Registry, Timeout
    from dynatick.domain.task import Task
    from dynatick.engine.ports import Clock
    from dynatick.engine.rates import RateRecords

_AWS_ACTIONS = {
    "events": ("eventbridge", "events", "eventbridge:EventBridge"),
    "lambda": ("lambda", "lambda", "aws_lambda:LambdaFunction"),
    "sns": ("sns", "sns", "sns:Sns"),
    "sqs": ("sqs", "sqs", "sqs:Sqs"),
    "states": ("stepfunctions", "stepfunctions", "step_functions:StepFunctions"),
}
"""For each service in a target's ARN: the action, what boto3 calls the service, and the implementation."""


def build_actions(
    *,
    handlers_module: str | None,
    clock: Clock,
    settings: ActionSettings | None = None,
    clients: ClientCache | None = None,
    threads: int = 32,
    horizon: float = 60.0,
    max_timeout_seconds: int | None = None,
    rate_records: RateRecords | None = None,
) -> Registry:
    """The registry of a processor's actions: the built-in ones, and the handlers of ``handlers_module`` unless None.

    ``settings``: which actions there are and what they may reach; an action for AWS targets without an allowed ARN is
    left out. ``clients`` makes boto3 clients. ``threads``: how many tasks run at the same time. ``horizon``: seconds
    from one tick to the next. ``max_timeout_seconds``: how long an attempt can take in this processor; None: not known.
    ``rate_records``: of the installation; None: rate limits hold in this process.

    Raises ConfigurationError for a setting or a module that can't be used, and for a handler that has the name of a
    built-in action or a longer timeout than ``max_timeout_seconds``.
    """
    # Imported here, because importing a single module of this package imports this file.
    from dynatick.actions.allow_list import ActionSettings, AllowedArns
    from dynatick.actions.aws_client import ClientCache
    from dynatick.actions.handlers import load_handlers
    from dynatick.actions.log import Log
    from dynatick.actions.payload import BUILT_IN
    from dynatick.actions.rate_limit import RateLimitedAction, RateLimits
    from dynatick.actions.registry import LazyAction, Registry
    from dynatick.actions.secret import Secrets
    from dynatick.actions.webhook_url import Hosts
    from dynatick.errors import ConfigurationError, shown

    settings = settings or ActionSettings()
    clients = clients or ClientCache()
    if settings.secrets and not settings.webhook_hosts:  # the template refuses it too; others may deploy the functions
        wanted = "name the hosts that may get secrets, or set it to * for any"
        raise ConfigurationError("AllowedSecrets", f"it needs AllowedWebhookHosts, which is empty: {wanted}")
    hosts = Hosts(private=settings.private_hosts, allowed=settings.webhook_hosts)
    limits = RateLimits(settings.rate_limits, clock=clock, horizon=horizon, records=rate_records)
    secrets = Secrets(settings.secrets, clients=clients)

    def webhook() -> Action:
        from dynatick.actions.webhook import Webhook

        return Webhook(clock=clock, hosts=hosts, secrets=secrets, limits=limits, connections_per_host=threads)

    def at_most(seconds: int) -> int:
        # In a shorter invocation, the timeout of the call is shortened.
        return seconds if max_timeout_seconds is None else min(seconds, max_timeout_seconds)

    def webhook_seconds(task: Task) -> int:
        from dynatick.actions.webhook_payload import reserved_seconds

        return at_most(reserved_seconds(task.payload))

    def lambda_seconds(task: Task) -> int | None:
        from dynatick.actions.aws_lambda import reserved_seconds

        seconds = reserved_seconds(task.payload)
        return None if seconds is None else at_most(seconds)

    registry = Registry()

    def add(name: str, action: Action, timeout: Timeout | None = None, schema: PayloadSchema | None = None) -> None:
        registry.add(
            name, RateLimitedAction(name, action, limits) if name in limits.actions() else action, timeout, schema
        )

    add("log", Log())
    # It applies its rate limits itself: they may name a host.
    registry.add("webhook", LazyAction(webhook), webhook_seconds)
    targets = AllowedArns("AllowedTargetArns", settings.targets, own=settings.own_targets, services=_AWS_ACTIONS)

    def of_service(action: str, name: str, implementation: str) -> Action:
        from dynatick.actions.aws import Service

        module, _, kind = implementation.partition(":")
        make: Callable[[Service], Action] = getattr(import_module(f"dynatick.actions.{module}"), kind)
        return make(Service(name=name, allowed=targets, clients=clients, clock=clock, action=action, limits=limits))

    for arn_service, (name, aws_name, implementation) in _AWS_ACTIONS.items():
        if arn_service in targets.services:
            # These too: a refused call takes no token.
            timeout = lambda_seconds if name == "lambda" else None
            registry.add(name, LazyAction(partial(of_service, name, aws_name, implementation)), timeout)
    for found in load_handlers(handlers_module, max_timeout_seconds) if handlers_module is not None else ():
        if found.name in BUILT_IN and found.name not in registry.names():
            raise ConfigurationError("action", f"{shown(found.name)} is a built-in's name; give the handler another")
        add(found.name, found, found.reserved_seconds, found.payload_schema)
    if settings.actions:
        registry.restrict_to(settings.actions)
    if unknown := sorted(limits.actions() - set(registry.names())):
        raise ConfigurationError("ActionRateLimits", f"there is no action {shown(unknown[0])} here")
    return registry
