"""Imports and exports: each line on its own, reported by its number; converted schedules; and where one goes on."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell
from tests.unit.cli.test_coming_from import SCHEDULES as SCHEDULES_OF_AWS

from dynatick import TaskClient
from dynatick.cli import importing
from dynatick.cli.session import Session
from dynatick.domain.task import Row
from dynatick.engine.ports import StoreFailure
from dynatick.errors import StoreError
from dynatick.store.memory import MemoryStore

FILE = """\
{"taskId": "a", "dueAt": "2026-12-31T12:30:00Z", "payload": {"n": 1}}

{"taskId": "b"}
{"taskId": "a", "dueAt": "2026-12-31T12:30:00Z"}
{not json
[1]
{"taskid": "q", "dueAt": "2026-12-31T12:30:00Z"}
{"taskId": "c", "taskDateTime": "2026-12-31T24:00:00Z"}
{"taskId": "d", "status": "completed"}
{"taskId": "e", "delaySeconds": 60, "tenant": "t1"}
"""


def written(tmp_path: Path, text: str | bytes = FILE) -> str:
    file = tmp_path / "tasks.ndjson"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def test_each_line_has_its_result(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    ended = shell("task", "import", written(tmp_path), "-o", "json")
    assert ended.json == {"inserted": 3, "exists": 1, "refused": 5, "unknown": 0}
    assert not (tmp_path / "tasks.ndjson.progress").exists()
    assert ended.code == 3
    reported = sorted(ended.err.splitlines())
    assert [line.partition(":")[0] for line in reported] == ["error", *(f"line {n}" for n in (5, 6, 7, 8, 9))]
    assert reported[0] == "error: 5 lines were refused; the others were inserted"
    assert reported[2].startswith("line 6: line: [1] is not accepted; expected a JSON object")
    assert reported[5] == "line 9: status: 'completed' is not accepted; leave it out: it is set by Dynatick"
    assert world.row("a")["taskDateTime"] == "2026-12-31#12:30"
    assert world.row("b").keys() == {"taskId", "insertToken"}
    assert world.row("e")["tenant"] == "t1"


def test_what_is_said_where_there_is_no_terminal(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_LINES_PER_MESSAGE", 20)
    file = written(tmp_path, "".join(json.dumps({"taskId": f"t{n}"}) + "\n" for n in range(50)))
    assert shell("task", "import", file).err == "20 inserted\n40 inserted\n"
    ended = shell("task", "import", written(tmp_path, "\n\n"))
    assert (ended.code, ended.err) == (0, "The file is empty\n")


class Falters(MemoryStore):
    """Goes away after a given number of batches, or is interrupted there."""

    def __init__(self, batches: int, *, interrupts: bool = False) -> None:
        super().__init__()
        self.batches, self.interrupts = batches, interrupts
        self.asked: list[str] = []  # ids of every insert that was tried

    def create_many(self, rows: Sequence[Row]) -> list[bool | StoreFailure]:
        self.batches -= 1
        self.asked += [str(row["taskId"]) for row in rows]
        if self.batches < 0 and self.interrupts:
            raise KeyboardInterrupt
        return [StoreFailure("throttled") if self.batches < 0 else self.create(row) for row in rows]


TASK = '{"taskId": "t%d", "dueAt": "2026-12-31T12:30:00Z"}\n'


def faltering(monkeypatch: pytest.MonkeyPatch, store: Falters) -> Falters:
    world = InProcess(store=store)
    world.tick()
    monkeypatch.setattr(Session, "client", lambda session: TaskClient(world.store, clock=world.clock))
    return store


@pytest.mark.parametrize(
    ("lines", "unknown", "reason"),
    [
        (30, 30, "30 tasks got no answer; run it again to continue at line 1"),
        (5000, 200, "the table took none of the last lines, from line 1 on; run it again to continue there"),
    ],
)
def test_a_table_that_is_away_ends_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: int, unknown: int, reason: str
) -> None:
    faltering(monkeypatch, Falters(0))
    ended = shell("task", "import", written(tmp_path, "".join(TASK % n for n in range(lines))), "-o", "json")
    assert (ended.code, ended.json["unknown"], ended.err.splitlines()[-1]) == (6, unknown, f"error: {reason}")


@pytest.mark.parametrize("interrupts", [True, False])
def test_interrupted_and_run_again_it_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, interrupts: bool
) -> None:
    store = faltering(monkeypatch, Falters(40, interrupts=interrupts))
    file = written(tmp_path, "".join(TASK % n if n % 10 else "bad\n" for n in range(5000)))
    errors = tmp_path / "errors.ndjson"
    first = shell("task", "import", file, "--errors", str(errors))
    assert first.code == (130 if interrupts else 6)
    noted = json.loads((tmp_path / "tasks.ndjson.progress").read_text())["place"]
    assert 500 < noted["line"] < 1500
    store.batches, store.asked = 10**6, []
    second = shell("task", "import", file, "--errors", str(errors), "-o", "json")
    assert second.code == 3
    assert f"Continuing at line {noted['line']}, where the run before ended" in second.err
    assert second.json["inserted"] + second.json["exists"] == 4500 and second.json["refused"] == 500
    assert len(store.asked) < 4500
    reported = [json.loads(line)["line"] for line in errors.read_text().splitlines()]
    assert reported == [n + 1 for n in range(5000) if not n % 10], "each once, in order"
    assert not (tmp_path / "tasks.ndjson.progress").exists()
    assert all(store.get(f"t{n}") is not None for n in range(5000) if n % 10)


@pytest.mark.parametrize("how", ["another file", "another table", "restart", "malformed"])
def test_a_place_that_means_nothing_here_is_not_gone_on_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    faltering(monkeypatch, Falters(20))
    text = "".join(TASK % n for n in range(2000))
    file, note = written(tmp_path, text), tmp_path / "tasks.ndjson.progress"
    (tmp_path / "tasks.ndjson.progress.partial").mkdir()
    ended = shell("task", "import", file)
    assert ended.code == 6
    assert "Cannot write tasks.ndjson.progress (Is a directory)" in ended.err, "that costs only the note"
    (tmp_path / "tasks.ndjson.progress.partial").rmdir()
    faltering(monkeypatch, Falters(20))
    assert shell("task", "import", file).code == 6
    if how == "another file":
        written(tmp_path, text.replace('t7"', 'u7"'))
    if how == "malformed":
        note.write_text(note.read_text()[:40])
    store = faltering(monkeypatch, Falters(10**6))  # which has no task yet
    ended = shell("task", "import", file, *(["--restart"] if how == "restart" else []), "-o", "json")
    assert (ended.code, ended.json["inserted"]) == (0, 2000), ended.err
    assert "Continuing" not in ended.err and len(store.asked) == 2000


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["--table", "staging"], ["--table", "prod"]),
        (["--id-prefix", "first-"], ["--id-prefix", "second-"]),
        ([], ["--drop-state"]),
        ([], ["--format", "json"]),
    ],
)
def test_another_import_of_the_same_file_begins_anew(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: list[str], now: list[str]
) -> None:
    """Its table may have the latest task of the one before, yet not those before that."""
    store, file = faltering(monkeypatch, Falters(20)), written(tmp_path, "".join(TASK % n for n in range(1000)))
    assert shell("task", "import", file, *before).code == 6
    store.batches, store.asked = 10**6, []  # the import before may still end the batches that it had begun
    ended = shell("task", "import", file, *now)
    assert (ended.code, "Continuing" in ended.err) == (0, False)
    assert {f"t{n}" for n in range(1000)} <= set(store.asked)


def test_errors_go_to_a_file_and_never_into_the_file_itself(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file, errors = written(tmp_path), tmp_path / "errors.ndjson"
    ended = shell("task", "import", file, "--errors", str(errors), "-o", "json")
    assert ended.json["refused"] == 5
    assert ended.err == f"error: 5 lines were refused; the others were inserted; see {errors}\n"
    assert [json.loads(line)["line"] for line in errors.read_text().splitlines()] == [5, 6, 7, 8, 9]
    assert shell("task", "import", file, "--errors", file).code == 2
    assert Path(file).read_text() == FILE
    assert shell("task", "import", file, "--errors", str(tmp_path / "no" / "folder")).code == 4


def test_lines_that_were_not_read_are_not_said_to_be_in(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    """An open quote takes the rest of a CSV file with it, as too many empty lines do with any file."""
    (file := tmp_path / "t.csv").write_text('taskId,action\na,log\nb,"log\nc,log\nd,log\n')
    ended = shell("task", "import", str(file), "-o", "json")
    assert (ended.code, ended.json["inserted"], ended.json["refused"]) == (3, 1, 1)
    last = "error: 1 line was refused; nothing after line 3 was read; those before were inserted"
    assert ended.err.splitlines()[-1] == last
    ended = shell("task", "import", written(tmp_path, TASK % 1 + "\n" * 100_001 + TASK % 2))
    assert "; nothing after line 100002 was read; those before were inserted" in ended.err


def test_formats_by_name_and_by_option(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inserted(name: str, text: str, *options: str) -> object:
        (tmp_path / name).write_text(text)
        return shell("task", "import", str(tmp_path / name), *options, "-o", "json").json["inserted"]

    assert inserted("a.csv", "taskId,dueAt,payload.to\na,2026-12-31T12:30:00Z,ada@example.com\n") == 1
    assert world.row("a")["payload"] == {"to": "ada@example.com"}
    assert inserted("b.json", '{\n  "taskId": "b"\n}\n') == 1
    assert inserted("c", '{"action": "log"}\n', "--format", "ndjson", "--id-prefix", "p-") == 1
    refused = shell("task", "import", str(tmp_path / "c"))
    assert (refused.code, "ends in one of" in refused.err) == (3, True)
    for text, ending in (("taskId\nd\n", ["--format", "csv"]), ('\ufeff{"taskId": "größe"}\n', [])):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert shell("task", "import", "-", *ending, "-o", "json").json["inserted"] == 1
    assert world.store.get("größe") is not None


def test_exported_to_a_file_and_to_stdout(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    shell("task", "import", written(tmp_path, "".join(TASK % n for n in range(3))))
    out = shell("task", "export", "--bucket", "2026-12-31#12:30")
    assert (out.code, out.err) == (0, "3 exported\n")
    assert [json.loads(line) for line in out.out.splitlines()] == [
        {"taskId": f"t{n}", "dueAt": "2026-12-31T12:30:00Z", "action": "log"} for n in range(3)
    ]
    file = tmp_path / "out.csv"
    meant = ("--from", "2026-12-31T12:00:00Z", "--to", "2026-12-31T13:00:00Z", "--status", "scheduled", "--state")
    assert shell("task", "export", str(file), *meant).code == 0
    assert file.read_bytes().count(b"\r\n") == 4
    again = shell("task", "import", str(file), "--drop-state", "-o", "json")
    assert (again.code, again.json["exists"]) == (0, 3)
    for arguments, code in (
        (["x.txt"], 3), (["--format", "json"], 3), (["--status", "x"], 3), ([str(tmp_path / "no" / "x.csv")], 4)
    ):  # fmt: skip
        assert shell("task", "export", *arguments, "--bucket", "2026-12-31#12:30").code == code, arguments


class Leaving(MemoryStore):
    """A table that goes away after a given number of reads of rows."""

    reads = 10**9

    def get_many(self, *arguments: Any, **options: Any) -> Mapping[str, Row]:
        self.reads -= 1
        if self.reads < 0:
            raise StoreError("cannot read rows: no answer")
        return super().get_many(*arguments, **options)


@pytest.fixture
def leaving(world: InProcess, monkeypatch: pytest.MonkeyPatch) -> Leaving:
    """Holds a thousand tasks in two buckets."""
    store = Leaving()
    client = TaskClient(store, clock=world.clock)
    list(client.insert_lazily({"taskId": f"t{n:03}", "taskDateTime": "2026-12-31#12:30"} for n in range(700)))
    list(client.insert_lazily({"taskId": f"u{n:03}", "taskDateTime": "2026-12-31#12:31"} for n in range(300)))
    monkeypatch.setattr(Session, "client", lambda session: client)
    return store


RANGE = ("--from", "2026-12-31#12:00", "--to", "2026-12-31#13:00")


@pytest.mark.parametrize("name", ["out.ndjson", "out.csv"])
@pytest.mark.parametrize("reads", [1, 6, 9])
def test_an_interrupted_export_continues(shell: Shell, leaving: Leaving, tmp_path: Path, name: str, reads: int) -> None:
    whole, file, note = tmp_path / f"whole-{name}", tmp_path / name, tmp_path / f"{name}.progress"
    assert shell("task", "export", str(whole), *RANGE).code == 0
    leaving.reads = reads
    cut = shell("task", "export", str(file), *RANGE)
    assert (cut.code, cut.err.splitlines()[-1]) == (6, "error: cannot read rows: no answer")
    assert cut.err.splitlines()[-2].endswith(" written; run it again to continue") and note.exists()
    with file.open("ab") as out:
        out.write(b"half a li")  # of a run that was killed while it wrote
    leaving.reads = 10**9
    again = shell("task", "export", str(file), *RANGE)
    assert (again.code, again.err.splitlines()[-1]) == (0, "1000 exported")
    assert again.err.startswith("Continuing after ")
    assert file.read_bytes() == whole.read_bytes()
    assert not note.exists()


NOTES = ["", "{}", "[]", '{"after": 5}', '{"after": ["2026-12-31#12:30", "t1"], "number": "x"}']


@pytest.mark.parametrize("other", [["--status", "unscheduled"], ["--state"], ["--restart"], *NOTES, "changed"])
def test_what_cannot_go_on_begins_anew(shell: Shell, leaving: Leaving, tmp_path: Path, other: list[str] | str) -> None:
    """Another export, a note that is none, or a file that was changed meanwhile."""
    file, note = tmp_path / "out.ndjson", tmp_path / "out.ndjson.progress"
    leaving.reads = 6
    assert shell("task", "export", str(file), *RANGE).code == 6
    leaving.reads = 10**9
    if other == "changed":
        file.write_bytes(b"something else\n" * 5000)
    elif isinstance(other, str):
        note.write_text(other)
    again = shell("task", "export", str(file), *RANGE, *(other if isinstance(other, list) else []))
    assert (again.code, again.err) == (0, "1000 exported\n")
    assert len(file.read_bytes().splitlines()) == 1000
    assert not note.exists()


def test_an_export_into_a_pipe_says_from_where_to_continue(shell: Shell, leaving: Leaving, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.ndjson")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_bytes)
        leaving.reads = 32
        cut = shell("task", "export", str(pipe), *RANGE)
        place = "written, up to the bucket 2026-12-31#12:31; continue with --from '2026-12-31#12:31'"
        assert cut.code == 6 and cut.err.splitlines()[0].endswith(place)
        assert read.result(timeout=60).endswith(b"}\n")
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_is_opened_once(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    """Opened again, it has lost what was written by then."""
    os.mkfifo(pipe := tmp_path / "pipe.ndjson")
    with ThreadPoolExecutor(1) as writer:
        wrote = writer.submit(pipe.write_text, '{"taskId": "a", "dueAt": "2026-12-31T12:30:00Z"}\n')
        assert shell("task", "import", str(pipe)).code == 0
        wrote.result(timeout=60)
    assert world.row("a")["taskDateTime"] == "2026-12-31#12:30"


SCHEDULES = """\
{"taskId": "nightly", "scheduleExpression": "cron(0 3 * * ? *)", "scheduleExpressionTimezone": "Europe/Berlin", \
"action": "log", "payload": {"n": 1.50}, "catchUp": "all", "tenant": "t1"}
{"taskId": "often", "cronExpression": "rate(5 minutes)", "flexibleTimeWindow": 3, "expectedWithinSeconds": 90, \
"endDate": "2027-12-31T00:00:00Z"}
{"taskId": "paused", "scheduleExpression": "rate(1 day)", "scheduleState": "DISABLED", "stateReason": "not yet"}
{"taskId": "once", "dueAt": "2026-12-31T12:30:00Z"}
{"taskId": "bad", "scheduleExpression": "every day"}
{"taskId": "why", "scheduleExpression": "rate(1 day)", "stateReason": 5}
{"taskId": "own", "scheduleExpression": "rate(1 day)", "nextOccurrenceAt": "2026-12-31T12:30:00Z"}
{"taskId": "misspelt", "schedule_expression": "rate(1 day)"}
"""


@pytest.mark.parametrize("noun", ["task", "schedule"])
@pytest.mark.parametrize("ending", ["ndjson", "csv"])
def test_schedules_in_and_out_again(shell: Shell, world: InProcess, tmp_path: Path, noun: str, ending: str) -> None:
    ended = shell(noun, "import", written(tmp_path, SCHEDULES), "-o", "json")
    tasks = noun == "task"  # a file of schedules holds none
    assert ended.json == {"inserted": 3 + tasks, "exists": 0, "refused": 5 - tasks, "unknown": 0}
    reasons = [line.split(": ")[:2] for line in ended.err.splitlines()[:-1]]
    refused = [["line 5", "scheduleExpression"], ["line 6", "stateReason"], ["line 7", "nextOccurrenceAt"]]
    refused += [["line 8", "schedule_expression"]]
    assert reasons == (refused if tasks else [["line 4", "scheduleExpression"], *refused])
    nightly = shell("schedule", "get", "nightly", "-o", "json").json
    assert (nightly["nextOccurrenceAt"], nightly["scheduleState"]) == ("2027-01-01T02:00:00Z", "ENABLED")
    assert world.row("often")["scheduleExpression"] == "rate(5 minutes)" and "cronExpression" not in world.row("often")

    out = tmp_path / f"out.{ending}"
    exported = shell("schedule", "export", str(out))
    assert (exported.code, exported.err) == (0, "3 exported\n")
    before = {name: world.row(name) for name in ("nightly", "often", "paused")}
    for name in before:
        world.store.delete(name)
    assert shell(noun, "import", str(out), "-o", "json").json["inserted"] == 3
    for name, row in before.items():
        again = world.row(name)
        assert again | {time: row[time] for time in ("createdAt", "definedAt") if time in again} == row


def test_schedules_by_state(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    shell("schedule", "import", written(tmp_path, SCHEDULES))
    shell("schedule", "add", "soon", "at(2026-12-31T12:02:00)")
    world.ticks(3)
    for options, ids in (([], {"nightly", "often", "paused"}), (["--state", "COMPLETED"], {"soon"})):
        assert {json.loads(line)["taskId"] for line in shell("schedule", "export", *options).lines} == ids
    for refused in (["--state", "x"], [str(tmp_path / "x.txt")]):
        assert shell("schedule", "export", *refused).code == 3


@pytest.mark.usefixtures("leaving")
def test_progress_on_a_terminal(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the rows go to the same terminal: lines of two kinds on one would be a mess."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    file = str(tmp_path / "out.ndjson")
    for arguments, on_terminal, shown in (([file], True, True), ([], False, True), ([], True, False)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda value=on_terminal: value)
        ended = shell("task", "export", *arguments, *RANGE)
        assert ended.code == 0 and ("Exporting" in ended.err) is shown
        assert ended.err.endswith("1000 exported\n")
    assert "Importing" in shell("task", "import", file).err


CRONTAB = """\
PATH=/usr/bin
*/20 * * * * poll
0 9 1 * 5 twice
0 9 * * 1-5 report
0 9 * * 1-5 report
"""


def test_a_crontab_becomes_schedules(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = written(tmp_path, CRONTAB)
    command = ["schedule", "import", "--from", "crontab", "--action", "log", "--tz", "Asia/Tokyo", file]
    ended = shell(*command, "-o", "json")
    assert (ended.code, ended.json) == (3, {"inserted": 2, "exists": 1, "refused": 1, "unknown": 0})
    note, refused, last = ended.err.splitlines()
    assert note.startswith("line 1: note: PATH is left out") and refused.startswith("line 3: line: '0 9 1 * 5' is not")
    assert last == "error: 1 schedule refused; the others were inserted"
    listed = {row["payload"]["command"]: row for row in shell("schedule", "list", "-o", "json").json["schedules"]}
    assert listed["report"]["nextOccurrenceAt"] == "2027-01-01T00:00:00Z", "nine o'clock in Tokyo"
    assert shell(*command, "-o", "json").json == {"inserted": 0, "exists": 3, "refused": 1, "unknown": 0}
    assert shell(*command, "--id-prefix", "machine-7-", "-o", "json").json["inserted"] == 2


def test_a_dry_run_shows_what_each_becomes_and_inserts_nothing(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "client", lambda session: pytest.fail("a dry run needs no table"))
    file = written(tmp_path, CRONTAB)
    command = ["schedule", "import", file, "--dry-run", "--from", "crontab", "--action", "run-command"]
    ended = shell(*command, "-o", "json")
    poll, report = ended.json["schedules"]
    assert [(one["payload"], one["notes"]) for one in (poll, report)] == [
        ({"command": command}, []) for command in ("poll", "report")
    ]
    assert report["nextOccurrences"] == [f"2027-01-0{day}T09:00:00Z" for day in (1, 4, 5, 6, 7)]
    assert ended.code == 3
    assert ended.err.splitlines()[-2:] == [
        "line 5: the file has the same schedule, or another of its id, before: it is inserted once",
        "error: 1 schedule would be refused; the others would be inserted",
    ]
    over = SCHEDULES_OF_AWS["nightly"] | {"Name": "over", "ScheduleExpression": "at(2020-01-01T00:00:00)"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps([over]).encode())))
    ended = shell("schedule", "import", "--from", "eventbridge-scheduler", "--dry-run", "-", "-o", "json")
    assert (ended.code, ended.json) == (3, {"schedules": []}), "it checks what an insert would"
    assert ended.err.startswith("sales/over: ") and "it never runs after" in ended.err


def test_files_that_cannot_be_read(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"0 9 * * * echo \xe4\n")
    for arguments, code, message in (
        ([str(tmp_path / "none")], 4, "No such file or directory"), ([str(tmp_path / "latin")], 3, "expected UTF-8"),
        ([written(tmp_path, "# nothing\n")], 0, "The file has no schedules"),
        (["--tz", "Europe/Brelin", str(tmp_path / "tasks.ndjson")], 3, "Europe/Berlin"),
    ):  # fmt: skip
        ended = shell("schedule", "import", "--from", "crontab", "--action", "log", *arguments)
        assert ended.code == code and message in ended.err, arguments
