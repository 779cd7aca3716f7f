"""Commands find stacks by name, the local stack, and plug-ins, and say what is not there."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick.actions.testing import MemoryDeadLetterQueue
from dynatick.cli import app as commands
from dynatick.cli import stack, tick
from dynatick.cli.exit_code import CommandFailed, hint_of
from dynatick.cli.session import Session
from dynatick.client import connect
from dynatick.client.connect import ClientSettings
from dynatick.store.memory import MemoryStore
from dynatick_stack import emulator, folders

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/mine-DeadLetterQueue-1"
NAMES = {"TasksTable": "mine-TasksTable-1", "ProcessorFunction": "mine-ProcessorFunction-1", "DeadLetterQueue": QUEUE}


def error_of(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "DescribeStackResource")


def describe(*, StackName: str, LogicalResourceId: str) -> Mapping[str, Any]:
    """Answers as CloudFormation does for one stack, ``mine``."""
    if StackName != "mine":
        raise error_of("ValidationError", f"Stack '{StackName}' does not exist")
    if LogicalResourceId not in NAMES:
        raise error_of("ValidationError", f"Resource {LogicalResourceId} does not exist for stack {StackName}")
    return {"StackResourceDetail": {"PhysicalResourceId": NAMES[LogicalResourceId]}}


CLOUD_FORMATION = SimpleNamespace(describe_stack_resource=describe)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ClientSettings]:
    """The settings of the tables that were opened."""
    opened: list[ClientSettings] = []
    monkeypatch.setattr(connect, "open_store", lambda settings: opened.append(settings) or MemoryStore())
    monkeypatch.setattr(stack, "aws_client", lambda session, service: CLOUD_FORMATION)
    return opened


TABLE, OTHER = NAMES["TasksTable"], "https://sqs.eu-west-1.amazonaws.com/123456789012/other"


@pytest.mark.parametrize(
    ("options", "environment", "table", "queue"),
    [
        (["--stack", "mine"], {}, TABLE, QUEUE),
        ([], {"STACK": "mine"}, TABLE, QUEUE),
        (["--stack", "mine"], {"TABLE": "other", "DEAD_LETTER_QUEUE_URL": OTHER}, TABLE, QUEUE),
        ([], {"TABLE": "other", "STACK": "mine"}, "other", QUEUE),
        (["--table", "given", "--stack", "mine"], {}, "given", QUEUE),
        (["--table", "t"], {"STACK": "mine", "DEAD_LETTER_QUEUE_URL": OTHER}, "t", OTHER),
        (["--stack", "mine", "--queue-url", OTHER], {}, TABLE, OTHER),
    ],
)
def test_which_table_and_dead_letter_queue_are_meant(
    shell: Shell, opened: list[ClientSettings], monkeypatch: pytest.MonkeyPatch, options: list[str],
    environment: dict[str, str], table: str, queue: str,
) -> None:  # fmt: skip
    named: list[str | None] = []
    empty = MemoryDeadLetterQueue()
    monkeypatch.setattr(connect, "open_queue", lambda asked: named.append(asked.dead_letter_queue_url) or empty)
    for name, value in environment.items():
        monkeypatch.setenv(f"DYNATICK_{name}", value)
    ended = shell("deadletter", "list", *options)
    assert (ended.code, ended.err, named) == (0, "There are none\n", [queue])
    assert [settings.table for settings in opened] == [table]


def test_a_stack_that_is_not_there(shell: Shell, opened: list[ClientSettings]) -> None:
    ended = shell("task", "get", "x", "--stack", "nope")
    message = "error: there is no stack 'nope' there; see --stack, --region and --profile\n"
    assert (ended.code, ended.out, ended.err) == (4, "", message)
    with pytest.raises(
        CommandFailed, match="the stack 'mine' has no Other: it was deleted, or is not of Dynatick's template"
    ):
        stack.resource(Session(), "mine", "Other")
    ended = shell("task", "get", "x", "--stack", "mine", "--local")
    assert ended.err == "error: --stack has no effect with --local; use one of them only\n"
    assert (ended.code, opened) == (2, [])


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (error_of("AccessDeniedException"), "the credentials do not allow it; see --profile"),
        (error_of("ExpiredToken"), "the credentials have expired; log in again"),
        (NoCredentialsError(), "name a profile with --profile, or set AWS_PROFILE"),
        (UnauthorizedSSOTokenError(), "the credentials have expired; log in again, as with aws sso login"),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:4566/"),
         "nothing answers at http://127.0.0.1:4566; start it with dynatick dev in your project, or "
         "make up in a clone; or see --endpoint-url and AWS_ENDPOINT_URL"),
        (ConnectTimeoutError(endpoint_url="https://dynamodb.mars-1.amazonaws.com/"),
         "nothing answers at https://dynamodb.mars-1.amazonaws.com; see --endpoint-url, --region and the network"),
        (error_of("ResourceNotFoundException"),
         "there is no such table there; see --table, --stack, --region and --profile"),
        (error_of("Throttling"), None),
    ],
)  # fmt: skip
def test_what_can_be_done_about_it(
    shell: Shell, opened: list[ClientSettings], monkeypatch: pytest.MonkeyPatch, error: Exception, hint: str | None
) -> None:
    assert hint_of(error) == hint

    def fails(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr(CLOUD_FORMATION, "describe_stack_resource", fails)
    ended = shell("task", "get", "x", "--stack", "mine")
    assert ended.code == 6
    assert ended.err.startswith("error: cannot look up the stack 'mine': ")
    assert hint is None or ended.err.endswith(f" ({hint})\n")


def test_nothing_answers_where_the_table_should_be(shell: Shell) -> None:
    ended = shell("task", "get", "x", "--table", "t", "--endpoint-url", "http://127.0.0.1:9", "--region", "us-east-1")
    assert ended.code == 6
    assert "nothing answers at http://127.0.0.1:9; start it with dynatick dev" in ended.err, (
        "within an error of pynamodb"
    )


def test_a_client_goes_where_the_environment_says_or_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is that of `dynatick local env`, or has AWS_REGION alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4777")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    client = stack.aws_client(Session(), "lambda")
    assert (client.meta.endpoint_url, client.meta.region_name) == ("http://127.0.0.1:4777", "eu-west-3")
    given = stack.aws_client(Session(endpoint_url="http://127.0.0.1:4888", region="us-west-2"), "lambda")
    assert (given.meta.endpoint_url, given.meta.region_name) == ("http://127.0.0.1:4888", "us-west-2")


def test_a_tick_run_with_what_local_env_sets(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    invoked: list[str] = []

    def invoke(*, FunctionName: str, Payload: bytes) -> Mapping[str, object]:
        invoked.append(FunctionName)
        world.handle(json.loads(Payload))
        return {"Payload": io.BytesIO(b"null")}

    services = {"cloudformation": CLOUD_FORMATION, "lambda": SimpleNamespace(invoke=invoke)}
    monkeypatch.setattr(stack, "aws_client", lambda session, service: services[service])
    monkeypatch.setenv("DYNATICK_STACK", "mine")
    shell("task", "add", "x", "--delay", "1")
    world.clock.forward(minutes=1)
    ended = shell("tick", "run", "-o", "json")
    assert (ended.code, invoked) == (0, ["mine-ProcessorFunction-1"])
    assert [one["completed"] for one in ended.json["ticks"]] == [1]


def test_no_dead_letter_queue_is_named(shell: Shell, opened: list[ClientSettings]) -> None:
    ended = shell("deadletter", "list", "--table", "t")
    assert ended.code == 2
    assert ended.err.startswith("error: no dead-letter queue is named: give --queue-url or --stack")


def test_a_plugin_is_a_noun_of_its_own(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer(help="Something else.")

    @app.command()
    def hello() -> None:
        typer.echo("hello")
        raise typer.Exit(7)

    app.command("other")(lambda: None)
    monkeypatch.setitem(sys.modules, "some_plugin", SimpleNamespace(app=app))
    found = EntryPoint("else", "some_plugin:app", commands.GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda group: [found])
    ended = shell("else", "hello")
    assert (ended.code, ended.out) == (7, "hello\n")
    assert "else Something else." in " ".join(shell("--help").out.split())


def test_a_plugin_that_cannot_be_imported(shell: Shell, monkeypatch: pytest.MonkeyPatch, world: InProcess) -> None:
    broken = EntryPoint("local", "nowhere_to_be_found.cli:app", commands.GROUP)
    monkeypatch.setattr(commands, "entry_points", lambda group: [broken])
    for arguments in (["local"], ["local", "up", "--port", "5"]):
        ended = shell(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (
            "error: local needs more packages: pip install 'dynatick[cli]', or in a checkout make setup "
            "(No module named 'nowhere_to_be_found')\n"
        )
    assert "local Needs more packages" in " ".join(shell("--help").out.split())
    assert shell("task", "add", "x").code == 0


def cloud_formation(**outputs: str) -> SimpleNamespace:
    """Answers for a deployed stack."""
    listed = [{"OutputKey": name, "OutputValue": value} for name, value in outputs.items()]
    return SimpleNamespace(
        describe_stacks=lambda: {"Stacks": [{"Outputs": []}, {"Outputs": listed}]}  # another's, and Dynatick's
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The endpoints that were asked for their stack."""
    asked: list[tuple[str, str]] = []
    deployed = cloud_formation(TasksTableName="the-table", ProcessorFunctionName="the-processor")
    monkeypatch.setattr(stack, "local_client", lambda *where: asked.append(where) or deployed)
    return asked


@pytest.mark.parametrize("given", [True, False])
def test_the_local_stack_is_the_one_of_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]], tmp_path: Path, given: bool
) -> None:
    """A task must not end up in the stack of another folder."""
    running = {tmp_path.resolve(): 4777, folders.STATE: 4700}
    monkeypatch.setattr(emulator, "current", lambda *, state_dir: emulator.Emulator(pid=1, port=running[state_dir]))
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(tmp_path) if given else "")
    found = stack.find_local()
    assert found.endpoint == f"http://127.0.0.1:{4777 if given else 4700}"
    assert asked == [("cloudformation", found.endpoint)]
    assert (found.table, found.processor) == ("the-table", "the-processor")


def test_the_local_stack_is_at_an_endpoint_that_is_given_or_at_its_usual_one_without_a_checkout(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]]
) -> None:
    assert stack.find_local("http://127.0.0.1:4999").endpoint == "http://127.0.0.1:4999"
    monkeypatch.setitem(sys.modules, "dynatick_stack.cli", None)
    assert stack.find_local().endpoint == "http://127.0.0.1:4566"


def test_no_local_stack_runs_or_is_deployed(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(tmp_path))
    ended = shell("task", "get", "x", "--local")
    assert ended.code == 6
    assert (
        ended.err
        == "error: The local stack isn't running. Start it: dynatick dev in your project, or make up in a clone\n"
    )
    ended = shell("task", "get", "x", "--local", "--endpoint-url", "http://127.0.0.1:9")
    assert ended.code == 6
    assert ended.err.startswith("error: there is no local stack at http://127.0.0.1:9: start it with dynatick dev")
    monkeypatch.setattr(stack, "local_client", lambda service, endpoint: cloud_formation())
    with pytest.raises(CommandFailed, match="the local stack at http://x is not deployed yet"):
        stack.find_local("http://x")


def test_the_local_stack_is_reached_with_its_own_credentials() -> None:
    local = stack.LocalStack(endpoint="http://127.0.0.1:4566", outputs={})
    mine = ClientSettings(table="t", region="eu-west-1", endpoint_url="https://elsewhere.example", profile="mine")
    assert local.settings(mine) == ClientSettings(
        table="t", region="us-east-1", endpoint_url="http://127.0.0.1:4566", credentials=("test", "test")
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, "Invoke"), 4,
         "cannot invoke p: An error occurred (ResourceNotFoundException) when calling the Invoke operation: no"),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), 6,
         'cannot invoke p: Could not connect to the endpoint URL: "http://127.0.0.1:9"'),
        (None, 1, 'the processor failed: {"errorMessage": "no"}'),
    ],
)  # fmt: skip
def test_a_tick_that_cannot_be_run(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int, message: str
) -> None:
    def invoke(**_: object) -> dict[str, object]:
        if error is not None:
            raise error
        return {"FunctionError": "Unhandled", "Payload": io.BytesIO(b'{"errorMessage": "no"}')}

    monkeypatch.setattr(tick, "_lambda", lambda session: SimpleNamespace(invoke=invoke))
    ended = shell("tick", "run", "--function", "p")
    assert (ended.code, ended.out, ended.err) == (code, "", f"error: {message}\n")


def test_an_endpoint_without_sts_says_nothing_of_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """DynamoDB Local answers in JSON, where botocore reads XML."""

    def answered_in_json() -> object:
        raise ResponseParserError("invalid XML received")

    monkeypatch.setattr(stack, "aws_client", lambda *_, **__: SimpleNamespace(get_caller_identity=answered_in_json))
    assert stack.caller(Session()) is None


def test_the_configuration_of_the_machine_is_read_as_the_sdk_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[profile ops]\nsso_session = corp\n[sso-session corp]\nsso_start_url = https://x\n")
    (tmp_path / "credentials").write_text("[keys]\naws_access_key_id = A\naws_secret_access_key = B\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    found = stack.profiles()
    assert found["ops"]["sso_session"] == "corp"
    assert found["keys"]["aws_access_key_id"] == "A"
    config.write_text("no section")
    assert stack.profiles() == {}
