"""Bad command lines: each with its message on stderr, in one line, and its exit code. Nothing on stdout."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

# What the client refuses is tested with the client: of that, one of each exit code.
NEITHER = "name a task, or select tasks by --bucket, --subject, --last, --next, or --from and --to"
RANGE_TOO = "last: '1h' is not accepted; expected either a duration or a range, not both"
BUCKET, FINGERPRINT = "2026-12-31#12:00", "0123456789"
REFUSALS: list[tuple[str, int, str]] = [
    # the command line itself
    ("nope", 2, "No such command 'nope'. (see dynatick --help)"),
    ("task nope", 2, "No such command 'nope'. (see dynatick task --help)"),
    ("task add", 2, "Missing argument 'ID'. (see dynatick task add --help)"),
    ("task get x --nope", 2, "No such option: --nope (see dynatick task get --help)"),
    # times
    ("task add x --at 12:07", 3, "dueAt: '12:07' is not accepted; expected a bucket such as 2026-12-31#12:00, or an"),
    ("task add x --delay nan", 3, "delaySeconds: 'nan' is not accepted; expected a number of seconds, or a duration"),
    ("schedule add x 'rate(1 hour)' --flexible-time-window 90s", 3,
     "flexibleTimeWindow: '90s' is not accepted; expected a whole number of minutes, or a duration such as 15m"),
    ("task reschedule there", 2, "give a time: --at, --delay or --by"),
    ("task update there", 2, "give a change: --at, --delay or --payload"),
    # JSON
    ("task add x --payload [1]", 3, "payload: [1] is not accepted; expected a JSON object"),
    ("task add x --payload {", 3, "payload: '{' is not accepted; expected JSON: Expecting property name enclosed in"),
    ("""task add x --payload '{"n": NaN}'""", 3,
     "payload: '{\"n\": NaN}' is not accepted; expected JSON: NaN is not a number that a table can hold"),
    ("task add x --payload @/nope.json", 4, "cannot read /nope.json: No such file or directory"),
    # what is there, and what is not
    ("task get \x1b[2J", 4, "taskId: there is no task '\\x1b[2J'"),
    ("task redrive there", 5, "cannot redrive task 'there': it is scheduled; possible only while it is failed"),
    ("task import /nope.ndjson", 4, "cannot read /nope.ndjson: No such file or directory"),
    *((f"{command} --delay {'9' * 20}", 3, f"delaySeconds: '{'9' * 20}' is not accepted; expected a number of seconds")
      for command in ("task add x", "batch reschedule x")),
    # lists
    ("task export", 2, "select tasks by --bucket, --subject, --last, --next, or --from and --to"),
    ("bucket list --from 5", 2, "a range has two ends; give --to"),
    ("task cancel --to 5", 2, "a range has two ends; give --from"),
    ("task list --from 1h --to now", 3, "--from: '1h' is not accepted; add a sign: +1h is later than now, -1h earlier"),
    ("bucket list --from 2026-12-31T00:00:00Z --to 2026-12-30T00:00:00Z", 3,
     "--to: '2026-12-30T00:00:00Z' is not accepted; expected a time later than start, 2026-12-31T00:00:00Z"),
    ("bucket list --last 1h --to now", 3, RANGE_TOO),
    ("tick list --last 1h --from 5", 3, RANGE_TOO),
    (f"task list --bucket {BUCKET} --to 5", 2, "--to has no effect with --bucket; use one of them only"),
    (f"task list --bucket {BUCKET} --limit 0", 3, "limit: 0 is not accepted; expected a number of at least 1"),
    ("task list --last 1h --prefix ''", 3, "prefix: '' is not accepted; expected a text that is not empty"),
    *((f"bucket show {options}", 2, "name one bucket; --summary counts those of a range")
      for options in ("", "--last 1h", f"{BUCKET} --last 1h")),
    ("bucket show --summary", 2, "select tasks by a bucket, --last, --next, or --from and --to"),
    ("bucket show --summary --to now", 2, "a range has two ends; give --from"),
    ("task list --last 1h --fingerprint first", 3,
     "fingerprint: 'first' is not accepted; expected the 10 digits that dynatick failure list shows"),
    *((f"{command} list --last {days}d", 3,
       f"last: '{days} days, 0:00:00' is not accepted; expected a duration above 0, at most {maximum} days")
      for command, days, maximum in (("failure", 8, 7), ("failure", 999_999, 7), ("action", 5, 3))),
    ("tick list --last 0s", 3, "last: '0:00:00' is not accepted; expected a duration above 0, at most 7 days"),
    ("task list --next 0s", 3, "next: '0s' is not accepted; expected a duration above 0"),
    ("change show none", 4, "there is no change none; they are kept for 31 days"),
    ("tick run", 2, "name the processor function with --function, or its stack with --stack; or use --local"),
    # changes of many tasks
    ("task redrive x --set n", 3, "set: 'n' is not accepted; expected FIELD=VALUE, such as text=hello or copies=2"),
    ("task redrive x --set n=1 --payload {}", 3, "payload: 'a map' is not accepted; expected either a whole payload, "),
    (f"task redrive --last 1h --fingerprint {FINGERPRINT} --error SMTP", 2,
     "--error has no effect with --fingerprint; use one of them only"),
    (f"task redrive there --fingerprint {FINGERPRINT}", 2, "--fingerprint has no effect on named tasks; use one of"),
    *((f"{command} --timeout 5s", 2, "--timeout has no effect without --wait")
      for command in ("task redrive there", "deadletter redrive", "change show none")),
    *((f"task {verb}", 2, NEITHER) for verb in ("redrive", "restore", "run")),
    ("task redrive --last 1h --status cancelled", 3, "status: 'cancelled' is not accepted; expected failed; a cancell"),
    ("task cancel --action log", 2, NEITHER),
    (f"task redrive x --bucket {BUCKET}", 2, "--bucket has no effect on named tasks; use one of them only"),
    ("task cancel x --dry-run", 2, "--dry-run has no effect on named tasks; use one of them only"),
    ("task reschedule x --by +1h", 2, "--by has no effect on named tasks; use one of them only"),
    ("task cancel --last 1h --status failed", 3, "status: 'failed' is not accepted; expected one of unscheduled, sche"),
    ("task reschedule --last 1h", 2, "give a time: --at, --delay or --by"),
    ("task reschedule --last 1h --by +1h --at now", 2, "--at and --delay have no effect with --by; use one of"),
    # schedules
    ("schedule add x '0 9 * * 1-5'", 3, "scheduleExpression: '0 9 * * 1-5' is not accepted; that is Unix cron; write"),
    ("schedule update nightly", 3, "update: None is not accepted; expected at least one change; see --help"),
    ("schedule update nightly --remove scheduleExpression", 3,
     "remove: 'scheduleExpression' is not accepted; expected one of scheduleExpressionTimezone, startDate"),
    ("schedule sync --exit-code", 2, "--exit-code needs --dry-run"),
    ("schedule history nightly --from never", 3, "--from: 'never' is not accepted"),
    ("schedule import /dev/null --dry-run", 2, "--dry-run, --action and --tz need --from"),
    ("schedule import /dev/null --from crontab", 2, "--from crontab needs --action NAME, a handler"),
    ("schedule import /dev/null --from eventbridge-scheduler --tz UTC", 2, "--action and --tz are for --from crontab"),
    ("schedule import /dev/null --from crontab --action log --restart", 2, "--format, --drop-state and"),
    ("expr explain 'rate(1 day)' --tz Berlin", 3, "scheduleExpressionTimezone: 'Berlin' is not accepted"),
    ("expr next 'rate(1 day)' --from 2026-01-01T00:00:00", 3, "from: '2026-01-01T00:00:00' is not accepted"),
    ("expr explain 'rate(1 day)' --start-date soon", 3, "startDate: 'soon' is not accepted"),
    ("expr next 'rate(1 day)' --end-date 2026-03-06T13:00:00Z", 3, "endDate: '2026-03-06T13:00:00Z' is not accepted"),
    # plans
    ("plan", 2, "name one load: --burst, --per-day or --schedules"),
    ("plan --burst 1 --peak 2x", 2, "--peak goes with --per-day, not with --burst"),
    ("plan --per-day 1 --every 1m", 2, "--every goes with --schedules, not with --per-day"),
    ("plan --schedules 1 --within 2m", 3, "within: 120.0 is not accepted; expected 5s to 60s: the next minute has"),
    ("plan --burst 1 --tick-delay 2m", 3, "tick-delay: "),
    ("plan --burst 1 --within soon", 3, "within: 'soon' is not accepted; expected numbers with their units"),
    ("plan --per-day 1 --peak ten", 3, "peak: 'ten' is not accepted; expected how many times the mean the peak is"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code", "message"), REFUSALS)
def test_refusals(shell: Shell, world: InProcess, command: str, code: int, message: str) -> None:
    shell("task", "add", "there", "--delay", "3600")
    shell("schedule", "add", "nightly", "rate(1 day)")
    ended = shell(*shlex.split(command))
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"error: {message}") and ended.err.count("\n") == 1
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
