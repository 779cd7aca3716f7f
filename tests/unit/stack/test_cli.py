"""The local stack's commands refuse wrong input, and end with the right codes."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dynatick_stack import folders, local
from dynatick_stack.cli import app


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stack that a person runs in this checkout is none of the tests' business.
    monkeypatch.setenv("DYNATICK_STATE_DIR", str(tmp_path / "local"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["up", "--parameter", "TickMinute=1"], 3, "There is no parameter TickMinute. Known:"),
        (["up", "--tick-minutes", "7"], 3, "TickMinutes can't be 7. Allowed: 1, 2, 3"),
        (["up", "--shard-count", "257"], 3, "ShardCount can't be 257. Allowed: 1 to 256"),
        (["up", "--parameter", "TaskThreads=many"], 3, "TaskThreads can't be many. Allowed: 1 to 256"),
        (["up", "--parameter", "KeyLimits=customer"], 3, "KeyLimits can't be customer. Limits by key: "),
        (
            ["up", "--parameter", "KeyLimits=a=1,a=2"],
            3,
            "KeyLimits can't be a=1,a=2. KeyLimits: the class a is there t",
        ),
        (["up", "--parameter", "HandlersModule=a b"], 3, "HandlersModule can't be a b."),
        (["up", "--parameter", "TickMinutes"], 2, "isn't NAME=VALUE"),
        (["up", "--port", "99999"], 2, "less than or equal to 65535"),
        (["status"], 6, "The local stack isn't running. Start it: dynatick dev"),
        (["logs"], 6, "isn't running"),
        (["deploy", "--tick-minutes", "5"], 6, "isn't running"),
        (["down"], 0, "The local stack wasn't running"),
    ],
)
def test_refusals(arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert said in result.output
    assert result.exit_code == code


def test_a_busy_port_is_named_with_another_to_choose_and_has_a_code_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("up", "--port", str(port))
    assert f"Port {port} is in use by another program" in result.output
    assert f"PORT={port + 1}" in result.output
    assert result.exit_code == 5


def test_an_installed_release_has_no_handlers_to_start_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "IS_CHECKOUT", False)
    result = run("up")
    assert "Run those of your project: dynatick dev" in result.output
    assert result.exit_code == 3


def test_env_names_the_stack_so_that_every_command_works_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {"TasksTableName": "t", "ApiUrl": "http://api", "DeadLetterQueueUrl": "http://queue"}
    stack = local.LocalStack(endpoint="http://127.0.0.1:4777", outputs=outputs)
    monkeypatch.setattr(local, "attach", lambda *, state_dir: stack)
    lines = run("env").output.splitlines()
    assert "export DYNATICK_STACK=dynatick" in lines and "export DYNATICK_TABLE=t" in lines
    assert "export AWS_ENDPOINT_URL=http://127.0.0.1:4777" in lines
