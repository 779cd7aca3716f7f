"""The local stack's commands: `dynatick local …`, or `python -m dynatick_stack …`."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.cli.output import Output, show_document, show_many, show_one
from dynatick.domain.terminal_text import quoted
from dynatick_stack import emulator, folders, local, logs
from dynatick_stack.deploy import REGION
from dynatick_stack.emulator import PORT
from dynatick_stack.errors import RefusedError, StackError
from dynatick_stack.folders import STATE
from dynatick_stack.interruptions import ends_when_interrupted

app = typer.Typer(
    name="local",
    help="Run Dynatick on this machine: template.yaml on an AWS emulator.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help, as of the other commands.
    rich_markup_mode=None,
)

INTERRUPTED = 130
API_PORT = 8080


def endpoint() -> str:
    """Where the stack of this folder runs, for the commands of ``dynatick``. Raises CommandFailed if it doesn't."""
    folder = os.environ.get("DYNATICK_STATE_DIR")  # as for `dynatick local`: another folder is another stack
    try:
        return emulator.current(state_dir=Path(folder).resolve() if folder else STATE).endpoint
    except StackError as error:
        raise CommandFailed(ExitCode.UNREACHABLE, str(error)) from error


@app.callback()
def main(
    context: typer.Context,
    state_dir: Annotated[
        Path,
        typer.Option(
            envvar="DYNATICK_STATE_DIR",
            show_default=".dynatick/local",
            help="Folder of the local stack; one runs per folder.",
        ),
    ] = STATE,
) -> None:
    context.obj = state_dir.resolve()


Parameter = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME=VALUE", help="Any parameter of the template."),
]
TickMinutes = Annotated[int | None, typer.Option(help="Minutes between two ticks.")]
Print = Annotated[Output, typer.Option("--output", "-o", help="How to print data.")]
ShardCount = Annotated[int | None, typer.Option(help="Index partitions that share a bucket.")]


@app.command()
def up(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the local AWS endpoint; 0: a free one.")] = PORT,
    tick_minutes: TickMinutes = None,
    shard_count: ShardCount = None,
    parameter: Parameter = None,
) -> None:
    """Start the local stack afresh, and say how to use it."""
    with failures(interrupted="Interrupted; nothing is left running"):
        started = time.monotonic()
        parameters = _parameters(tick_minutes, shard_count, parameter)
        if not folders.IS_CHECKOUT and "HandlersModule" not in parameters:
            raise RefusedError("Only a checkout has sample handlers. Run those of your project: dynatick dev")
        stack = local.up(port, parameters, say=say, state_dir=context.obj)
        seconds = time.monotonic() - started
    typer.echo(
        f"Dynatick runs on {stack.endpoint} (ready in {seconds:.0f} s)\n"
        f"  table     {stack.table}\n"
        f"  HTTP API  {stack.outputs['ApiUrl']}\n"
        "\n"
        "Put a task into it, from any shell (or let any AWS tool find it: "
        'eval "$(dynatick local env)"):\n'
        "  AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1 \\\n"
        f"  aws --endpoint-url {quoted(stack.endpoint)} dynamodb put-item \\\n"
        f"    --table-name {quoted(stack.table)} \\\n"
        '    --item \'{"taskId": {"S": "hello"}}\'\n'
        "\n"
        "Watch it: dynatick local logs --follow    Stop it: dynatick local down"
    )


@app.command()
def down(context: typer.Context) -> None:
    """Stop the local stack; what it held is gone."""
    with failures():
        stopped = local.down(state_dir=context.obj)
    typer.echo("Stopped" if stopped else "The local stack wasn't running")


@app.command()
def status(context: typer.Context, output: Print = Output.TABLE) -> None:
    """Say whether the local stack runs, and where. Exit code 6 if it doesn't."""
    with failures():
        running = emulator.current(state_dir=context.obj)
        stack = local.attach(state_dir=context.obj)
        parameters = stack.parameters
    found = {"endpoint": stack.endpoint, "process": running.pid}
    if output is Output.TABLE:
        tick = f"every {parameters['TickMinutes']} min, {parameters['TickState'].lower()}"
        show_one({**found, "tick": tick, "shards": parameters["ShardCount"], **stack.outputs}, output)
    else:
        show_one({**found, "parameters": parameters, "outputs": stack.outputs}, output)


@app.command("env")
def show_env(context: typer.Context, output: Print = Output.TABLE) -> None:
    """Print what makes any AWS tool talk to the local stack: eval "$(dynatick local env)"."""
    with failures():
        stack = local.attach(state_dir=context.obj)
    variables = {
        "AWS_ENDPOINT_URL": stack.endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "DYNATICK_TABLE": stack.table,
        "DYNATICK_STACK": stack.name,
        "DYNATICK_API_URL": stack.outputs["ApiUrl"],
        "DYNATICK_DEAD_LETTER_QUEUE_URL": stack.outputs["DeadLetterQueueUrl"],
        "DYNATICK_TIMEOUT_SECONDS": "30",  # an emulator is slower than a table, on a busy machine much
    }
    if "ImportBucketName" in stack.outputs:
        variables["DYNATICK_IMPORT_BUCKET"] = stack.outputs["ImportBucketName"]
    if output is not Output.TABLE:
        show_one(variables, output)
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={quoted(value)}")


@app.command()
def deploy(
    context: typer.Context,
    tick_minutes: TickMinutes = None,
    shard_count: ShardCount = None,
    parameter: Parameter = None,
) -> None:
    """Deploy the checkout again, with changed code or parameters. Tasks stay."""
    with failures():
        stack = local.attach(state_dir=context.obj)
        stack.redeploy(say=say, **_parameters(tick_minutes, shard_count, parameter))
        parameters = stack.parameters
    typer.echo(f"Deployed: a tick every {parameters['TickMinutes']} min, {parameters['ShardCount']} shard(s)")


@app.command("logs")
def show_logs(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    function: Annotated[str | None, typer.Option(help="Only this one: scheduler, processor, importer or api.")] = None,
    output: Print = Output.TABLE,
) -> None:
    """Show what the functions logged."""
    with failures(interrupted="", code=0):
        stack = local.attach(state_dir=context.obj)
        known = logs.functions(stack.endpoint, stack.name)
        if function is not None and function not in known:
            raise RefusedError(f"There is no function {function}. Known: {', '.join(known)}")
        if follow and output is Output.JSON:
            raise RefusedError("What is followed has no end, so it is no document; take --output jsonl")
        reader = logs.LogReader(stack.endpoint, function=function, stack=stack.name)
        if output is Output.JSON:
            show_many([line.to_row() for line in reader.read()], (), output, name="lines")
            return
        for line in reader.follow() if follow else reader.read():
            if output is Output.JSONL:
                show_document(line.to_row(), output)
                sys.stdout.flush()  # the reader of a pipe gets each line as it comes
            else:
                typer.echo(str(line))


@app.command()
def api(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve it on, on 127.0.0.1.")] = API_PORT,
    table: Annotated[str | None, typer.Option(help="Another table than that of the local stack.")] = None,
    region: Annotated[str | None, typer.Option(help="The AWS region of that table.")] = None,
    profile: Annotated[str | None, typer.Option(help="The AWS profile for that table.")] = None,
    endpoint_url: Annotated[str | None, typer.Option(help="The DynamoDB endpoint of that table.")] = None,
) -> None:
    """Serve the HTTP API of this checkout on this machine, with Swagger UI to try it. Without authorisation."""
    # Here, since other commands need neither the SDK nor the API.
    from dynatick.client import ClientSettings, TaskClient
    from dynatick.client.connect import open_queue, open_store
    from dynatick_stack.api import serve

    with failures(interrupted="", code=0):
        if table is None:
            client = local.attach(state_dir=context.obj).task_client()
        else:
            where = ClientSettings.from_env(
                os.environ, table=table, region=region, profile=profile, endpoint_url=endpoint_url
            )
            client = TaskClient(open_store(where), dead_letter_queue=open_queue(where))
        emulator.refuse_busy_port(
            port, instead=f"make api API_PORT={port + 1}, or dynatick local api --port {port + 1}"
        )
        typer.echo(f"http://127.0.0.1:{port}/docs shows what can be done, and does it. Ctrl-C ends it", err=True)
        serve(client, port)


def _parameters(tick_minutes: int | None, shard_count: int | None, others: list[str] | None) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for other in others or []:
        name, equals, value = other.partition("=")
        if not equals:
            raise typer.BadParameter(f"{other!r} isn't NAME=VALUE", param_hint="--parameter")
        parameters[name] = value
    if tick_minutes is not None:
        parameters["TickMinutes"] = str(tick_minutes)
    if shard_count is not None:
        parameters["ShardCount"] = str(shard_count)
    return parameters


def say(text: str) -> None:
    """What is no answer: how far a command is, and what it leaves out."""
    typer.echo(text, err=True)


@contextmanager
def failures(
    interrupted: str = "Interrupted", code: int = INTERRUPTED, *, of: str = "the emulator doesn't do as asked"
) -> Iterator[None]:
    """Turn failures into a message and an exit code; let being ended clean up as Ctrl-C does. ``of``: the SDK's."""
    try:
        with ends_when_interrupted(interrupted, code):
            yield
    except StackError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except Exception as error:
        from botocore.exceptions import BotoCoreError, ClientError  # here, since help needs no SDK

        if not isinstance(error, (BotoCoreError, ClientError)):
            raise
        typer.echo(f"error: {of}: {error}", err=True)
        raise typer.Exit(1) from None
