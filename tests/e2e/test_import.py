"""Files of tasks, by both doors: dropped into the bucket, and by the command line that is interrupted half-way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support import World, deployed, eventually

COMMAND = Path(sys.executable).with_name("dynatick")


@pytest.fixture(scope="module")
def importing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with deployed(tmp_path_factory.mktemp("import") / "local", ImportBucket="yes") as world:
        yield world


def drop(world: World, name: str, text: str) -> dict[str, Any]:
    """Drops a file and waits for its report."""
    s3, bucket = world.stack.client("s3"), world.stack.outputs["ImportBucketName"]
    key = f"reports/{name}.json"
    before = {one["Key"]: one["LastModified"] for one in listed(world, "reports/")}
    s3.put_object(Bucket=bucket, Key=f"imports/{name}", Body=text.encode())

    def is_there() -> bool:
        return any(one["Key"] == key and one["LastModified"] != before.get(key) for one in listed(world, "reports/"))

    eventually(is_there, within=60, what=lambda: "\n".join(map(str, world.stack.logs(function="importer"))))
    report: dict[str, Any] = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    return report


def listed(world: World, prefix: str) -> list[dict[str, Any]]:
    bucket = world.stack.outputs["ImportBucketName"]
    found: list[dict[str, Any]] = (
        world.stack.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    )
    return found


@pytest.mark.slow
def test_a_file_that_is_dropped_becomes_tasks_that_run(importing: World) -> None:
    url = f"{importing.receiver.url}/dropped"
    lines = [
        json.dumps({"taskId": f"d{n}", "delaySeconds": 1, "action": "webhook", "payload": {"url": url}})
        for n in range(60)
    ]
    lines += ['{"taskId": "untimed"}', '{"taskId": "bad", "dueAt": "tomorrow"}', "no json"]
    report = drop(importing, "a folder/tasks.ndjson", "\n".join(lines))
    assert (report["inserted"], report["exists"], report["refused"]) == (61, 0, 2)
    (errors,) = listed(importing, report["errors"])
    s3, bucket = importing.stack.client("s3"), importing.stack.outputs["ImportBucketName"]
    told = [json.loads(line) for line in s3.get_object(Bucket=bucket, Key=errors["Key"])["Body"].read().splitlines()]
    assert [(error["line"], error["field"], error["text"]) for error in told] == [
        (62, "dueAt", lines[61]), (63, "line", "no json"),
    ]  # fmt: skip
    importing.run_to_end([*(f"d{n}" for n in range(60)), "untimed"])
    assert all(importing.runs(f"d{n}") == [("/dropped", f"d{n}#1")] for n in range(60))

    again = drop(importing, "a folder/tasks.ndjson", "\n".join(lines))
    assert (again["inserted"], again["exists"], again["refused"]) == (0, 61, 2)
    assert again["sequencer"] > report["sequencer"]


@pytest.mark.slow
def test_csv_and_a_single_object_are_dropped_too(importing: World) -> None:
    report = drop(
        importing, "tasks.csv", 'taskId,dueAt,payload.text\r\nc1,2030-01-01T12:00:00Z,"Dear Ada,\r\nhello"\r\n'
    )
    assert report["inserted"] == 1 and report["errors"] is None
    assert importing.the("c1")["payload"] == {"text": "Dear Ada,\r\nhello"}
    drop(importing, "one.json", '{\n  "taskId": "o1",\n  "dueAt": "2030-01-01T12:00:00Z"\n}\n')
    assert importing.the("o1")["taskDateTime"] == "2030-01-01#12:00"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_interrupted_goes_on(importing: World, tmp_path: Path, number: signal.Signals) -> None:
    total = 12_000
    file = tmp_path / "tasks.ndjson"
    task = '{"taskId": "%s-%d", "dueAt": "2030-02-01T12:00:00Z", "action": "log"}\n'
    file.write_text("".join(task % (number.name, n) for n in range(total)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DYNATICK_"))}
    environment["DYNATICK_STATE_DIR"] = str(importing.stack.state_dir)
    command = [str(COMMAND), "task", "import", str(file), "--local", "--output", "json"]
    noted = tmp_path / "tasks.ndjson.progress"
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Else it would be ignored where the tests themselves run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as process:
        eventually(noted.exists, within=60, what="the note of how far it is")
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    if number is signal.SIGINT:
        assert (process.returncode, said.splitlines()[-1]) == (130, "error: interrupted")
    line = json.loads(noted.read_text())["place"]["line"]
    assert 1 < line < total
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    assert f"Going on at line {line}" in again.stderr
    counts = json.loads(again.stdout)
    assert counts["inserted"] + counts["exists"] == total and counts["refused"] == counts["failed"] == 0
    (held,) = importing.client.bucket_counts("2030-02-01#12:00")
    assert held.total % total == 0
    assert not noted.exists()


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_an_export_quietly(importing: World) -> None:
    list(importing.client.insert_many({"taskId": f"x{n}", "taskDateTime": "2030-03-01#12:00"} for n in range(3000)))
    environment = os.environ | {"DYNATICK_STATE_DIR": str(importing.stack.state_dir)}
    pipe = f"'{COMMAND}' task export --local --bucket '2030-03-01#12:00' | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", pipe], env=environment, capture_output=True, text=True, timeout=60, check=False)
    first, code = ran.stdout.splitlines()
    assert json.loads(first)["taskId"] == "x0" and code == "141"
    assert "Traceback" not in ran.stderr and "error" not in ran.stderr
