"""What commands that talk to the table share: the options that say where it is, and how to print."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from dynatick.cli.exits import CommandFailed, ExitCode
from dynatick.cli.output import Output

if TYPE_CHECKING:
    from dynatick.cli.localstack import LocalStack
    from dynatick.client import TaskClient

P = ParamSpec("P")


@dataclass(kw_only=True)
class Session:
    """The shared options of one command line, under the names that typer shows them by."""

    table: Annotated[str | None, typer.Option(help="The table's name. Default: DYNATICK_TABLE.")] = None
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
        """The present instant: the only clock of the command line."""
        return datetime.now(UTC)

    def client(self) -> TaskClient:
        """A client of the table that is meant. Raises CommandFailed if none is."""
        # The SDK takes a third of a second to import: only commands that need it pay.
        from dynatick.client import TaskClient
        from dynatick.client.connect import ClientSettings, open_store

        if not self.local and not self.table and not os.environ.get("DYNATICK_TABLE"):
            message = "no table is named: give --table, set DYNATICK_TABLE, or use --local"
            raise CommandFailed(ExitCode.USAGE, message)
        settings = ClientSettings.from_env(
            os.environ,
            table=self.table or (self.local_stack().table if self.local else None),
            region=self.region,
            endpoint_url=self.endpoint_url,
            profile=self.profile,
        )
        if self.local:
            settings = self.local_stack().settings(settings)
        return TaskClient(open_store(settings), clock=self.clock)

    def local_stack(self) -> LocalStack:
        """The local stack that runs. Raises CommandFailed."""
        from dynatick.cli.localstack import find

        return find(self.endpoint_url)


def on_table(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """A command that gets a Session as its first argument, and its options after those of its own."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    annotations = inspect.get_annotations(Session, eval_str=True)
    shared = [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotations[option.name]
        )
        for option in fields(Session)
    ]

    def run(**values: Any) -> None:
        session = Session(**{option.name: values.pop(option.name) for option in shared})
        command(session, **values)  # type: ignore[call-arg]  # typer passes what the signature names

    parameters = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run
