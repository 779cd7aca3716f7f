"""The local stack as a person uses it: by command, in any state that it may be in."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.ports import reserved_port

from dynatick_stack import deploy, emulator, local, processes
from dynatick_stack.errors import BuildError
from dynatick_stack.local import LocalStack
from dynatick_stack.venv import VENV

pytestmark = pytest.mark.long

COMMAND = (sys.executable, "-m", "dynatick_stack")


def run(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def listening(pid: int) -> set[str]:
    """Addresses that a process listens on, as /proc has them."""
    sockets = {
        link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.readlink().name.startswith("socket:")
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].rpartition(":")[0])
    return found


def test_up_says_how_to_use_it_and_down_leaves_nothing(own_state: Path) -> None:
    up = run("up", "--port", "0", "--tick-minutes", "5")
    assert up.returncode == 0, up.stderr
    stack = local.attach(state_dir=own_state)
    assert f"aws --endpoint-url {stack.endpoint} dynamodb put-item" in up.stdout
    assert stack.table in up.stdout

    status = run("status")
    assert status.returncode == 0
    assert "every 5 min" in status.stdout
    for value in stack.outputs.values():
        assert value in status.stdout
    shown = json.loads(run("status", "--output", "json").stdout)
    assert (shown["endpoint"], shown["outputs"]) == (stack.endpoint, stack.outputs)
    assert shown["parameters"]["TickMinutes"] == "5"

    environment = run("env").stdout
    assert f"export AWS_ENDPOINT_URL={stack.endpoint}\n" in environment
    assert f"export DYNATICK_TABLE={stack.table}\n" in environment
    assert json.loads(run("env", "-o", "jsonl").stdout)["DYNATICK_TABLE"] == stack.table

    changed = run("deploy", "--tick-minutes", "2", "--shard-count", "3")
    assert changed.stdout.strip() == "Deployed: a tick every 2 min, 3 shard(s)"

    # What ran is seen, and only so far as it says something.
    logged = run("logs", "--function", "processor")
    assert logged.returncode == 0
    assert "processor" in logged.stdout
    assert "REPORT" not in logged.stdout
    records = [json.loads(line) for line in run("logs", "-o", "jsonl").stdout.splitlines()]
    assert {"processor"} <= {record["function"] for record in records}

    down = run("down")
    assert (down.returncode, down.stdout.strip()) == (0, "Stopped")
    assert processes.running(own_state) == {}
    assert not own_state.exists()
    assert run("status").returncode == 6


def test_each_start_is_fresh_and_says_so(own_state: Path) -> None:
    """This holds for the remains of a killed emulator, too."""
    first = local.up(0, state_dir=own_state)
    port = first.endpoint.rpartition(":")[2]
    key = {"taskId": {"S": "from-before"}}
    first.client("dynamodb").put_item(TableName=first.table, Item=key)
    said: list[str] = []
    second = local.up(0, state_dir=own_state, say=said.append)
    assert any("each start is fresh" in line and port in line for line in said)
    assert "Item" not in second.client("dynamodb").get_item(TableName=second.table, Key=key)

    pid = processes.emulator(own_state)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert processes.wait_until(lambda: processes.emulator(own_state) is None, 60)
    assert run("status").returncode == 6
    said.clear()
    assert local.up(0, state_dir=own_state, say=said.append).outputs
    assert any("left behind" in line or "each start is fresh" in line for line in said)


def test_a_busy_port_leaves_what_runs_alone(own_state: Path) -> None:
    local.up(0, state_dir=own_state)
    running = processes.emulator(own_state)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = run("up", "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 5
    assert "Choose another" in refused.stderr
    assert processes.emulator(own_state) == running


def test_of_those_that_start_at_the_same_moment_one_has_the_usual_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name / "local" for name in ("a", "b", "c")]
    try:
        with reserved_port() as usual, ThreadPoolExecutor() as threads:
            monkeypatch.setattr(emulator, "PORT", usual)
            started = list(threads.map(lambda at: emulator.start(None, state_dir=at, say=print), folders))
        assert [processes.emulator(at) for at in folders] == [one.pid for one in started]
        ports = {one.port for one in started}
        assert len(ports) == 3
        assert emulator.PORT in ports
    finally:
        for at in folders:
            emulator.stop(state_dir=at)


@pytest.mark.parametrize(
    ("until", "number"),
    [
        ("emulator", signal.SIGINT),
        ("deployment", signal.SIGTERM),
        ("deployment", signal.SIGKILL),
        pytest.param("emulator", signal.SIGTERM, marks=pytest.mark.night),
        pytest.param("emulator", signal.SIGKILL, marks=pytest.mark.night),
        pytest.param("deployment", signal.SIGINT, marks=pytest.mark.night),
    ],
)
def test_an_interrupted_start(own_state: Path, number: signal.Signals, until: str) -> None:
    child = subprocess.Popen([*COMMAND, "up", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert processes.wait_until(lambda: processes.emulator(own_state) is not None, 60, every=0.005)
    if until == "deployment":
        assert processes.wait_until(lambda: emulator._recorded(own_state) is not None, 60, every=0.005)
        starting = emulator.current(state_dir=own_state)
        assert processes.wait_until(lambda: emulator._answers(starting.port), 60, every=0.005)
        assert processes.wait_until(lambda: bool(deploy.stack_at(starting.endpoint).parameters()), 60, every=0.005)
    child.send_signal(number)
    # People are impatient.
    child.send_signal(number)
    _, errors = child.communicate(timeout=300)
    if number == signal.SIGKILL:
        # Nobody could clean up: the next start does.
        assert local.up(0, state_dir=own_state).outputs
        assert len([line for line in processes.running(own_state).values() if processes.marker(own_state) in line]) == 1
    else:
        assert child.returncode == 130
        assert b"nothing is left running" in errors
        assert processes.running(own_state) == {}


def test_an_interruption_at_the_worst_moment(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two lines, when the emulator is there and nobody has noted so."""
    start_process = subprocess.Popen

    def interrupted(command: list[object], *arguments: Any, **options: Any) -> Any:
        process = start_process(command, *arguments, **options)
        if emulator.PROGRAM in command:
            os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(emulator.subprocess, "Popen", interrupted)
    # Anyone who runs the tests in the background may have set it to be ignored, which is inherited.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            local.up(0, state_dir=own_state)
    finally:
        signal.signal(signal.SIGINT, before)
    assert processes.running(own_state) == {}


def test_a_start_that_fails_early_leaves_what_runs_alone(own_state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local.up(0, state_dir=own_state)
    running = processes.emulator(own_state)

    def no_emulator(_say: object) -> Path:
        raise BuildError("there is no package index")

    monkeypatch.setattr(emulator, "emulator_python", no_emulator)
    with pytest.raises(BuildError):
        local.up(0, state_dir=own_state)
    assert processes.emulator(own_state) == running is not None


def test_two_starts_at_once(own_state: Path) -> None:
    children = [subprocess.Popen([*COMMAND, "up", "--port", "0"], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [child.communicate(timeout=300)[1].decode() for child in children]
    codes = sorted(child.returncode for child in children)
    # The later one is reported, or came late enough to start afresh.
    assert codes in ([0, 5], [0, 0]), errors
    if codes == [0, 5]:
        assert any("Another start is under way" in text for text in errors)
    assert len([line for line in processes.running(own_state).values() if processes.marker(own_state) in line]) == 1


def test_a_refused_deployment_is_explained_and_cleaned_up(own_state: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("shared", "functions", "requirements"):
        (root / name).symlink_to(Path.cwd() / name)
    text = Path("template.yaml").read_text()
    # The emulator knows no metric math, and finds out only while it creates the alarm.
    simple, math = "      MetricName: TickAge\n", "      Metrics: [{ Id: a, Expression: b + c }]\n"
    assert simple in text
    (root / "template.yaml").write_text(text.replace(simple, math))
    with pytest.raises(deploy.DeployError, match="NoTickAlarm"):
        local.up(0, state_dir=own_state, root=root)
    assert processes.running(own_state) == {}


# --- The deployed template ----------------------------------------------------


def test_nothing_is_bound_beyond_this_machine(stack: LocalStack) -> None:
    if not Path("/proc/net/tcp").exists():
        pytest.skip("reads /proc")
    port = int(stack.endpoint.rpartition(":")[2])
    ours: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if f"dynatick={stack.state_dir}".encode() in (folder / "cmdline").read_bytes():
                ours.append(int(folder.name))
    assert ours
    for pid in ours:
        assert listening(pid) == {"0100007F"}, port


def test_the_dashboard_is_deployed(stack: LocalStack) -> None:
    answer = stack.client("cloudwatch").get_dashboard(DashboardName=f"{stack.name}-us-east-1")
    alarms, tasks, *others = json.loads(answer["DashboardBody"])["widgets"]
    there = {one["AlarmArn"] for one in stack.client("cloudwatch").describe_alarms()["MetricAlarms"]}
    assert set(alarms["properties"]["alarms"]) <= there
    assert tasks["properties"]["metrics"][0][3] == f"{stack.name}-processor"
    queue = stack.outputs["DeadLetterQueueUrl"].rpartition("/")[2]
    assert any(queue in entry for one in others for entry in one["properties"]["metrics"])
    assert "${" not in answer["DashboardBody"]


def test_a_chain_of_invocations_is_as_long_as_the_template_allows(stack: LocalStack) -> None:
    function = stack.outputs["ProcessorFunctionName"]
    held = stack.client("lambda").get_function_recursion_config(FunctionName=function)
    assert held["RecursiveLoop"] == "Allow"


def test_functions_run_on_the_layers_libraries(stack: LocalStack) -> None:
    """The emulator has boto3 and pydantic of its own, in other versions, on the functions' path."""
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", Path("requirements/layer.txt").read_text(), re.MULTILINE))
    shipped = {
        name.lower().replace("_", "-"): version
        for name, version in (
            folder.name.removesuffix(".dist-info").rsplit("-", 1)
            for folder in (stack.state_dir / "libraries").glob("*.dist-info")
        )
    }
    assert shipped == locked
    # As the emulator starts its workers: with its own interpreter, and our folder before its libraries.
    program = [VENV / "bin" / "python", "-c", "import botocore; print(botocore.__file__)"]
    path = {"PYTHONPATH": str(stack.state_dir / "libraries")}
    where = subprocess.run(program, env=path, capture_output=True, text=True, check=True).stdout
    assert Path(where).is_relative_to(stack.state_dir / "libraries")
