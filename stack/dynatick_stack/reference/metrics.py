"""docs/reference/metrics.md: the metrics that the functions write, and the alarms that the template sets."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dynatick import observability
from dynatick_stack import template
from dynatick_stack.reference import markdown
from dynatick_stack.reference.markdown import entries

# What each is, by who writes it; the page refuses to be made when one is missing or too many.
_OF_PASSES = entries("""\
TickAge | Seconds | From the tick's minute to the beginning of its pass, also if another process has leased the shard.
    It is missing when no ticks come
Lateness | Milliseconds | From the tick of a task to the start of its first attempt; with `Precision: second`, from the
    instant at which an attempt was due to its start. A pass or a wake-up writes up to 100 values, with the percentiles
    of all its tasks
Undrained | Seconds | The age of the oldest bucket that is not drained
Due | Count | Tasks that the index listed as due
Claimed | Count | Tasks claimed
Completed | Count | Tasks whose action returned
Failed | Count | Tasks that failed for good; each has a dead letter
Retried | Count | Tasks that failed and will be retried
Rescheduled | Count | Tasks whose handler asked for a further turn
Released | Count | Tasks released before they started: time ran out, or a rate limit allows them only later
Expired | Count | Tasks with an expired task lease, passed to recoveries
Recovered | Count | Tasks reclaimed from a process that died
Deferred | Count | Tasks moved to a later tick, because the dead-letter queue refused their message, or because they
    could not be ended
Superseded | Count | Outcomes not written, because the task was ended or deleted meanwhile
Unrecorded | Count | Tasks that ran and whose outcome could not be written: they run again
Unfinished | Count | Tasks that still ran when time ran out
Overran | Count | Attempts that took longer than their `timeoutSeconds`; the log names each
Moved | Count | Tasks moved to the next tick, because their bucket was closed
Rejected | Count | Malformed rows, marked failed
Occurrences | Count | Occurrences of schedules that were created
OccurrencesOverdue | Count | Occurrences of schedules that were missed, or did not complete within the schedule's
    `expectedWithinSeconds`; the log names each with the reason (`occurrence_overdue`)
ShardLeasedElsewhere | Count | Passes not begun, because another process has leased the shard
Workers | Count | Workers that were started, each for a range of a bucket's tasks
WokenLate | Count | Tasks that were due more than five seconds before the pass or the wake-up began that ran them: their
    wake-up came late, or not at all
WakeUpsStale | Count | Wake-ups that came ten minutes late or more, and were dropped: ticks have run their tasks
WakeUpsMalformed | Count | Messages in the queue of wake-ups that are none, and were dropped
CannotStart | Count | Cold starts of a processor that failed, for instance because the handlers module can't be imported
PausedTicks | Count | Ticks that ran nothing because the installation is paused
NotStarted | Count | Invocations for other shards, or to continue, that could not be started
Reconciled | Count | Tasks that the reconcile found and that no tick would have run
ReconcileFailed | Count | Those of them that it could not repair
""")

_OF_THE_SCHEDULER = entries("""\
Records | Count | Records of the stream
Normalised | Count | Rows that became tasks in a bucket
Moved | Count | Tasks moved to a later bucket, because theirs was closed
Rejected | Count | Malformed rows, marked failed
Undelivered | Count | Malformed rows without outcome, because the dead-letter queue refused their messages; a tick or
    the daily reconcile tries again
FailedRecords | Count | Records that failed by a fault of the infrastructure; Lambda sends the first and all after it
    again
""")
_OF_THE_API = entries("""\
Requests | Count | Requests of the gateway
RequestsRefused | Count | Requests answered with 400 to 499: errors of the caller
RequestsFailed | Count | Requests answered with 500 or more, except an unhealthy `/v1/health`: errors of Dynatick
""")

_OF_IMPORTS = entries("""\
Imported | Count | Tasks inserted from files
ImportExisting | Count | Lines whose task existed already
ImportRefused | Count | Lines that are not valid tasks; `errors/` has the reasons
""")


def page() -> str:
    """As code and template are now. Raises ValueError for a metric that nobody has described, or that is gone."""
    described = {*_OF_PASSES, *_OF_THE_SCHEDULER, *_OF_THE_API, *_OF_IMPORTS}
    if described != written():
        raise ValueError(f"metrics that are not described here, or not written any more: {described ^ written()}")
    alarms = [
        (name, one["Properties"])
        for name, one in template.load()["Resources"].items()
        if one["Type"] in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
    ]
    return markdown.page(
        "Metrics and alarms",
        "The functions write metrics in the embedded metric format, into the namespace `Dynatick`, with the dimension\n"
        "`service`: the stack's name, and the function's.",
        "## The processor",
        _table(_OF_PASSES),
        "## The scheduler",
        _table(_OF_THE_SCHEDULER),
        "## The HTTP API",
        _table(_OF_THE_API),
        "## The importer",
        _table(_OF_IMPORTS),
        "## Alarms",
        "What to do about each is in [operate it](../how-to/operate.md).",
        markdown.table(["Alarm", "Metric", "Rings", "What it says"], [_alarm(name, one) for name, one in alarms]),
    )


def written() -> set[str]:
    """The names of all metrics that the code writes."""
    code = (template.ROOT / "shared" / "dynatick" / "observability.py").read_text(encoding="utf-8")
    return {
        *(name.capitalize() for name in observability._PASS_COUNTS),
        *re.findall(r'(?:add|single)_metric\(name="(\w+)"', code),
        *re.findall(r'_count\(metrics, "(\w+)"', code),
        *re.findall(r'^        \("(\w+)", [a-z]+[.(]', code, re.MULTILINE),
    }


def _table(metrics: Mapping[str, Sequence[str]]) -> str:
    return markdown.table(
        ["Metric", "Unit", "What it counts"], [(f"`{name}`", unit, text) for name, (unit, text) in metrics.items()]
    )


def _alarm(name: str, one: dict[str, Any]) -> tuple[str, str, str, str]:
    says = markdown.one_line(one["AlarmDescription"])
    if "AlarmRule" in one:
        others = re.findall(r"\$\{(\w+)\}", one["AlarmRule"]["Fn::Sub"])
        return f"`{name}`", " and ".join(f"`{other}`" for other in others), "the first rings, the second is OK", says
    sign = {"GreaterThanThreshold": "above", "LessThanThreshold": "below"}[one["ComparisonOperator"]]
    threshold = "four ticks and an hour" if isinstance(one["Threshold"], dict) else str(one["Threshold"])
    each = "tick" if isinstance(one["Period"], dict) else f"{one['Period']} s"
    times = one["EvaluationPeriods"]
    of = f"{one['DatapointsToAlarm']} of {times}" if "DatapointsToAlarm" in one else str(times)
    rings = f"{one['Statistic'].lower()} {sign} {threshold}, {of} times a {each}"
    return f"`{name}`", f"`{one['Namespace']}` `{one['MetricName']}`", rings, says
