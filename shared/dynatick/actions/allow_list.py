"""What the installation allows to tasks: actions, hosts, and ARNs with wildcards as IAM reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dynatick.errors import ConfigurationError, shown

_PATTERN = re.compile(r"arn:[a-z0-9*?-]+:[a-z0-9-]+:[a-z0-9*?-]*:[0-9*?]*:[!-+\--~]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionSettings:
    """The template's parameters for actions, and what they may reach."""

    rate_limits: tuple[str, ...] = ()  # ActionRateLimits
    actions: tuple[str, ...] = ()  # AllowedActions; empty: all
    webhook_hosts: tuple[str, ...] = ()  # AllowedWebhookHosts; empty: any public host
    private_hosts: tuple[str, ...] = ()  # WebhookPrivateHosts: hosts outside the public internet that webhooks may call
    secrets: tuple[str, ...] = ()  # AllowedSecrets; empty: none
    targets: tuple[str, ...] = ()  # AllowedTargetArns; empty: none
    own_targets: tuple[str, ...] = ()  # names of Dynatick's own functions and queues, which no pattern reaches
    wake_up_queue_url: str | None = None


class AllowedArns:
    """The ARNs in a parameter of the template, which also limits the function's role to them.

    Checked before a call for the sake of a clear message; the role enforces it. ``*`` stands for any text, ``?`` for
    any character. Raises ConfigurationError for a text that is not an ARN.
    """

    def __init__(
        self, parameter: str, arns: Iterable[str] = (), *, own: Iterable[str] = (), services: Iterable[str] = ()
    ) -> None:
        """``own``: names of functions, of any version, and queues that are never among them. ``services``: those whose
        ARNs are accepted; empty: any."""
        self._own = frozenset(own)
        self.parameter = parameter
        self.arns = tuple(arns)
        for arn in self.arns:
            if _PATTERN.fullmatch(arn) is None:
                raise ConfigurationError(parameter, f"{shown(arn)} is not an ARN; * and ? may stand for parts of one")
        self._patterns = [_expression(arn) for arn in self.arns]
        self._resources = [_expression(arn.split(":", 5)[5]) for arn in self.arns]
        self.services = [arn.split(":", 3)[2] for arn in self.arns]
        for arn, service in zip(self.arns, self.services, strict=True):
            if services and service not in services:
                expected = f"expected {', '.join(services)} instead of {service}"
                raise ConfigurationError(parameter, f"no action reaches {shown(arn)}; {expected}")

    def __bool__(self) -> bool:
        return bool(self.arns)

    def __contains__(self, arn: object) -> bool:
        if not isinstance(arn, str) or not self._own.isdisjoint(arn.split(":")[5:7]):
            return False
        return any(pattern.fullmatch(arn) for pattern in self._patterns)

    def has_resource(self, service: str, resource: str) -> bool:
        """Whether a resource of this account and region is allowed, such as ``parameter/token`` of ``ssm``."""
        patterns = zip(self.services, self._resources, strict=True)
        return any(own == service and pattern.fullmatch(resource) for own, pattern in patterns)


def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"([*?])", pattern)
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts), re.ASCII | re.DOTALL)
