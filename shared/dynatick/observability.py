"""Logs and metrics of the functions, with Powertools. Each event has a fixed ``action``; payloads are not logged."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit

from dynatick.domain.buckets import Bucket, instant_of
from dynatick.domain.instants import format_instant

if TYPE_CHECKING:  # each function needs only some of these, and must not import the others
    from dynatick.api import Answer
    from dynatick.bulk.importer import ImportResult
    from dynatick.domain.occurrences import Overdue
    from dynatick.engine.counts import PassReport
    from dynatick.engine.processor import Invoked
    from dynatick.engine.reconcile import Reconciled
    from dynatick.engine.scheduler import Assigned
    from dynatick.engine.shards import GroupReport
    from dynatick.errors import ConfigurationError

_MAX_VALUES = 100
"""The limit for one metric in a line of the embedded metric format, which takes no counts of values."""


def create() -> tuple[Logger, Metrics]:
    """The function's logger and metrics. Log records of the package, by the standard library, get the same format."""
    logger = Logger(json_serializer=_in_ascii)
    # Powertools' copy_config_to_registered_loggers ignores names with a dot. This logger is the parent of
    # dynatick.actions and dynatick.handlers, also of ones created later.
    package = logging.getLogger("dynatick")
    package.handlers = list(logger.handlers)
    package.setLevel(logger.log_level)
    package.propagate = False
    # Many an invocation has nothing to count. Powertools would say so in a line that looks like a handler's.
    warnings.filterwarnings("ignore", message="No application metrics to publish", category=UserWarning)
    return logger, Metrics()


def _in_ascii(line: dict[str, object]) -> str:
    """The record as one line of ASCII, because ids can contain line separators and direction marks."""
    return json.dumps(line, default=str, separators=(",", ":"))


def log_invocation(invoked: Invoked, logger: Logger, metrics: Metrics, now: datetime) -> None:
    """Logs one line, and writes the metrics, of an invocation of the processor."""
    for one in invoked.not_started:
        logger.error(
            "an invocation could not be started; this one, the next tick or the next reconcile does its work",
            extra={"action": "start_failed", "problem": one.problem, "shards": _shards(one.shards)},
        )
    _count(metrics, "NotStarted", len(invoked.not_started))
    if invoked.left:
        logger.warning(
            "there was no time for some shards; the next tick serves them",
            extra={"action": "shards_left", "shards": invoked.left},
        )
    if invoked.schemas_not_published is not None:
        logger.warning(
            "the handlers' payload types could not be published; the next pass tries again",
            extra={"action": "payload_schemas_not_published", "problem": invoked.schemas_not_published},
        )
    if invoked.paused:
        _log_paused(invoked.paused_tick, logger, metrics, now)
    if invoked.passed is not None:
        _log_pass(invoked.passed, logger, metrics, now)
    for report in invoked.passed_too:
        _log_pass(report, logger, metrics, now)
    for group in invoked.groups:
        _log_group(group, logger, metrics, now)
    if invoked.recovered is not None:
        _log_tasks_run(invoked.recovered, "recovery", "recovery_ended", logger, metrics)
    if invoked.woken is not None:
        _add_lateness(invoked.woken, metrics)
        _log_tasks_run(invoked.woken, "wake-up", "wake_up_ended", logger, metrics)
    if invoked.worked is not None:
        _add_lateness(invoked.worked, metrics)
        _log_tasks_run(invoked.worked, "worker", "worker_ended", logger, metrics)
    if invoked.released is not None:
        logger.info("releases written", extra={"action": "releases_written", "released": invoked.released})
        metrics.add_metric(name="Released", unit=MetricUnit.Count, value=invoked.released)
    _count(metrics, "WakeUpsStale", int(invoked.stale_wake_up))
    if invoked.malformed_wake_up is not None:
        logger.error(
            "a message in the queue of wake-ups is none",
            extra={"action": "wake_up_malformed", "problem": invoked.malformed_wake_up},
        )
        _count(metrics, "WakeUpsMalformed", 1)
    if invoked.reconciled is not None:
        _log_reconciled(invoked.reconciled, logger, metrics, now)


def log_cannot_start(error: ConfigurationError, unpublished: str | None, logger: Logger, metrics: Metrics) -> None:
    """Logs one line, and writes a metric, of a processor that can't start. ``unpublished``: why the table doesn't say
    so."""
    logger.error(
        "the processor can't start, so no tick runs anything",
        extra={"action": "cannot_start", "problem": str(error), "unpublished": unpublished},
        exc_info=error,
    )
    _count(metrics, "CannotStart", 1)
    metrics.flush_metrics()


def log_overdue(overdue: Sequence[Overdue], logger: Logger) -> None:
    """Logs a line for each, and writes the metric at once: the rows of the schedules are about to forget them."""
    for one in overdue:
        logger.warning(
            "an occurrence was missed, or did not complete in time",
            extra={
                "action": "occurrence_overdue",
                "schedule_id": one.schedule_id,
                "occurrence_at": format_instant(one.first),
                "last_occurrence_at": format_instant(one.last),
                "occurrences": one.occurrences,
                "reason": one.reason,
            },
        )
    number = sum(one.occurrences for one in overdue)
    with single_metric(name="OccurrencesOverdue", unit=MetricUnit.Count, value=number):
        pass
    sys.stdout.flush()  # the metric is printed, and this process may die


def log_assigned(assigned: Assigned, logger: Logger, metrics: Metrics) -> None:
    """Logs one line, and writes the metrics, of a batch of the stream."""
    for key, problem in assigned.failed:
        logger.error(
            "a record failed; Lambda sends it again, with those after it",
            extra={"action": "record_failed", "record": key, "problem": problem},
        )
    logger.info(
        "batch ended",
        extra={
            "action": "batch_ended",
            "seen": assigned.seen,
            "normalised": assigned.normalised,
            "moved": assigned.moved,
            "rejected": assigned.rejected,
            "undelivered": assigned.undelivered,
            "failed_records": len(assigned.failed),
            "events": assigned.events,
            "events_set_aside": assigned.set_aside,
        },
    )
    metrics.add_metric(name="Records", unit=MetricUnit.Count, value=assigned.seen)
    for name, number in (
        ("Normalised", assigned.normalised),
        ("Moved", assigned.moved),
        ("Rejected", assigned.rejected),
        ("Undelivered", assigned.undelivered),
        ("FailedRecords", len(assigned.failed)),
        ("EventsSetAside", assigned.set_aside),
    ):
        _count(metrics, name, number)
    _count_dead_letters(assigned.rejected)


def log_import(result: ImportResult, logger: Logger, metrics: Metrics) -> None:
    """Logs one line, and writes the metrics, of an invocation of the importer."""
    order = result.order
    fields: dict[str, object] = {"bucket": order.bucket, "key": order.key, "part": order.part}
    if result.skipped is not None:
        logger.info("nothing to import", extra={"action": "import_skipped", **fields, "reason": result.skipped})
        metrics.add_metric(name="Imported", unit=MetricUnit.Count, value=0)
        return
    fields |= result.tally.to_row()
    if result.continued:
        logger.info(
            "another invocation continues the import",
            extra={"action": "import_continued", **fields, "problem": result.problem},
        )
    else:
        logger.info("import ended", extra={"action": "import_ended", **fields})
    metrics.add_metric(name="Imported", unit=MetricUnit.Count, value=result.tally.inserted)
    _count(metrics, "ImportExisting", result.tally.exists)
    _count(metrics, "ImportRefused", result.tally.refused)


def log_request(answer: Answer, logger: Logger, metrics: Metrics) -> None:
    """Logs one line, and writes the metrics, of a request, without ids and payload."""
    logger.info(
        "request answered",
        extra={
            "action": "request_answered",
            "request_id": answer.request_id,
            "method": answer.method,
            "route": answer.route,
            "status": answer.status,
            "code": answer.code,
        },
    )
    metrics.add_metric(name="Requests", unit=MetricUnit.Count, value=1)
    _count(metrics, "RequestsRefused", int(400 <= answer.status < 500))
    _count(metrics, "RequestsFailed", int(answer.status >= 500 and answer.code != "unhealthy"))


def _log_paused(tick: int | None, logger: Logger, metrics: Metrics, now: datetime) -> None:
    """``tick`` None: no tick, but a recovery, a worker or a wake-up."""
    logger.warning(
        "everything is paused: nothing was run; `dynatick resume` ends that",
        extra={"action": "paused", "tick": None if tick is None else str(Bucket(tick))},
    )
    if tick is not None:
        _add_tick_age(tick, now, metrics)
        _count(metrics, "PausedTicks", 1)


def _add_tick_age(tick: int, started_at: datetime, metrics: Metrics) -> None:
    age = max(0.0, (started_at - instant_of(tick)).total_seconds())
    metrics.add_metric(name="TickAge", unit=MetricUnit.Seconds, value=age)


def _log_pass(report: PassReport, logger: Logger, metrics: Metrics, now: datetime) -> None:
    fields = _fields(report) | {"tick": str(Bucket(report.tick)), "planning_failed": report.planning_failed}
    _add_tick_age(report.tick, report.started_at, metrics)
    if report.leased_elsewhere:
        logger.info(
            "another process has leased the shard and serves this tick",
            extra={"action": "shard_leased_elsewhere", **fields},
        )
        _count(metrics, "ShardLeasedElsewhere", 1)
        return
    logger.info("pass ended", extra={"action": "pass_ended", **fields})
    _add_lateness(report, metrics)
    _count_all(report, metrics)
    if report.drained_through is not None:
        _add_undrained(report.drained_through, now, metrics)


def _log_group(report: GroupReport, logger: Logger, metrics: Metrics, now: datetime) -> None:
    _add_tick_age(report.tick, report.started_at, metrics)
    fields = {
        "tick": str(Bucket(report.tick)),
        "shards": _shards(report.shards),
        "idle": report.idle,
        "busy": report.busy,
        "cursors_written": report.written,
        "planned": report.planned,
        "unsent": report.unsent,
        "planning_failed": report.planning_failed,
        "problem": None if report.fault is None else str(report.fault),
    }
    write = logger.info if report.fault is None else logger.error
    write("idle shards were polled; busy ones get passes of their own", extra={"action": "shards_polled", **fields})
    if report.drained_through is not None:
        _add_undrained(report.drained_through, now, metrics)


def _shards(shards: range) -> str:
    """The first and the last; empty for what is of no shard."""
    return f"{shards[0]}-{shards[-1]}" if shards else ""


def _add_undrained(drained_through: int, now: datetime, metrics: Metrics) -> None:
    seconds = max(0.0, (now - instant_of(drained_through)).total_seconds())
    metrics.add_metric(name="Undrained", unit=MetricUnit.Seconds, value=seconds)


def _log_tasks_run(report: PassReport, what: str, action: str, logger: Logger, metrics: Metrics) -> None:
    """Logs the end of an invocation that ran tasks and was no pass."""
    fields = _fields(report) | {"bucket": str(Bucket(report.tick, report.shard))}
    logger.info(f"{what} ended", extra={"action": action, **fields})
    _count_all(report, metrics)


def _fields(report: PassReport) -> dict[str, object]:
    return {
        **report.by_name(),
        "shard": report.shard,
        "continuation": report.continuation,
        "lateness_max_ms": report.lateness.max,
        "lateness_p50_ms": report.lateness.percentile(50),
        "lateness_p99_ms": report.lateness.percentile(99),
        "continued": report.continued,
    }


def _count_all(report: PassReport, metrics: Metrics) -> None:
    for name, number in report.by_metric().items():
        _count(metrics, name, number)
    _count_dead_letters(report.failed + report.rejected)


def _count_dead_letters(number: int) -> None:
    """Writes ``DeadLetters`` for all functions in one metric, whose ``service`` is the table: an alarm watches one."""
    if number:
        service = {"service": os.environ.get("DYNATICK_TABLE", "")}
        with single_metric(name="DeadLetters", unit=MetricUnit.Count, value=number, default_dimensions=service):
            pass


def _add_lateness(report: PassReport, metrics: Metrics) -> None:
    """Adds values of ``Lateness`` that have the percentiles of all. With the last of 100, Powertools writes the line
    and begins another, so other metrics must follow: it warns of a line without any."""
    for milliseconds in report.lateness.sample(_MAX_VALUES):
        metrics.add_metric(name="Lateness", unit=MetricUnit.Milliseconds, value=milliseconds)


def _log_reconciled(found: Reconciled, logger: Logger, metrics: Metrics, now: datetime) -> None:
    is_overdue = found.is_overdue(now)
    write = logger.error if found.problem else logger.warning if found.found or is_overdue else logger.info
    write(
        "reconcile ended",
        extra={
            "action": "reconcile_ended",
            "scanned": found.scanned,
            "found": found.found,
            "repaired": found.repaired,
            "failed": found.failed,
            "kinds": dict(found.kinds),
            "examples": [f"{task_id}: {wrong}" for task_id, wrong in found.examples],
            "complete": found.complete,
            "continued": found.continued,
            "overdue": is_overdue,
            "problem": found.problem,
            "began_at": None if found.began_at is None else format_instant(found.began_at),
        },
    )
    _count(metrics, "Reconciled", found.found)
    _count(metrics, "ReconcileFailed", found.failed)


def _count(metrics: Metrics, name: str, number: int) -> None:
    if number:
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=number)
