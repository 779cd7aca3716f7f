"""Files of tasks, by both interfaces: dropped into the bucket, and by the command line that is interrupted half-way."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import key_of
from tests.e2e.programs import DYNATICK, environment, run
from tests.e2e.support import DeployedStack, deployed, eventually

from dynatick.domain.instants import format_instant
from dynatick_stack.deploy import STACK

pytestmark = pytest.mark.long

PER_BUCKET = 500


@pytest.fixture(scope="module")
def importing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedStack]:
    with deployed(tmp_path_factory.mktemp("import") / "local", ImportBucket="yes") as world:
        yield world


def listed(world: DeployedStack, prefix: str) -> list[dict[str, Any]]:
    bucket = world.stack.outputs["ImportBucketName"]
    answer = world.stack.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)
    found: list[dict[str, Any]] = answer.get("Contents", [])
    return found


def text_of(world: DeployedStack, key: str) -> str:
    answer = world.stack.client("s3").get_object(Bucket=world.stack.outputs["ImportBucketName"], Key=key)
    return str(answer["Body"].read().decode())


def drop(world: DeployedStack, name: str, text: str, *, within: float = 60) -> dict[str, Any]:
    """Drops a file and waits for its report."""
    key = f"reports/{name}.json"
    before = {one["Key"]: one["LastModified"] for one in listed(world, "reports/")}
    bucket = world.stack.outputs["ImportBucketName"]
    world.stack.client("s3").put_object(Bucket=bucket, Key=f"imports/{name}", Body=text.encode())

    def is_there() -> bool:
        return any(one["Key"] == key and one["LastModified"] != before.get(key) for one in listed(world, "reports/"))

    eventually(is_there, within=within, what=lambda: "\n".join(map(str, world.stack.logs(function="importer"))))
    report: dict[str, Any] = json.loads(text_of(world, key))
    return report


def errors_of(world: DeployedStack, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the errors written beside a file, from all parts."""
    return [json.loads(line) for one in listed(world, report["errors"])
            for line in text_of(world, one["Key"]).splitlines()]  # fmt: skip


def test_a_file_that_is_dropped_becomes_tasks_that_run(importing: DeployedStack) -> None:
    url = f"{importing.receiver.url}/dropped"
    lines = [
        json.dumps({"taskId": f"d{n}", "delaySeconds": 1, "action": "webhook", "payload": {"url": url}})
        for n in range(60)
    ]
    lines += ['{"taskId": "untimed"}', '{"taskId": "bad", "dueAt": "tomorrow"}', "no json"]
    report = drop(importing, "a folder/tasks.ndjson", "\n".join(lines))
    assert (report["inserted"], report["exists"], report["refused"]) == (61, 0, 2)
    assert [(error["line"], error["field"], error["text"]) for error in errors_of(importing, report)] == [
        (62, "dueAt", lines[61]), (63, "line", "no json"),
    ]  # fmt: skip
    ended = importing.run_to_end([*(f"d{n}" for n in range(60)), "untimed"])
    assert all(importing.runs(f"d{n}") == [("/dropped", key_of(ended[f"d{n}"]))] for n in range(60))

    again = drop(importing, "a folder/tasks.ndjson", "\n".join(lines))
    assert (again["inserted"], again["exists"], again["refused"]) == (0, 61, 2)
    assert again["sequencer"] > report["sequencer"]


def due(start: datetime, number: int) -> str:
    """When the line of this number is due: a few hundred share a bucket. For each page that is read of a bucket, the
    emulator goes through all of it, and on a busy machine it does not answer in time for one of tens of thousands."""
    return format_instant(start + timedelta(minutes=number // PER_BUCKET))


def held(world: DeployedStack, start: datetime, total: int) -> int:
    """How many tasks the buckets hold over which ``due`` has spread a given number of lines."""
    end = start + timedelta(minutes=-(-total // PER_BUCKET))
    return sum(one.total for one in world.client.bucket_counts(start=start, end=end))


def test_schedules_are_dropped_too(importing: DeployedStack) -> None:
    """Batches write them, which the emulator's stream does not show: they must run all the same."""
    url = f"{importing.receiver.url}/recurring"
    schedule = {"scheduleExpression": "rate(1 minute)", "action": "webhook", "payload": {"url": url}}
    lines = [json.dumps({"taskId": f"recurring-{n}", **schedule}) for n in range(3)]
    lines.append('{"taskId": "recurring-bad", "scheduleExpression": "every day"}')
    report = drop(importing, "recurring.ndjson", "\n".join(lines))
    assert (report["inserted"], report["refused"]) == (3, 1)
    (error,) = errors_of(importing, report)
    assert (error["line"], error["field"]) == (4, "scheduleExpression")
    shown = [importing.client.schedules.get(f"recurring-{n}") for n in range(3)]
    runs = [f"{one.schedule_id}#1#{format_instant(at)}" for one in shown if (at := one.next_occurrence_at) is not None]
    assert len(runs) == 3
    importing.run_to_end(runs)
    for one in shown:
        importing.client.schedules.delete(one.schedule_id)


def test_a_large_file_takes_several_invocations(importing: DeployedStack) -> None:
    """The function has little time. Each line has one answer."""
    total, wrong = 60_000, 80
    start = datetime(2030, 4, 1, tzinfo=UTC)
    lines = [json.dumps({"taskId": f"large-{n}", "dueAt": due(start, n)}) for n in range(total)]
    for n in range(0, total, total // wrong):
        lines[n] = f"no task {n}"
    function = next(
        one["PhysicalResourceId"]
        for one in importing.stack.client("cloudformation").describe_stack_resources(StackName=STACK)["StackResources"]
        if one["LogicalResourceId"] == "ImporterFunction"
    )
    client = importing.stack.client("lambda")
    client.update_function_configuration(FunctionName=function, Timeout=10)
    try:
        report = drop(importing, "large.ndjson", "\n".join(lines), within=180)
    finally:
        client.update_function_configuration(FunctionName=function, Timeout=300)
    assert (report["inserted"] + report["exists"], report["refused"]) == (total - wrong, wrong)
    assert sorted(error["line"] for error in errors_of(importing, report)) == list(range(1, total, total // wrong))
    assert len(listed(importing, report["errors"])) >= 2  # each invocation writes its own
    assert held(importing, start, total) == total - wrong


@pytest.mark.parametrize(
    ("number", "start"),
    [
        pytest.param(signal.SIGINT, datetime(2030, 2, 1, tzinfo=UTC), marks=pytest.mark.night),
        (signal.SIGKILL, datetime(2030, 2, 2, tzinfo=UTC)),
    ],
    ids=["SIGINT", "SIGKILL"],
)
def test_an_import_that_is_interrupted_goes_on(
    importing: DeployedStack, tmp_path: Path, number: signal.Signals, start: datetime
) -> None:
    total = 20_000  # so that it lasts until another client has looked
    file = tmp_path / "tasks.ndjson"
    task = '{"taskId": "%s-%d", "dueAt": "%s", "action": "log"}\n'
    file.write_text("".join(task % (number.name, n, due(start, n)) for n in range(total)))
    state_dir = str(importing.stack.state_dir)

    def interrupted(command: list[str], note: Path) -> None:
        """Runs a command until it has noted how far it is."""
        with subprocess.Popen(
            command, env=environment(DYNATICK_STATE_DIR=state_dir), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # Else it would be ignored where the tests themselves run in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        ) as process:  # fmt: skip
            eventually(lambda: note.exists() or process.poll() is not None, within=180, what="the note")
            process.send_signal(number)
            _, said = process.communicate(timeout=300)
        assert note.exists(), said
        if number is signal.SIGINT:
            assert (process.returncode, said.splitlines()[-1]) == (130, "error: interrupted")

    def again(command: list[str]) -> subprocess.CompletedProcess[str]:
        done = run(*command, DYNATICK_STATE_DIR=state_dir)
        assert done.returncode == 0, done.stderr
        return done

    command = [*DYNATICK, "task", "import", str(file), "--local", "--output", "json"]
    noted = tmp_path / "tasks.ndjson.progress"
    interrupted(command, noted)
    line = json.loads(noted.read_text())["place"]["line"]
    assert 1 < line < total
    imported = again(command)
    assert f"Continuing at line {line}" in imported.stderr
    counts = json.loads(imported.stdout)
    assert counts["inserted"] + counts["exists"] == total and counts["refused"] == counts["unknown"] == 0
    assert held(importing, start, total) == total
    assert not noted.exists()

    out = tmp_path / "out.ndjson"
    span = ["--from", due(start, 0), "--to", due(start, total)]
    command = [*DYNATICK, "task", "export", str(out), "--local", *span]
    note = tmp_path / "out.ndjson.progress"
    interrupted(command, note)
    assert again(command).stderr.startswith("Continuing after ") and not note.exists()
    found = [json.loads(line)["taskId"] for line in out.read_text().splitlines()]
    assert len(found) == total
    assert {f"{number.name}-{n}" for n in range(total)} == set(found)
