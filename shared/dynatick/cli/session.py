"""The options of every command on the table: where the table is, and how to print."""

from __future__ import annotations

import getpass
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Output
from dynatick.domain.instants import relative_time

if TYPE_CHECKING:
    from dynatick.actions.dead_letter_queue import DeadLetterQueue
    from dynatick.cli.stack import LocalStack
    from dynatick.client import DeadLetters, TaskClient
    from dynatick.client.connect import ClientSettings


def user() -> str | None:
    """The user of this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return None


@dataclass(kw_only=True)
class Session:
    """The shared options of one command line."""

    table: Annotated[str | None, typer.Option(help="The table's name. Default: DYNATICK_TABLE.")] = None
    stack: Annotated[
        str | None, typer.Option(help="The CloudFormation stack whose table it is. Default: DYNATICK_STACK.")
    ] = None
    region: Annotated[str | None, typer.Option(help="The AWS region. Default: AWS_REGION, or the profile's.")] = None
    profile: Annotated[str | None, typer.Option(help="The AWS profile. Default: AWS_PROFILE.")] = None
    endpoint_url: Annotated[
        str | None, typer.Option(help="Another endpoint of AWS, as of an emulator. Default: AWS_ENDPOINT_URL.")
    ] = None
    local: Annotated[bool, typer.Option("--local", help="The local stack: its endpoint, table and credentials.")] = (
        False
    )
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print data.")] = Output.TABLE

    def clock(self) -> datetime:
        """The present time: the only clock of the command line."""
        return datetime.now(UTC)

    def time(self, text: str | None, field: str) -> str | Decimal | None:
        """A time as the client takes it. Raises InvalidInput."""
        return None if text is None else relative_time(text, field, self.clock())

    def names_table(self) -> bool:
        """Whether a table is named, by an option or the environment."""
        return bool(self.local or self.table or self.stack or os.environ.get("DYNATICK_TABLE")
                    or os.environ.get("DYNATICK_STACK"))  # fmt: skip

    def client(self) -> TaskClient:
        """A client of the table. Raises CommandFailed if no table is named."""
        # Imported here, since the SDK takes a third of a second to import.
        from dynatick.client import TaskClient
        from dynatick.client.connect import open_store

        store = open_store(self._settings(self._table()))
        return TaskClient(store, clock=self.clock, caller=self.caller, interface="command line")

    def address(self, client: TaskClient) -> str | None:
        """Which table it is of all that have this name. Raises StoreError, ConfigurationError."""
        return getattr(client.store, "address", self.table)

    def dead_letters(self, queue_url: str | None) -> DeadLetters:
        """The dead letters of the installation, or of another queue. Raises CommandFailed if none is named."""
        client = self.client()
        client.dead_letter_queue = self.dead_letter_queue(queue_url)
        return client.dead_letters

    def dead_letter_queue(self, queue_url: str | None) -> DeadLetterQueue | None:
        """The queue that is named, else that of the stack. Raises CommandFailed."""
        from dynatick.client.connect import open_queue

        # The table's name has no effect on a queue.
        return open_queue(self._settings("none", queue_url or self._queue_url()))

    def caller(self) -> str | None:
        """Who uses the command: the ARN of the credentials; of the local stack, or if AWS doesn't say, the user of this
        machine."""
        from dynatick.cli import stack

        return (None if self.local else stack.caller(self)) or user()

    def name(self) -> str:
        """The name of the installation: that of its stack, else of its table. Raises CommandFailed if there is none."""
        if self.stack or self.table or self.local:
            return self.stack or self._table()
        return os.environ.get("DYNATICK_TABLE") or os.environ.get("DYNATICK_STACK") or self._table()

    def processor(self) -> str:
        """The name of the processor function. Raises CommandFailed."""
        if self.local:
            return self.local_stack().processor
        missing = "name the processor function with --function, or its stack with --stack; or use --local"
        return self._of_stack("ProcessorFunction", missing)

    def _settings(self, table: str, queue_url: str | None = None) -> ClientSettings:
        from dynatick.client.connect import ClientSettings

        settings = ClientSettings.from_env(
            os.environ,
            table=table,
            dead_letter_queue_url=queue_url,
            region=self.region,
            endpoint_url=self.endpoint_url,
            profile=self.profile,
        )
        return self.local_stack().settings(settings) if self.local else settings

    def _queue_url(self) -> str:
        """The URL of the dead-letter queue: options take precedence over the environment."""
        if self.local:
            return self.local_stack().outputs["DeadLetterQueueUrl"]
        url = os.environ.get("DYNATICK_DEAD_LETTER_QUEUE_URL")
        if url and not self.stack:
            return url
        missing = (
            "no dead-letter queue is named: give --queue-url or --stack, set DYNATICK_DEAD_LETTER_QUEUE_URL or "
            "DYNATICK_STACK, or use --local"
        )
        return self._of_stack("DeadLetterQueue", missing)  # its physical id is its URL

    def _table(self) -> str:
        """The table's name: options take precedence over the environment."""
        if self.local and self.stack:
            raise CommandFailed(ExitCode.USAGE, "--stack has no effect with --local; use one of them only")
        if self.table:
            return self.table
        if self.local:
            return self.local_stack().table
        table = os.environ.get("DYNATICK_TABLE")
        if table and not self.stack:
            return table
        missing = "no table is named: give --table or --stack, set DYNATICK_TABLE or DYNATICK_STACK, or use --local"
        return self._of_stack("TasksTable", missing)

    def _of_stack(self, name: str, missing: str) -> str:
        """The name of a template's resource in the stack that is named. Raises CommandFailed, with ``missing`` if none
        is."""
        stack = self.stack or os.environ.get("DYNATICK_STACK")
        if not stack:
            raise CommandFailed(ExitCode.USAGE, missing)
        from dynatick.cli.stack import resource

        return resource(self, stack, name)

    def local_stack(self) -> LocalStack:
        """The running local stack. Raises CommandFailed."""
        from dynatick.cli.stack import find_local

        return find_local(self.endpoint_url)


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a command of a function. A parameter whose type is a dataclass gets an option for each field; those of
    Session come last."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    own.sort(key=lambda one: one.annotation is Session)
    groups = {
        one.name: _options(one.annotation)
        for one in own
        if isinstance(one.annotation, type) and is_dataclass(one.annotation)
    }
    kinds = {one.name: one.annotation for one in own}

    def run(**values: Any) -> None:
        for name, options in groups.items():
            values[name] = kinds[name](**{option.name: values.pop(option.name) for option in options})
        function(**values)

    parameters: list[inspect.Parameter] = []
    for one in own:
        parameters += groups.get(one.name) or [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    return run


def command(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a command of ``app``, with options as ``with_options`` makes them."""
    return lambda function: app.command(name)(with_options(function))


def _options(group: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass, as parameters of a command."""
    annotations = inspect.get_annotations(group, eval_str=True)
    return [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotations[option.name]
        )
        for option in fields(group)
    ]
