"""The schedules that a project declares, in its handlers and in dynatick.toml. Its stack owns them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dynatick.cli.schedule_sync import Declared
from dynatick.domain import attributes as attr
from dynatick.domain.buckets import Grid
from dynatick.domain.instants import EPOCH
from dynatick.errors import ConfigurationError, DynatickError, InvalidInput
from dynatick_stack.cloudformation import Stack
from dynatick_stack.errors import RefusedError
from dynatick_stack.project import Project, find
from dynatick_stack.venv import Say
from dynatick_stack.waiting_payloads import client_of

if TYPE_CHECKING:
    from dynatick.client import ScheduleChange, TaskClient
    from dynatick_stack.dev.handlers import Checked

Rows = Sequence[Mapping[str, object]]


def of_project(stage: str | None) -> Declared:
    """For ``dynatick schedule sync``: what the project that this folder is in declares."""
    from dynatick_stack.cli import failures, say

    with failures():
        project = find(Path.cwd()).of(stage)
        rows = declared(project, examine(project, say))
        return Declared(owner=project.name, region=project.region, schedules=rows)


def examine(
    project: Project, say: Say, files: Iterable[Path] | None = None, parameters: Mapping[str, str] | None = None
) -> Checked:
    """What the handlers of a project are, without the secrets, which only their installation has. ``files``: those that
    are deployed; None: all. ``parameters``: all that the stack will have; None: not known. Raises HandlersError."""
    from dynatick_stack.build import libraries
    from dynatick_stack.dev import handlers
    from dynatick_stack.project_files import project_files

    secrets = {name: os.environ.get(name) or "a secret" for name in project.secrets}
    environment = {**secrets, **project.environment}
    own = project_files(project) if files is None else files
    required = handlers.requirements(project, say)
    return handlers.check(project, own, libraries(say), required, environment, parameters)


def declared(project: Project, found: Checked, parameters: Mapping[str, str] | None = None) -> Rows:
    """What a project declares, checked as an insert checks it. ``parameters``: all that the stack will have; None: only
    the project's are known. Raises RefusedError with field, value and what would be right."""
    from dynatick.actions.payload import BUILT_IN
    from dynatick.client import TaskClient
    from dynatick.domain.limit_keys import PARAMETER, parse_limits
    from dynatick.domain.normalise import Defaults
    from dynatick.engine.invocation import max_timeout_seconds
    from dynatick.engine.settings import publish_settings
    from dynatick.store.memory import MemoryStore

    rows = [*found.schedules, *({attr.TASK_ID: name, **values} for name, values in project.schedules.items())]
    store = MemoryStore()  # with the settings that the installation will have
    schemas = {action: schema for action, schema in found.actions.items() if schema is not None}
    values = project.parameters if parameters is None else parameters
    actions = sorted({*found.actions, *BUILT_IN}) if parameters is None else found.known
    limits, whole = values.get(PARAMETER), values.get("ProcessorTimeoutSeconds")
    try:
        known = None if limits is None else parse_limits(limits.split(",") if limits else [])
    except ConfigurationError as error:
        raise RefusedError(str(error)) from None
    publish_settings(
        store,
        Grid(),
        now=EPOCH,
        actions=actions,
        payload_schemas=schemas,
        defaults=Defaults(key_limits=known),
        max_timeout_seconds=None if whole is None else max_timeout_seconds(timedelta(seconds=int(whole))),
    )
    default = {attr.ACTION: values["DefaultAction"]} if "DefaultAction" in values else {}
    try:  # of long ago, when even what has passed by now was still to come
        client = TaskClient(store, clock=lambda: EPOCH)
        client.schedules.sync([{**default, **row} for row in rows], owner=project.name, dry_run=True)
    except InvalidInput as error:
        raise RefusedError("; ".join(map(str, (error, *error.others)))) from None
    return rows


def sync(client: TaskClient, rows: Rows, *, owner: str, dry_run: bool = False) -> Sequence[ScheduleChange]:
    """Makes the schedules of a deployment those that it declares. Its actions were checked against its own handlers:
    the installation may not have them yet."""
    from dynatick.client import TaskClient

    return TaskClient(client.store, check_actions=False).schedules.sync(rows, owner=owner, prune=True, dry_run=dry_run)


def plan(stack: Stack, rows: Rows, *, profile: str | None, say: Say) -> Sequence[ScheduleChange]:
    """What ``sync`` would do with the table that is deployed; if there is none yet, with an empty one. Raises
    DynatickError for a table that can't be read; if nothing is declared, says so instead."""
    from dynatick.client import TaskClient
    from dynatick.store.memory import MemoryStore

    try:
        client = client_of(stack, profile=profile)
        return sync(client or TaskClient(MemoryStore()), rows, owner=stack.name, dry_run=True)
    except DynatickError as error:
        if rows or isinstance(error, InvalidInput):
            raise
        say(f"Whether schedules are to be removed is not known: {error}")
        return []


def line(change: ScheduleChange) -> str:
    """As a change of a resource is shown."""
    return f"  {change.result:<9} {change.schedule_id:<32} {'schedule':<32} {change.reason}".rstrip()
