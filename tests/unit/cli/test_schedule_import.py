"""``dynatick schedule import --from …``: converted, inserted or shown, and compared."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick.cli.session import Session

CRONTAB = """\
PATH=/usr/bin
*/20 * * * * poll
0 9 1 * 5 twice
0 9 * * 1-5 report
0 9 * * 1-5 report
"""
SCHEDULE = {
    "Name": "nightly",
    "ScheduleExpression": "cron(0 3 * * ? *)",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "State": "DISABLED",
    "Target": {"Arn": "arn:aws:lambda:eu-west-1:123456789012:function:report", "Input": "{}"},
}


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "file"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_crontab_becomes_schedules(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = written(tmp_path, CRONTAB)
    command = ["schedule", "import", "--from", "crontab", "--action", "log", "--tz", "Asia/Tokyo", file]
    ended = shell(*command, "-o", "json")
    assert (ended.code, ended.json) == (3, {"inserted": 2, "exists": 1, "refused": 1, "unknown": 0})
    said = ended.err.splitlines()
    assert said[0] == "line 1: note: PATH is left out: set what the command needs in the handler's environment"
    assert said[1].startswith("line 3: line: '0 9 1 * 5' is not accepted; expected '*' for day of month or day of week")
    assert said[2:] == ["error: 1 schedule refused; the others were inserted"]
    listed = {row["payload"]["command"]: row for row in shell("schedule", "list", "-o", "json").json["schedules"]}
    assert set(listed) == {"poll", "report"}
    assert listed["report"]["nextOccurrenceAt"] == "2027-01-01T00:00:00Z"
    assert listed["poll"]["taskId"].startswith("import-")
    assert listed["poll"]["retryPolicy"] == {"maximumRetryAttempts": 0}
    again = shell(*command, "-o", "json")
    assert again.json == {"inserted": 0, "exists": 3, "refused": 1, "unknown": 0}
    other = shell(*command, "--id-prefix", "machine-7-", "-o", "json")
    assert other.json["inserted"] == 2


def test_what_eventbridge_scheduler_prints_becomes_schedules(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SCHEDULE).encode())))
    monkeypatch.setattr(world.actions, "names", lambda: ["lambda", "log"])
    world.next_tick()
    ended = shell("schedule", "import", "--from", "eventbridge-scheduler", "-", "-o", "json")
    assert (ended.code, ended.json["inserted"]) == (0, 1), ended.err
    row = shell("schedule", "get", "nightly", "-o", "json").json
    assert (row["scheduleState"], row["action"], row["overlap"]) == ("DISABLED", "lambda", "allow")


def test_a_dry_run_shows_compares_and_inserts_nothing(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "client", lambda session: pytest.fail("a dry run needs no table"))
    file = written(tmp_path, CRONTAB)
    command = ["schedule", "import", file, "--dry-run", "--from", "crontab", "--action", "run-command"]
    ended = shell(*command, "-o", "json")
    poll, report = ended.json["schedules"]
    assert poll["scheduleExpression"] == "cron(0/20 * * * ? *)" and poll["payload"] == {"command": "poll"}
    assert poll["nextOccurrences"] == ["2026-12-31T12:20:00Z", "2026-12-31T12:40:00Z", "2026-12-31T13:00:00Z"]
    assert poll["comparison"] == report["comparison"] == "1,000 of 1,000 agree"
    assert poll["notes"] == report["notes"]
    assert ended.code == 3
    assert ended.err.splitlines()[-2:] == [
        "line 5: the file has the same schedule, or another of its id, before: it is inserted once",
        "error: 1 schedule would be refused; the others would be inserted",
    ]
    table = shell(*command).lines
    assert table[0].split() == ["LINE", "SCHEDULE", "EXPRESSION", "ZONE", "ACTION", "NEXT", "OCCURRENCES", "COMPARED"]
    assert table[1].endswith("1,000 of 1,000 agree") and len(table) == 3
    over = {**SCHEDULE, "Name": "over", "ScheduleExpression": "at(2020-01-01T00:00:00)"}
    file = written(tmp_path, json.dumps([over]))
    ended = shell("schedule", "import", "--from", "eventbridge-scheduler", "--dry-run", file, "-o", "json")
    assert (ended.code, ended.json) == (3, {"schedules": []}), "it checks what an insert would"
    assert "\nover: " in f"\n{ended.err}" and "it never runs after" in ended.err


def test_files_that_cannot_be_read(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"0 9 * * * echo \xe4\n")
    for arguments, code, message in (
        ([str(tmp_path / "none")], 4, "No such file or directory"), ([str(tmp_path / "latin")], 3, "expected UTF-8"),
        ([written(tmp_path, "# nothing\n")], 0, "The file has no schedules"),
        (["--tz", "Europe/Brelin", str(tmp_path / "file")], 3, "Europe/Berlin"),
    ):  # fmt: skip
        ended = shell("schedule", "import", "--from", "crontab", "--action", "log", *arguments)
        assert ended.code == code and message in ended.err, arguments
