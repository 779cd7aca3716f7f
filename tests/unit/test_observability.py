"""The logs and metrics of the functions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dynatick.engine.counts import COUNTERS
from dynatick_stack.plan.figures import SCHEDULER_LOG_BYTES

# Each program runs in a process of its own: loggers are the process's, and so is their configuration.
BEGINNING = """
import logging
import os
import types
from datetime import UTC, datetime, timedelta
from dynatick import observability
from dynatick.bulk.importer import ImportOrder, ImportResult
from dynatick.client.insertion import InsertCounts
from dynatick.domain.buckets import minute_of
from dynatick.domain.occurrences import Overdue
from dynatick.engine.scheduler import Assigned
from dynatick.engine.shards import GroupReport
from dynatick.engine.processor import Invoked, NotStarted
from dynatick.engine.reconcile import Reconciled
from dynatick.engine.counts import PassReport
from dynatick.errors import StoreError

logger, metrics = observability.create()
NOON = datetime(2026, 12, 31, 12, 0, tzinfo=UTC)

@metrics.log_metrics(raise_on_empty_metrics=False)
def handler(log, context):
    log()

def invoke(log):
    handler(log, types.SimpleNamespace(function_name="dynatick"))

def log_invocation(now, **invoked):
    invoke(lambda: observability.log_invocation(Invoked(**invoked), logger, metrics, now))
"""

PROGRAM = """
logger.info("pass ended", extra={"action": "pass_ended"})
# As the actions do, and as handlers do whose module is imported after this.
logging.getLogger("dynatick.actions").info("task_logged", extra={"action": "task_logged", "task_id": "a"})
logging.getLogger("dynatick.handlers").warning("late", extra={"action": "reminder_due", "task_id": "b"})
logging.getLogger("dynatick.handlers").debug("not at this level")
logging.getLogger("other").info("not ours")
"""


# Importing takes most of the time, so it is done once: each program then runs in a child.
RUN_EACH = """
import json
import sys
for line in sys.stdin:
    program, out, err = json.loads(line)
    if (child := os.fork()) == 0:
        for name, number in ((out, 1), (err, 2)):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), number)
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
Output = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Output]:
    """Returns the log lines and metrics of a program, which writes nothing else."""
    powertools = {"SERVICE_NAME": "dynatick", "METRICS_NAMESPACE": "Dynatick", "LOG_LEVEL": "INFO"}
    environ = {f"POWERTOOLS_{name}": value for name, value in powertools.items()}
    runner = subprocess.Popen(
        [sys.executable, "-c", BEGINNING + RUN_EACH], env={**environ, "AWS_LAMBDA_FUNCTION_NAME": "dynatick"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert runner.stdin is not None and runner.stdout is not None

    def run(program: str) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("program")
        out, err = folder / "out", folder / "err"
        runner.stdin.write(json.dumps([program, str(out), str(err)]) + "\n")
        runner.stdin.flush()
        code = runner.stdout.readline()
        assert (code, err.read_text()) == ("0\n", "")
        return [json.loads(line) for line in out.read_text().splitlines() if line]

    with runner:
        yield run
        runner.stdin.close()


def test_actions_and_handlers_log_in_the_same_format(output: Output) -> None:
    records = output(PROGRAM)
    assert [(one["level"], one["action"], one.get("task_id")) for one in records] == [
        ("INFO", "pass_ended", None), ("INFO", "task_logged", "a"), ("WARNING", "reminder_due", "b"),
    ]  # fmt: skip
    assert {one["service"] for one in records} == {"dynatick"}


def test_an_invocation_that_has_nothing_to_count_says_nothing(output: Output) -> None:
    assert output("invoke(lambda: None)") == []


SMALL = """
order = ImportOrder(bucket="b", key="imports/a.ndjson", etag="e", size=0, sequencer="1")
for reason in (None, "a folder"):
    result = ImportResult(order=order, tally=InsertCounts(), skipped=reason)
    invoke(lambda: observability.log_import(result, logger, metrics))
for elsewhere in (False, True):
    began = NOON.replace(second=7)
    report = PassReport(tick=minute_of(NOON), shard=0, continuation=1, started_at=began, leased_elsewhere=elsewhere)
    log_invocation(NOON.replace(second=9), passed=report)
"""


def test_an_empty_file_is_logged_without_a_warning_and_a_pass_sends_tick_age_wherever_the_shard_is_leased(
    output: Output,
) -> None:
    """NoTickAlarm rings if the metric is missing."""
    lines = output(SMALL)
    assert [one["action"] for one in lines if "action" in one] == [
        "import_ended", "import_skipped", "pass_ended", "shard_leased_elsewhere",
    ]  # fmt: skip
    assert [one["Imported"] for one in lines if "Imported" in one] == [[0.0], [0.0]]
    assert [one["TickAge"] for one in lines if "TickAge" in one] == [[7.0], [7.0]]


SHARDS = """
for fault in (None, StoreError("cannot poll")):
    group = GroupReport(tick=minute_of(NOON), shards=range(64, 128), started_at=NOON.replace(second=7), idle=62,
                        busy=[70, 99], written=16, drained_through=minute_of(NOON) - 10, fault=fault)
    here = PassReport(tick=minute_of(NOON), shard=70, continuation=0, started_at=NOON, completed=3, due=3, claimed=3)
    not_started = [NotStarted("no", range(128, 256)), NotStarted("no", range(70, 71)), NotStarted("no")]
    log_invocation(NOON, groups=[group], passed_too=[here], not_started=not_started, left=[127])
"""


def test_a_group_of_shards_sends_what_the_alarms_watch_and_names_its_shards(output: Output) -> None:
    lines = output(SHARDS)
    assert [one["action"] for one in lines if "action" in one] == [
        "start_failed", "start_failed", "start_failed", "shards_left", "pass_ended", "shards_polled",
    ] * 2  # fmt: skip
    assert [one["shards"] for one in lines if one.get("action") == "start_failed"] == ["128-255", "70-70", ""] * 2
    polled = [one for one in lines if one.get("action") == "shards_polled"]
    assert [(one["shards"], one["idle"], one["busy"]) for one in polled] == [("64-127", 62, [70, 99])] * 2
    assert [(one["level"], one.get("problem")) for one in polled] == [("INFO", None), ("ERROR", "cannot poll")]
    (first, second) = [one for one in lines if "_aws" in one]
    assert (first["TickAge"], first["Undrained"]) == ([0.0, 7.0], [600.0])
    assert (first["NotStarted"], first["Completed"]) == ([3], [3])
    assert second["Undrained"] == [600.0]


LATE = """
for kind in ("passed", "woken"):
    for number in (0, 3, 100, 20_000):
        report = PassReport(
            tick=minute_of(NOON), shard=0, continuation=0, started_at=NOON, claimed=number, woken_late=number // 2
        )
        for milliseconds in range(1, number + 1):
            report.lateness.add(milliseconds)
        log_invocation(NOON, **{kind: report})
"""


def test_lateness_has_the_percentiles_of_all_tasks_in_at_most_100_values(output: Output) -> None:
    """A line of the embedded metric format takes no more of one metric, and CloudWatch ignores one that has more."""
    lines = output(LATE)
    lateness = [one["Lateness"] for one in lines if "Lateness" in one]
    assert [len(values) for values in lateness] == [3, 100, 100] * 2
    few, hundred, many = lateness[:3]
    assert (few, hundred) == ([1, 2, 3], list(range(1, 101)))
    for percent in (1, 50, 90, 99, 100):
        assert 0.98 * 200 * percent <= many[percent - 1] <= 200 * percent
    assert [one["Claimed"] for one in lines if "Claimed" in one] == [[3], [100], [20_000]] * 2
    assert [one["WokenLate"] for one in lines if "WokenLate" in one] == [[1], [50], [10_000]] * 2
    ended = [one for one in lines if one.get("action") == "pass_ended"]
    assert [one["lateness_max_ms"] for one in ended] == [0, 3, 100, 20_000]


COUNTED = """
from dynatick.engine.counts import COUNTERS
numbers = {counter.name: n for n, counter in enumerate(COUNTERS, 1)}
for kind in ("passed", "recovered", "woken", "worked"):
    log_invocation(NOON, **{kind: PassReport(tick=0, shard=0, continuation=0, started_at=NOON, **numbers)})
"""


def test_each_counter_is_in_the_log_line_of_what_ran_tasks_and_has_its_metric(output: Output) -> None:
    lines = output(COUNTED)
    ended = [line for line in lines if line.get("action", "").endswith("_ended")]
    measured = [line for line in lines if "Claimed" in line]
    assert len(ended) == len(measured) == 4
    for logged, metrics in zip(ended, measured, strict=True):
        for number, counter in enumerate(COUNTERS, 1):
            assert logged[counter.name] == number
            assert counter.metric is None or metrics[counter.metric] == [number]


DEAD_LETTERS = """
os.environ["DYNATICK_TABLE"] = "tasks-of-a-stack"
for kind in ("passed", "woken", "recovered", "worked"):
    report = PassReport(tick=minute_of(NOON), shard=0, continuation=0, started_at=NOON, failed=2, rejected=1)
    log_invocation(NOON, **{kind: report})
log_invocation(NOON, passed=PassReport(tick=minute_of(NOON), shard=0, continuation=0, started_at=NOON, completed=1))
none = {"moved": 0, "wake_ups": (), "undelivered": 0, "failed": ()}
for rejected in (1, 0):
    batch = Assigned(seen=2, normalised=2 - rejected, rejected=rejected, **none)
    invoke(lambda: observability.log_assigned(batch, logger, metrics))
"""


def test_dead_letters_of_all_functions_are_one_metric_which_an_alarm_can_watch(output: Output) -> None:
    metrics = [one for one in output(DEAD_LETTERS) if "DeadLetters" in one]
    assert [(one["DeadLetters"], one["service"]) for one in metrics] == [
        *[([3.0], "tasks-of-a-stack")] * 4, ([1.0], "tasks-of-a-stack"),
    ]  # fmt: skip
    assert {str(one["_aws"]["CloudWatchMetrics"][0]["Dimensions"]) for one in metrics} == {"[['service']]"}


LOGGED = """
context = types.SimpleNamespace(
    function_name="tasks-SchedulerFunction-0123456789ab", memory_limit_in_mb=512, aws_request_id="8" * 36,
    invoked_function_arn="arn:aws:lambda:eu-central-1:123456789012:function:tasks-SchedulerFunction-0123456789ab",
)
seen = Assigned(seen=1, normalised=0, moved=0, rejected=0, wake_ups=(), undelivered=0, failed=())

@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def scheduler(event, context):
    observability.log_assigned(seen, logger, metrics)

scheduler({}, context)
"""


def test_the_log_of_the_scheduler_is_as_long_as_its_price_reckons(output: Output) -> None:
    """docs/cost.md. Lambda's own three lines, and what CloudWatch adds to each event, are not in it."""
    lines = output(LOGGED)
    size = sum(len(json.dumps(line, separators=(",", ":"))) for line in lines)
    of_aws = 260 + 26 * (len(lines) + 3)
    assert 0.9 * SCHEDULER_LOG_BYTES < size + of_aws < 1.1 * SCHEDULER_LOG_BYTES


RECONCILED = """
BEGAN = datetime(2026, 12, 31, 3, 37, tzinfo=UTC)

for days, found in [
    (3, Reconciled(began_at=BEGAN, continued=True)),
    (3.01, Reconciled(began_at=BEGAN, continued=True)),
    (3.01, Reconciled(began_at=BEGAN, complete=True)),
    (9, Reconciled(began_at=BEGAN, found=2, repaired=1, failed=1, problem="throttled")),
]:
    log_invocation(BEGAN + timedelta(days=days), reconciled=found)
"""


def test_the_reconcile_logs_its_progress_and_whether_it_is_overdue(output: Output) -> None:
    lines = output(RECONCILED)
    ended = [line for line in lines if line.get("action") == "reconcile_ended"]
    assert [(line["level"], line["overdue"], line["continued"], line.get("problem")) for line in ended] == [
        ("INFO", False, True, None),
        ("WARNING", True, True, None),
        ("INFO", False, False, None),
        ("ERROR", True, False, "throttled"),
    ]
    assert [line["complete"] for line in ended] == [False, False, True, False]
    assert {line["began_at"] for line in ended} == {"2026-12-31T03:37:00Z"}
    (metric,) = [line for line in lines if "Reconciled" in line]
    assert (metric["Reconciled"], metric["ReconcileFailed"]) == ([2.0], [1.0])


OVERDUE = """
FIRST, LAST = NOON, NOON.replace(minute=2)
observability.log_overdue([
    Overdue(schedule_id="nightly", first=FIRST, last=FIRST, occurrences=1, reason="still running, attempt 1"),
    Overdue(schedule_id="hourly", first=FIRST, last=LAST, occurrences=3, reason="missed: no tick ran"),
], logger)
os._exit(0)
"""


def test_what_is_overdue_is_logged_and_counted_even_if_the_process_dies_then(output: Output) -> None:
    """The rows of its schedules forget it next."""
    first, second, metric = output(OVERDUE)
    assert {name: first[name] for name in ("level", "action", "schedule_id", "occurrence_at", "reason")} == {
        "level": "WARNING", "action": "occurrence_overdue", "schedule_id": "nightly",
        "occurrence_at": "2026-12-31T12:00:00Z", "reason": "still running, attempt 1",
    }  # fmt: skip
    assert (second["last_occurrence_at"], second["occurrences"]) == ("2026-12-31T12:02:00Z", 3)
    assert metric["OccurrencesOverdue"] == [4.0]
    (directive,) = metric["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("Dynatick", [["service"]])  # as the alarm asks for
