"""What a task can do: the built-in kinds, one file each, and the handlers that users write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynatick.actions.registry import Registry
    from dynatick.engine.ports import Clock


def build_actions(
    *,
    handlers_module: str | None,
    clock: Clock,
    private_hosts: Iterable[str] = (),
    threads: int = 32,
) -> Registry:
    """All actions of a processor: ``log``, ``webhook``, and the handlers of the module, if one is named.

    ``private_hosts``: what webhooks may reach beside the public internet. ``threads``: how many tasks run at a time.
    Raises ConfigurationError for a module that cannot be used, and for a handler that has a built-in's name.
    """
    # Imported here, for this package is also on the way to single modules of it.
    from dynatick.actions.handlers import load_handlers
    from dynatick.actions.log import Log
    from dynatick.actions.registry import Registry
    from dynatick.actions.webhook import Webhook

    registry = Registry()
    registry.add("log", Log())
    registry.add("webhook", Webhook(clock=clock, private_hosts=private_hosts, connections_per_host=threads))
    for found in load_handlers(handlers_module) if handlers_module is not None else ():
        registry.add(found.name, found)
    return registry
