"""Before a deployment: do the payloads of waiting tasks fit the types that their handlers will have?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dynatick.cli.task_display import unfit_lines
from dynatick.errors import DynatickError
from dynatick_stack.cloudformation import Stack
from dynatick_stack.venv import Say

if TYPE_CHECKING:
    from dynatick.client import TaskClient
    from dynatick.client.operations import PayloadCheck


def check(stack: Stack, schemas: Mapping[str, str], *, profile: str | None, say: Say) -> int:
    """Says which waiting tasks of changed types will not fit, and of how many that holds. Returns how many will fail.

    ``schemas``: of the handlers that are to be deployed. A table that can't be read keeps no one from deploying.
    """
    try:
        client = client_of(stack, profile=profile)
        found = None if client is None else _check(client, schemas)
    except DynatickError as error:
        say(f"Whether the payloads of waiting tasks fit is not known: {error}")
        return 0
    if found is None:
        return 0
    for line in unfit_lines(found):
        say(f"  will fail {line}")
    for line in unfit_lines(found, fails=False):
        say(f"  will lose {line}")
    whole = "all of the table" if found.complete else "a sample"
    reads = f"{found.reads} read{'s' * (found.reads > 1)} of 1 MB"
    say(f"  waiting   {found.checked:,} of changed types checked, in {reads}: {whole}")
    return found.failing


def _check(client: TaskClient, schemas: Mapping[str, str]) -> PayloadCheck | None:
    """None: no type has changed. Raises DynatickError."""
    settings = client.settings()
    published = {} if settings is None else settings.payload_schemas
    changed = {action: schema for action, schema in schemas.items() if published.get(action) != schema}
    return client.operations.check_payloads(changed) if changed else None


def client_of(stack: Stack, *, profile: str | None) -> TaskClient | None:
    """A client of the table of a stack; None if it has none yet."""
    from dynatick.client import TaskClient

    present = stack.describe()
    outputs = {} if present is None else {one["OutputKey"]: one["OutputValue"] for one in present.get("Outputs", [])}
    table = outputs.get("TasksTableName")
    if table is None:
        return None
    return TaskClient.connect(
        table, region=stack.client.meta.region_name, profile=profile, timeout_seconds=60
    )  # to read a MB from far away
