"""What the commands find around them: plug-ins, the local stack, the processor function."""

from __future__ import annotations

import io
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from botocore.exceptions import ClientError, EndpointConnectionError
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick.cli import local_stack, plugins, tick
from dynatick.cli.exit_code import CommandFailed
from dynatick.client.connect import ClientSettings
from dynatick_stack import emulator, folders


def test_a_plugin_is_a_noun_of_its_own(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer(help="Something else.")

    @app.command()
    def hello() -> None:
        typer.echo("hello")
        raise typer.Exit(7)

    app.command("other")(lambda: None)
    monkeypatch.setitem(sys.modules, "some_plugin", SimpleNamespace(app=app))
    found = EntryPoint("else", "some_plugin:app", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [found])
    ended = shell("else", "hello")
    assert (ended.code, ended.out) == (7, "hello\n")
    assert "else Something else." in " ".join(shell("--help").out.split())


def test_a_plugin_that_cannot_be_imported(shell: Shell, monkeypatch: pytest.MonkeyPatch, world: InProcess) -> None:
    broken = EntryPoint("local", "nowhere_to_be_found.cli:app", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken])
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
    stack = cloud_formation(TasksTableName="the-table", ProcessorFunctionName="the-processor")
    monkeypatch.setattr(local_stack, "aws_client", lambda *where: asked.append(where) or stack)
    return asked


@pytest.mark.parametrize("given", [True, False])
def test_the_local_stack_is_the_one_of_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]], tmp_path: Path, given: bool
) -> None:
    """As with `dynatick local`: a task must not end up in the stack of another folder."""
    running = {tmp_path.resolve(): 4777, folders.STATE: 4700}
    monkeypatch.setattr(emulator, "current", lambda *, state_dir: emulator.Emulator(pid=1, port=running[state_dir]))
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(tmp_path) if given else "")
    found = local_stack.find()
    assert found.endpoint == f"http://127.0.0.1:{4777 if given else 4700}"
    assert asked == [("cloudformation", found.endpoint)]
    assert (found.table, found.processor) == ("the-table", "the-processor")


def test_the_local_stack_is_at_an_endpoint_that_is_given_or_at_its_usual_one_without_a_checkout(
    monkeypatch: pytest.MonkeyPatch, asked: list[tuple[str, str]]
) -> None:
    assert local_stack.find("http://127.0.0.1:4999").endpoint == "http://127.0.0.1:4999"
    monkeypatch.setitem(sys.modules, "dynatick_stack.cli", None)
    assert local_stack.find().endpoint == "http://127.0.0.1:4566"


def test_a_local_stack_that_does_not_run_or_is_not_deployed_yet(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(tmp_path))
    ended = shell("task", "get", "x", "--local")
    assert ended.code == 6
    assert ended.err == "error: The local stack isn't running. Start it: make up, or dynatick dev in your project\n"
    ended = shell("task", "get", "x", "--local", "--endpoint-url", "http://127.0.0.1:9")
    assert ended.code == 6
    assert ended.err.startswith("error: there is no local stack at http://127.0.0.1:9: start it with make up")
    monkeypatch.setattr(local_stack, "aws_client", lambda service, endpoint: cloud_formation())
    with pytest.raises(CommandFailed, match="the local stack at http://x is not deployed yet"):
        local_stack.find("http://x")


def test_the_local_stack_is_reached_with_its_own_credentials() -> None:
    stack = local_stack.LocalStack(endpoint="http://127.0.0.1:4566", outputs={})
    mine = ClientSettings(table="t", region="eu-west-1", endpoint_url="https://elsewhere.example", profile="mine")
    assert stack.settings(mine) == ClientSettings(
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
