"""What a task can do: the built-in kinds, one file each, and the handlers that users write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynatick.actions.registry import Action, Registry
    from dynatick.engine.ports import Clock


def build_actions(
    *,
    handlers_module: str | None,
    clock: Clock,
    private_hosts: Iterable[str] = (),
    webhook_hosts: Iterable[str] = (),
    secrets: Iterable[str] = (),
    clients: Callable[[str], Any] | None = None,
    threads: int = 32,
) -> Registry:
    """All actions of a processor: the built-in kinds, and the handlers of the module, if one is named.

    ``private_hosts``: what webhooks may reach beside the public internet. ``webhook_hosts``: what they may reach at
    all; empty: any. ``secrets``: ARNs of those that tasks may refer to. ``clients``: boto3 clients by service.
    ``threads``: how many tasks run at a time.
    Raises ConfigurationError for a setting, or a module, that cannot be used, and for a handler that has a built-in's
    name.
    """
    # Imported here, for this package is also on the way to single modules of it.
    from dynatick.actions.addresses import Hosts
    from dynatick.actions.clients import Clients
    from dynatick.actions.handlers import load_handlers
    from dynatick.actions.log import Log
    from dynatick.actions.registry import Later, Registry
    from dynatick.actions.secrets import Secrets

    hosts = Hosts(private=private_hosts, allowed=webhook_hosts)
    held = Secrets(secrets, clients=clients or Clients())

    def webhook() -> Action:
        from dynatick.actions.webhook import Webhook

        return Webhook(clock=clock, hosts=hosts, secrets=held, connections_per_host=threads)

    registry = Registry()
    registry.add("log", Log())
    registry.add("webhook", Later(webhook))
    for found in load_handlers(handlers_module) if handlers_module is not None else ():
        registry.add(found.name, found)
    return registry
