"""Bad command lines: each with its message on stderr, in one line, and its exit code. Nothing on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

# What the client refuses is tested with the client: of that, one of each exit code.
REFUSALS: list[tuple[list[str], int, str]] = [
    # the command line itself
    (["nope"], 2, "No such command 'nope'. (see dynatick --help)"),
    (["task", "nope"], 2, "No such command 'nope'. (see dynatick task --help)"),
    (["task", "add"], 2, "Missing argument 'ID'. (see dynatick task add --help)"),
    (["task", "get", "x", "--nope"], 2, "No such option: --nope (see dynatick task get --help)"),
    # times
    (["task", "add", "x", "--at", "12:07"], 3, "dueAt: '12:07' is not accepted; expected a bucket such as "
     "2026-12-31#12:00, or an instant with its offset, such as 2026-12-31T12:07:00Z or 2026-12-31T13:07:00+01:00, or "
     "epoch seconds as a number"),
    (["task", "add", "x", "--delay", "nan"], 3, "delaySeconds: 'nan' is not accepted; "
     "expected a number of seconds, or a duration such as 90s, 60m, 2h, 1h30m or 1d"),
    (["schedule", "add", "x", "rate(1 hour)", "--flexible-time-window", "90s"], 3, "flexibleTimeWindow: '90s' is not "
     "accepted; expected a whole number of minutes, or a duration such as 15m or 1h30m"),
    (["task", "reschedule", "there"], 2, "give a time: --at, --delay or --by"),
    (["task", "update", "there"], 2, "give a change: --at, --delay or --payload"),
    # JSON
    (["task", "add", "x", "--payload", "[1]"], 3, "payload: [1] is not accepted; expected a JSON object"),
    (["task", "add", "x", "--payload", "{"], 3, "payload: '{' is not accepted; "
     "expected JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    (["task", "add", "x", "--payload", '{"n": NaN}'], 3,
     "payload: '{\"n\": NaN}' is not accepted; expected JSON: NaN is not a number that a table can hold"),
    (["task", "add", "x", "--payload", "@/nope.json"], 4, "cannot read /nope.json: No such file or directory"),
    # what is there, and what is not
    (["task", "get", "\x1b[2J"], 4, "taskId: there is no task '\\x1b[2J'"),
    (["task", "redrive", "there"], 5,
     "cannot redrive task 'there': it is scheduled; possible only while it is failed or cancelled"),
    (["task", "import", "/nope.ndjson"], 4, "cannot read /nope.ndjson: No such file or directory"),
    # lists
    (["task", "export"], 2, "select tasks by --bucket, --last, or --from and --to"),
    (["bucket", "list", "--from", "5"], 2, "a range has two ends; give --to"),
    (["task", "cancel", "--to", "5"], 2, "a range has two ends; give --from"),
    (["task", "list", "--from", "1h", "--to", "now"], 3,
     "--from: '1h' is not accepted; add a sign: +1h is later than now, -1h earlier"),
    (["bucket", "list", "--from", "2026-12-31T00:00:00Z", "--to", "2026-12-30T00:00:00Z"], 3,
     "--to: '2026-12-30T00:00:00Z' is not accepted; expected a time later than start, 2026-12-31T00:00:00Z"),
    (["bucket", "list", "--last", "1h", "--to", "now"], 3,
     "last: '1h' is not accepted; expected either --last or a range, not both"),
    (["tick", "list", "--last", "1h", "--from", "5"], 3,
     "last: '1h' is not accepted; expected either --last or a range, not both"),
    (["task", "list", "--bucket", "2026-12-31#12:00", "--to", "5"], 2,
     "--to has no effect with --bucket; use one of them only"),
    (["task", "list", "--bucket", "2026-12-31#12:00", "--limit", "0"], 3,
     "limit: 0 is not accepted; expected a number of at least 1"),
    (["task", "list", "--last", "1h", "--prefix", ""], 3,
     "prefix: '' is not accepted; expected a text that is not empty"),
    (["task", "cancel", "--last", "1h", "--status", "failed"], 3,
     "status: 'failed' is not accepted; expected one of unscheduled, scheduled"),
    (["tick", "run"], 2, "name the processor function with --function, or its stack with --stack; or use --local"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSALS)
def test_refusals(shell: Shell, world: InProcess, arguments: list[str], code: int, message: str) -> None:
    shell("task", "add", "there", "--delay", "3600")
    ended = shell(*arguments)
    assert ended.err == f"error: {message}\n"
    assert (ended.code, ended.out) == (code, "")
    assert world.store.get("x") is None


def test_a_file_that_is_not_text(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_bytes(b"\xff\xfe")
    ended = shell("task", "add", "x", "--payload", f"@{file}")
    assert ended.code == 3
    assert f"error: {file} is not UTF-8: " in ended.err


NO_TABLE = "no table is named: give --table or --stack, set DYNATICK_TABLE or DYNATICK_STACK, or use --local"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("task get x", NO_TABLE),
        ("ui", NO_TABLE),
        ("task get x --table t --profile nobody", "profile: The config profile (nobody) could not be found"),
    ],
)
def test_no_table_and_no_profile(shell: Shell, command: str, message: str) -> None:
    ended = shell(*command.split())
    assert (ended.code, ended.err) == (2, f"error: {message}\n")


def test_a_fault_of_ours_is_one_line_too(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(task_id: str) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(world.store, "get", broken)
    ended = shell("task", "get", "x")
    assert (ended.code, ended.out, ended.err) == (1, "", "error: unexpected RuntimeError: two lines\n")
