"""The output of commands, for people and for programs. A line fits a narrow terminal, and its times stay whole."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from tests.builders import InProcess, scheduled_row
from tests.unit.cli.conftest import Shell, documented, fail
from tests.unit.client.support import started

from dynatick import CompleteLater, TaskClient
from dynatick.cli import bucket, task_display, tick
from dynatick.cli.exit_code import ExitCode
from dynatick.cli.output import Column, Output, show_one, show_table
from dynatick.client.settings_cache import SettingsCache
from dynatick.domain.buckets import Bucket, minute_of
from dynatick.domain.completion import completion_token


def test_add_and_get(shell: Shell, world: InProcess) -> None:
    added = shell("task", "add", "x", "--at", "2026-12-31T13:30:00+01:00", "--payload", '{"n": 1.50}', "-o", "json")
    assert added.code == 0 and added.err == ""
    row = added.json
    assert row.pop("createdAt").startswith("2026-12-31T12:00:")
    assert row == {
        "taskId": "x", "dueAt": "2026-12-31T12:30:00Z", "payload": {"n": 1.5}, "taskDateTime": "2026-12-31#12:30",
        "action": "log", "status": "scheduled", "attempt": 0, "run": 1,
    }  # fmt: skip
    got = shell("task", "get", "x", "--output", "jsonl")
    assert got.json == added.json and got.out.count("\n") == 1


def test_arguments_from_files(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('\ufeff{"text": "grüße"}')
    (tmp_path / "retries.json").write_text('{"maximumRetryAttempts": 1}')
    ended = shell(
        "task", "add", "x", "--payload", f"@{tmp_path}/payload.json", "--retry-policy", f"@{tmp_path}/retries.json",
        "--attributes", '{"tenant": "t1"}', "--timeout-seconds", "60", "-o", "json",
    )  # fmt: skip
    row = ended.json
    assert row.pop("insertToken")
    assert row == {
        "timeoutSeconds": 60, "taskId": "x", "payload": {"text": "grüße"}, "retryPolicy": {"maximumRetryAttempts": 1},
        "tenant": "t1", "status": "unscheduled",
    }  # fmt: skip


def test_changes(shell: Shell, world: InProcess) -> None:
    shell("task", "add", "x", "--delay", "600")
    updated = shell("task", "update", "x", "--payload", '{"n": 2}', "--at", "2026-12-31#12:50", "-o", "json").json
    assert (updated["payload"], updated["taskDateTime"]) == ({"n": 2}, "2026-12-31#12:50")
    for verb, run in (("cancel", 1), ("restore", 1), ("cancel", 1), ("run", 2)):
        assert shell("task", verb, "x", "-o", "json").json["run"] == run, verb


POLICY = '{"maximumRetryAttempts":5}'


@pytest.fixture
def buckets(world: InProcess, shell: Shell) -> InProcess:
    """At 12:02: a completed and a failed task in the bucket of 12:01, and five that wait in that of 12:30."""
    world.actions.behaviour["bad"] = fail
    for task_id in ("good", "bad"):
        shell("task", "add", task_id, "--delay", "1")
    world.ticks(2)
    for n in range(5):
        shell("task", "add", f"t{n}", "--at", "2026-12-31#12:30")
    return world


def test_list_as_a_table(shell: Shell, buckets: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("task", "list", "--from", "2026-12-31T12:00:00Z", "--to", "2026-12-31T13:00:00Z")
    ended = shell(*asked)
    assert ended.lines[0].split() == ["TASK", "BUCKET", "STATUS", "ACTION", "DUE", "FINISHED", "ERROR"]
    with_attempts = shell(*asked, "--attempts").lines
    assert "  ATTEMPT  " in with_attempts[0] and re.search(r"^good .* 1$", with_attempts[2])
    assert [line.split()[:3] for line in ended.lines[1:]] == [
        ["bad", "2026-12-31#12:01", "failed"], ["good", "2026-12-31#12:01", "completed"],
        *([f"t{n}", "2026-12-31#12:30", "scheduled"] for n in range(5)),
    ]  # fmt: skip
    assert "\x1b" not in ended.out  # neither colours nor what a task says
    assert (ended.code, ended.err) == (0, "")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shell(*asked).out
    assert "\x1b[31mfailed" in coloured and "\x1b[32mcompleted" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shell(*asked).out


def test_list_for_programs(shell: Shell, buckets: InProcess) -> None:
    asked = ("task", "list", "--bucket", "2026-12-31#12:30", "--limit", "2")
    first = shell(*asked, "-o", "json").json
    rest = shell(*asked, "-o", "jsonl", "--page-token", first["nextPageToken"])
    assert rest.err.startswith("There are more: --page-token ")
    last = shell(*asked, "-o", "json", "--page-token", rest.err.split()[-1]).json
    pages = first["tasks"], map(json.loads, rest.lines), last["tasks"]
    assert [[task["taskId"] for task in page] for page in pages] == [["t0", "t1"], ["t2", "t3"], ["t4"]]
    assert "nextPageToken" not in last
    for n in range(1100):
        buckets.store.create({"taskId": f"u{n:04}", "taskDateTime": "2026-12-31#12:40", "outcome": "completed"})
    many = shell("task", "list", "--bucket", "2026-12-31#12:40", "--limit", "5000", "-o", "jsonl")
    assert len(many.lines) == 1100, "a limit beyond one page"


def test_list_by_what_tasks_are(shell: Shell, buckets: InProcess) -> None:
    def listed(*filters: str) -> list[tuple[str, object]]:
        tasks = shell("task", "list", "--last", "1h", "-o", "json", *filters).json["tasks"]
        return [(task["taskId"], task.get("attempt")) for task in tasks]

    assert listed("--attempts") == [("bad", 1), ("good", 1)]
    assert listed("--action", "log") == [("bad", None), ("good", None)]
    assert listed("--prefix", "go") == [("good", None)]
    assert listed("--status", "failed") == [("bad", None)]
    assert listed("--status", "running") == listed("--action", "nope") == listed("--schedule", "nightly") == []
    shell("task", "add", "other", "--at", "2026-12-31#12:30")
    ahead = ("--from", "now", "--to", "+1h", "--prefix", "t")
    assert len(shell("task", "export", *ahead).lines) == 5
    assert shell("task", "cancel", *ahead, "--status", "scheduled").err == "5 cancelled\n"
    assert shell("task", "get", "other", "-o", "json").json["status"] == "scheduled"


def test_a_task_for_people(shell: Shell, buckets: InProcess) -> None:
    shown = dict(line.split(maxsplit=1) for line in shell("task", "get", "bad").lines)
    assert " ".join(shown) == "id status due bucket attempts action error created started finished expires"
    assert (shown["status"], shown["attempts"], shown["error"]) == ("failed", "1", "SMTP: refused [2J")
    assert shown["finished"].startswith("2026-12-31T12:0") and shown["finished"].endswith(" s ago)")
    assert shown["expires"].endswith("(in 30 days)")
    shell("task", "redrive", "bad")
    assert "attempts    0 (run 2)" in shell("task", "get", "bad").lines
    own = ("--attributes", '{"id": 5, "tenant": "t1"}')
    shell("task", "add", "mine", *own, "--retry-policy", POLICY, "--payload", '{"n": 1.50}')
    lines = [line.split(maxsplit=1) for line in shell("task", "get", "mine").lines]
    assert lines[0] == ["id", "mine"], "attributes of one's own hide nothing"
    assert lines[2:] == [["payload", '{"n":1.5}'], ["retry", f"policy  {POLICY}"], ["id", "5"], ["tenant", "t1"]]
    attempts = [{"attempt": 1, "error": "first"}, {"attempt": 2, "error": "second"}]
    buckets.store.create({"taskId": "x", "status": "scheduled", "attempt": 2, "attempts": attempts})
    assert "last error  second" in shell("task", "get", "x").lines


def test_the_item_as_the_table_has_it(shell: Shell, world: InProcess) -> None:
    world.store.create({"taskId": "x", "n": 1, "binary": b"\xff", "payload": {"at": [None]}})
    payload = {"M": {"at": {"L": [{"NULL": True}]}}}
    item = {"taskId": {"S": "x"}, "n": {"N": "1"}, "binary": {"B": "/w=="}, "payload": payload}
    assert shell("task", "get", "x", "--raw").json == item
    assert shell("task", "get", "x", "x", "--raw", "-o", "json").json == {"tasks": [item]}
    assert shell("task", "get", "x", "--raw", "-o", "jsonl").out.count("\n") == 1


def test_buckets(shell: Shell, buckets: InProcess) -> None:
    asked = ("bucket", "list", "--from", "2026-12-31T12:00:00Z", "--to", "2026-12-31T13:00:00Z")
    begun, waiting = shell(*asked, "-o", "json").json["buckets"]
    late = {name: begun.pop(name) for name in ("latenessP50Ms", "latenessP99Ms", "latenessMaxMs")}
    p50, p99, longest = late.values()
    assert 200 <= p50 <= p99 <= longest < 1000
    assert begun == {"bucket": "2026-12-31#12:01", "counts": {"failed": 1, "completed": 1}, "total": 2}
    assert waiting == {"bucket": "2026-12-31#12:30", "counts": {"scheduled": 5}, "total": 5}
    table = shell(*asked).lines
    assert [line.split() for line in table[1:]] == [["2026-12-31#12:01", "1", "1", "2"], ["2026-12-31#12:30", "5", "5"]]
    shown = shell("bucket", "show", "2026-12-31#12:01")
    lateness = f"Lateness: p50 {p50} ms, p99 {p99} ms, max {longest} ms"
    assert shown.err == f"2026-12-31#12:01: 1 completed, 1 failed\n{lateness}\n"
    assert [line.split()[0] for line in shown.lines] == ["TASK", "bad", "good"]
    document = shell("bucket", "show", "2026-12-31#12:01", "-o", "json").json
    assert (document["counts"], late) == ({"completed": 1, "failed": 1}, {name: document[name] for name in late})
    assert [task["taskId"] for task in document["tasks"]] == ["bad", "good"]


def test_ticks(shell: Shell, buckets: InProcess) -> None:
    buckets.clock.forward(minutes=5)
    buckets.tick()
    kinds = [tick["kind"] for tick in shell("tick", "list", "-o", "json").json["ticks"]]
    assert kinds == ["idle", "pass", "idle"]
    shown = [line.split() for line in shell("tick", "list", "--last", "2h").lines]
    assert shown[0][:3] == ["TICK", "SHARD", "WHAT"]
    assert shown[1] == ["2026-12-31#12:00", "0", "1", "idle"]
    assert shown[2][:8] == ["2026-12-31#12:01", "0", "pass", "2", "2", "1", "1", "0"]
    assert shown[3] == ["2026-12-31#12:02", "…", "12:07", "0", "2", "idle"]
    one = shell("tick", "list", "--from", "2026-12-31#12:01", "--to", "2026-12-31#12:02", "-o", "jsonl")
    assert len(one.lines) == 1


@pytest.mark.parametrize("noun", [[], ["task"], ["batch"], ["schedule"], ["deadletter"]])
def test_help_lists_each_command_with_a_whole_sentence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, noun: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = shell(*noun, "--help").lines
    assert max(map(len, shown)) <= 60
    commands = " ".join(" ".join(shown[shown.index("Commands:") :]).split())
    assert "..." not in commands
    assert commands.endswith(".")


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["task", "--help"], ["task", "add", "--help"], ["local", "--help"]]
)
def test_help_and_version_import_nothing_that_is_slow(arguments: list[str]) -> None:
    program = (
        "import sys; from dynatick import cli; code = cli.run(sys.argv[1:]); "
        "slow = {'boto3', 'botocore', 'moto', 'pydantic', 'pynamodb', 'rich', 'orjson', 'fastapi'}; "
        "print(slow & set(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    answer = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "dynatick" in answer.stdout
    # typer itself imports pydantic as soon as there is a noun.
    noun = not arguments[0].startswith("-")
    assert answer.stderr in ("set()\n", "{'pydantic'}\n" if noun else "set()\n")


@pytest.mark.parametrize("arguments", [[], ["task"], ["bucket"], ["tick"]])
def test_a_noun_alone_shows_its_help(shell: Shell, arguments: list[str]) -> None:
    ended = shell(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"Usage: dynatick {' '.join(arguments)}".rstrip())


def test_without_the_extra_a_line_says_how_to_get_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ended = shell("task", "get", "x")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "error: the command line needs more packages: pip install 'dynatick[cli]'\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_output_cannot_encode_is_written_by_its_number(encoding: str) -> None:
    program = (
        "import sys; from dynatick.cli import app; app._commands = lambda: type('', (), {"
        "'main': lambda *_, **__: print('zł')}); sys.exit(app.invoke([]))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "z\\u0142\n", "")


def test_a_reader_that_has_seen_enough() -> None:
    program = "import sys; from dynatick import cli; sys.exit(cli.run(['--help']))"
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_pause_and_resume(shell: Shell, world: InProcess) -> None:
    first = shell("pause", "--reason", "a bad deployment", "--by", "ada")
    assert re.fullmatch(
        r"Paused: since 2026-12-31T12:0\S+ by ada: a bad deployment\nTo end it: dynatick resume\n", first.err
    )
    again = shell("pause", "-o", "json")
    assert again.err.startswith("It was paused already: since 2026-12-31T12:0")
    assert again.json["paused"]["reason"] == "a bad deployment"
    (ticks,) = [line for line in shell("status").lines if line.startswith("ticks")]
    assert ticks.endswith("; they run nothing while all is paused") and "next" not in ticks
    resumed = shell("resume").err
    assert "by ada: a bad deployment. The next tick runs what is due\nWhat waits: dynatick status\n" in resumed
    assert "; next " in next(line for line in shell("status").lines if line.startswith("ticks"))
    assert shell("resume").err == "It was not paused\nWhat is paused: dynatick status\n"


def test_what_a_pause_holds_does_nothing_to_a_terminal(shell: Shell, world: InProcess) -> None:
    said = shell("pause", "--reason", "\x1b[2J\nfixed", "--by", "ada\x9b2J").err
    for command in (("pause",), ("doctor",), ("resume",)):
        said += shell(*command).err
    assert said.count("by ada\\x9b2J: \\x1b[2J fixed") == 4
    assert all(line.isprintable() for line in said.splitlines())


def test_pause_and_resume_of_one_action(shell: Shell, world: InProcess) -> None:
    assert shell("pause", "--action", "lgo").code == 3
    first = shell("pause", "--action", "log", "--reason", "the disk is full", "--by", "ada")
    assert re.fullmatch(
        r"log is paused: since 2026-12-31T12:0\S+ by ada: the disk is full\nTo end it: dynatick resume --action log\n",
        first.err,
    )
    again = shell("pause", "--action", "log", "-o", "json")
    assert again.err.startswith("log was paused already: since 2026-12-31T12:0")
    assert (again.json["paused"]["action"], again.json["paused"]["reason"]) == ("log", "the disk is full")
    shell("task", "add", "waits", "--delay", "1")
    table = [" ".join(line.split()) for line in shell("status").lines]
    assert table[0] == "state running"
    assert re.fullmatch(r"paused log since \S+ by ada: the disk is full", table[1])
    paused = r"log is paused since \S+ by ada: the disk is full\nTo end it: dynatick resume --action log\n"
    assert re.search(paused, shell("doctor").err)
    assert re.search(paused, shell("action", "list").err)
    assert "but its action is paused since" in shell("task", "explain", "waits").lines[0]
    resumed = shell("resume", "--action", "log")
    assert re.fullmatch(
        r"Resumed log; it was paused since .* by ada: the disk is full. Tasks that wait begin by \S+Z\n"
        r"What waits: dynatick action list\n",
        resumed.err,
    )
    assert shell("resume", "--action", "log", "-o", "json").json == {"paused": None, "ended": None}
    assert shell("resume", "--action", "log").err == "log was not paused\nWhat is paused: dynatick status\n"


def test_the_command_that_ends_a_pause_can_be_pasted(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SettingsCache, "check_known", lambda cache, action: None)
    name = "send mail; $(rm x)"
    command = shell("pause", "--action", name).err.splitlines()[-1].removeprefix("To end it: dynatick ")
    assert shlex.split(command) == ["resume", "--action", name]
    assert shell(*shlex.split(command)).err.startswith(f"Resumed {name}; ")


def test_status_explain_and_wait(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    world.actions.behaviour["bad"] = fail
    shell("task", "add", "good", "--delay", "30")
    shell("task", "add", "bad", "--delay", "30", "--retry-policy", '{"maximumRetryAttempts": 0}')
    assert shell("task", "wait", "good", "--timeout", "0s").code == 9
    monkeypatch.setattr("time.sleep", lambda seconds: world.next_tick() and None)
    world.next_tick()
    waited = shell("task", "wait", "good", "bad")
    assert waited.code == 8
    assert waited.err == "completed good\nfailed bad: SMTP: refused [2J\nerror: 1 did not complete\n"
    assert [one["status"] for one in shell("task", "wait", "good", "bad", "-o", "json").json["tasks"]] == [
        "completed", "failed"
    ]  # fmt: skip
    assert shell("task", "wait", "good", "-o", "json").json["status"] == "completed"
    assert shell("bucket", "wait", "2026-12-31#12:01").code == 8
    explained = shell("task", "explain", "bad")
    assert explained.lines[0].endswith("after 1 attempt: SMTP: refused [2J")
    assert re.search(r"^.*conftest\.py.*raise PermanentError", explained.out, re.MULTILINE)
    assert shell("task", "explain", "bad", "-o", "json").json["status"] == "failed"
    nobody = shell("task", "explain", "nobody")
    assert (nobody.code, nobody.out) == (4, "")
    assert nobody.err.startswith("error: there is no task of this id")
    table = [" ".join(line.split()) for line in shell("status").lines]
    assert {"state running", "last 1h 1 completed, 1 failed"} <= set(table)
    (failed,) = (line for line in table if line.startswith("failed "))
    assert re.fullmatch(r"failed 1 log since .*: SMTP: refused \[2J \(dynatick task explain bad\)", failed)
    world.store.create(scheduled_row("keyed", Bucket(minute_of(world.clock())), limitKey="customer:1"))
    table = [" ".join(line.split()) for line in shell("status").lines]
    assert "key customer:1: 1 waiting, 0 running, no limit" in table
    assert shell("status", "-o", "json").json["failed"] == 1
    shell("pause", "--reason", "a release", "--by", "ada")
    assert re.match(r"state +paused since \S+ by ada: a release", shell("status").lines[0])


def test_a_wait_that_fails_does_not_stop_those_for_other_tasks(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.actions.behaviour["bad"] = fail
    for task_id, delay in (("bad", "30"), ("good", "30"), ("later", "3d")):
        shell("task", "add", task_id, "--delay", delay, "--retry-policy", '{"maximumRetryAttempts": 0}')
    world.ticks(2)
    waited = shell("task", "wait", "bad", "gone", "good")
    assert (waited.code, waited.err.splitlines()) == (8, [
        "failed bad: SMTP: refused [2J", "error: taskId: there is no task 'gone'", "completed good",
        "error: 2 did not complete",
    ])  # fmt: skip
    waited = shell("task", "wait", "later", "gone", "good", "--timeout", "0s", "-o", "json")
    assert (waited.code, [one["taskId"] for one in waited.json["tasks"]]) == (9, ["good"])
    assert shell("task", "wait", "gone").err == "error: taskId: there is no task 'gone'\n"


def test_an_interrupted_wait_is_no_end_of_the_task(
    shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(client: TaskClient, task_id: str, timeout: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskClient, "wait", interrupted)
    shell("task", "add", "later", "--delay", "3d")
    stopped = shell("task", "wait", "later")
    assert (stopped.code, stopped.out) == (130, "")
    assert stopped.err == "Stopped waiting for later; the task itself goes on\nerror: interrupted\n"


TIME = re.compile(r"\d{4}-\d\d-\d\d[#T][\d:]*Z?")
BUCKETS = [f"2026-12-31#12:{minute:02d}" for minute in range(3)]
INSTANT = "2026-12-31T12:00:00Z"
LONG = "order-2026-confirmation-of-the-customer-4711"

COUNTS = {"unscheduled": 1, "scheduled": 10_000, "running": 100, "completed": 123_456, "failed": 7, "cancelled": 1,
          "total": 133_565}  # fmt: skip
TASK = {"taskId": LONG, "status": "completed", "action": "send-reminder", "dueAt": INSTANT, "finishedAt": INSTANT,
        "attempt": 3, "error": "SMTP: the server refused it"}  # fmt: skip
IDLE = {"tick": "2026-12-31#12:02 … 12:07", "shard": 0, "what": "5 idle"}
PASS = {"shard": 0, "what": "pass", "due": 5, "claimed": 5, "completed": 4, "failed": 1, "retried": 0, "missed": 0,
        "latenessP99Ms": 812, "latenessMaxMs": 1200, "tookMs": 1400}  # fmt: skip

# The columns, the rows, and the column of times that is always there.
ROWS: dict[str, tuple[Sequence[Column], list[dict[str, object]], str]] = {
    "bucket list": (bucket._COLUMNS, [{"bucket": name, **COUNTS} for name in BUCKETS], "bucket"),
    "task list": (task_display.COLUMNS, [{"taskDateTime": name, **TASK} for name in BUCKETS], "taskDateTime"),
    "tick list": (tick._COLUMNS, [IDLE, *({"tick": name, **PASS} for name in BUCKETS)], "tick"),
}


@pytest.fixture(params=[80, 60, 40])
def width(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True)  # it is another one in the test itself
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return int(request.param)


def shown(capsys: pytest.CaptureFixture[str], table: str) -> list[str]:
    columns, rows, _ = ROWS[table]
    show_table(rows, columns)
    return plain(capsys.readouterr().out)


def plain(text: str) -> list[str]:
    """The lines of what was printed, without its styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


@pytest.mark.parametrize("table", ROWS)
def test_tables(capsys: pytest.CaptureFixture[str], width: int, table: str) -> None:
    _, rows, always = ROWS[table]
    lines = shown(capsys, table)
    assert max(map(len, lines)) <= width
    times = TIME.findall("\n".join(lines))
    assert {len(time) for time in times} <= {len(BUCKETS[0]), len(INSTANT)}
    assert [time for time in times if "#" in time] == [str(row[always])[:16] for row in rows]


@pytest.mark.parametrize("task_id", ["welcome-mail-4711", "invoice-2026-11-of-4711"])
def test_an_id_stays_whole_above_the_rest_if_not_beside_it(
    capsys: pytest.CaptureFixture[str], width: int, task_id: str
) -> None:
    show_table([{**TASK, "taskId": task_id, "taskDateTime": BUCKETS[0]}], task_display.COLUMNS)
    lines = plain(capsys.readouterr().out)
    assert max(map(len, lines)) <= width
    assert lines[2 if width == 40 else 1].split()[0] == task_id
    assert " ".join(lines[:2]).split()[:2] == ["TASK", "BUCKET"]


def test_a_schedule_shows_its_zone_and_action(shell: Shell, world: InProcess, width: int) -> None:
    for name in ("nightly-report", "monthly-invoices"):
        shell("schedule", "add", name, "cron(0 9 * * ? *)", "--tz", "Europe/Berlin")
    lines = plain(shell("schedule", "list").out)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert text.split()[:3] == ["SCHEDULE", "STATE", "EXPRESSION"]
    assert text.count("Europe/Berlin") == 2, text
    assert ("ACTION" in text, "2027-01-01T08:00:00Z" in text) == (width > 40, width > 40), text


def test_what_matters_most_stays_and_empty_columns_go_first(capsys: pytest.CaptureFixture[str], width: int) -> None:
    of_buckets, last_of_ticks = {
        80: ("SCHEDULED RUNNING COMPLETED FAILED CANCELLED TOTAL", "LATE MS"),
        60: ("SCHEDULED COMPLETED FAILED TOTAL", "DUE COMPLETED FAILED"),
        40: ("FAILED TOTAL", "WHAT DUE"),
    }[width]
    assert shown(capsys, "bucket list")[0].split() == ["BUCKET", *of_buckets.split()]
    assert " ".join(shown(capsys, "tick list")[0].split()).endswith(last_of_ticks)
    show_table([{"bucket": BUCKETS[0], "cancelled": 2, "unscheduled": 1, "total": 3}], bucket._COLUMNS)
    heading = capsys.readouterr().out.splitlines()[0]
    assert ("UNSCHEDULED" in heading, "FAILED" in heading) == (width > 40, False)


def test_of_a_task_every_time_stands_whole(capsys: pytest.CaptureFixture[str], width: int) -> None:
    show_one({"name": "x" * 60, "due": INSTANT}, Output.TABLE)
    lines = capsys.readouterr().out
    assert INSTANT in lines and max(map(len, lines.splitlines())) <= width


def test_the_page_on_inserts_of_an_id_that_is_there(shell: Shell, world: InProcess) -> None:
    for command, *lines in documented("how-to/existing.md"):
        ended = shell(*shlex.split(command)[1:])
        assert [line.rstrip() for line in (ended.err + ended.out).splitlines()] == lines, command


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--if-exists", "replace"), 5, "error: cannot replace task 'a': it is running; possible only while it is"),
        (
            ("--if-exists", "overwrite"),
            3,
            "error: if_exists: 'overwrite' is not accepted; expected refuse, keep, replace",
        ),
        (("--until", "1h"), 3, "error: until: '1:00:00' is not accepted; leave it out: it belongs to if_exists="),
        (("--if-exists", "postpone", "--until", "soon"), 3, "error: until: 'soon' is not accepted"),
    ],
)
def test_what_an_insert_of_an_id_that_is_there_refuses(
    shell: Shell, world: InProcess, options: tuple[str, ...], code: int, said: str
) -> None:
    shell("task", "add", "a", "--at", "2026-12-31T13:00:00Z", "--action", "log")
    started(world, "a")
    ended = shell("task", "add", "a", "--delay", "1h", *options)
    assert (ended.code, ended.err[: len(said)]) == (code, said)
    kept = shell("task", "add", "a", "--if-exists", "keep", "-o", "json")
    assert (kept.code, kept.err, kept.json["status"]) == (0, "kept a\n", "running")


def handed_over(world: InProcess, task_id: str = "x") -> str:
    """The completion token of a task that its handler has handed over."""
    world.actions.behaviour[task_id] = lambda *_: CompleteLater(timedelta(hours=8), timedelta(minutes=10))
    TaskClient(world.store, clock=world.clock).insert(task_id, delay_seconds=1, retry_policy={"minBackoffSeconds": 60})
    world.next_tick()
    return completion_token(str(world.row(task_id)["lease"]), task_id)


def test_complete_fail_and_heartbeat(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    token = handed_over(world)
    shown = shell("heartbeat", token)
    assert shown.code == 0
    assert "status        waiting" in shown.lines
    assert "complete by   2026-12-31T20:01:00Z (in 8 h)" in shown.lines
    assert any(line.startswith("heartbeat by  2026-12-31T12:1") for line in shown.lines)
    explained = shell("task", "explain", "x").lines[0]
    assert re.match(r"x waits for a completion until 2026-12-31T20:01:00.200Z, and for a heartbeat until ", explained)
    monkeypatch.setenv("DYNATICK_COMPLETION_TOKEN", token)
    done = shell("complete", "--result", '{"frames": 86400}', "-o", "json")
    assert (done.json["status"], done.json["result"]) == ("completed", {"frames": 86400})
    monkeypatch.setattr(sys, "stdin", io.StringIO(handed_over(world, "y") + "\n"))
    assert shell("fail", "-", "--error", "no codec", "--retry", "-o", "json").json["status"] == "scheduled"
    failed = shell("fail", handed_over(world, "z"), "--error", "no codec", "-o", "json").json
    assert (failed["status"], failed["error"]) == ("waiting", "no codec")
    assert shell("task", "explain", "z").lines[0] == "z has failed (no codec), and the next tick records it"


def test_a_completion_that_is_refused(shell: Shell, world: InProcess) -> None:
    token = handed_over(world)
    shell("task", "cancel", "x")
    refused = shell("heartbeat", token)
    assert (refused.code, refused.out) == (ExitCode.CONFLICT, "")
    assert refused.err.startswith("error: token: the task 'x' is cancelled since 2026-12-31T12:01:")
    wrong = shell("complete", "nonsense")
    assert (wrong.code, "nonsense" in wrong.err) == (ExitCode.INVALID, False), "it may be a secret"
    assert shell("complete", token, "--result", "{").code == ExitCode.INVALID
    assert shell("fail", token).code == ExitCode.USAGE
