"""docs/how-to/coming-from.md: its commands say what it shows, and its programs work."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell, documented

from dynatick import PermanentError, TaskClient
from dynatick.cli.session import Session

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "coming-from.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HANDLER, CELERY = (text for language, text in BLOCK.findall(PAGE) if language == "python")

SCHEDULES = {
    "nightly": {
        "GroupName": "sales",
        "ScheduleExpression": "cron(30 3 ? * MON-FRI *)",
        "ScheduleExpressionTimezone": "Europe/Berlin",
        "Target": {"Arn": "arn:aws:lambda:eu-west-1:123456789012:function:report", "Input": '{"kind": "sales"}'},
    },
    "stop": {
        "GroupName": "default",
        "ScheduleExpression": "at(2027-06-01T20:00:00)",
        "Target": {"Arn": "arn:aws:scheduler:::aws-sdk:ec2:stopInstances", "Input": '{"InstanceIds": ["i-1"]}'},
    },
}
CRONTAB = """\
CRON_TZ=Europe/Berlin
*/10 * * * * poll --all
30 2 * * 0 report
0 9 1 * 5 bill
"""
# Stand in for the commands of AWS and of cron.
PROGRAMS = {
    "aws": f"""\
import json, sys
schedules = {SCHEDULES!r}
if sys.argv[2] == "list-schedules":
    for name, one in schedules.items():
        print(one["GroupName"], name, sep="\\t")
else:
    name = sys.argv[sys.argv.index("--name") + 1]
    assert sys.argv[sys.argv.index("--group-name") + 1] == schedules[name]["GroupName"]
    print(json.dumps({{"Name": name, "State": "ENABLED", **schedules[name]}}, indent=4))
""",
    "crontab": f"print({CRONTAB!r}, end='')",
}


def test_the_commands_say_what_the_page_shows(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        executable = tmp_path / "bin" / name
        executable.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        executable.chmod(0o755)
    script = "\n".join(["set -euo pipefail", *(text for language, text in BLOCK.findall(PAGE) if language == "sh")])
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], env={**os.environ, "PATH": path}, check=True, timeout=60)
    imports = []
    for command, *lines in documented("how-to/coming-from.md"):
        program, *arguments = shlex.split(command)
        if program == "cat":
            printed = Path(arguments[0]).read_text(encoding="utf-8")
        else:
            imports.append([one for one in arguments if one != "--dry-run"])
            ended = shell(*arguments)
            printed = ended.out + ended.err
        assert [line.rstrip() for line in printed.splitlines()] == lines, command
    monkeypatch.setattr(world.actions, "names", lambda: ["lambda", "run-command"])
    world.next_tick()
    counts = [shell(*arguments, "-o", "json").json for arguments in imports]
    assert [(one["inserted"], one["refused"]) for one in counts] == [(1, 1), (2, 1)], "as the dry runs said"
    assert world.row("sales/nightly")["action"] == "lambda"


def test_a_dry_run_checks_payloads_by_the_table_that_is_named_and_errors_go_to_a_file(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.actions, "names", lambda: ["run-command"])
    form = {"type": "object", "properties": {"argv": {"type": "array"}}, "required": ["argv"]}
    monkeypatch.setattr(world.actions, "payload_schemas", lambda: {"run-command": json.dumps(form)})
    world.next_tick()
    monkeypatch.setattr(Session, "client", lambda self: TaskClient(world.store, clock=world.clock))
    (crontab, errors) = (tmp_path / "crontab", tmp_path / "errors.ndjson")
    crontab.write_text("CRON_TZ=UTC\n0 9 * * * report\n0 9 1 * 5 bill\n")
    asked = (
        "schedule",
        "import",
        "--from",
        "crontab",
        "--action",
        "run-command",
        str(crontab),
        "--errors",
        str(errors),
    )
    ended = shell(*asked, "--dry-run", "--table", "tasks")
    refused = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [(one["line"], one["field"], one["text"]) for one in refused] == [
        (2, "payload.argv", "0 9 * * * report"), (3, "line", "0 9 1 * 5 bill"),
    ]  # fmt: skip
    assert "not checked" not in ended.err and "2 schedules would be refused" in ended.err
    shell(*asked)
    assert [json.loads(line) for line in errors.read_text().splitlines()] == refused, "an insert refuses the same"


def test_the_handler_runs_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("handlers_of_coming_from")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(HANDLER, vars(module))
    assert module.run_command({"command": "tr a-z A-Z", "stdin": "hello\n"}) == {"output": "HELLO\n"}
    with pytest.raises(PermanentError, match="exit code 3: no such"):
        module.run_command({"command": "echo no such >&2; exit 3"})


class Crontab:
    """Celery's crontab, as far as the script reads it: sets of numbers, where Sunday is 0."""

    def __init__(self, **fields: set[int]) -> None:
        sizes = {"minute": range(60), "hour": range(24), "day_of_month": range(1, 32), "month_of_year": range(1, 13)}
        for name, values in {**sizes, "day_of_week": range(7)}.items():
            setattr(self, name, fields.get(name, set(values)))


def beat(monkeypatch: pytest.MonkeyPatch, schedule: dict[str, dict[str, Any]]) -> None:
    """Runs the page's script on a ``beat_schedule``."""
    app = SimpleNamespace(conf=SimpleNamespace(timezone="Europe/Berlin", beat_schedule=schedule))
    of_celery, of_shop = SimpleNamespace(crontab=Crontab), SimpleNamespace(app=app)
    modules = {"celery": object(), "celery.schedules": of_celery, "shop": object(), "shop.app": of_shop}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    exec(CELERY, {"__name__": "beat"})


def test_the_script_for_celery_beat_writes_what_an_import_takes(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["log", "reports.send", "shop.tidy"]
    monkeypatch.setattr(world.actions, "names", lambda: names)
    world.next_tick()
    workdays = Crontab(minute={30}, hour={7}, day_of_week={1, 2, 3, 4, 5})
    send = {"task": "reports.send", "schedule": workdays, "args": ("ada@example.com", 7), "kwargs": {"kind": "sales"}}
    first = {"task": "reports.send", "schedule": Crontab(minute={0}, hour={0}, day_of_month={1, 15})}
    tidy, minute = ({"task": "shop.tidy", "schedule": every} for every in (timedelta(hours=2), 60.0))
    beat(monkeypatch, {"send": send, "first": first, "tidy": tidy, "minute": minute})
    file = tmp_path / "beat.ndjson"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert [json.loads(line)["scheduleExpression"] for line in file.read_text(encoding="utf-8").splitlines()] == [
        "cron(30 7 ? * MON,TUE,WED,THU,FRI *)", "cron(0 0 1,15 * ? *)", "rate(120 minutes)", "rate(1 minute)"
    ]  # fmt: skip
    ended = shell("schedule", "import", str(file), "-o", "json")
    assert ended.json == {"inserted": 4, "exists": 0, "refused": 0, "unknown": 0}, ended.err
    row = shell("schedule", "get", "send", "-o", "json").json
    assert row["payload"] == {"args": ["ada@example.com", 7], "kwargs": {"kind": "sales"}}
    assert (row["scheduleExpressionTimezone"], row["nextOccurrenceAt"]) == ("Europe/Berlin", "2027-01-01T06:30:00Z")


@pytest.mark.parametrize("schedule", [90.0, timedelta(seconds=10), Crontab(day_of_month={1}, day_of_week={1})])
def test_the_celery_script_refuses_what_has_no_expression(schedule: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"whole minutes|both days"):
        beat(monkeypatch, {"x": {"task": "x", "schedule": schedule}})
